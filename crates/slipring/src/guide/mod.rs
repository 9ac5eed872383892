//! The guide: how to use slipring, with one question on each page.
//!
//! ```text
//! cargo add slipring
//! # until it is published:
//! cargo add --path PATH/TO/crates/slipring
//! ```
//!
//! ```
//! let mut sum = 0;
//! slipring::ring(64, || 0u64)
//!     .update("double", |value, _| *value *= 2)
//!     .read("sum", |value, _| sum += value)
//!     .feed(1..=3, |slot, i| *slot = i)?;
//! assert_eq!(sum, 12);
//! # Ok::<(), slipring::Error>(())
//! ```
//!
//! ```text
//! feed ──> double ──> sum
//! ```
//!
//! The pages are for those who write such programs. Each can be read alone.
//!
//! You want to:
//! - [run a first ring](first_steps)
//! - [choose between chain, graph, leases, raw positions and tasks](fronts)
//! - [put stages one after the other, side by side, in pools or in shards](shapes)
//! - [trade latency for CPU, and know which waits end](waiting)
//! - [decide whether a failure stops the graph, and learn about it](failing)
//! - [add readers and workers to a running graph, and let them go](joining)
//! - [decide what a producer does while the ring is full](full_rings)
//! - [use a ring from tasks and event loops](tasks)
//! - [hand over a single value, once](promises)
//! - [let each worker keep its own state, and have it back at the end](worker_state)
//! - [test handlers without threads](testing)
//! - [look up a mistake, and what the compiler or an error says about it](misuses)
//! - [know how fast it is, and why](speed)
//! - [make it faster, and measure whether it is](performance)
//! - [choose between a thread for each stage and a few shared threads](threads)
//! - [choose the numbers of producers and workers on many cores](many_cores)
//! - [understand how threads share slots and sleep, in ten minutes](protocol)
//! - [move code from the LMAX Disruptor, from QuestDB's queues, or from channels](migrating)
//!
//! Every example in the guide is compiled and run as a test. Every measured number in the guide
//! names its folder in the repository's `records/`. The folder of a measurement holds its command,
//! the machine's description and the raw values. A simulated number is marked so, and names its
//! virtual machine.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | event | one value of the ring's type `E`, made once and overwritten in place |
//! | slot | the place of one event in the ring |
//! | position | number of an event in the stream, a `u64` that only grows (`seq` in code) |
//! | stage | a named step that sees every event; one thread, or several that share the events |
//! | claim | slots that a producer may fill and has not published |
//! | batch | events that a stage may use and has not released |
//! | release | the end of a stage's use of an event; later stages and producers continue from there |
//! | handle | a value through which one thread publishes or reads: [`Producer`], [`Consumer`] |
//! | promise | one value that one thread owes another; no part of a ring |
//! | front | one of the ways to use a ring: chain, graph, leases, raw positions, tasks |
//! | tap | a declared place where readers join and leave |
//! | park | sleep until another thread's progress wakes the sleeper |
//!
//! [`Producer`]: crate::Producer
//! [`Consumer`]: crate::Consumer

#[doc = include_str!("failing.md")]
pub mod failing {}

#[doc = include_str!("first_steps.md")]
pub mod first_steps {}

#[doc = include_str!("fronts.md")]
pub mod fronts {}

#[doc = include_str!("full_rings.md")]
pub mod full_rings {}

#[doc = include_str!("joining.md")]
pub mod joining {}

#[doc = include_str!("many_cores.md")]
pub mod many_cores {}

// The style lets long names wrap at any letter, so that the tables fit beside the sidebar.
#[doc = include_str!("../MIGRATING.md")]
///
/// <style>
/// .docblock td { min-width: 7em; }
/// .docblock td code { font-size: 0.8em; overflow-wrap: anywhere; }
/// </style>
pub mod migrating {}

#[doc = include_str!("misuses.md")]
pub mod misuses {}

#[doc = include_str!("performance.md")]
pub mod performance {}

#[doc = include_str!("promises.md")]
pub mod promises {}

#[doc = include_str!("protocol.md")]
pub mod protocol {}

#[doc = include_str!("shapes.md")]
pub mod shapes {}

#[doc = include_str!("speed.md")]
pub mod speed {}

#[doc = include_str!("tasks.md")]
pub mod tasks {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("threads.md")]
pub mod threads {}

#[doc = include_str!("waiting.md")]
pub mod waiting {}

#[doc = include_str!("worker_state.md")]
pub mod worker_state {}
