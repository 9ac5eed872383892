//! State that comes back from handlers: `lend`.

mod common;

use std::sync::mpsc;
use std::thread;

use common::{Fragile, Oops, PURPOSE, ends, quiet, watched};
use slipring::faults::Fault;
use slipring::handles::Lent;
use slipring::stages::{ReadHandler, UpdateHandler};
use slipring::{At, Awaited, Graph, lend};

/// Returns a value that has come back.
fn back<T>(mut back: Awaited<T>) -> T {
    assert!(back.is_settled(), "the value is back by now");
    back.wait().unwrap()
}

#[derive(Debug, Default, PartialEq)]
struct Tally {
    sum: u64,
    starts: u64,
    stops: u64,
    batches: u64,
}

impl ReadHandler<u64> for Tally {
    fn start(&mut self) -> Result<(), Fault> {
        self.starts += 1;
        Ok(())
    }
    fn event(&mut self, event: &u64, _: At) -> Result<(), Fault> {
        self.sum += event;
        if *event == 99 { Err(Oops(99).into()) } else { Ok(()) }
    }
    fn batch_end(&mut self, _: u64) -> Result<(), Fault> {
        self.batches += 1;
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.stops += 1;
        Ok(())
    }
}

impl UpdateHandler<u64> for Tally {
    fn event(&mut self, event: &mut u64, _: At) -> Result<(), Fault> {
        self.sum += *event;
        *event += 1;
        Ok(())
    }
}

#[test]
fn each_kind_of_handler_gives_its_state_back() {
    let _watched = watched();
    for threads in [0, 2] {
        let (mut closure, of_closure) = lend(0);
        let (mut batches, of_batches) = lend(Vec::new());
        let (reader, of_reader) = lend(Tally::default());
        let (writer, of_writer) = lend(Tally::default());
        let (workers, of_workers): (Vec<_>, Vec<_>) = (0..3).map(|_| lend(0)).unzip();
        let (shards, of_shards): (Vec<_>, Vec<_>) = (0..3).map(|_| lend(0)).unzip();
        let mut worker = workers.into_iter();
        let mut shard = shards.into_iter();
        let mut add_of = move |_: usize| {
            let mut sum: Lent<u64> = worker.next().unwrap();
            move |v: &u64, _: At| *sum += *v
        };
        let chain = slipring::ring(8, || 0u64);
        let chain = if threads == 0 { chain } else { chain.threads(threads) };
        let (mut tx, pipeline) = chain
            .update_with("writer", writer)
            .read("closure", move |v, _| *closure += v)
            .read_batch("batches", move |events, _| batches.extend(events.iter().copied()))
            .read_with("reader", reader)
            .read_pool("pool", 3, move |worker| add_of(worker))
            .read_shards(
                "shards",
                3,
                |v| *v,
                move |_| {
                    let mut sum = shard.next().unwrap();
                    move |v: &u64, _: At| *sum += *v
                },
            )
            .spawn()
            .unwrap();
        assert!(!of_closure.is_settled());
        tx.publish_all(0..10, |slot, i| *slot = i).unwrap();
        tx.close();
        pipeline.join().unwrap();
        assert_eq!(back(of_writer).sum, 45);
        assert_eq!(back(of_closure), 55);
        assert_eq!(back(of_batches), (1..=10).collect::<Vec<_>>());
        let reader = back(of_reader);
        assert_eq!((reader.sum, reader.starts, reader.stops), (55, 1, 1));
        assert!(reader.batches > 0);
        assert_eq!(of_workers.into_iter().map(back).sum::<u64>(), 55);
        assert_eq!(of_shards.into_iter().map(back).sum::<u64>(), 55);
    }
}

