//! Ordered messages between threads at memory speed: a ring of preallocated slots, and a graph of
//! stages over the ring.
//!
//! ```text
//! cargo add slipring
//! # until it is published:
//! cargo add --path PATH/TO/crates/slipring
//! ```
//!
//! ```
//! let mut out = Vec::new();
//! let done = slipring::ring(128, String::new)
//!     // Three threads share the events,
//!     .update_pool("upper", 3, |_worker| |text, _| text.make_ascii_uppercase())
//!     // and one thread sees all of them, in order.
//!     .read("collect", |text, at| out.push(format!("{}: {text}", at.seq)))
//!     .feed(["alpha", "beta"], |slot, text| text.clone_into(slot))?;
//! assert_eq!(out, ["0: ALPHA", "1: BETA"]);
//! println!("{}", done.report);
//! # Ok::<(), slipring::Error>(())
//! ```
//!
//! ```text
//!           ┌ upper-0 ┐
//!  feed ──> ├ upper-1 ┤ ──> collect
//!           └ upper-2 ┘
//! ```
//!
//! Producers fill slots in place and publish them. Every stage sees every event, in order. No
//! producer overwrites an event that a stage still uses. The library is for trading gateways, log
//! appenders, telemetry agents, market-data feeds, model-serving workers, and simulations that are
//! coupled to analyses; the folder `recipes` of the repository has small whole programs for them.
//!
//! # Which front
//!
//! | your program | front |
//! |---|---|
//! | knows its stages, and lets the library start the threads | **chain**: [`ring`](ring()) |
//! | learns its stages at run time, or starts the threads itself | **graph**: [`Graph`] |
//! | needs one producer and one reader, or has a loop with other work | **leases**: [`unicast`], [`Producer`], [`Consumer`] |
//! | logs or counts from any thread, by `&self` | a [`Publisher`] |
//! | is built around positions | **raw positions**: [`RawProducer`](raw::RawProducer), [`RawConsumer`](raw::RawConsumer) |
//! | runs on an async runtime | **tasks**: [`Producer::publish_async`], [`Consumer::batch_async`] |
//! | asks a stage, and waits for its answer | any of them: [`Producer::ask`] |
//! | hands over a single value between any two threads | no ring: a [`promise`](promise()) |
//!
//! A *front* is a way to use a ring. One program can combine several fronts, because all fronts use
//! the same kind of ring. A chain declares stages by these calls:
//!
//! | each event goes to | as `&E` | as `&mut E` |
//! |---|---|---|
//! | every stage thread | [`read`](Chain::read), [`read_batch`](Chain::read_batch), [`read_with`](Chain::read_with) | [`update`](Chain::update), [`update_batch`](Chain::update_batch), [`update_with`](Chain::update_with) |
//! | one of n workers | [`read_pool`](Chain::read_pool) | [`update_pool`](Chain::update_pool) |
//! | one of n by key | [`read_shards`](Chain::read_shards) | [`update_shards`](Chain::update_shards) |
//!
//! # The guide
//!
//! | question | items |
//! |---|---|
//! | [How do I begin?](guide::first_steps) | [`ring`](ring()), [`feed`](Chain::feed), [`run`](Chain::run), [`spawn`](Chain::spawn) |
//! | [Which front is mine?](guide::fronts) | |
//! | [What can a graph look like?](guide::shapes) | [`fan_out`](Chain::fan_out), [`on`](Chain::on), [`Key::after`](stages::Key::after) |
//! | [How do threads wait, and for how long?](guide::waiting) | [`Wait`], [`WaitStrategy`](waiting::WaitStrategy), [`WaitError`](errors::WaitError) |
//! | [What if a stage fails?](guide::failing) | [`Error`], [`OnFault`], [`Marks`](faults::Marks), [`Report`], [`Monitor`] |
//! | [How do readers and workers come and go?](guide::joining) | [`Tap`], [`Subscription`](handles::Subscription), [`Pool`] |
//! | [What if the ring is full?](guide::full_rings) | [`publish_or_drop`](Producer::publish_or_drop), [`Conflator`], [`Mirror`], [`Observer`](handles::Observer) |
//! | [How do tasks and event loops use it?](guide::tasks) | [`Selector`](tasks::Selector), [`Waitable`](tasks::Waitable) |
//! | [How do I hear that a stage has passed an event?](guide::promises#without-an-answer) | [`flush`](Producer::flush), [`wait_for`](Producer::wait_for) |
//! | [How do I ask a stage, and hear of the graph's end?](guide::promises) | [`ask`](Producer::ask), [`promise`](promise()), [`Promise`], [`Awaited`] |
//! | [Where does each worker keep its state?](guide::worker_state) | [`ReadHandler`](stages::ReadHandler), [`UpdateHandler`](stages::UpdateHandler) |
//! | [How do I test handlers?](guide::testing) | [`run_inline`](Chain::run_inline) |
//! | [Which mistakes are common, and what do the messages say?](guide::misuses) | [`on_warning`](waiting::on_warning) |
//! | [How fast is it, and why?](guide::speed) | [`Wait`], [`Contiguous`](markers::Contiguous) |
//! | [How do I make it faster?](guide::performance) | [`Contiguous`](markers::Contiguous), [`sample_latency`](Chain::sample_latency) |
//! | [Should each stage have a thread?](guide::threads) | [`threads`](Chain::threads), [`on`](Chain::on) |
//! | [How many threads are worth while on many cores?](guide::many_cores) | [`publish_batches`](Producer::publish_batches), [`placement`](Chain::placement) |
//! | [How does it work, in ten minutes?](guide::protocol) | |
//! | [I come from the Disruptor, from QuestDB, or from channels.](guide::migrating) | |
//!
//! Features: `stream` (events as a `Stream`), `metrics` (`Report::export`). The crate
//! `slipring-eventfd` wakes `epoll` loops. The crate `slipring-shm` puts rings into memory that
//! several processes share.
//!
//! # Guarantees
//!
//! - **Order.** Every stage sees events in the order of their positions, also behind a pool.
//! - **Soundness.** A stage that may update events comes before or after every other stage; stages
//!   side by side only read. A chain that breaks this rule does not compile, and [`Graph::build`]
//!   returns an error. A reference to an event ends before the release of the batch that lends it.
//! - **Closing drains.** Dropping the last producer closes the ring, and every stage sees the
//!   events that were published. [`Producer::halt`] ends the graph without draining the ring.
//! - **An end reaches every thread.** A panic or an error of user code ends the graph and wakes all
//!   waiting threads. Then the call that runs the chain returns an error, and so does each waiting
//!   call of a handle; the error names the failed stage and the position of its event. Stages pass
//!   over the slots of a dropped claim. A dropped batch is delivered again. The page
//!   [failing](guide::failing) lists the result of each failure, and of each dropped handle, claim
//!   or batch. The library cannot see that a handle is forgotten (`std::mem::forget`).
//! - **Waiting ends.** If a handler's call would wait for its own thread, the call returns
//!   [`WaitError::WaitsForItself`](errors::WaitError::WaitsForItself) instead. The page
//!   [waiting](guide::waiting#waits-that-never-would-end) lists the endless waits that the library
//!   does not detect. A graph's deadline ends every call that waits for events or slots, including
//!   a call that would otherwise never return.
//! - **No allocation.** After the build the library allocates no memory for events or stages,
//!   except one box for each new handle whose wait strategy learns, and the handle of each thread
//!   that begins to use a [`Publisher`]. Only requests allocate: they need the promise of each
//!   answer, the waker of a thread that sleeps until the answer comes, and notes of skipped events.
//!
//! With `panic = "abort"` no failure is contained, because the process ends.
//!
//! # Cost
//! A slot takes the size of the event plus eight bytes, rounded up to the alignment. With the
//! contiguous layout and one producer, it takes the size of the event alone. Printing a [`Ring`]
//! shows the slot size, in bytes.
//!
//! Publishing an event costs a claim, one load from a cache line that seldom changes, and one
//! store. A sole producer claims by an addition, and each of several producers by a locked addition
//! to a shared word, or by a compare-and-swap if the call has a deadline or does not wait. If the
//! wait strategy parks, a publication also loads one word of a wait queue. While waiters
//! sleep now and then, the publication issues a full fence, too. The page
//! [speed](guide::speed) shows measured times, and names the folders that hold the raw
//! values.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod base;
mod chain;
mod consumer;
pub mod errors;
mod graph;
pub mod guide;
mod live;
#[cfg(all(test, slipring_loom))]
mod loom_models;
mod observe;
mod producer;
mod promise;
#[cfg(all(test, not(slipring_loom)))]
mod refresh_tests;
mod ring;
mod run;
pub mod segment;
#[cfg(all(test, not(slipring_loom)))]
mod step_tests;
#[cfg(all(test, not(slipring_loom)))]
#[path = "../tests/common/tasks.rs"]
mod tasks_in_tests;
mod wait;
#[cfg(all(test, not(slipring_loom)))]
#[path = "../tests/common/watchdog.rs"]
mod watchdog;

