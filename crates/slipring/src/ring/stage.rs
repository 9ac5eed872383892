//! A stage of a plan, and the numbers of the lines and queues that belong to no stage.

use std::ops::Range;

use crate::base::name::Name;
use crate::base::panics::Contained;
use crate::ring::policy::Policy;
use crate::ring::spec::{Access, Delivery, ThreadChoice};
use crate::wait::Wait;

/// A stage of a plan, with its lines and its queues.
pub(crate) struct Stage {
    pub(crate) name: Name,
    pub(crate) access: Access,
    pub(crate) delivery: Delivery,
    /// Indices of the stages that this stage follows directly.
    pub(crate) after: Vec<usize>,
    /// Indices of the stages on other threads that follow this stage directly, or through stages on
    /// this stage's thread.
    pub(crate) followers: Vec<usize>,
    pub(crate) thread: ThreadChoice,
    pub(crate) policy: Policy,
    /// Index of the stage's first line. The table below shows the words on the stage's lines, in
    /// order.
    ///
    /// | delivery | lines |
    /// |---|---|
    /// | each | the released position |
    /// | shards | what each shard has passed |
    /// | pool | the claim word, a bound per seat, the landmark |
    /// | tap | the members (see [`Delivery::has_member_bits`]), a bound and a badge per member |
    pub(crate) line: usize,
    /// Index of the stage's first seat.
    pub(crate) first_seat: usize,
    /// Number of the stage's seats: one for each handle that it has room for, and
    /// [`TICKETS_LEFT`](crate::ring::spec::TICKETS_LEFT) more if its workers leave tickets.
    pub(crate) seats: usize,
    /// Indices of the sharded stages whose shard ids this stage computes.
    pub(crate) partitions: Vec<usize>,
    /// The cache line on which the stage announces positions, and the taps that it follows; `None`
    /// if it follows no tap.
    pub(crate) guard: Option<Guard>,
    /// For a tap: indices of the lines on which its followers announce positions. Empty for other
    /// stages.
    pub(crate) announced: Vec<usize>,
    /// Index of the queue at which the stage waits for the stages before itself.
    pub(crate) queue: usize,
    /// Indices of the queues that the stage notifies at each release.
    pub(crate) notifies: Vec<usize>,
    pub(crate) wait: Contained<Wait>,
    /// Whether the stage sleeps at its queue. If not, publications and releases need not notify the
    /// queue for this stage. The build calls the strategy's method once and stores the result,
    /// because a second call of user code might return another result.
    pub(crate) parks: bool,
    /// Whether the stage is a pool with a queue of its own, which wakes one (queue::I6).
    pub(crate) wakes_one: bool,
}

impl Stage {
    /// Returns `notifies` without the pool's own queue, which is the last one, if it wakes one.
    pub(crate) fn notifies_behind(&self) -> &[usize] {
        match self.notifies.split_last() {
            Some((&last, behind)) if self.wakes_one && last == self.queue => behind,
            _ => &self.notifies,
        }
    }
    /// Returns the index of the line that holds the bound of the worker or member at `seat`.
    #[inline(always)]
    pub(crate) fn bound_line(&self, seat: usize) -> usize {
        self.line + 1 + seat
    }
    /// Returns the index of the line that holds the badge of the member at `seat`.
    pub(crate) fn badge_line(&self, seat: usize) -> usize {
        self.line + 1 + self.seats + seat
    }
    /// Returns whether the stage's workers leave their tickets before they sleep (`worker::I6`).
    pub(crate) fn leaves_tickets(&self) -> bool {
        self.seats > self.delivery.room()
    }
    /// Returns the index of the line that holds the pool's landmark, a recent position of the
    /// pool's claim word.
    #[inline(always)]
    pub(crate) fn landmark_line(&self) -> usize {
        self.line + 1 + self.seats
    }
    /// Returns the indices of the lines on which the stage's handles store their progress.
    pub(crate) fn handle_lines(&self) -> Range<usize> {
        match self.delivery {
            Delivery::Each | Delivery::Shards(_) => self.line..self.line + self.lines(),
            Delivery::Pool { .. } | Delivery::Tap(_) => {
                self.bound_line(0)..self.bound_line(self.seats)
            }
        }
    }
    /// Returns the number of the stage's lines.
    pub(super) fn lines(&self) -> usize {
        self.delivery.lines() + self.seats - self.delivery.room()
    }
    /// Returns a position that is no later than a pool's frontier, if `claimed` is a position of
    /// the pool's claim word. The claim word is at most a lap ahead of the frontier, and a ticket
    /// for each seat (`worker::I6`).
    pub(crate) fn a_lap_before(&self, claimed: u64, capacity: usize) -> u64 {
        claimed.wrapping_sub((capacity + self.seats) as u64)
    }
}

/// The cache line on which a party announces its positions, and the taps that it passes. The party
/// first stores on `line` the position up to which it will go, and then loads the bounds of the
/// taps' members. See PROTOCOL.md ("Joining").
pub(crate) struct Guard {
    pub(crate) line: usize,
    pub(crate) taps: Vec<usize>,
}

/// Line of the claim word, which only rings with many producers use.
pub(crate) const CLAIM_LINE: usize = 0;
/// Line of the sentinel, which gates the producers if no stage does. A tap that directly follows
/// many producers follows the sentinel, too.
pub(crate) const SENTINEL_LINE: usize = 1;
/// Line of the cursor of a single producer.
pub(crate) const CURSOR_LINE: usize = 2;
/// Line of the first stage.
pub(super) const FIRST_LINE: usize = 3;
/// Index of the queue at which producers wait for room.
pub(crate) const PRODUCER_QUEUE: usize = 0;
