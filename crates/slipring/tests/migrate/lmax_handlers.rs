//! Rows of MIGRATING.md on the LMAX Disruptor: handlers, polls, and exceptions.

use slipring::{
    At,
    errors::{Cause, WaitError},
    faults::Fault,
    stages::ReadHandler,
};

use crate::common::{Oops, PURPOSE, quiet};
use crate::{chain, graph, pair};

// Handlers.

/// A handler that logs its calls, and fails in the call whose line is `fails`.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    fails: &'static str,
}

impl Log {
    fn note(&mut self, line: String) -> Result<(), Fault> {
        let fails = line == self.fails;
        self.lines.push(line);
        if fails { Err(Oops(1).into()) } else { Ok(()) }
    }
}

impl ReadHandler<u64> for Log {
    fn start(&mut self) -> Result<(), Fault> {
        self.note("start".into())
    }
    fn event(&mut self, event: &u64, _: At) -> Result<(), Fault> {
        self.note(format!("event {event}"))
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        self.note(format!("end {next_seq}"))
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.note("stop".into())
    }
}

#[test]
fn a_handler_has_a_life() {
    let _watched = crate::common::watched();
    let mut log = Log::default();
    chain(16)
        .read_with("log", &mut log)
        .run_inline(|p| {
            for len in [2, 1] {
                p.publish_all(0..len, |slot, i| *slot = i)?;
                p.work();
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(log.lines, ["start", "event 0", "event 1", "end 2", "event 0", "end 3", "stop"]);
}

#[test]
fn a_batch_handler_knows_the_size() {
    let _watched = crate::common::watched();
    let mut batches = Vec::new();
    chain(16)
        .read_batch("r", |events, first_seq| batches.push((first_seq, events.len())))
        .run_inline(|p| {
            for len in [3, 10] {
                p.publish_all(0..len, |slot, i| *slot = i)?;
                while p.work() > 0 {}
            }
            Ok(())
        })
        .unwrap();
    // Each batch has all available events, but at most a quarter of the ring.
    assert_eq!(batches, [(0, 3), (3, 4), (7, 4), (11, 2)]);
}

#[test]
fn a_poll_never_waits() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let before = graph.reader("before");
    let polls = graph.reader("polls").after(&before);
    let ring = graph.build().unwrap();
    let (mut tx, mut before, mut polls) =
        (ring.producer(), ring.reader(before), ring.reader(polls));
    assert_eq!(polls.poll(9, |_, _| ()).unwrap(), 0); // no event is published
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    assert_eq!(polls.poll(9, |_, _| ()).unwrap(), 0); // the stage before holds the events
    assert_eq!(before.poll(9, |_, _| ()).unwrap(), 4); // the whole ring
    assert_eq!(polls.poll(1, |v, _| assert_eq!(*v, 0)).unwrap(), 1); // at most one event
    assert_eq!(polls.poll(9, |_, _| ()).unwrap(), 3);
    tx.close();
    assert!(matches!(polls.poll(9, |_, _| ()), Err(WaitError::Closed)));
}

#[test]
fn a_stage_tells_where_it_stands() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(8);
    assert_eq!(rx.next_seq(), 0);
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    assert_eq!((rx.next_seq(), &*rx.stage()), (0, "r"));
    assert_eq!(rx.try_batch(2).unwrap().len(), 2); // not released
    assert_eq!(rx.next_seq(), 0);
    rx.try_batch(2).unwrap().release();
    assert_eq!(rx.next_seq(), 2);
    rx.poll(9, |_, _| ()).unwrap();
    assert_eq!(rx.next_seq(), 3);
}

// Exceptions.

#[test]
fn an_error_comes_back_whole() {
    let _watched = crate::common::watched();
    let mut log = Log { fails: "event 3", ..Log::default() };
    let error = chain(8)
        .read("beside", |_, _| ())
        .read_with("fails", &mut log)
        .feed(0..9, |slot, i| *slot = i)
        .unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("fails"), Some(3), Some(&Oops(1)))
    );
    assert_eq!(error.report().unwrap().stage("fails").unwrap().events, 3);
    // The stage stops after the error, and handles no further event.
    assert_eq!(log.lines[log.lines.len() - 2..], ["event 3", "stop"]);
}

#[test]
fn a_panic_comes_back() {
    let _watched = crate::common::watched();
    quiet();
    let panics = |v: &u64, _: At| assert!(*v < 3, "{v} {PURPOSE}");
    let error = chain(8).read("panics", panics).feed(0..9, |slot, i| *slot = i).unwrap_err();
    assert_eq!((error.stage(), error.seq()), (Some("panics"), Some(3)));
    assert!(
        matches!(error.failure().unwrap().cause(), Cause::Panic(text) if text == "3 on purpose")
    );
}

#[test]
fn an_error_at_the_start() {
    let _watched = crate::common::watched();
    let mut log = Log { fails: "start", ..Log::default() };
    let error = chain(8).read_with("fails", &mut log).feed(0.., |slot, i| *slot = i).unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("fails"), None, Some(&Oops(1)))
    );
    assert_eq!(log.lines, ["start"]);
}

#[test]
fn an_error_at_the_end() {
    let _watched = crate::common::watched();
    for (fails, seen) in [("stop", 4), ("end 2", 3)] {
        let mut log = Log { fails, ..Log::default() };
        let chain = chain(16).read_with("fails", &mut log);
        let error =
            chain.run_inline(|p| Ok(p.publish_all(0..2, |slot, i| *slot = i)?)).unwrap_err();
        assert_eq!(
            (error.stage(), error.seq(), error.downcast_ref()),
            (Some("fails"), None, Some(&Oops(1)))
        );
        assert_eq!(log.lines[seen], if seen == 4 { "stop" } else { "end 2" });
    }
}
