//! Rings of `slipring` between processes.
//!
//! ```text
//! cargo add slipring-shm
//! # until it is published:
//! cargo add --path PATH/TO/crates/slipring-shm
//! ```
//!
//! For market-data feeds, simulations coupled to analyses, and workers of models: programs that
//! hand data to other programs of the same machine, any of which may be killed.
//!
//! ```text
//!   process A: producer ──> segment, a ring in shared memory ──┬─> process B: analysis
//!                                                              └─> process C: journal
//! ```
//!
//! A *segment* is the shared memory of one ring: a file on tmpfs or ext4, or a memfd. A process
//! that attaches to it is a *participant*. The stages of the ring's graph have names, and each
//! process takes the places that it wants: the producer's, or those of stages. Handles, batches,
//! waits and errors are the types of `slipring`.
//!
//! ```
//! use slipring_shm::{Event, Segment};
//! use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
//!
//! #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
//! #[repr(C)]
//! struct Block {
//!     seq: u64,
//!     field: [f64; 16],
//! }
//!
//! impl Event for Block {
//!     const NAME: &'static str = "field/Block";
//!     const VERSION: u32 = 1;
//! }
//!
//! // One program.
//! let name = format!("field-{}", std::process::id());
//! let made = Segment::<Block>::create(&name).capacity(8).reader("analysis").build()?;
//! // SAFETY: only our programs open the segment.
//! let simulation = unsafe { made.attach()? };
//! let mut tx = simulation.producer()?;
//! tx.publish(|block| block.field[0] = 0.5)?;
//!
//! // Another program, ended and started as one likes.
//! // SAFETY: as above.
//! let analysis = unsafe { Segment::<Block>::open(&name)?.attach()? };
//! let mut rx = analysis.reader("analysis")?;
//! rx.poll(8, |block, at| assert_eq!((block.field[0], at.seq), (0.5, 0)))?;
//! assert_eq!((simulation.participant(), analysis.participant()), (1, 2));
//!
//! drop((rx, tx, simulation, analysis));
//! slipring_shm::remove(&name)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Promises
//!
//! - When a reader dies, its place stays as it is. The next process that takes the place continues
//!   at the first event that was not released, and learns which events may come again
//!   ([`redelivered`](slipring::Consumer::redelivered)).
//! - The successor of a dead producer finds its position from the segment alone, and no part of an
//!   unfinished publication is ever seen. If [`OnDeath::Close`] was declared, the death instead
//!   ends the stream, as if the producer had left.
//! - When a tap's reader dies, the parties that wait for it remove it. They continue within a
//!   notice, and [`SeatSummary::unread`](summaries::SeatSummary::unread) tells how many events the
//!   reader had not read.
//! - A party that waits for a process learns of the process's death within a notice (20 ms by
//!   default), plus the time that the kernel takes to end a process. The segment's creator declares
//!   what happens then ([`OnDeath`]): the party continues to wait, its call returns an error, or
//!   the ring fails for good. A call with a deadline ends by its deadline in any case.
//! - When a worker of a pool dies or leaves in the middle of its events, the other workers get
//!   them, or the next worker that joins. The stages behind the pool see each event, in order.
//! - When a shard dies, its place stays as it is, like a reader's. The other shards continue until
//!   the ring is full of events that the dead shard has not passed.
//! - If a panic drops a handle, another process can take the handle's place, as after a death.
//!
//! # A single value
//!
//! A [`PromiseSegment`](promises::PromiseSegment) holds one value, which one process hands to
//! another exactly once. The value survives if either process is killed.
//!
//! # Alive or dead
//!
//! Each participant holds a lock on one byte far behind the file's end. The kernel frees the lock
//! when the participant's mapping ends, and not earlier. So a process that gets this lock has a
//! proof of death, excludes other recoverers, and may take the place. Neither a timeout nor a
//! process number counts as proof.
//!
//! # The name
//!
//! Remove a segment by [`remove`] or `slipring rm`, which refuse to remove a segment in use. Plain
//! `rm` removes the name even then, and so does systemd-logind at the end of a user's last session
//! (`RemoveIPC` in logind.conf). The attached processes then continue to use a file without a name,
//! and a program that creates a segment of that name gets a second ring. A waiting call finds
//! within a notice that the name is lost, and warns of it, once for the segment
//! ([`Warning::NameLost`](slipring::waiting::Warning::NameLost)). With [`Attached::require_name`],
//! the call returns an error instead. [`Attached::has_lost_name`] checks at any time.
//!
//! # Trust
//!
//! A lent event is a `&E` into memory that other processes can write, so [`Segment::attach`] is
//! unsafe: its caller promises that all of them follow the protocol. [`Segment::attach_copies`]
//! needs no promise. Its handles ([`Copies`]) copy events in and out by relaxed atomic words, and
//! work in the same ring as handles that lend.
//!
//! ```
//! #![forbid(unsafe_code)]
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let made = slipring_shm::Segment::<u64>::create_memfd("numbers")
//!         .capacity(8)
//!         .reader("sum")
//!         .build()?;
//!     // made.memfd() goes to a program that is not trusted.
//!     let copies = made.attach_copies()?;
//!     let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
//!     tx.publish(&7)?;
//!     assert_eq!(sum.next()?, (7, 0));
//!     Ok(())
//! }
//! ```
//!
//! Handles that lend events need `unsafe`, so this does not compile:
//!
//! ```compile_fail,E0133
//! # let made = slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("sum").build().unwrap();
//! let attached = made.attach().unwrap();
//! ```
//!
//! | what another process may do | what happens to a process that copies |
//! |---|---|
//! | store any bytes in the segment, at any time | a wrong event, an event twice or not at all, or an error: [`WaitError::Damaged`](slipring::errors::WaitError::Damaged), or that of an ending or a death which is not true |
//! | hold up the ring, as a stage does that releases nothing | a call without a deadline waits. A call with a deadline ends by it, and a `try_` call takes a bounded number of steps |
//! | change words under the hands of a call, for ever | the same |
//! | hold byte locks of the file | attaching, recovering and removing return an error after a bounded time, and the dead keep their places |
//! | store another process's number in its record | a report names the wrong process, and `slipring evict` could kill it: evict from segments of trusted programs only |
//! | shorten the file | an access behind its end is SIGBUS, which ends the process. Memfds are sealed against that |
//! | change the head of the file | nothing: the head is copied and checked once, and the places in the mapping are those of the copy. Later openers are refused |
//!
//! Only processes that can open the segment's file can do any of this. A call that opens a segment
//! refuses a file that belongs to another user, or that other users may open. A process that gets
//! the descriptor of a memfd can write to the memfd as well.
//!
//! A copy costs one load or store for each eight bytes. All bytes of an event are copied twice,
//! from the producer's value into the ring and from there to the reader. For small events, the
//! copies take less time than the rest of a publication. For a block of a megabyte, they take most
//! of the time.
//!
//! # Inspecting a segment
//!
//! [`list`] and [`inspect`] tell which segments exist, which processes are attached, and how far
//! each stage is, without disturbing any process. [`Summary::awaited`](summaries::Summary::awaited)
//! tells which party waits for which. `slipring ls` prints all of this once, and `slipring top`
//! shows it continuously. [`evict`] kills a process that is stopped or hangs, and frees its places,
//! as `slipring evict` does. The examples `field_simulation` and `field_analysis` are a pair of
//! programs that you can run and kill.
//!
//! # Other languages
//!
//! [`other_languages`] describes each byte of a segment, and the steps that a process takes, so
//! that a client can be written in any language. The folder `clients` of this crate has two
//! clients: `segment.py`, an observer in Python, which lists segments and prints published events,
//! and `client.c`, a reader and a producer in C.
//!
//! # Tasks and event loops
//!
//! Like handles within one process, handles of a segment can wait in tasks of any runtime, in a
//! `Selector` and in loops on `epoll` (`slipring-eventfd`); see `slipring::guide::tasks`. A thread
//! of this process, named `slipring-tasks`, then sleeps in the kernel on behalf of the tasks. It
//! learns of a death within one notice, and ends with the last handle.
//!
//! ```
//! # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread};
//! # struct Unpark(thread::Thread);
//! # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
//! # fn block_on<F: Future>(future: F) -> F::Output {
//! #     let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
//! #     loop {
//! #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
//! #             Poll::Ready(value) => return value,
//! #             Poll::Pending => thread::park(),
//! #         }
//! #     }
//! # }
//! use slipring_shm::Segment;
//! let segment = Segment::<u64>::create_memfd("tasks").capacity(8).reader("sum").build()?;
//! // SAFETY: no other process has the memfd.
//! let attached = unsafe { segment.attach()? };
//! let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
//! let publisher = std::thread::spawn(move || tx.publish(|slot| *slot = 7)); // or another process
//! block_on(async {
//!     assert_eq!(sum.batch_async(8).await?[0], 7);
//!     Ok::<_, slipring::errors::WaitError>(())
//! })?;
//! publisher.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Missing
//!
//! The crate has no handles that only observe, and none for other languages.
//!
//! # Where it works
//!
//! The crate works on 64-bit Linux, and is empty on other systems. A program that also runs there
//! declares this dependency below `[target.'cfg(all(target_os = "linux", target_pointer_width =
//! "64"))'.dependencies]`.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[macro_use]
mod system;

