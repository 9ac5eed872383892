//! `slipring lab shapes`: the ring beside queues in the five shapes of LMAX's technical paper.

mod about;
mod queues;
mod ring;
mod work;

use std::time::Duration;

use anyhow::Result;
use slipring_support::numbers::significant;

use self::about::{ABOUT, CPU, CURVE, P50, P99, STAGE_CPU, TIME};
use self::ring::Settings;
use self::work::{CAPACITY, Load, Measured, Rest, Shape};
use super::contenders::queue::{Blocking, StdChannel};
use super::experiment::{About, Case, CaseResult, Experiment};
use super::record::Results;
use super::size::Size;
use super::statistics::{Noise, Verdict, compare};
use crate::lab::machine::MeasuredMachine;

/// Time between two events of the paced load. Each contender keeps up with it on two cores.
const GAP: Duration = Duration::from_micros(100);
/// Quantiles of the latency curves.
const QUANTILES: [f64; 14] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0];

pub struct Shapes;

/// A way to build the shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Ring(Settings),
    BlockingQueue,
    StdChannel,
}

impl Contender {
    const ALL: [Contender; 5] = [
        Contender::Ring(Settings::Default),
        Contender::Ring(Settings::Yielding),
        Contender::Ring(Settings::SharedThreads),
        Contender::BlockingQueue,
        Contender::StdChannel,
    ];

    fn name(self) -> &'static str {
        match self {
            Contender::Ring(Settings::Default) => "ring",
            Contender::Ring(Settings::Yielding) => "ring yielding",
            Contender::Ring(Settings::SharedThreads) => "ring shared threads",
            Contender::BlockingQueue => "blocking queue",
            Contender::StdChannel => "std channel",
        }
    }

    /// Returns whether the contender is measured in a shape. Shared threads are measured only where
    /// threads outnumber cores.
    fn suits(self, shape: Shape, cores: usize) -> bool {
        self != Contender::Ring(Settings::SharedThreads)
            || (shape.stages() > 1 && shape.threads() > cores)
    }

    /// Returns the number of threads for a shape.
    fn threads(self, shape: Shape, cores: usize) -> usize {
        match self {
            // Even on one core there are two threads: the calling thread and the thread of the
            // stages.
            Contender::Ring(Settings::SharedThreads) => shape.threads().min(cores.max(2)),
            _ => shape.threads(),
        }
    }

    /// Estimates the time of one event, for the progress bar.
    fn expected(self, shape: Shape) -> Duration {
        Duration::from_nanos(match (self, shape) {
            (Contender::Ring(_), Shape::Unicast) => 10,
            (Contender::Ring(_), _) => 30,
            (_, Shape::Unicast) => 100,
            (_, Shape::Diamond) => 800,
            _ => 400,
        })
    }

    fn run(self, shape: Shape, load: &Load) -> Result<Measured> {
        let measured = match self {
            Contender::Ring(settings) => ring::run(shape, settings, load),
            Contender::BlockingQueue => queues::run::<Blocking>(shape, load),
            Contender::StdChannel => queues::run::<StdChannel>(shape, load),
        }?;
        measured.check(shape, load)?;
        Ok(measured)
    }

    /// Measures the time per event with events published as fast as possible, and the latency with
    /// paced events.
    fn measure(self, shape: Shape, amount: Amount, cores: usize) -> Result<CaseResult> {
        let measured = self.run(shape, &Load::at_once(amount.events))?;
        let time = measured.wall.as_nanos() as f64 / amount.events as f64;
        let mut outcome = CaseResult::default().value(&TIME, time);
        if let Some(cores) = measured.cores() {
            outcome = outcome.value(&CPU, cores);
        }
        if !shape.has_latency() {
            return Ok(outcome);
        }
        // The producer's way to rest depends on the shape, not on the contender's threads, so that
        // all contenders get the same load.
        let rest = if shape.threads() <= cores { Rest::Spin } else { Rest::Sleep };
        let measured = self.run(shape, &Load::paced(amount.paced, GAP, rest))?;
        if let Some(latencies) = &measured.latencies {
            let at = |quantile| latencies.value_at_quantile(quantile) as f64;
            let curve = QUANTILES.map(|quantile| (quantile, at(quantile))).to_vec();
            outcome = outcome.value(&P50, at(0.5)).value(&P99, at(0.99)).curve(&CURVE, curve);
        }
        if let Some(cores) = measured.cores() {
            outcome = outcome.value(&STAGE_CPU, cores);
        }
        Ok(outcome)
    }
}

