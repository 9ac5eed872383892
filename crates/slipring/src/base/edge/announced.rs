//! Of a sleeper that announces itself and a notifier that stores progress, one sees the other.
//!
//! Each side stores one word and then loads another, so each side issues a fence in between. The
//! notifiers of a quiet queue issue none: the sleeper issues a barrier in every thread instead.
//!
//! Paths go by `super`, because `queue_model.rs` includes this file a second time, on a simulated
//! machine.

use super::sync::{SeqCst, compiler_fence, fence, twin};
use super::system;

/// Orders a sleeping thread's announcement before its last poll.
#[inline(always)]
pub(crate) fn fence_sleeper() {
    twin!("sleeper-unfenced": fence(SeqCst) => ());
}

/// Orders a sleeping task's announcement before its last poll.
#[inline(always)]
pub(crate) fn fence_task() {
    twin!("task-unfenced": fence(SeqCst) => ());
}

/// Orders an announcement in a quiet queue before the last poll, by a barrier in every thread of
/// the process. Returns `false` if the system refused the barrier.
#[inline(always)]
pub(crate) fn fence_all_threads() -> bool {
    twin!("barrier-left-out": system::membarrier() => true)
}

/// Orders a notifier's progress before its load of the state word.
#[inline(always)]
pub(crate) fn fence_notifier() {
    twin!("notifier-unfenced": fence(SeqCst) => ());
}

/// Orders an ending before the loads of all queues' state words.
#[inline(always)]
pub(crate) fn fence_ending() {
    fence(SeqCst);
}

/// Orders a notifier's progress before its load of a quiet queue's state word, for the compiler.
/// The sleeper's barrier does so for the processor.
#[inline(always)]
pub(crate) fn order_quiet_check() {
    compiler_fence(SeqCst);
}
