//! Ordered messages between threads at memory speed: a ring of preallocated slots, and a graph of
//! stages over it.
//!
//! A producer fills slots in place and publishes them. Every stage sees every event, in order;
//! nobody overwrites what somebody still reads; waiting costs as little CPU or as little latency as
//! the user chose; an end, good or bad, reaches everybody.
//!
//! Coming from the LMAX Disruptor or from QuestDB's queues? [`migrating`] lists what you rely on
//! there, and how to say it here.
//!
//! Three fronts on one core:
//!
//! - **Chain** ([`ring`]): stages on named threads, in one expression; handlers are closures that
//!   borrow locals.
//! - **Graph** ([`Graph`]): shapes known only at run time, handles by key, threads of your own.
//! - **Leases** ([`Producer`], [`Consumer`], [`unicast`]): claim, fill, publish; batch, handle,
//!   release. What the other two are made of.
//!
//! ```
//! let mut out = Vec::new();
//! let done = slipring::ring(128, String::new)
//!     .write_pool("upper", 3, |_worker| |text, _| text.make_ascii_uppercase()) // three threads share the events
//!     .read("collect", |text, at| out.push(format!("{}: {text}", at.seq)))     // and this one sees them in order
//!     .feed(["alpha", "beta"], |slot, text| { slot.clear(); slot.push_str(text) })?;
//! assert_eq!(out, ["0: ALPHA", "1: BETA"]);
//! println!("{}", done.report);
//! # Ok::<(), slipring::Error>(())
//! ```
//!
//! | each event | to every stage thread | to one of n workers | to one of n by key |
//! |---|---|---|---|
//! | `&E` | [`read`](Chain::read), [`read_batch`](Chain::read_batch), [`read_with`](Chain::read_with) | [`read_pool`](Chain::read_pool) | [`read_shards`](Chain::read_shards) |
//! | `&mut E` | [`write`](Chain::write), [`write_batch`](Chain::write_batch), [`write_with`](Chain::write_with) | [`write_pool`](Chain::write_pool) | [`write_shards`](Chain::write_shards) |
//!
//! What else a graph does while it runs:
//!
//! | for | see |
//! |---|---|
//! | readers that join and leave, and miss nothing between the two | [`Tap`], [`Subscription`] |
//! | workers that join a pool and leave it | [`Pool`] |
//! | readers that hold nobody up, and are told what they missed | [`Mirror`], [`Chain::observe`] |
//! | a stage that fails, and goes on | [`OnFault`], [`Marks`] |
//! | a ring that is full | [`Producer::publish_by`], [`Producer::publish_or_drop`], [`Conflator`] |
//! | positions, lags, waits, latencies | [`Monitor`], [`Report`] |
//! | tasks, and several rings at once | [`Consumer::batch_async`], [`Producer::publish_async`], [`Selector`]; the crate `slipring-eventfd` for epoll loops |
//! | positions instead of leases | [`RawProducer`], [`RawConsumer`] |
//!
//! Features: `stream` (batches as a `Stream` of clones or of what a closure makes of events),
//! `metrics` (`Report::export`).
//!
//! # What is promised
//!
//! - **Order.** Stages see events by position; behind a pool too.
//! - **Soundness.** A stage that may write comes before or after every other stage; stages side by
//!   side only read. On the chain that is a compile error, on the graph an error of
//!   [`Graph::build`]. References live no longer than the batch whose release lets the slots go.
//! - **Closing drains.** Dropping the last producer closes; what was published is seen by every
//!   stage. [`Producer::halt`] does not drain.
//! - **Nothing hangs that the library can heal.** A panic or an error in a stage, in the closure
//!   that fills an event, or in the producer's closure ends the graph, wakes everybody, and comes
//!   back with the stage's name and the event's position. A dropped claim is passed over. A dropped
//!   batch comes again. A dropped handle of a stage that is still needed fails the graph; a
//!   worker's unfinished chunk goes to another worker. A *forgotten* handle (`std::mem::forget`)
//!   cannot be healed; give a deadline where that could happen.
//! - **After a failure** the other stages stop at their next batch, and what they had not seen
//!   stays unseen.
//! - **No allocation** after the build, user code apart. A handle whose strategy learns has what it
//!   learned in a box of its own, which is made and dropped with the handle.
//!
//! A call that waits inside a handler for what only that handler's thread can move on is
//! [`WaitError::WaitsForItself`]: for room in a ring, in a handler of that ring, or for an event, in a
//! handler of an earlier stage. A handler here is what a chain or `for_each` calls. The library
//! does not see that a wait will never end
//!
//! - where the thread holds a batch by hand, or is in the closure of [`Consumer::poll`] or of a
//!   stream: noting that would cost each batch something;
//! - where it holds a claim, also one that a closure is filling;
//! - where a handler waits by a future, a [`Selector`], or another thread;
//! - where a handler waits for an event of a stage that is not behind its own, and there is no room
//!   for that event because its own stage holds the ring: the ring may be closed instead;
//! - where the closure of [`Chain::run_inline`] waits for an event itself: there stages work while
//!   it publishes, and not otherwise;
//! - where handlers are nested more than 16 deep.
//!
//! A worker of a pool is told so also while a colleague holds earlier events, which it could leave
//! to this worker.
//!
//! Use calls with a deadline there, or give the graph one. With `panic = "abort"` nothing is
//! healed: the process is gone.
//!
//! # Cost
//!
//! A slot takes the event and eight bytes, rounded up to the alignment (contiguous, with one
//! producer: the event alone); [`Ring`] and [`Chain`] print the number. Publishing an event is a
//! claim (an addition; a compare-and-swap while several may claim), a look at a line that seldom
//! changes, and one store. With strategies that sleep until woken each publication and each release
//! pays a look at a bell besides, and a full fence while somebody sleeps there now and then;
//! without help from the system (Linux's membarrier) always.  Figures, with the commands that made
//! them, are in the repository's `records/`.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod adapters;
mod base;
mod chain;
mod consumer;
mod errors;
mod graph;
mod live;
#[cfg(all(test, slipring_loom))]
mod loom_models;
mod observe;
mod producer;
mod ring;
#[cfg(all(test, not(slipring_loom)))]
mod step_tests;
mod wait;
#[cfg(all(test, not(slipring_loom)))]
#[path = "../tests/common/watchdog.rs"]
mod watchdog;

pub use adapters::raw::{RawConsumer, RawProducer, Seqs};
pub use adapters::select::*;
pub use adapters::task::*;
pub use base::fault::*;
pub use base::name::*;
pub use chain::*;
pub use consumer::lease::*;
pub use errors::*;
pub use graph::*;
pub use live::monitor::Monitor;
pub use live::pool::Pool;
pub use live::tap::{Leaver, StartAt, Subscription, Tap};
pub use observe::mirror::{Mirror, MirrorHandle, Plain};
pub use observe::observer::{ObserveError, Observer, Seen};
pub use producer::claim::*;
pub use producer::conflate::*;
pub use producer::*;
pub use ring::events::*;
pub use ring::policy::{Faulted, Marks, OnFault, Verdict};
pub use ring::slots::{Contiguous, Interleaved, Layout};
pub use wait::warning::{Warning, on_warning};
pub use wait::{Learner, UnknownWait, Wait, WaitAction, WaitContext, WaitStrategy};

#[doc = include_str!("MIGRATING.md")]
pub mod migrating {}

/// The README's example, kept true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
