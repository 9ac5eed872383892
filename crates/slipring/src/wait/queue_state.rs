//! The state of a wait queue: the words that notifiers and sleepers share without a lock.
//!
//! The state of a queue of one process lies on the heap. The state of a queue that several
//! processes share lies in their segment.
//!
//! Invariants
//! - I1: notifiers compare only the low half of the state word. Changes of the high half do not
//!   matter to them.

use std::time::Duration;

use super::sync::{AtomicU64, Relaxed, Statistic};

/// Low half of a quiet queue's state word: no sleeper is announced, and notifiers execute no fence.
pub(super) const QUIET: u32 = 0;
/// The bit of the state word that makes notifiers execute a fence.
pub(super) const FENCED: u32 = 1;
/// Increment of the state word for each announced sleeper. A sleeper is a thread or a task.
///
/// The count of sleepers overflows only at 2^31 armed tasks, and arming so many would take years,
/// because each arming searches all armed tasks. In a queue that processes share, 2^31 sleepers
/// would have to die between two wake-ups. The count would then carry into the epoch, and each
/// sleeper would sleep once until its limit.
pub(super) const SLEEPER: u32 = 2;
/// The bits of the state word that count the announced sleepers.
pub(super) const SLEEPERS: u64 = 0xFFFF_FFFE;
/// Increment of the epoch, the high half of the state word of a queue that processes share.
pub(super) const EPOCH: u64 = 1 << 32;

/// One queue spends at most `1 / BARRIER_SHARE` of the time on barriers. The time of a barrier
/// counts twice, because a barrier interrupts other threads for about as long again.
const BARRIER_SHARE: u64 = 128;
/// Shortest time from a barrier until the queue may become quiet again.
pub(super) const BARRIER_PAUSE: Duration = Duration::from_millis(1);

/// Longest time from a barrier until a queue that processes share may become quiet again. A
/// notifier ignores a later time, which only a process with another clock, or a damaged process,
/// can have stored.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Returns the time from which a queue may become quiet again, if its barrier lasted from `began`
/// to `ended`. All three are in nanoseconds.
pub(super) fn quiet_after(began: u64, ended: u64) -> u64 {
    let pause = ended.saturating_sub(began).saturating_mul(2 * BARRIER_SHARE);
    ended.saturating_add(pause.max(BARRIER_PAUSE.as_nanos() as u64))
}

/// The part of a queue that notifiers access without a lock. A `QueueState` has a cache line of its
/// own.
#[repr(C)]
pub(crate) struct QueueState {
    /// The low half is `announced sleepers *` [`SLEEPER`] `+` [`FENCED`]. The bit [`FENCED`] is
    /// clear while the queue is quiet. After that it stays clear until the queue's next sleeper has
    /// called membarrier(2). The high half is the epoch. If processes share the queue, each wake-up
    /// raises the epoch; otherwise the epoch is always zero.
    pub(super) word: AtomicU64,
    /// 1 if a sleeper found that the system refuses membarriers. Notifiers never make such a queue
    /// quiet. Only a queue that processes share uses the word.
    pub(super) restless: AtomicU64,
    /// Number of fenced notifications without a sleeper, modulo
    /// [`NOTIFIES_BEFORE_QUIET`](super::queue::NOTIFIES_BEFORE_QUIET).
    pub(super) fenced_notifies: Statistic,
    /// Time from which the queue may become quiet, in nanoseconds of the queue's clock.
    pub(super) quiet_after: Statistic,
    /// Time of the first notification since a thread last fell asleep, in nanoseconds of the
    /// queue's clock; 0 if there was none.
    pub(super) notified_at: Statistic,
}

impl QueueState {
    /// Makes the initial state of a queue, which has no sleepers. Its notifiers execute fences.
    pub(crate) fn new() -> QueueState {
        QueueState {
            word: AtomicU64::new(u64::from(FENCED)),
            restless: AtomicU64::new(0),
            fenced_notifies: Statistic::new(0),
            quiet_after: Statistic::new(0),
            notified_at: Statistic::new(0),
        }
    }

    /// Returns the number of announced sleepers in a copy of the state word.
    pub(crate) fn sleepers(word: u64) -> u32 {
        ((word & SLEEPERS) / u64::from(SLEEPER)) as u32
    }

    /// Returns the low half of the state word.
    #[inline(always)]
    pub(super) fn load(&self) -> u32 {
        self.word.load(Relaxed) as u32
    }
}
