//! Pipelines and fan-outs of working stages, with more stages than cores. The figures are
//! nanoseconds per event of the whole run, handlers' work included.

use std::cell::RefCell;
use std::sync::Arc;

use slipring::Chain;

use super::Config;
use crate::figures::oversubscribed::timing::{Timing, TwoCores};
use crate::figures::oversubscribed::{NAMES, RING, cost_ns, events};
use crate::measure::{Contender, ContenderKind, Figure, Size};
use crate::work::{amount, steps_for};

/// Numbers of stages.
const STAGES: [usize; 4] = [2, 4, 6, 8];
/// Work of a handler on an event, in nanoseconds.
const WORK: [u32; 4] = [0, 100, 1000, 10_000];

#[derive(Clone, Copy)]
enum Shape {
    Pipeline,
    FanOut,
}

/// The stages of a run.
#[derive(Clone, Copy)]
struct Stages {
    shape: Shape,
    count: usize,
    /// Steps of each handler's work on an event.
    steps: u32,
}

impl Stages {
    /// Adds the stages to a chain.
    fn added_to(self, chain: Chain<'static, u64>, timing: &Arc<Timing>) -> Chain<'static, u64> {
        let names = NAMES[..self.count].iter();
        match self.shape {
            Shape::Pipeline => names.fold(chain, |chain, name| {
                let mut handler = timing.working_stage(self.steps);
                chain.read(name, move |event, _| handler(event))
            }),
            Shape::FanOut => chain.fan_out(|side| {
                names.fold(side, |side, name| {
                    let mut handler = timing.working_stage(self.steps);
                    side.read(name, move |event, _| handler(event))
                })
            }),
        }
    }

    fn on_threads(self, config: &Config, events: u64) -> f64 {
        let _cores = TwoCores::take();
        let timing = Timing::new(self.count, events);
        let done = self.added_to(config.chain(RING), &timing).run(|tx| {
            timing.produce(0, |event| {
                tx.publish(|slot| *slot = event).expect("the ring is open");
            });
            Ok(())
        });
        done.expect("the stream ended with a failure");
        timing.result()
    }

    /// Runs the producer and all stages on the calling thread.
    fn inline(self, events: u64) -> f64 {
        let _cores = TwoCores::take();
        let timing = Timing::new(self.count, events);
        let chain = slipring::ring(RING, || 0u64);
        let done = self.added_to(chain, &timing).run_inline(|inline| {
            // An empty ring takes events at once, so `publish` succeeds before the stages get their
            // first turn.
            let inline = RefCell::new(inline);
            timing.produce_polling(
                |event| inline.borrow_mut().publish(|slot| *slot = event).is_ok(),
                || _ = inline.borrow_mut().work(),
            );
            Ok(())
        });
        done.expect("the stream ended with a failure");
        timing.result()
    }

    /// Calls the handlers one after another for each event.
    fn without_ring(self, events: u64) -> f64 {
        let _cores = TwoCores::take();
        let timing = Timing::new(self.count, events);
        let mut handlers: Vec<_> =
            (0..self.count).map(|_| timing.working_stage(self.steps)).collect();
        timing.produce(0, |event| handlers.iter_mut().for_each(|handle| handle(&event)));
        drop(handlers);
        timing.result()
    }
}

/// Returns the figures of all shapes.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (shape, name) in [(Shape::Pipeline, "pipeline"), (Shape::FanOut, "fan-out")] {
        for nanos in WORK {
            figures.extend(STAGES.map(|count| Figure {
                table: format!("shared threads, two cores: {name}, {} a stage", amount(nanos)),
                column: format!("{count} stages"),
                baseline: None,
                contenders: contenders(size, shape, count, nanos),
            }));
        }
    }
    figures
}

fn contenders(size: Size, shape: Shape, count: usize, nanos: u32) -> Vec<Contender> {
    let stages = Stages { shape, count, steps: steps_for(nanos) };
    let cost = (count as u64 * u64::from(nanos)).max(cost_ns::YIELDING);
    let many = events(size, cost).max(100);
    let mut all: Vec<Contender> = Vec::new();
    for config in Config::all(size) {
        let events = match config.is_busy_spin() {
            true => events(size, cost.max(cost_ns::SPINNING)).max(100),
            false => many,
        };
        let name = config.name();
        all.push(Contender::new(ContenderKind::Ours, name, move || {
            stages.on_threads(&config, events)
        }));
    }
    let mut alone = |name, run: fn(Stages, u64) -> f64| {
        all.push(Contender::new(ContenderKind::Alone, name, move || run(stages, many)));
    };
    alone("slipring, `run_inline`", Stages::inline);
    alone("one thread, without a ring", Stages::without_ring);
    all
}
