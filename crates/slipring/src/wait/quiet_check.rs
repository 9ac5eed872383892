//! The check by which a producer finds that the queue of its publications needs no notification.
//!
//! Invariants
//! - I1: a queue's state does not move, and a ring keeps its queues (queue::I5). A handle with a
//!   [`QuietCheck`] keeps its ring alive.

#[cfg(not(slipring_loom))]
use std::ptr::NonNull;

use super::queue::WaitQueue;
#[cfg(not(slipring_loom))]
use super::queue_state::{FENCED, QUIET};
#[cfg(not(slipring_loom))]
use super::sync::{AtomicU64, Line, Relaxed};

/// A direct pointer to the state word of the queue that a handle notifies. Most handles notify a
/// single queue. Without the pointer, each publication would look up the queue's index in the plan,
/// which would take 5 ns of the publication's 12 ns.
pub(crate) struct QuietCheck(#[cfg(not(slipring_loom))] NonNull<AtomicU64>);

// SAFETY: the pointer is only used to load an atomic word, which any thread may load while the
// queue is alive (I1).
unsafe impl Send for QuietCheck {}
// SAFETY: as above.
unsafe impl Sync for QuietCheck {}

impl QuietCheck {
    /// Creates the `QuietCheck` of one handle. `notifies` contains the indices of the queues that
    /// the handle notifies. If `always_fences` is set, the check never says that the queue is
    /// quiet.
    pub(crate) fn at(queues: &[WaitQueue], notifies: &[usize], always_fences: bool) -> QuietCheck {
        #[cfg(slipring_loom)]
        let quiet_check = {
            let _ = (queues, notifies, always_fences);
            QuietCheck()
        };
        #[cfg(not(slipring_loom))]
        let quiet_check = {
            /// A word that is always quiet. Each publication loads this word or the next one, so
            /// no other variable of the program shares their lines.
            static NO_QUEUE: Line<AtomicU64> = Line::new(AtomicU64::new(QUIET as u64));
            /// A word that is never quiet.
            static SEVERAL_QUEUES: Line<AtomicU64> = Line::new(AtomicU64::new(FENCED as u64));
            QuietCheck(NonNull::from(match notifies {
                [] => &*NO_QUEUE,
                [one] if !always_fences => queues[*one].word(),
                _ => &*SEVERAL_QUEUES,
            }))
        };
        quiet_check
    }

    /// Returns whether the handle's queue is quiet, and needs no notification. The caller first
    /// stores its progress and issues a compiler fence. For a handle that notifies several queues,
    /// `is_quiet` always returns `false`.
    ///
    /// # Safety
    /// The queues that the check was created for are alive (I1).
    #[inline(always)]
    pub(crate) unsafe fn is_quiet(&self) -> bool {
        // In a loom model no queue is quiet, because loom has no membarrier.
        #[cfg(slipring_loom)]
        let quiet = false;
        // SAFETY: the caller keeps the queue alive.
        #[cfg(not(slipring_loom))]
        let quiet = unsafe { self.0.as_ref() }.load(Relaxed) as u32 == QUIET;
        quiet
    }
}