mod attach;
mod contents;
pub mod errors;
mod file;
mod handles;
mod inspect;
mod layout;

#[doc = include_str!("../SEGMENT.md")]
pub mod other_languages {}

pub use attach::evict::evict;
pub use attach::remove::{remove, remove_at};
pub use contents::{
    Contents, Event, Handles, PoolReader, PoolUpdater, Producer, Reader, ShardReader, ShardUpdater,
    SharedProducer, Subscription, Updater,
};
pub use errors::segment::SegmentError;
pub use handles::{attached::Attached, builder::Builder, copies::Copies, segment::Segment};
pub use inspect::{inspect, inspect_at, list};
pub use slipring::segment::OnDeath;

pub mod blocks {
    //! Rings of blocks, whose size is known only at run time.
    //!
    //! A program that forwards or records events needs them, if it does not know the type of the
    //! events. A `Segment<Blocks>` has the same calls as any other, and its handles lend bytes.
    pub use crate::contents::{Blocks, Divisible};
    pub use slipring::segment::{
        BlockBatch, BlockClaim, BlockConsumer, BlockProducer, RawBlockConsumer, RawBlockProducer,
        Stretch,
    };
}

pub mod copies {
    //! The handles of [`Copies`](crate::Copies), which copy events in and out.
    //!
    //! A program that shares a segment with programs that it does not trust needs them.
    pub use slipring::segment::{CopyingConsumer, CopyingProducer};
}