// rustdoc shows methods in the order of these lines, and few users call those of the adapters
// and of rings between processes.
mod adapters;
mod processes;

pub use base::fault::ok;
pub use chain::{Chain, ring};
pub use consumer::batch::Batch;
pub use consumer::handle::{Consumer, Reader, Updater};
pub use errors::{error::Error, report::Report};
pub use graph::{Graph, Ring, unicast};
pub use live::{monitor::Monitor, pool::Pool, tap::Tap};
pub use observe::mirror::Mirror;
pub use producer::claim::Slot;
pub use producer::conflate::Conflator;
pub use producer::publisher::Publisher;
pub use producer::{Producer, SharedProducer};
pub use promise::{Awaited, Promise, lend, promise};
pub use ring::events::At;
pub use ring::policy::OnFault;
pub use run::Pipeline;
pub use wait::Wait;

pub mod faults {
    //! Faults of stages: what a handler may return, and what a policy sees and decides.
    //!
    //! A handler that can fail names [`Fault`], or returns an error type of its own. A program that
    //! does not stop at the first failure gives a stage a policy ([`OnFault`](crate::OnFault)), and
    //! may name the other items then. The page [failing](crate::guide::failing) compares the
    //! policies.
    pub use crate::base::fault::{Fault, Outcome};
    pub use crate::ring::policy::{Faulted, Marks, Verdict};
    pub use crate::run::Failed;
}

