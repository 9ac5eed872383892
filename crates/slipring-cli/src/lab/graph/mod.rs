//! `slipring lab graph`: one producer, several workers and a reducer compute pi, in three shapes.

mod about;
mod queues;
mod rings;
mod setup;
mod shot;
mod slices;

use std::time::Duration;

use anyhow::Result;
use indicatif::HumanCount;

use super::experiment::{About, Case, CaseResult, Experiment};
use super::metric::Value;
use super::record::{Results, Series};
use super::size::Size;
use super::statistics::{Noise, Spread, Verdict, compare};
use super::wording::ratio as in_words;
use crate::lab::machine::MeasuredMachine;
use about::{GRAPH, METRICS, SLICES, TIME, WORKERS};
use setup::{Contender, Setup, Shape};
use shot::shoot;
use slices::Job;

/// Numbers of workers, as in the publication.
const AMOUNTS_OF_WORKERS: [usize; 2] = [2, 4];
/// Numbers of terms in a slice: the publication's number, and ten times as many.
const TERMS: [u64; 2] = [10, 100];

/// The experiment.
pub struct Graph;

impl Experiment for Graph {
    fn about(&self) -> &'static About {
        &about::ABOUT
    }

    fn cases(&self, size: Size, machine: &MeasuredMachine) -> Result<Vec<Case>> {
        let setups = Shape::ALL.into_iter().flat_map(|shape| setups(shape, size));
        Ok(setups.map(|setup| case(setup, machine.cores)).collect())
    }

    fn rounds(&self, size: Size) -> u32 {
        size.pick(2, 10, 50)
    }

    fn missing(&self, size: Size, machine: &MeasuredMachine) -> Vec<String> {
        let mut missing = vec![
            "The published programs are Java, and take the mean of 50 shots in 5 processes after \
             warm-up; here all shots run in one process."
                .to_owned(),
            "The published ring has half as many slots as there are slices (QuestDB); all rings \
             and queues here have 16,384."
                .to_owned(),
            "In the published pool, a worker leaves out each slice that is marked for another \
             worker; here every slice is computed."
                .to_owned(),
            "100 terms a slice, and the pool in a fan-out, have no published figures.".to_owned(),
        ];
        let all = AMOUNTS_OF_WORKERS[1] + 3;
        if machine.cores < all {
            missing.push(format!(
                "The largest graph has {all} threads, and this machine {} cores.",
                machine.cores
            ));
        }
        let [most, most_of_100] =
            amounts(size).map(|slices| slices.last().copied().unwrap_or(0)).map(HumanCount);
        if size != Size::Full {
            missing.push(format!(
                "{} shots of at most {most} slices of 10 terms and {most_of_100} of 100; --full \
                 takes 50 of up to 5,000,000.",
                self.rounds(size),
            ));
        }
        missing
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        let sentences: Vec<String> =
            TERMS.into_iter().filter_map(|terms| comparison(results, terms, noise)).collect();
        match sentences.as_slice() {
            [] => "On this machine, too few contenders were measured for a comparison.".to_owned(),
            // The sentence uses medians, although the plots show means, because a single slow shot
            // raises a mean.
            all => format!("On this machine, by the median shot, {}.", all.join("; ")),
        }
    }
}

/// Returns, for each number of terms, the numbers of slices that are measured.
fn amounts(size: Size) -> [Vec<u64>; 2] {
    match size {
        Size::Smoke => [vec![2_000, 4_000], vec![2_000]],
        Size::Quick => [vec![500_000, 1_000_000], vec![500_000]],
        Size::Full => [(); 2].map(|()| vec![500_000, 1_000_000, 5_000_000]),
    }
}

fn setups(shape: Shape, size: Size) -> Vec<Setup> {
    let mut setups = Vec::new();
    for (terms, amounts) in TERMS.into_iter().zip(amounts(size)) {
        for slices in amounts {
            let job = Job { slices, terms };
            for contender in Contender::ALL {
                let workers: &[usize] =
                    if contender == Contender::OneThread { &[1] } else { &AMOUNTS_OF_WORKERS };
                let setup = |&workers| Setup { shape, contender, workers, job };
                setups.extend(workers.iter().map(setup));
            }
        }
    }
    setups
}

fn case(setup: Setup, cores: usize) -> Case {
    let Setup { contender, workers, job, .. } = setup;
    Case {
        contender: contender.name().to_owned(),
        point: vec![
            (GRAPH, Value::Text(setup.to_string())),
            (WORKERS, workers.into()),
            (SLICES, job.slices.into()),
        ],
        threads: setup.threads(cores),
        cpus: Vec::new(),
        expected: expected(&setup),
        run: Box::new(move |_| {
            let shot = shoot(&setup)?;
            let [time, per_slice, cores] = &METRICS;
            let outcome = CaseResult::default()
                .value(time, shot.time.as_secs_f64() * 1e3)
                .value(per_slice, shot.time.as_nanos() as f64 / job.slices as f64);
            Ok(match shot.cores {
                Some(used) => outcome.value(cores, used),
                None => outcome,
            })
        }),
    }
}

/// Estimates the time of a shot: the time for the work plus the time for the hand-overs. A
/// hand-over takes longer if more threads share the cores.
fn expected(setup: &Setup) -> Duration {
    let Setup { shape, contender, workers, job } = *setup;
    let work = job.terms * 3 / 2;
    let hand_over = match contender {
        Contender::OneThread => 0,
        Contender::Ring | Contender::SharedThreads => 25,
        Contender::Channels | Contender::BlockingQueues => match shape {
            Shape::Broadcast => 40 * (workers as u64 + 1),
            Shape::Pool => 60,
            Shape::PoolInFanOut => 120,
        },
    };
    Duration::from_nanos((work + hand_over) * job.slices)
}

