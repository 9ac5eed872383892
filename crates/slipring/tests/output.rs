//! Warnings: a warning that cannot be printed fails nothing, and a warning states only known facts.

mod common;

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use common::{Bomb, PURPOSE, child, ends_well, plays, quiet};
use slipring::{Graph, Wait, errors::BatchError};

/// Builds a graph with more spinning threads than cores.
fn build_oversubscribed() {
    let graph = Graph::new(2, || 0u64).wait(Wait::BusySpin);
    let stages = thread::available_parallelism().unwrap().get() + 2;
    let keys: Vec<_> = (0..stages).map(|i| graph.reader(&format!("s{i}"))).collect();
    drop((graph.build().unwrap(), keys));
}

/// Lets two spinning stages wait on the same core.
#[cfg(target_os = "linux")]
fn wait_on_one_core() {
    let graph = Graph::new(2, || 0u64).wait(Wait::BusySpin);
    let keys = ["left", "right"].map(|name| graph.reader(name));
    let ring = graph.build().unwrap();
    let _tx = ring.producer();
    thread::scope(|scope| {
        let waiting = keys.map(|key| {
            let mut rx = ring.reader(key);
            scope.spawn(move || {
                bind_to_one_core();
                assert!(matches!(
                    rx.batch_by(1, Instant::now() + Duration::from_millis(100)),
                    Err(BatchError::TimedOut(_))
                ));
                rx
            })
        });
        let handles = waiting.map(|thread| thread.join().unwrap());
        assert!(ring.report().stages().iter().all(|stage| stage.events == 0));
        drop(handles);
    });
}

/// Binds this thread to the first of its allowed cores.
#[cfg(target_os = "linux")]
fn bind_to_one_core() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(core);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_warning_that_cannot_be_printed_fails_nothing() {
    let _watched = crate::common::watched();
    const ROLE: &str = "a_warning_that_cannot_be_printed_fails_nothing";
    if plays(ROLE) {
        // The sleep gives the parent time to close the pipe.
        thread::sleep(Duration::from_millis(50));
        build_oversubscribed();
        return wait_on_one_core();
    }
    let mut piped = child(ROLE, Stdio::piped());
    drop(piped.stderr.take());
    ends_well("a closed pipe", piped);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    ends_well("a full device", child(ROLE, full.into()));
}

static WARNED: AtomicUsize = AtomicUsize::new(0);

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_panic_of_the_warning_hook_fails_nothing() {
    let _watched = crate::common::watched();
    const ROLE: &str = "a_panic_of_the_warning_hook_fails_nothing";
    if plays(ROLE) {
        quiet();
        assert!(slipring::waiting::on_warning(|warning| {
            assert!(!warning.to_string().is_empty());
            match WARNED.fetch_add(1, SeqCst) {
                0 => panic!("{PURPOSE}"),
                _ => std::panic::panic_any(Bomb),
            }
        }));
        build_oversubscribed();
        wait_on_one_core();
        return assert_eq!(WARNED.load(SeqCst), 2);
    }
    ends_well("a hook that panics", child(ROLE, Stdio::inherit()));
}

static WARNING: Mutex<String> = Mutex::new(String::new());

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_build_on_one_core_claims_nothing_about_the_graphs_threads() {
    let _watched = crate::common::watched();
    const ROLE: &str = "a_build_on_one_core_claims_nothing_about_the_graphs_threads";
    if plays(ROLE) {
        assert!(slipring::waiting::on_warning(
            |warning| *WARNING.lock().unwrap() = warning.to_string()
        ));
        bind_to_one_core();
        build_oversubscribed();
        let text = WARNING.lock().unwrap().clone();
        return assert!(!text.contains("1 cores") && !text.contains("1 core "), "{text}");
    }
    ends_well("a builder on one core", child(ROLE, Stdio::inherit()));
}

#[test]
fn a_report_proposes_shared_threads_where_threads_outnumber_cores() {
    let _watched = common::watched();
    let chain = |stages: usize| {
        let start = slipring::ring(8, || 0u64).read("first", |_, _| ());
        (1..stages).fold(start, |chain, i| chain.read(&format!("stage-{i}"), |_, _| ()))
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    let proposes = |report: &slipring::Report| report.to_string().contains("Threads::Auto");
    let crowded = chain(cores + 1).feed(0..100, |slot, i| *slot = i).unwrap();
    assert!(proposes(&crowded.report), "{crowded}");
    let (mut tx, pipeline) = chain(cores + 1).spawn().unwrap();
    tx.publish(|slot| *slot = 1).unwrap();
    tx.close();
    assert!(proposes(&pipeline.join().unwrap()));
    let shared = chain(cores + 1).threads(2).feed(0..100, |slot, i| *slot = i).unwrap();
    assert!(!proposes(&shared.report), "{shared}");
    let alone = chain(1).feed(0..100, |slot, i| *slot = i).unwrap();
    assert!(!proposes(&alone.report), "{alone}");
}
