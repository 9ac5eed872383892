//! The cores that a graph counts, with threads that are really bound: by what each thread's
//! strategy is told. A machine with a single core has nothing to bind to.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;
#[path = "common/told.rs"]
mod told;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use slipring::{Graph, Reader, Wait, errors::BatchError};
use told::{Told, bind, two_cores};

/// Waits for some time in a reader that gets no event.
fn wait(reader: &mut Reader<u64>) {
    let until = Instant::now() + Duration::from_millis(100);
    assert!(matches!(reader.batch_by(1, until), Err(BatchError::TimedOut(_))));
}

/// Runs `check` on a thread of its own, whose binding ends with it.
fn apart(check: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(check).join().unwrap());
}

#[test]
fn a_bound_builder_and_a_bound_reader_have_two_cores() {
    let _watched = crate::common::watched();
    let Some([one, two]) = two_cores() else { return };
    for (builder, reader, crowded) in [(one, two, false), (one, one, true)] {
        apart(move || {
            bind(None, builder);
            let told = Arc::new(Told::default());
            let graph = Graph::new(8, || 0u64).wait(Wait::Custom(told.clone()));
            let key = graph.reader("log");
            let ring = graph.build().unwrap();
            let (_tx, mut rx) = (ring.producer(), ring.reader(key));
            apart(move || {
                bind(None, reader);
                wait(&mut rx);
                assert_eq!(told.0.load(SeqCst), crowded, "{builder}, {reader}");
            });
        });
    }
}

#[test]
fn threads_that_are_bound_while_they_wait_are_counted_anew() {
    let _watched = crate::common::watched();
    let Some([one, two]) = two_cores() else { return };
    let told = Arc::new(Told::default());
    let graph = Graph::new(8, || 0u64).wait(Wait::Custom(told.clone()));
    let key = graph.reader("log");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let becomes = |crowded: bool| {
        while told.0.load(SeqCst) != crowded {
            thread::sleep(Duration::from_millis(1));
        }
    };
    apart(move || {
        let (sender, reader) = std::sync::mpsc::channel();
        let log = thread::spawn(move || {
            sender.send(gettid()).unwrap();
            rx.for_each(|_, _| ())
        });
        let reader = reader.recv().unwrap();
        // A producer that never waits is noted after some thousand events.
        (0..3000).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        for (own, others, crowded) in
            [(one, one, true), (two, one, false), (two, two, true), (one, two, false)]
        {
            bind(None, own);
            bind(Some(reader), others);
            becomes(crowded);
        }
        tx.close();
        log.join().unwrap().unwrap();
    });
}