/// The amounts of one repetition.
#[derive(Clone, Copy, Debug)]
struct Amount {
    /// Number of events at once.
    events: u64,
    /// Number of paced events.
    paced: u64,
}

impl Amount {
    fn of(size: Size) -> Self {
        Self {
            events: size.pick(5_000, 1_000_000, 4_000_000),
            paced: size.pick(200, 4_000, 10_000),
        }
    }
}

impl Experiment for Shapes {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn cases(&self, size: Size, machine: &MeasuredMachine) -> Result<Vec<Case>> {
        let (amount, cores) = (Amount::of(size), machine.cores);
        let mut cases = Vec::new();
        for shape in Shape::ALL {
            for contender in Contender::ALL {
                if !contender.suits(shape, cores) {
                    continue;
                }
                let paced = if shape.has_latency() { GAP * amount.paced as u32 } else { GAP };
                cases.push(Case {
                    contender: contender.name().to_owned(),
                    point: vec![("shape", shape.name().into())],
                    threads: contender.threads(shape, cores),
                    cpus: Vec::new(),
                    expected: contender.expected(shape) * amount.events as u32 + paced,
                    run: Box::new(move |_| contender.measure(shape, amount, cores)),
                });
            }
        }
        Ok(cases)
    }

    fn rounds(&self, size: Size) -> u32 {
        size.pick(2, 5, 9)
    }

    fn missing(&self, size: Size, machine: &MeasuredMachine) -> Vec<String> {
        let amount = Amount::of(size);
        let mut missing = vec![
            format!(
                "The paper counts the best of three runs of 500 million events; a run here has \
                 {} events, and the tables show medians of {} runs.",
                significant(amount.events as f64),
                self.rounds(size),
            ),
            format!(
                "The paper does not state the capacity; the ring and each queue have {} places \
                 here.",
                significant(CAPACITY as f64),
            ),
            "The blocking queue is written in Rust after Java's ArrayBlockingQueue; no Java \
             program runs."
                .to_owned(),
            format!(
                "The paper's latency is the mean of three hops, of events with a pause of 1 µs \
                 between them; here it is the time from when an event is due to its last stage, of \
                 one event every {} µs.",
                GAP.as_micros(),
            ),
        ];
        if machine.cores < Shape::Pipeline.threads() {
            missing.push(format!(
                "The paper asks for four cores; with {} here, the threads of all shapes but unicast \
                 share cores.",
                machine.cores,
            ));
            missing.push(
                "Where threads share cores, the producer of paced events sleeps until an event is \
                 due, and each latency contains the lateness of the system's timer. Elsewhere the \
                 producer spins."
                    .to_owned(),
            );
        } else {
            missing.push(
                "The ring with shared threads is left out, because each thread has a core of its own."
                    .to_owned(),
            );
        }
        missing
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        let of = |queue: Contender| against(results, noise, queue);
        let parts: Vec<String> =
            [Contender::BlockingQueue, Contender::StdChannel].into_iter().filter_map(of).collect();
        if parts.is_empty() {
            return "On this machine, nothing was compared: the ring or the queues were left out."
                .to_owned();
        }
        format!("On this machine, `ring` {}.", parts.join("; it "))
    }
}

/// Returns a phrase, such as "takes less ...", that compares the default ring's time with a queue's
/// over all shapes.
fn against(results: &Results, noise: &Noise, queue: Contender) -> Option<String> {
    let (mut ratios, mut more, mut level) = (Vec::new(), Vec::new(), Vec::new());
    for shape in Shape::ALL {
        let values = |contender: Contender| {
            let found = results.find(contender.name(), &[("shape", shape.name().into())]);
            found.map_or(&[][..], |series| series.values(TIME.name))
        };
        let (ring, queue) = (values(Contender::Ring(Settings::Default)), values(queue));
        match compare(ring, queue, noise.floor()) {
            Some(Verdict::Differs(ratio)) if ratio < 1.0 => ratios.push(1.0 / ratio),
            Some(Verdict::Differs(_)) => more.push(shape.name()),
            Some(Verdict::WithinNoise) => level.push(shape.name()),
            None => {}
        }
    }
    let all = ratios.len() + more.len() + level.len();
    let mut said = Vec::new();
    ratios.sort_by(f64::total_cmp);
    if let (Some(low), Some(high)) = (ratios.first(), ratios.last()) {
        let (low, high) = (significant(*low), significant(*high));
        let range = if low == high { low } else { format!("{low} to {high}") };
        said.push(format!(
            "takes less time per event than `{}` in {} of {all} shapes (by a factor of {range})",
            queue.name(),
            ratios.len(),
        ));
    }
    if !more.is_empty() {
        said.push(format!("takes more time than `{}` in {}", queue.name(), more.join(", ")));
    }
    if !level.is_empty() {
        let shapes = level.join(", ");
        said.push(format!("differs from `{}` by no more than noise in {shapes}", queue.name()));
    }
    (!said.is_empty()).then(|| said.join(", and "))
}