/// Compares the best ring graph with the other contenders. The comparison is for the largest job
/// with slices of `terms` terms, in a pool of two workers.
fn comparison(results: &Results, terms: u64, noise: &Noise) -> Option<String> {
    let job = Job { slices: 0, terms };
    let contender = Contender::Ring;
    let pool = Setup { shape: Shape::Pool, contender, workers: AMOUNTS_OF_WORKERS[0], job };
    let (graph, alone) = (Value::Text(pool.to_string()), Value::from(1_usize));
    let suits = |series: &&Series| {
        let workers = series.at(WORKERS);
        series.at(GRAPH) == Some(&graph)
            && (workers == Some(&pool.workers.into()) || workers == Some(&alone))
    };
    let of = |contender: Contender| {
        let all = results.series.iter().filter(suits);
        all.filter(|series| series.contender == contender.name())
            .max_by_key(|series| series.at(SLICES).cloned())
    };
    let time = |series: &Series| Spread::of(series.values(TIME.name)).map(|of| of.median);
    let rings = [Contender::Ring, Contender::SharedThreads].into_iter().filter_map(of);
    let rings = rings.filter_map(|series| Some((series, time(series)?)));
    let (ring, _) = rings.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let (mut parts, mut alike) = (Vec::new(), Vec::new());
    for other in [Contender::OneThread, Contender::Channels, Contender::BlockingQueues] {
        let Some(series) = of(other) else { continue };
        let name = other.name();
        match compare(series.values(TIME.name), ring.values(TIME.name), noise.floor()) {
            Some(Verdict::Differs(ratio)) if ratio >= 1.0 => {
                parts.push(format!("{} times as fast as {name}", in_words(ratio)));
            }
            Some(Verdict::Differs(ratio)) => {
                parts.push(format!("{} times as slow as {name}", in_words(ratio)));
            }
            Some(Verdict::WithinNoise) => alike.push(name),
            None => {}
        }
    }
    if !alike.is_empty() {
        parts.push(format!("within the noise of {}", alike.join(" and ")));
    }
    let (name, others) = (&ring.contender, parts.join(", and "));
    (!parts.is_empty()).then(|| {
        format!("with {terms} terms a slice, a pool of two workers by `{name}` is {others}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of graphs in the source's figures are written by hand.
    #[test]
    fn the_graphs_of_the_source_are_measured() {
        let cases: Vec<Case> = Shape::ALL
            .into_iter()
            .flat_map(|shape| setups(shape, Size::Full))
            .map(|setup| case(setup, 2))
            .collect();
        for figure in about::ABOUT.source.figures {
            for line in figure.lines {
                for (slices, time) in line.values {
                    let mut point = vec![(SLICES, Value::from(*slices))];
                    point
                        .extend(figure.at.iter().map(|(name, value)| (*name, Value::from(*value))));
                    let found = cases.iter().any(|case| {
                        Some(&*case.contender) == line.ours
                            && point.iter().all(|pair| case.point.contains(pair))
                    });
                    assert!(found && *time > 0.0, "{}: {}", figure.title, line.contender);
                }
            }
        }
    }

    #[test]
    fn the_drawing_fits_and_figures_name_parameters_and_metrics() {
        let about = &about::ABOUT;
        assert!(about.drawing.lines().all(|line| line.chars().count() <= 72));
        assert_eq!(about.figures.len(), 3);
        assert_eq!(METRICS.each_ref().map(|metric| metric.name), ["time", "time per slice", "CPU"]);
    }

    fn results(times: &[(Contender, u64, f64)]) -> Results {
        let series = times.iter().map(|&(contender, terms, ms)| {
            let job = Job { slices: 1_000, terms };
            let workers = if contender == Contender::OneThread { 1 } else { 2 };
            let setup = Setup { shape: Shape::Pool, contender, workers, job };
            let case = case(setup, 2);
            let values = [ms * 0.99, ms, ms, ms * 1.01].to_vec();
            let values = crate::lab::record::Values {
                unit: TIME.unit.to_owned(),
                better: TIME.better,
                values,
            };
            let point = case.point.into_iter().map(|(name, value)| (name.to_owned(), value));
            Series {
                contender: case.contender,
                point: point.collect(),
                threads: case.threads,
                cpus: Vec::new(),
                oversubscribed: false,
                metrics: [(TIME.name.to_owned(), values)].into(),
                curves: Default::default(),
            }
        });
        Results {
            experiment: "graph".to_owned(),
            rounds: 4,
            seconds: 1.0,
            notes: Vec::new(),
            series: series.collect(),
        }
    }

    #[test]
    fn the_headline_names_no_winner_within_the_noise() {
        let noise = Noise { computing: 0.05, handover: 0.1, repetitions: 5 };
        let headline = |times: &[_]| Graph.headline(&results(times), &noise);
        let text = headline(&[
            (Contender::OneThread, 10, 10.0),
            (Contender::Ring, 10, 20.0),
            (Contender::SharedThreads, 10, 30.0),
            (Contender::Channels, 10, 100.0),
        ]);
        let ring = "with 10 terms a slice, a pool of two workers by `ring` is ";
        let rest = "2.0 times as slow as one thread, and 5.0 times as fast as std channels.";
        assert!(text.contains(&format!("{ring}{rest}")), "{text}");
        let text = headline(&[
            (Contender::OneThread, 100, 10.0),
            (Contender::SharedThreads, 100, 10.5),
            (Contender::Ring, 100, 30.0),
        ]);
        assert!(text.contains("by `ring on shared threads`"), "{text}");
        assert!(text.contains("is within the noise of one thread."), "{text}");
        assert!(headline(&[(Contender::Ring, 10, 1.0)]).contains("too few contenders"));
    }
}
