//! The shapes built on a ring. One ring serves the whole graph, and its stages follow each other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;
use slipring::{Chain, Wait, placement::Threads};

use super::work::{
    ByProducer, CAPACITY, Last, Load, Measured, Meter, Middle, PRODUCERS, Shape, join, left, right,
    stamped, step_one, step_two,
};

/// The settings of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// A thread for each stage, and the default wait strategy.
    Default,
    /// A thread for each stage, and waits that yield, as in the publication.
    Yielding,
    /// As many threads as there are cores, shared by all stages.
    SharedThreads,
}

impl Settings {
    fn ring<'env, E: Send + Default + 'env>(self) -> Chain<'env, E> {
        let ring = slipring::ring(CAPACITY, E::default);
        match self {
            Settings::Default => ring,
            Settings::Yielding => ring.wait(Wait::YIELDING),
            Settings::SharedThreads => ring.threads(Threads::Auto),
        }
    }
}

/// An event of all shapes but the diamond.
#[derive(Debug, Default)]
struct Event {
    value: u64,
    /// The result of the pipeline's stages.
    result: u64,
}

/// An event of the diamond. The two sides write at the same time, each its own field, as in the
/// publication's test.
#[derive(Debug, Default)]
struct TwoSided {
    value: u64,
    left: AtomicU64,
    right: AtomicU64,
}

/// Runs a load through a ring.
pub fn run(shape: Shape, settings: Settings, load: &Load) -> Result<Measured> {
    match shape {
        Shape::Unicast => unicast(settings, load),
        Shape::Pipeline => pipeline(settings, load),
        Shape::Sequencer => sequencer(settings, load),
        Shape::Multicast => multicast(settings, load),
        Shape::Diamond => diamond(settings, load),
    }
}

/// Runs a chain whose events have a value, with one producer.
fn feed(chain: Chain<'_, Event>, load: &Load) -> Result<Meter> {
    let done = chain.run(|producer| {
        Ok(load.produce(|value| producer.publish(|event| event.value = value).map(drop))?)
    })?;
    Ok(done.value)
}

fn unicast(settings: Settings, load: &Load) -> Result<Measured> {
    let mut last = Last::new(load);
    let chain = settings.ring().read("sum", |event: &Event, _| last.add(event.value, event.value));
    let meter = feed(chain, load)?;
    Ok(meter.stop(vec![last.tally], [last]))
}

fn pipeline(settings: Settings, load: &Load) -> Result<Measured> {
    let (mut one, mut two, mut three) = (Middle::default(), Middle::default(), Last::new(load));
    let chain = settings
        .ring()
        .update("one", |event: &mut Event, _| {
            one.0.add(event.value);
            event.result = step_one(event.value);
        })
        .update("two", |event, _| {
            two.0.add(event.result);
            event.result = step_two(event.result);
        })
        .read("three", |event, _| three.add(event.value, event.result));
    let meter = feed(chain, load)?;
    Ok(meter.stop(vec![one.0, two.0, three.tally], [three]))
}

fn sequencer(settings: Settings, load: &Load) -> Result<Measured> {
    let mut sums = ByProducer::default();
    let chain = settings.ring().read("sum", |event: &Event, _| sums.add(event.value));
    let done = chain.run_shared(|producer| {
        let meter = Meter::start();
        thread::scope(|scope| {
            let mut producing = Vec::new();
            for number in 0..PRODUCERS {
                let mut producer = producer.clone();
                let publish = move || {
                    Load::share(load.events, number).try_for_each(|event| {
                        let value = stamped(number, event);
                        producer.publish(|event| event.value = value).map(drop)
                    })
                };
                producing.push(thread::Builder::new().spawn_scoped(scope, publish)?);
            }
            for producing in producing {
                producing.join().map_err(|_| io::Error::other("a producer panicked"))??;
            }
            Ok(meter)
        })
    })?;
    Ok(done.value.stop(sums.tallies(), []))
}

fn multicast(settings: Settings, load: &Load) -> Result<Measured> {
    let [mut one, mut two, mut three] = [(); 3].map(|()| Last::new(load));
    let chain = settings.ring().fan_out(|side| {
        side.read("one", |event: &Event, _| one.add(event.value, event.value))
            .read("two", |event, _| two.add(event.value, event.value))
            .read("three", |event, _| three.add(event.value, event.value))
    });
    let meter = feed(chain, load)?;
    Ok(meter.stop(vec![one.tally, two.tally, three.tally], [one, two, three]))
}

fn diamond(settings: Settings, load: &Load) -> Result<Measured> {
    // The ring orders each side's store before the last stage's load.
    use Ordering::Relaxed;
    let (mut one, mut two, mut last) = (Middle::default(), Middle::default(), Last::new(load));
    let chain = settings
        .ring()
        .fan_out(|side| {
            side.read("left", |event: &TwoSided, _| {
                one.0.add(event.value);
                event.left.store(left(event.value), Relaxed);
            })
            .read("right", |event, _| {
                two.0.add(event.value);
                event.right.store(right(event.value), Relaxed);
            })
        })
        .read("join", |event, _| {
            last.add(event.value, join(event.left.load(Relaxed), event.right.load(Relaxed)));
        });
    let done = chain.run(|producer| {
        Ok(load.produce(|value| producer.publish(|event| event.value = value).map(drop))?)
    })?;
    Ok(done.value.stop(vec![one.0, two.0, last.tally], [last]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::work::Rest;
    use super::*;

    #[test]
    fn each_stage_of_each_shape_handles_each_event_in_order() {
        for settings in [Settings::Default, Settings::Yielding, Settings::SharedThreads] {
            for shape in Shape::ALL {
                let load = Load::at_once(3 * CAPACITY as u64 + 1);
                run(shape, settings, &load).unwrap().check(shape, &load).unwrap();
                let load = Load::paced(20, Duration::from_micros(50), Rest::Sleep);
                let measured = run(shape, settings, &load).unwrap();
                measured.check(shape, &load).unwrap();
                let consumers = if shape == Shape::Multicast { 3 } else { 1 };
                let counted = measured.latencies.map(|latencies| latencies.len());
                assert_eq!(counted, shape.has_latency().then_some(20 * consumers), "{shape:?}");
            }
        }
    }
}
