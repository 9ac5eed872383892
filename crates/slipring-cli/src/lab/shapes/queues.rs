//! The shapes built from queues: one queue for each edge of the graph, and a thread for each stage.

use std::thread::{Builder, Scope, ScopedJoinHandle, scope};

use anyhow::{Context as _, Result, anyhow};

use super::work::{
    ByProducer, CAPACITY, Last, Load, Measured, Meter, Middle, PRODUCERS, Shape, join, left, right,
    stamped, step_one, step_two,
};
use crate::lab::contenders::queue::{Disconnected, Queue, Receive, Sender};

/// The item that a queue moves between the pipeline's stages.
#[derive(Clone, Copy, Debug)]
struct Event {
    value: u64,
    /// The result of the stages.
    result: u64,
}

/// Runs a load through queues.
pub fn run<Q: Queue>(shape: Shape, load: &Load) -> Result<Measured> {
    match shape {
        Shape::Unicast => unicast::<Q>(load),
        Shape::Pipeline => pipeline::<Q>(load),
        Shape::Sequencer => sequencer::<Q>(load),
        Shape::Multicast => multicast::<Q>(load),
        Shape::Diamond => diamond::<Q>(load),
    }
}

fn unicast<Q: Queue>(load: &Load) -> Result<Measured> {
    let (tx, rx) = Q::bounded::<u64>(CAPACITY);
    scope(|scope| {
        let last = start(scope, move || consume(load, &rx))?;
        let meter = load.produce(|value| tx.send(value));
        drop(tx);
        let last = ended(last)?;
        Ok(whole(meter)?.stop(vec![last.tally], [last]))
    })
}

fn pipeline<Q: Queue>(load: &Load) -> Result<Measured> {
    let (tx, to_one) = Q::bounded::<Event>(CAPACITY);
    let (from_one, to_two) = Q::bounded::<Event>(CAPACITY);
    let (from_two, to_three) = Q::bounded::<Event>(CAPACITY);
    scope(|scope| {
        let one = start(scope, move || {
            let mut tally = Middle::default();
            while let Some(event) = to_one.receive() {
                tally.0.add(event.value);
                from_one.send(Event { result: step_one(event.value), ..event })?;
            }
            Ok(tally.0)
        })?;
        let two = start(scope, move || {
            let mut tally = Middle::default();
            while let Some(event) = to_two.receive() {
                tally.0.add(event.result);
                from_two.send(Event { result: step_two(event.result), ..event })?;
            }
            Ok(tally.0)
        })?;
        let three = start(scope, move || {
            let mut last = Last::new(load);
            while let Some(event) = to_three.receive() {
                last.add(event.value, event.result);
            }
            Ok(last)
        })?;
        let meter = load.produce(|value| tx.send(Event { value, result: 0 }));
        drop(tx);
        let (one, two, three) = (ended(one), ended(two), ended(three));
        let (one, two, three) = (one?, two?, three?);
        Ok(whole(meter)?.stop(vec![one, two, three.tally], [three]))
    })
}

fn sequencer<Q: Queue>(load: &Load) -> Result<Measured> {
    let (tx, rx) = Q::bounded::<u64>(CAPACITY);
    scope(|scope| {
        let sums = start(scope, move || {
            let mut sums = ByProducer::default();
            while let Some(value) = rx.receive() {
                sums.add(value);
            }
            Ok(sums)
        })?;
        let meter = Meter::start();
        let mut producing = Vec::new();
        for number in 0..PRODUCERS {
            let tx = tx.clone();
            producing.push(start(scope, move || {
                Load::share(load.events, number)
                    .try_for_each(|event| tx.send(stamped(number, event)))
            })?);
        }
        drop(tx);
        let producing: Vec<Result<()>> = producing.into_iter().map(ended).collect();
        let sums = ended(sums);
        producing.into_iter().collect::<Result<()>>()?;
        let sums = sums?;
        Ok(meter.stop(sums.tallies(), []))
    })
}

fn multicast<Q: Queue>(load: &Load) -> Result<Measured> {
    let [(to_one, one), (to_two, two), (to_three, three)] =
        [(); 3].map(|()| Q::bounded::<u64>(CAPACITY));
    scope(|scope| {
        let one = start(scope, move || consume(load, &one))?;
        let two = start(scope, move || consume(load, &two))?;
        let three = start(scope, move || consume(load, &three))?;
        let meter = load.produce(|value| {
            to_one.send(value)?;
            to_two.send(value)?;
            to_three.send(value)
        });
        drop((to_one, to_two, to_three));
        let (one, two, three) = (ended(one), ended(two), ended(three));
        let (one, two, three) = (one?, two?, three?);
        Ok(whole(meter)?.stop(vec![one.tally, two.tally, three.tally], [one, two, three]))
    })
}

fn diamond<Q: Queue>(load: &Load) -> Result<Measured> {
    let (to_left, at_left) = Q::bounded::<u64>(CAPACITY);
    let (to_right, at_right) = Q::bounded::<u64>(CAPACITY);
    let (from_left, left_results) = Q::bounded::<Event>(CAPACITY);
    let (from_right, right_results) = Q::bounded::<u64>(CAPACITY);
    scope(|scope| {
        let one = start(scope, move || {
            let mut tally = Middle::default();
            while let Some(value) = at_left.receive() {
                tally.0.add(value);
                // One of the two results carries the event's number, for its latency.
                from_left.send(Event { value, result: left(value) })?;
            }
            Ok(tally.0)
        })?;
        let two = start(scope, move || {
            let mut tally = Middle::default();
            while let Some(value) = at_right.receive() {
                tally.0.add(value);
                from_right.send(right(value))?;
            }
            Ok(tally.0)
        })?;
        let last = start(scope, move || {
            let mut last = Last::new(load);
            while let (Some(left), Some(right)) = (left_results.receive(), right_results.receive())
            {
                last.add(left.value, join(left.result, right));
            }
            Ok(last)
        })?;
        let meter = load.produce(|value| {
            to_left.send(value)?;
            to_right.send(value)
        });
        drop((to_left, to_right));
        let (one, two, last) = (ended(one), ended(two), ended(last));
        let (one, two, last) = (one?, two?, last?);
        Ok(whole(meter)?.stop(vec![one, two, last.tally], [last]))
    })
}

