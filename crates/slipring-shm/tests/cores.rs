//! The cores that a ring between processes counts: other processes may run anywhere. A machine with
//! a single core has nothing to bind to.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;
#[path = "../../slipring/tests/common/told.rs"]
mod told;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::*;
use rustix::thread::Pid;
use slipring::{Wait, errors::BatchError};
use slipring_shm::{Attached, Segment};
use told::{Told, bind, two_cores};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process needs no watchdog, because the process that waits for it has one.
    drop(_watched);
    play(&[("producer", role_producer)]);
}

fn attach(segment: &Segment<u64>) -> Attached<u64> {
    // SAFETY: only this test knows the segment.
    unsafe { segment.attach().unwrap() }
}

fn role_producer() {
    let me = attach(&Segment::open(value("NAME")).unwrap());
    let _tx = me.producer().unwrap();
    say("taken");
    listen();
}

/// Binds all threads of a process.
fn bind_process(process: u32, core: usize) {
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap().parse().unwrap();
        bind(Pid::from_raw(thread), core);
    }
}

#[test]
fn a_process_on_one_core_leaves_the_others_to_other_processes() {
    let _watched = watched();
    let Some([one, two]) = two_cores() else { return skip("there is a single core") };
    let name = Name::new();
    let segment = Segment::create(&name.0).capacity(4).reader("log").build().unwrap();
    let mut producer = Role::start("producer", &[("NAME", name.0.as_str())]);
    assert_eq!(producer.hear(), "taken");
    // The thread is one of its own, so that its binding ends with it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bind(None, one);
            let told = Arc::new(Told::default());
            let me = attach(&segment).wait(Wait::Custom(told.clone())).unwrap();
            let mut log = me.reader("log").unwrap();
            for other in [two, one] {
                bind_process(producer.pid(), other);
                until(|| {
                    let soon = Instant::now() + Duration::from_millis(20);
                    assert!(matches!(log.batch_by(1, soon), Err(BatchError::TimedOut(_))));
                    !told.0.load(SeqCst)
                });
            }
        });
    });
    producer.tell("end");
    assert!(producer.end().success());
}