pub mod handles {
    //! The handles of pools, shards, taps and mirrors, and the views of lent events.
    //!
    //! Calls return these types, so most programs use them without naming them. A program names one
    //! of them where it stores the value in a struct, or passes it to a function.
    pub use crate::chain::Inline;
    pub use crate::consumer::handle::{PoolReader, PoolUpdater, ShardReader, ShardUpdater};
    pub use crate::live::tap::{LeaveHandle, StartAt, Subscription};
    pub use crate::observe::mirror::MirrorHandle;
    pub use crate::observe::observer::{Observed, Observer};
    pub use crate::producer::{claim::Slots, conflate::Sent};
    pub use crate::promise::Lent;
    pub use crate::ring::events::{Events, EventsIter, EventsIterMut, EventsMut};
}

pub mod markers {
    //! The type parameters of rings, chains and handles.
    //!
    //! A handle's type says how its ring lays out the slots, whether producers share the ring, and
    //! what a stage may do with an event. Programs name these types in the signatures of functions
    //! and in the fields of structs. The markers have no values, and no program implements their
    //! traits, except [`Plain`].
    pub use crate::chain::{Branch, FanOut, MayUpdate, Sequential};
    pub use crate::consumer::markers::{Each, Joined, Pooled, Reading, Sharded, Updating};
    pub use crate::observe::words::Plain;
    pub use crate::producer::conflate::Claims;
    pub use crate::producer::{Many, Single};
    pub use crate::ring::slots::{Contiguous, Interleaved, Layout};
}

pub mod placement {
    //! Where the threads of a graph run, and how many there are.
    //!
    //! By default each stage has a thread of its own, which the system places. A program that wants
    //! fewer threads, or wants them on certain cores, needs this module. The crate
    //! `slipring-machine` knows the machine's cores, and makes placements.
    pub use crate::run::{Bound, Placement, Places, Threads};
}

pub mod raw {
    //! Handles by position: a call claims or takes positions, and other calls access each event.
    //!
    //! They are for code that is built around positions, such as code that comes from another ring
    //! library. The page [fronts](crate::guide::fronts) compares them with the other fronts.
    pub use crate::adapters::raw::{RawConsumer, RawProducer};
    pub use crate::ring::seq_range::SeqRange;
}

pub mod reports {
    //! The parts of a [`Report`](crate::Report), and [`Done`], the result of a run.
    //!
    //! Programs that print a report do not name them. Programs that compare counts, or pass them
    //! on, do.
    pub use crate::errors::report::{Latency, StageReport, Turns};
    pub use crate::run::Done;
}

pub mod stages {
    //! The stages of graphs: their names and keys, and the handlers that run them.
    //!
    //! A [`Graph`](crate::Graph) returns a key for each stage that it declares. The traits
    //! [`ReadHandler`] and [`UpdateHandler`] are for handlers that are more than a closure, because
    //! they also start, stop, or act when no event comes.
    pub use crate::base::name::{Name, PRODUCER};
    pub use crate::errors::build::MAX_STAGE_HANDLES;
    pub use crate::graph::{
        Handlers, Key, PoolReaderKey, PoolUpdaterKey, ReaderKey, ShardReaderKey, ShardUpdaterKey,
        TapKey, UpdaterKey,
    };
    pub use crate::run::{ReadHandler, UpdateHandler};
}

pub mod tasks {
    //! The futures of the calls that end in `_async`, and [`Selector`], which waits for several
    //! rings on one thread.
    //!
    //! Tasks await the futures without naming them. The page [tasks](crate::guide::tasks) shows
    //! both ways to wait.
    pub use crate::adapters::select::{Selector, Waitable};
    #[cfg(feature = "stream")]
    pub use crate::adapters::task::EventStream;
    pub use crate::adapters::task::{AskAsync, BatchAsync, ClaimAsync, PublishAsync};
    pub use crate::adapters::task_within::BatchWithinAsync;
    #[cfg(feature = "stream")]
    pub use crate::adapters::task_within::ChunkStream;
    pub use crate::observe::task::ObserveAsync;
    #[cfg(feature = "stream")]
    pub use crate::observe::task::ObserverStream;
    pub use crate::ring::passing::PassAsync;
    pub use crate::run::Joining;
}

pub mod waiting {
    //! Wait strategies of your own, and the library's warnings.
    //!
    //! The strategies of [`Wait`](crate::Wait) are enough for most programs. A program that knows
    //! better when the next event comes implements [`WaitStrategy`].
    pub use crate::wait::warning::{Warning, on_warning};
    pub use crate::wait::{WaitAction, WaitContext, WaitLearner, WaitStrategy};
}

/// The README's examples, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
