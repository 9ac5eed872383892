//! The result of inspecting a segment.
//!
//! Invariants
//! - I1: names and texts have no control characters, so they can be printed to a terminal.
//! - I2: whatever the words of the segment say, lags and numbers of slots are at most the capacity.
//!   Positions are not checked.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use slipring::segment::copied::Counts;
use slipring::segment::{Ending, OnDeath};
use slipring::{raw::SeqRange, stages::PRODUCER};

use crate::attach::participant::Liveness;
use crate::system::machine::{Process, ProcessState};

/// Summary of a segment's head, of its stages, and of its participants.
///
/// The words of a segment in use are copied one after the other, while processes change them. So
/// positions, lags and seats may be from different moments, and may have changed by the time the
/// caller sees them. A lag is never negative and never above the capacity. A summary is for people
/// to read: no program may rely on it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// Name of the segment, if the file is in `/dev/shm`.
    pub name: Option<String>,
    /// Path of the file.
    pub path: PathBuf,
    /// Random number of the segment. A segment that was removed and made again has another number.
    pub id: [u8; 16],
    /// Name of the events' type.
    pub type_name: String,
    /// Version of the events' type.
    pub type_version: u32,
    /// Size of an event, in bytes.
    pub event_size: u64,
    /// Contents of the slots: `events` of a type, `messages`, or `blocks`.
    pub contents: &'static str,
    /// Number of slots.
    pub capacity: u64,
    /// Length of the file, in bytes.
    pub length: u64,
    /// Time of making, since 1970.
    pub created: Duration,
    /// Number of the producers' places (1: the ring has a single producer).
    pub producers: u32,
    /// The notice: the longest time between two checks for deaths by a waiting participant.
    pub notice: Duration,
    /// Position before which all events are published, as far as stamps and positions show. In a
    /// ring of millions of slots whose stages are far behind, more events may be published.
    pub published: u64,
    /// Number of free slots. A slot is free if it holds no event that a stage has yet to release,
    /// so slots that producers have claimed but not published count as free. If the number is 0,
    /// the ring was full at one moment during the call. There is one exception: if a pool gates the
    /// producers, the ring may only have seemed full, because a worker that loses a race for a
    /// chunk shows an old bound for a moment.
    pub free: u64,
    /// Places of the producers. The list is empty if the segment has no ring.
    pub producer_seats: Vec<SeatSummary>,
    /// Effect of the producer's death on the stages that wait for it.
    pub producer_on_death: OnDeath,
    /// Counts of the producers.
    pub producer_counts: Counts,
    /// Number of producers' threads that sleep until there is room. A thread that died while it
    /// slept is counted until the next wake-up.
    pub producers_asleep: u32,
    /// The stages, in the order of the table.
    pub stages: Vec<StageSummary>,
    /// Number of places of participants.
    pub places: u32,
    /// Participants that are attached, or dead and not recovered yet.
    pub participants: Vec<ParticipantSummary>,
    /// Whether the segment may be removed, because no process is attached to it, attaching to it,
    /// making it or removing it.
    pub stale: bool,
    /// Whether the ring runs, or how it ended.
    pub ending: Ending,
    /// Position behind the last event, or `None` if the ring is not closed.
    pub last: Option<u64>,
    /// First failure, or `None` if no process has recorded one.
    pub failure: Option<FailureSummary>,
}

/// A stage, as the stage table declares it, and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageSummary {
    /// Name.
    pub name: String,
    /// Whether the stage may write to events.
    pub writes: bool,
    /// Delivery of events: `each`, `pool`, `shards` or `tap`.
    pub delivery: &'static str,
    /// Number of handles that the stage has room for.
    pub room: u32,
    /// Names of the stages that the stage follows. The list is empty if it follows the producer.
    pub after: Vec<String>,
    /// Effect of the death of the stage's process on the parties that wait for the stage.
    pub on_death: OnDeath,
    /// Position before which the stage has released all events.
    pub position: u64,
    /// Position before which the stage was lent all events. For a pool, workers have taken all
    /// events before it. For shards, it is the furthest shard's position. If the stage's process
    /// dies, the events from `position` to `held` come again.
    pub held: u64,
    /// Number of published events that the stage has not released, at most the capacity.
    pub lag: u64,
    /// Places of the stage, one for each handle that it has room for.
    pub seats: Vec<SeatSummary>,
    /// Counts of the stage's handles.
    pub counts: Counts,
    /// Number of threads that sleep at the stage's wait queue. All stages that follow the same
    /// stages share one queue. A thread that died while it slept is counted until the next wake-up.
    pub asleep: u32,
}

/// A place of a stage or of the producers, and the process that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeatSummary {
    /// Number of the participant that has the place. The participant may be dead. `None` if the
    /// place is free or an orphan.
    pub participant: Option<u32>,
    /// Whether a worker of a pool left the place, or died there, with events that it had not
    /// released. Another worker adopts these events and then frees the place, or a new worker takes
    /// the place with its events.
    pub orphan: bool,
    /// Number of participants that died at this place and have been recovered.
    pub deaths: u32,
    /// First position that a tap's reader or a shard has not released. `None` for other places, and
    /// for a free place of a tap.
    pub position: Option<u64>,
    /// For a pool, the events that the worker has taken and not released, even if the place is now
    /// an orphan. For one of several producers, the positions that it has claimed and not
    /// published. `None` if there are none, and for all other places.
    pub events: Option<SeqRange>,
    /// For a tap: the number of events that the last reader at this place had not read when it was
    /// found dead. The next reader that takes the place resets the number. If that reader dies at
    /// once, the number may still be that of its predecessor.
    pub unread: u64,
}