pub mod messages {
    //! Rings of messages, each of any length.
    //!
    //! A `Segment<Messages>` has the same calls as any other, and its handles lend bytes: a message
    //! is claimed with its length, and the reader's batches lend whole messages.
    pub use crate::contents::{Messages, NextMessage};
    pub use slipring::segment::{
        Message, MessageBatch, MessageClaim, MessageConsumer, MessageProducer,
    };
}

pub mod promises {
    //! A single value between processes: a [`PromiseSegment`], and its two sides.
    //!
    //! They need no ring, and are to [`slipring::promise`] as a segment is to a ring.
    pub use crate::handles::awaited::{Awaited, Promised};
    pub use crate::handles::promise::{Promise, PromiseBuilder, PromiseSegment};
}

pub mod summaries {
    //! The state of a segment, as [`inspect`](crate::inspect()) and [`evict`](crate::evict) return
    //! it.
    //!
    //! Programs that watch segments need it, or that clean up after others. `slipring ls` and
    //! `slipring top` print the same values.
    pub use crate::attach::evict::{Eviction, Occupant};
    pub use crate::attach::participant::Liveness;
    pub use crate::inspect::{
        FailureSummary, ParticipantSummary, Party, SeatSummary, StageSummary, Summary,
    };
    pub use slipring::segment::{Ending, copied::Counts};
}

/// Parts of this crate that its tests and the project's other crates use. They are not stable, so
/// those crates depend on exactly this version.
#[doc(hidden)]
pub mod parts {
    pub use crate::file::location::Location;

    /// The bytes of a segment.
    pub mod layout {
        pub use crate::layout::*;
    }

    pub use {
        crate::attach::participant::{Attempt, Participation, attach},
        crate::attach::recover::DeadClaim,
        crate::file::create::{Initial, NewSegment},
        crate::file::descriptor::File,
        crate::file::mapping::Mapping,
        crate::file::open::read_head,
        crate::system::fork::{ForkGuard, OwnerProcess},
    };

    /// Byte locks.
    pub mod lock {
        pub use crate::system::lock::*;
    }

    /// Facts from the kernel.
    pub mod machine {
        pub use crate::system::machine::*;
    }

    #[cfg(feature = "steps")]
    pub use crate::system::step::on_each_step;
}