#[test]
fn the_state_comes_back_after_each_end() {
    let _watched = watched();
    quiet();
    // A failure of the stage itself, of another stage, a panic, and a halt.
    for end in 0..4 {
        let (reader, of_reader) = lend(Tally::default());
        let (mut tx, pipeline) = slipring::ring(8, || 0u64)
            .read_with("reader", reader)
            .read("other", |v, _| match v {
                50 => Err(Oops(50)),
                51 => panic!("{PURPOSE}"),
                _ => Ok(()),
            })
            .spawn()
            .unwrap();
        tx.publish(|v| *v = [99, 50, 51, 7][end]).unwrap();
        if end == 3 {
            pipeline.halt();
            pipeline.join().unwrap();
        } else {
            assert!(pipeline.join().is_err());
        }
        let reader = back(of_reader);
        assert_eq!(reader.starts, reader.stops, "a stage that has started also stops");
    }
    // A chain that does not build, and one that is dropped.
    let (mut sum, of_sum) = lend(7);
    let failed = slipring::ring(3, || 0u64).read("sum", move |v, _| *sum += v).spawn();
    assert!(failed.is_err());
    assert_eq!(back(of_sum), 7);
    let (mut sum, of_sum) = lend(8);
    drop(slipring::ring(8, || 0u64).read("sum", move |v, _| *sum += v));
    assert_eq!(back(of_sum), 8);
}

#[test]
fn the_state_comes_back_from_each_front() {
    let _watched = watched();
    let (mut sum, of_sum) = lend(0);
    slipring::ring(8, || 0u64)
        .read("sum", move |v, _| *sum += v)
        .run_inline(|p| Ok(p.publish_all(0..10, |slot, i| *slot = i)?))
        .unwrap();
    assert_eq!(back(of_sum), 45);
    let (mut sum, of_sum) = lend(0);
    slipring::ring(8, || 0u64)
        .read_by("sum", move |rx| rx.for_each(|v, _| *sum += v).map(drop))
        .feed(0..10, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(back(of_sum), 45);
    // A graph, beside a stage that the user runs by a handle.
    let graph = Graph::new(8, || 0u64);
    let (sum, own) = (graph.reader("sum"), graph.reader("own"));
    let ring = graph.build().unwrap();
    let mut own = ring.reader(own);
    let (tally, of_tally) = lend(Tally::default());
    let mut handlers = ring.handlers();
    handlers.read_with(sum, tally);
    let (mut tx, pipeline) = handlers.spawn().unwrap();
    tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
    tx.close();
    pipeline.join().unwrap();
    assert_eq!(back(of_tally).sum, 28);
    assert_eq!(own.for_each(|_, _| ()).unwrap(), 8);
}

/// Sends the name of the thread that drops it.
struct Home(mpsc::Sender<Option<String>>);

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().name().map(str::to_owned));
    }
}

#[test]
fn a_state_that_nothing_awaits_is_dropped_on_its_stage() {
    let _watched = watched();
    quiet();
    let (sender, names) = mpsc::channel();
    let (home, of_home) = lend(Home(sender));
    drop(of_home);
    slipring::ring(8, || 0u64)
        .read("stage", move |_, _| {
            let _ = &home;
        })
        .feed(0..1, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(names.recv().unwrap().as_deref(), Some("stage"));
    // A panic of that drop fails the graph, as for any handler.
    for awaited in [true, false] {
        let (fragile, of_fragile) = lend(Fragile(true));
        let of_fragile = awaited.then_some(of_fragile);
        let outcome = slipring::ring(8, || 0u64)
            .read("stage", move |_, _| {
                let _ = &fragile;
            })
            .feed(0..1, |slot, i| *slot = i);
        assert_eq!(outcome.is_ok(), awaited);
        if let Some(of_fragile) = of_fragile {
            back(of_fragile).0 = false;
        }
    }
}

#[test]
fn a_thread_may_await_the_end_of_a_stage() {
    let _watched = watched();
    ends("awaiting a state", || {
        let (mut sum, mut of_sum) = lend(0);
        let (mut tx, pipeline) =
            slipring::ring(8, || 0u64).read("sum", move |v, _| *sum += v).spawn().unwrap();
        let waiting = thread::spawn(move || of_sum.wait().unwrap());
        tx.publish_all(0..10, |slot, i| *slot = i).unwrap();
        tx.close();
        assert_eq!(waiting.join().unwrap(), 45);
        pipeline.join().unwrap();
    });
    let (lent, _back) = lend(1);
    assert_eq!(format!("{lent:?}"), "Lent(1)");
}
