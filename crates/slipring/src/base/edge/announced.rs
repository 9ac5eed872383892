//! The edge `announced` is between a sleeper that announces itself and a notifier that stores
//! progress. At least one of them sees the other's store.
//!
//! The sleeper and the notifier each store one word, issue a fence, and load the other's word. The
//! notifiers of a quiet queue issue no fence. Instead, the queue's sleeper executes a memory
//! barrier in every thread.
//!
//! The imports of this file use `super`: where `queue_model.rs` compiles this file a second time,
//! `super` holds the modules of a simulated machine.

use super::sync::{SeqCst, compiler_fence, fence, twin};
use super::system;

/// Orders a sleeping thread's announcement before the thread's last poll.
#[inline(always)]
pub(crate) fn fence_sleeper() {
    twin!("sleeper-unfenced": fence(SeqCst) => ());
}

/// Orders a sleeping task's announcement before the task's last poll.
#[inline(always)]
pub(crate) fn fence_task() {
    twin!("task-unfenced": fence(SeqCst) => ());
}

/// Orders the first request of a ring before the asker's load of the ring's status.
#[inline(always)]
pub(crate) fn fence_asker() {
    twin!("asker-unfenced": fence(SeqCst) => ());
}

/// Executes a memory barrier in every thread of the process. A sleeper of a quiet queue calls this
/// between its announcement and its last poll. Returns `false` if the system refused the barrier.
#[inline(always)]
pub(crate) fn fence_all_threads() -> bool {
    twin!("barrier-left-out": system::membarrier() => true)
}

/// Executes a memory barrier in every thread of every process that registered for it. A sleeper of
/// a segment's quiet queue calls this between its announcement and its last poll. Returns `false`
/// if the system refused the barrier.
#[inline(always)]
pub(crate) fn fence_all_processes() -> bool {
    twin!("process-barrier-left-out": system::membarrier_in_processes() => true)
}

/// Orders a notifier's progress before its load of the state word.
#[inline(always)]
pub(crate) fn fence_notifier() {
    twin!("notifier-unfenced": fence(SeqCst) => ());
}

/// Orders the store of the graph's end before the loads of all queues' state words.
#[inline(always)]
pub(crate) fn fence_ending() {
    twin!("ending-unfenced": fence(SeqCst) => ());
}

/// Keeps the compiler from moving a notifier's store of progress behind its load of a quiet queue's
/// state word. The processor needs no fence here, because a sleeper of a quiet queue executes a
/// memory barrier in every thread.
#[inline(always)]
pub(crate) fn order_quiet_check() {
    compiler_fence(SeqCst);
}
