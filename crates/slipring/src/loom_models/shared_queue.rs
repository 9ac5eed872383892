//! Model of a sleeper and a notifier of the queue that processes share. The model's futex sleeps
//! without a time limit, so a lost wake-up causes a deadlock.
//!
//! In a loom model no queue is quiet, so the sleeper and the notifier rely on their fences. The
//! models of quiet queues are in `wait/queue_model/between_processes.rs`. Those models cannot show
//! that the sleeper needs its fence: they model an x86 machine, on which the sleeper's announcement
//! is itself a fence.

use loom::thread;

use super::*;
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::sync::{AtomicU64, Line, Relaxed};
use crate::wait::queue::{WaitQueue, notify};
use crate::wait::queue_state::QueueState;

/// Shows that a notification wakes a sleeper of another process.
#[test]
fn loom_a_sleeper_of_another_process() {
    explore(10, None, || {
        let queue = WaitQueue::between_processes(MaybeMapped::new(Line::new(QueueState::new())));
        let shared = Arc::new(([queue], AtomicU64::new(0)));
        let asleep_at = shared.clone();
        let sleeping = thread::spawn(move || {
            let (queues, progress) = &*asleep_at;
            while progress.load(Relaxed) == 0 {
                let _asleep = crate::base::model_hooks::asleep("s0");
                queues[0].sleep(None, &mut || progress.load(Relaxed) != 0);
            }
        });
        shared.1.store(1, Relaxed);
        notify(&shared.0, &[0]);
        sleeping.join().unwrap();
    });
}

macro_rules! twins {
    ($($test:ident: $twin:literal;)+) => {
        $(
            #[test]
            fn $test() {
                let model = "shared_queue::loom_a_sleeper_of_another_process";
                caught(model, $twin, Caught::Deadlock(&["s0"]));
            }
        )+
    };
}
twins! {
    loom_twin_shared_sleeper_unfenced: "sleeper-unfenced";
    loom_twin_shared_notifier_unfenced: "notifier-unfenced";
    loom_twin_shared_sleeper_blind: "sleeper-blind";
    loom_twin_shared_same_epoch: "same-epoch";
}
