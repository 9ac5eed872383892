//! The board: all words through which the handles of a ring communicate, except the stamps, which
//! lie with the slots.
//!
//! The handles of one process share a [`Control`](crate::ring::control::Control), and each process
//! has a `Control` of its own. All `Control`s of a ring have the same board.
//!
//! Invariants
//! - I1: the parts of a board have the sizes that the plan of its ring asks for, and hold their
//!   first values before the first handle exists.

use crate::base::maybe_mapped::MaybeMapped;
use crate::base::sync::{AtomicU64, Line, array, planted};
use crate::ring::counters::CounterWords;
use crate::ring::plan::Plan;
use crate::ring::positions::Positions;
use crate::ring::seat::Seat;
use crate::ring::status::{FailureRecord, StatusWords};
use crate::wait::queue::WaitQueue;
use crate::wait::queue_state::QueueState;

/// The number that marks a seat as owned by a handle, in a ring on the heap.
const PARTICIPANT: u32 = 1;

/// Returns whether the calling process is the one that mapped the words. A forked child inherits
/// handles, but not the memory of a segment.
pub(crate) type IsOwnProcess = Box<dyn Fn() -> bool + Send + Sync>;

/// The words that the handles of a ring share.
pub(crate) struct Board {
    /// The shared words, one on each cache line that the plan assigns.
    pub(crate) lines: MaybeMapped<[Line<AtomicU64>]>,
    /// The seats of all parties.
    pub(crate) seats: MaybeMapped<[Line<Seat>]>,
    /// The cells of each stage, one per slot: empty, unless the stage is a pool of a segment.
    pub(crate) cells: Box<[MaybeMapped<[AtomicU64]>]>,
    /// The number that marks a seat as owned by a handle of this process.
    pub(crate) participant: u32,
    pub(crate) status: MaybeMapped<Line<StatusWords>>,
    pub(crate) queues: Box<[WaitQueue]>,
    /// Whether each notification of this process executes a fence; see [`Waits`].
    ///
    /// [`Waits`]: crate::ring::waits::Waits
    pub(crate) always_fences: bool,
    /// The record of the graph's failure, which other processes read; `None` if no other process
    /// shares the ring.
    pub(crate) failure: Option<MaybeMapped<FailureRecord>>,
    /// Function that returns whether the calling process may use the words; `None` for words on the
    /// heap, which any process may use, because a forked child has its own copy of the heap.
    pub(crate) is_own_process: Option<IsOwnProcess>,
    pub(crate) counters: CounterWords,
}

impl Board {
    /// Size of one shared line, in bytes.
    pub(crate) const BYTES_PER_LINE: usize = size_of::<Line<AtomicU64>>();

    /// Returns the size of a board on the heap, in bytes.
    pub(crate) fn bytes(plan: &Plan) -> u128 {
        let lines = (plan.lines as u128).saturating_add(plan.seats() as u128);
        let queue = size_of::<WaitQueue>() + size_of::<Line<QueueState>>();
        let queues = plan.queues as u128 * queue as u128;
        let lines = lines.saturating_mul(Board::BYTES_PER_LINE as u128);
        lines.saturating_add(queues).saturating_add(CounterWords::bytes(plan.stages.len() + 1))
    }

    /// Makes the board of a ring that one process uses and whose first position is `start`. Returns
    /// `None` if there is not enough memory for its lines.
    pub(crate) fn heap(plan: &Plan, start: u64) -> Option<Board> {
        let word = |line| Line::new(AtomicU64::new(Positions::first_word(plan, line, start)));
        let seats = array(plan.seats(), |_| Line::new(Seat::default()))?;
        for stage in plan.stages.iter().filter(|stage| stage.delivery.has_bounds()) {
            for seat in &seats[stage.first_seat..][..stage.delivery.len()] {
                seat.take(PARTICIPANT).expect("a new seat is free");
            }
        }
        let queue = |queue| {
            if plan.wakes_one(queue) { WaitQueue::of_pool() } else { WaitQueue::new() }
        };
        let board = Board {
            lines: array(plan.lines, word)?.into(),
            seats: seats.into(),
            cells: plan.stages.iter().map(|_| MaybeMapped::from(Box::default())).collect(),
            participant: PARTICIPANT,
            status: MaybeMapped::new(Line::new(StatusWords::default())),
            queues: (0..plan.queues).map(queue).collect(),
            always_fences: planted!("queue-never-quiet": false => true),
            failure: None,
            is_own_process: None,
            counters: CounterWords::heap(plan.stages.len() + 1)?,
        };
        #[cfg(slipring_coherence)]
        board.name_lines(plan);
        Some(board)
    }

    /// Names the board's lines for the simulator's reports.
    #[cfg(slipring_coherence)]
    fn name_lines(&self, plan: &Plan) {
        use crate::ring::stage::{CLAIM_LINE, CURSOR_LINE, SENTINEL_LINE};
        use slipring_coherence::label;

        for (number, word) in self.lines.iter().enumerate() {
            let name = match (plan.stage_of(number), number) {
                (Some(stage), _) => {
                    let stage = &plan.stages[stage];
                    format!("word {} of `{}`", number - stage.line, stage.name)
                }
                (None, CLAIM_LINE) => "claim word".to_owned(),
                (None, SENTINEL_LINE) => "sentinel".to_owned(),
                (None, CURSOR_LINE) => "cursor".to_owned(),
                (None, _) => format!("word {number} of the board"),
            };
            label(word, &name);
        }
        label(&*self.status, "status");
        for (number, queue) in self.queues.iter().enumerate() {
            queue.label(&format!("wait queue {number}"));
        }
    }
}