/// A participant: its record, and the result of probing its byte.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantSummary {
    /// Number of the place, from 1.
    pub number: u32,
    /// Pid of the process, in its own pid namespace.
    pub pid: u32,
    /// Effective user id of the process.
    pub uid: u32,
    /// Name that the participant gave itself.
    pub name: String,
    /// Time of attaching, since 1970.
    pub joined: Duration,
    /// Whether the participant is alive.
    pub liveness: Liveness,
    /// Whether the participant's process is stopped, by a signal or a debugger, as far as this
    /// process can see.
    pub stopped: bool,
    /// Process of the participant, as its record names it.
    pub(super) process: Process,
}

impl ParticipantSummary {
    /// Returns whether the participant's process has ended, as far as the calling process can see.
    /// The result is `false` for a process of another pid namespace. The call compares pid and
    /// start time, so a later process with the same pid does not deceive it.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let name = format!("ended-{}", std::process::id());
    /// let segment = Segment::<u64>::create(&name).capacity(8).reader("sum").build()?;
    /// // SAFETY: no other program opens the segment.
    /// let attached = unsafe { segment.attach()? };
    /// let summary = slipring_shm::inspect(&name)?;
    /// drop(attached);
    /// assert!(!summary.participants[0].has_ended()); // it has left, and runs
    /// # slipring_shm::remove(&name)?;
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    pub fn has_ended(&self) -> bool {
        self.process.look() == ProcessState::Gone
    }
}

/// The first failure of a ring, as recorded by the process that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailureSummary {
    /// Name of the stage that failed, or `producer` for a producer.
    pub stage: String,
    /// Position of the event at fault, or `None` if no event was at fault.
    pub seq: Option<u64>,
    /// Message of the failure, cut to the length that the segment has room for.
    pub text: String,
}

impl fmt::Display for FailureSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` failed", self.stage)?;
        if let Some(seq) = self.seq {
            write!(f, " at {seq}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// A party of a ring: a stage, or the producers taken together. It waits for other parties, and
/// they wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// The stage with this index in [`Summary::stages`].
    Stage(usize),
    /// The producers.
    Producers,
}

impl Summary {
    /// Returns the participant with this number, if it is attached or dead.
    ///
    /// Example: [`inspect`](crate::inspect).
    pub fn participant(&self, number: u32) -> Option<&ParticipantSummary> {
        self.participants.iter().find(|participant| participant.number == number)
    }

    /// Returns the producers, and then the stages in their order.
    ///
    /// Example: [`Summary::awaited`].
    pub fn parties(&self) -> impl Iterator<Item = Party> + use<> {
        [Party::Producers].into_iter().chain((0..self.stages.len()).map(Party::Stage))
    }

    /// Returns the name of a party: the stage's name, or `producer`.
    ///
    /// Example: [`Summary::awaited`].
    pub fn name_of(&self, party: Party) -> &str {
        match self.stage(party) {
            Some(stage) => &stage.name,
            None => PRODUCER,
        }
    }

    /// Returns the summary of the stage `party`, or `None` if `party` is the producers or belongs
    /// to another summary.
    ///
    /// Example: [`Summary::awaited`].
    pub fn stage(&self, party: Party) -> Option<&StageSummary> {
        match party {
            Party::Stage(number) => self.stages.get(number),
            Party::Producers => None,
        }
    }

    /// Returns the position of a party. The producers have published all events before their
    /// position, and a stage has released all events before its own.
    ///
    /// Example: [`Summary::awaited`].
    pub fn position(&self, party: Party) -> u64 {
        self.stage(party).map_or(self.published, |stage| stage.position)
    }

    /// Returns the places of a party.
    ///
    /// Example: [`Summary::awaited`].
    pub fn seats(&self, party: Party) -> &[SeatSummary] {
        self.stage(party).map_or(&self.producer_seats, |stage| &stage.seats)
    }

    /// Returns the counts of a party.
    ///
    /// Example: [`Summary::awaited`].
    pub fn counts(&self, party: Party) -> &Counts {
        self.stage(party).map_or(&self.producer_counts, |stage| &stage.counts)
    }

    /// Returns how long the handles of `party` have waited for `awaited`, without the waits that
    /// they have not flushed yet.
    ///
    /// Example: [`Summary::awaited`].
    pub fn waited(&self, party: Party, awaited: Party) -> Duration {
        let index = match awaited {
            Party::Stage(number) => number,
            Party::Producers => self.stages.len(),
        };
        self.counts(party).waited.get(index).copied().unwrap_or_default()
    }

    /// Returns the number of threads that sleep at the wait queue of a party.
    ///
    /// Example: [`Summary::awaited`].
    pub fn asleep(&self, party: Party) -> u32 {
        self.stage(party).map_or(self.producers_asleep, |stage| stage.asleep)
    }
}
