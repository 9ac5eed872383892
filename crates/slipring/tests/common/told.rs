//! A strategy that notes whether its graph has more threads than cores, and two cores for tests to
//! bind threads to.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use slipring::waiting::{WaitAction, WaitContext, WaitStrategy};

/// A strategy that notes what it was told last.
#[derive(Debug, Default)]
pub struct Told(pub AtomicBool);

impl WaitStrategy for Told {
    fn next_action(&self, context: &WaitContext) -> WaitAction {
        if context.now.is_none() {
            return WaitAction::Clock;
        }
        self.0.store(context.oversubscribed, SeqCst);
        WaitAction::Sleep(Duration::from_millis(1))
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "told".into()
    }
}

/// Returns two cores of this process, or `None` if it has only one.
pub fn two_cores() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let quota = thread::available_parallelism().unwrap().get();
    Some([cores.next()?, cores.next()?]).filter(|_| quota > 1)
}

/// Binds a thread, or the calling thread, to a core.
pub fn bind(thread: Option<Pid>, core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(thread, &set).unwrap();
}
