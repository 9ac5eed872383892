//! Of a sleeper that announces itself and a notifier that stores progress, one sees the other.
//!
//! A store must come before a later load of another word on both sides, so both sides fence. The
//! notifiers of a quiet queue do without: the sleeper has every thread pass a barrier instead.
//!
//! Paths go by `super`, because the model of the wait queue includes this file a second time, on
//! the atomics and the barrier of a machine of its own.

use super::sync::{SeqCst, compiler_fence, fence, twin};
use super::system;

/// Orders a thread's announcement before its last look for progress.
#[inline(always)]
pub(crate) fn fence_sleeper() {
    twin!("sleeper-unfenced": fence(SeqCst) => ());
}

/// Orders a task's announcement before its last look for progress.
#[inline(always)]
pub(crate) fn fence_task() {
    twin!("task-unfenced": fence(SeqCst) => ());
}

/// Has every thread of the process pass a barrier, at a queue whose notifiers do not fence.
/// `false`: the system refused.
#[inline(always)]
pub(crate) fn fence_all_threads() -> bool {
    twin!("barrier-left-out": system::membarrier() => true)
}

/// Orders a notifier's progress before its look at the announcements.
#[inline(always)]
pub(crate) fn fence_notifier() {
    twin!("notifier-unfenced": fence(SeqCst) => ());
}

/// Orders an ending before the look at the announcements of all queues.
#[inline(always)]
pub(crate) fn fence_ending() {
    fence(SeqCst);
}

/// Keeps the compiler from moving a notifier's progress behind its look at a quiet queue. The
/// sleeper's barrier keeps the processor from it.
#[inline(always)]
pub(crate) fn order_quiet_check() {
    compiler_fence(SeqCst);
}