/// Consumes the events of one queue as a last stage.
fn consume(load: &Load, rx: &impl Receive<u64>) -> Result<Last, Disconnected> {
    let mut last = Last::new(load);
    while let Some(value) = rx.receive() {
        last.add(value, value);
    }
    Ok(last)
}

/// Starts a stage. If a later stage does not start, the caller drops its halves of the queues,
/// which ends the stages that run.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: impl FnOnce() -> Result<T, Disconnected> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, Disconnected>>> {
    Builder::new().spawn_scoped(scope, stage).context("cannot start a thread")
}

/// Waits for the end of a stage. The caller waits for all stages before it returns the first error.
/// If a stage that has panicked were not joined, the end of the scope would pass its panic on.
fn ended<T>(stage: ScopedJoinHandle<'_, Result<T, Disconnected>>) -> Result<T> {
    whole(stage.join().map_err(|_| anyhow!("a stage's thread panicked"))?)
}

fn whole<T>(result: Result<T, Disconnected>) -> Result<T> {
    result.map_err(|_| anyhow!("a stage ended before the events did"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::super::work::Rest;
    use super::*;
    use crate::lab::contenders::queue::{Blocking, StdChannel};

    fn all_shapes<Q: Queue>() {
        for shape in Shape::ALL {
            let load = Load::at_once(3 * CAPACITY as u64 + 1);
            run::<Q>(shape, &load).unwrap().check(shape, &load).unwrap();
            let load = Load::paced(20, Duration::from_micros(50), Rest::Sleep);
            let measured = run::<Q>(shape, &load).unwrap();
            measured.check(shape, &load).unwrap();
            let consumers = if shape == Shape::Multicast { 3 } else { 1 };
            let counted = measured.latencies.map(|latencies| latencies.len());
            assert_eq!(counted, shape.has_latency().then_some(20 * consumers), "{shape:?}");
        }
    }

    #[test]
    fn each_stage_of_each_shape_handles_each_event_in_order() {
        all_shapes::<Blocking>();
        all_shapes::<StdChannel>();
    }

    /// A fault of a queue, which affects its hundredth item.
    trait Fault: 'static {
        /// Applies the fault. If the fault moves the item behind all others, returns the item. The
        /// hundredth item is never its producer's last one, so such a move breaks the producer's
        /// order. An exchange of two neighbours might break no order, because items of different
        /// producers have none.
        fn apply<T>(hundredth: T) -> Option<T>;
    }

    enum Loses {}

    impl Fault for Loses {
        fn apply<T>(_: T) -> Option<T> {
            None
        }
    }

    enum Reorders {}

    impl Fault for Reorders {
        fn apply<T>(hundredth: T) -> Option<T> {
            Some(hundredth)
        }
    }

    enum Panics {}

    impl Fault for Panics {
        fn apply<T>(_: T) -> Option<T> {
            panic!("the fault of this test")
        }
    }

    /// A queue with a fault.
    struct Faulty<F>(std::marker::PhantomData<F>);

    struct FaultyReceiver<T, F> {
        good: std::sync::mpsc::Receiver<T>,
        received: Cell<u64>,
        kept: Cell<Option<T>>,
        fault: std::marker::PhantomData<fn(F)>,
    }

    impl<F: Fault> Queue for Faulty<F> {
        type Sender<T: Send> = std::sync::mpsc::SyncSender<T>;
        type Receiver<T: Send> = FaultyReceiver<T, F>;

        fn bounded<T: Send>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
            let (tx, good) = StdChannel::bounded(capacity);
            let (received, kept) = (Cell::new(0), Cell::new(None));
            (tx, FaultyReceiver { good, received, kept, fault: std::marker::PhantomData })
        }
    }

    impl<T, F: Fault> Receive<T> for FaultyReceiver<T, F> {
        fn receive(&self) -> Option<T> {
            let Some(item) = self.good.receive() else { return self.kept.take() };
            self.received.set(self.received.get() + 1);
            if self.received.get() != 100 {
                return Some(item);
            }
            self.kept.set(F::apply(item));
            self.receive()
        }
    }

    #[test]
    fn a_queue_that_loses_reorders_or_panics_is_found_in_each_shape() {
        let load = Load::at_once(1_000);
        for shape in Shape::ALL {
            let message = |measured: Result<Measured>| {
                measured.and_then(|measured| measured.check(shape, &load)).unwrap_err().to_string()
            };
            let lost = message(run::<Faulty<Loses>>(shape, &load));
            assert!(lost.contains("events arrived"), "{shape:?}: {lost}");
            let reordered = message(run::<Faulty<Reorders>>(shape, &load));
            assert!(reordered.contains("out of order"), "{shape:?}: {reordered}");
            let panicked = message(run::<Faulty<Panics>>(shape, &load));
            assert!(panicked.contains("panicked") || panicked.contains("ended before"));
        }
    }
}