#[cfg(test)]
mod tests {
    use super::super::metric::Better;
    use super::super::record::{Series, Values};
    use super::*;

    fn series(contender: Contender, shape: Shape, values: [f64; 5]) -> Series {
        let time =
            Values { unit: TIME.unit.to_owned(), better: Better::Less, values: values.to_vec() };
        Series {
            contender: contender.name().to_owned(),
            point: vec![("shape".to_owned(), shape.name().into())],
            threads: shape.threads(),
            cpus: Vec::new(),
            oversubscribed: false,
            metrics: [(TIME.name.to_owned(), time)].into(),
            curves: Default::default(),
        }
    }

    fn headline(series: Vec<Series>) -> String {
        let results = Results {
            experiment: ABOUT.name.to_owned(),
            rounds: 5,
            seconds: 1.0,
            notes: Vec::new(),
            series,
        };
        Shapes.headline(&results, &Noise { computing: 0.01, handover: 0.05, repetitions: 5 })
    }

    #[test]
    fn the_headline_names_no_winner_within_the_noise() {
        let ring = Contender::Ring(Settings::Default);
        let unicast = |of, values| series(of, Shape::Unicast, values);
        let text = headline(vec![
            unicast(ring, [10.0, 10.1, 10.2, 10.3, 10.4]),
            series(ring, Shape::Pipeline, [20.0, 20.1, 20.2, 20.3, 20.4]),
            series(ring, Shape::Diamond, [50.0, 50.1, 50.2, 50.3, 50.4]),
            unicast(Contender::BlockingQueue, [100.0, 101.0, 102.0, 103.0, 104.0]),
            series(Contender::BlockingQueue, Shape::Pipeline, [20.3, 20.4, 20.5, 20.6, 20.7]),
            series(Contender::BlockingQueue, Shape::Diamond, [20.0, 21.0, 22.0, 23.0, 24.0]),
        ]);
        assert_eq!(
            text,
            "On this machine, `ring` takes less time per event than `blocking queue` in 1 of 3 \
             shapes (by a factor of 10), and takes more time than `blocking queue` in diamond, and \
             differs from `blocking queue` by no more than noise in pipeline."
        );
        assert!(headline(vec![unicast(ring, [1.0; 5])]).contains("nothing was compared"));
    }

    #[test]
    fn shared_threads_are_measured_where_threads_outnumber_cores() {
        let machine = |cores| MeasuredMachine { cores, ..MeasuredMachine::this() };
        let shared = |cores| {
            let cases = Shapes.cases(Size::Smoke, &machine(cores)).unwrap();
            let name = Contender::Ring(Settings::SharedThreads).name();
            cases.iter().filter(|case| case.contender == name).count()
        };
        assert_eq!([1, 2, 3, 4, 64].map(shared), [3, 3, 3, 0, 0]);
    }

    #[test]
    fn the_drawing_fits_and_the_references_name_contenders_and_shapes() {
        assert!(ABOUT.drawing.lines().all(|line| line.chars().count() <= 72));
        let names = Contender::ALL.map(Contender::name);
        for reference in ABOUT.source.figures {
            for line in reference.lines {
                assert!(line.ours.is_none_or(|ours| names.contains(&ours)), "{line:?}");
            }
            if reference.x == "shape" {
                let of = |line: &super::super::experiment::Line| line.values.len();
                assert!(reference.lines.iter().all(|line| of(line) == Shape::ALL.len()));
            }
        }
    }
}
