//! Models of tasks that wait in a queue between processes, and of the thread that sleeps on their
//! behalf. The model's futex sleeps without a time limit, so a lost wake-up causes a deadlock.
//!
//! Each model ends with the end of the ring, which stops the thread. In a model, the thread keeps
//! sleeping in the queue while no task is armed.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::thread;

use super::processes::Segment;
use super::task::block_on;
use super::*;
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::sync::{AtomicU64, Line, Relaxed, Weak};
use crate::processes::reactors::{Reactors, SleptFor};
use crate::ring::waits::{NumberedQueue, Place, WaitingTask};
use crate::segment::OnDeath;
use crate::wait::queue::{WaitQueue, notify};
use crate::wait::queue_state::QueueState;
use Access::Read;

/// A queue, and the progress that its notifier makes.
struct Site {
    queues: [WaitQueue; 1],
    progress: AtomicU64,
    reactors: Reactors,
}

impl SleptFor for Site {
    fn queue(&self, index: usize) -> &WaitQueue {
        &self.queues[index]
    }

    fn notice(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn watch(&self, _: u64, _: Place) -> bool {
        false
    }

    fn may_proceed(&self, _: Place) -> bool {
        false
    }
}

impl Site {
    fn new() -> Arc<Site> {
        let queue = WaitQueue::between_processes(MaybeMapped::new(Line::new(QueueState::new())));
        let site = Arc::new(Site {
            queues: [queue],
            progress: AtomicU64::new(0),
            reactors: Reactors::new(1),
        });
        let ring: Arc<dyn SleptFor> = site.clone();
        site.reactors.watch(Weak::clone(&Arc::downgrade(&ring)));
        site
    }

    fn queue(&self) -> NumberedQueue<'_> {
        NumberedQueue { index: 0, queue: &self.queues[0] }
    }

    fn arm(&self, number: u64, waker: &Waker) -> bool {
        let ready = &mut || self.progress.load(Relaxed) != 0;
        let task = WaitingTask { place: Place { party: 0, at: 0 }, number, waker };
        self.reactors.arm(self.queue(), task, ready)
    }

    /// Stops the reactors' threads, as the ring's end does.
    fn stop(&self) {
        let _asleep = crate::base::model_hooks::asleep("the end");
        self.reactors.stop(&self.queues);
    }
}

/// Shows that a notification of another process wakes a task. With `thread_is_there`, an earlier
/// task has registered its waker and withdrawn it. So the thread may already sleep in the queue
/// when this task registers.
fn a_task_of_a_shared_queue(preemptions: Option<usize>, thread_is_there: bool) {
    explore(10, preemptions, move || {
        let site = Site::new();
        if thread_is_there {
            assert!(!site.arm(9, Waker::noop()));
            site.reactors.disarm(site.queue(), 9);
        }
        let notifier = site.clone();
        let notifying = thread::spawn(move || {
            notifier.progress.store(1, Relaxed);
            notify(&notifier.queues, &[0]);
        });
        let waits = poll_fn(|context: &mut Context<'_>| {
            loop {
                if site.progress.load(Relaxed) != 0 {
                    return Poll::Ready(());
                }
                if !site.arm(1, context.waker()) {
                    return Poll::Pending;
                }
            }
        });
        block_on("s0", waits);
        notifying.join().unwrap();
        site.stop();
    });
}

/// Shows that a notification wakes a task that has just started the thread.
#[test]
fn loom_a_task_of_another_process() {
    a_task_of_a_shared_queue(Some(3), false);
}

/// Shows that a notification wakes a task that finds the thread asleep in the queue.
#[test]
fn loom_a_task_of_another_process_finds_a_thread() {
    a_task_of_a_shared_queue(Some(3), true);
}

/// Shows that the handles of a segment wake each other's tasks, and that the last handle of a
/// process stops the thread.
#[test]
fn loom_a_task_reads_from_a_segment() {
    explore(10, Some(2), || {
        let segment = Segment::new(1, &[(Read, &[], OnDeath::Wait)], Wait::Blocking);
        let (mut tx, mut rx) = (segment.producer(1, 1), segment.reader(2, 0));
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 7).unwrap();
            tx
        });
        let batch = block_on("s0", rx.batch_async(1)).unwrap();
        assert_eq!(batch[0], 7);
        batch.release();
        drop((publishing.join().unwrap(), rx));
    });
}

macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $party:literal;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("reactor::", $model), $twin, Caught::Deadlock(&[$party]));
            }
        )+
    };
}
twins! {
    loom_twin_reactor_task_unfenced: "loom_a_task_of_another_process", "task-unfenced", "s0";
    loom_twin_reactor_task_blind: "loom_a_task_of_another_process", "task-blind", "s0";
    loom_twin_reactor_notifier_unfenced:
        "loom_a_task_of_another_process", "notifier-unfenced", "s0";
    loom_twin_reactor_same_epoch: "loom_a_task_of_another_process", "same-epoch", "s0";
    loom_twin_reactor_noted_ignored: "loom_a_task_of_another_process", "noted-ignored", "s0";
    loom_twin_reactor_task_unlocked:
        "loom_a_task_of_another_process_finds_a_thread", "task-unlocked", "s0";
    loom_twin_reactor_stopped_uninterrupted:
        "loom_a_task_of_another_process_finds_a_thread", "stopped-uninterrupted", "the end";
}
