//! The statements of the study, and whether the simulation has their shapes.
//!
//! The study's curves are known by their shapes alone. Each shape has a test here that is stated
//! with it, over the medians of all repetitions, in the *packed* placement, as in the study.

use std::ops::RangeInclusive;

use slipring_support::numbers::median;

use super::super::super::experiment::{Appears, Finding};
use super::super::super::metric::{Metric, Value};
use super::super::super::record::Results;
use super::super::super::wording::number;
use super::contenders::Contender;
use super::metrics::{AGAINST_ONE_THREAD, BUSY, CROSS};

/// Two values are alike if they differ by at most this share.
const ALIKE: f64 = 0.1;

/// Returns every statement with its verdict and numbers.
pub fn findings(results: &Results) -> Vec<Finding> {
    let shapes = Shapes::of(results);
    CLAIMS
        .iter()
        .map(|(says, test)| {
            let (appears, numbers) = test(&shapes).unwrap_or_else(|| {
                (Appears::CannotBeSaid, "its contenders were not all measured".to_owned())
            });
            Finding { says: (*says).to_owned(), appears, numbers }
        })
        .collect()
}

/// Returns the sentence that counts the verdicts.
pub fn headline(findings: &[Finding]) -> String {
    let count = |of: Appears| findings.iter().filter(|finding| finding.appears == of).count();
    format!(
        "Simulated: of {} statements of the study, the shapes of {} appear on the virtual cores, \
         those of {} do not, and of {} this model cannot say.",
        findings.len(),
        count(Appears::Yes),
        count(Appears::No),
        count(Appears::CannotBeSaid),
    )
}

type Test = fn(&Shapes<'_>) -> Option<(Appears, String)>;

/// The statements, with the test of each shape.
const CLAIMS: [(&str, Test); 12] = [
    ("1 sort: the queue is slower than one thread, with every number of consumers", |of| {
        let queue = of.against(Contender::Queue, 1)?;
        verdict(queue.iter().all(|(_, time)| *time > 1.0), against("queue", &queue))
    }),
    (
        "1 sort: the disruptor is much faster than one thread (here: at its best at most half of \
         its time)",
        |of| {
            let ring = of.against(Contender::Partitioned, 1)?;
            verdict(least(&ring) <= 0.5, against("ring", &ring))
        },
    ),
    ("1 sort: the queue is faster on one socket than on two", |of| {
        of.sockets(Contender::Queue, "queue")
    }),
    ("1 sort: the disruptor is faster on one socket than on two", |of| {
        of.sockets(Contender::Partitioned, "ring")
    }),
    ("15 sorts: the queue is faster than one thread only with more than one consumer", |of| {
        of.gains(15)
    }),
    (
        "15 sorts: the disruptor is a little faster than the queue (here: by up to a third, in the \
         middle of all numbers of consumers)",
        |of| {
            let ratio = of.ring_by_queue(15)?;
            verdict(
                (2.0 / 3.0..1.0).contains(&ratio),
                format!("the ring takes {} of the queue's time", number(ratio)),
            )
        },
    ),
    ("300 sorts: the queue is faster than one thread only with more than one consumer", |of| {
        of.gains(300)
    }),
    ("300 sorts: queue and disruptor are alike (here: within 10 %)", |of| {
        let ratio = of.ring_by_queue(300)?;
        verdict(
            (ratio - 1.0).abs() <= ALIKE,
            format!("the ring takes {} of the queue's time", number(ratio)),
        )
    }),
    (
        "the disruptor uses as many whole cores as it has threads, with 1, 15 and 300 sorts (here: \
         at least 90 % of them)",
        |of| {
            let shares = [1, 15, 300].map(|sorts| of.shares(Contender::Partitioned, sorts));
            let [one, some, many] = shares;
            let all = [one?, some?, many?].map(|shares| least(&shares));
            verdict(
                all.iter().all(|least| *least >= 1.0 - ALIKE),
                format!("of its threads' cores, the ring uses at least {}", in_words(&all)),
            )
        },
    ),
    (
        "1 sort: the queue cannot use the cores (here: less than 90 % of them, with every number \
         of consumers)",
        |of| {
            let shares = of.shares(Contender::Queue, 1)?;
            let (least, most) = (least(&shares), greatest(&shares));
            verdict(most < 1.0 - ALIKE, used(least, most))
        },
    ),
    (
        "15 sorts: the queue uses as many cores as the disruptor on one socket, and fewer on two",
        |of| {
            let compared = of.queue_cores_by_ring(15)?;
            let (within, beyond) = of.split(&compared);
            if beyond.is_empty() || within.is_empty() {
                return Some((Appears::CannotBeSaid, NO_SECOND_SOCKET.to_owned()));
            }
            let (within, beyond) = (middle(&within), middle(&beyond));
            verdict(
                within >= 1.0 - ALIKE && beyond < within * (1.0 - ALIKE),
                format!(
                    "the queue uses {} of the ring's cores on one socket, {} on two",
                    number(within),
                    number(beyond)
                ),
            )
        },
    ),
    ("300 sorts: the queue uses as many cores as the disruptor (here: within 10 %)", |of| {
        let compared = of.queue_cores_by_ring(300)?;
        let (least, most) = (least(&compared), greatest(&compared));
        verdict(
            least >= 1.0 - ALIKE && most <= 1.0 + ALIKE,
            format!("the queue uses {} to {} of the ring's cores", number(least), number(most)),
        )
    }),
];

const NO_SECOND_SOCKET: &str = "no run has threads on two sockets";

fn verdict(appears: bool, numbers: String) -> Option<(Appears, String)> {
    Some((if appears { Appears::Yes } else { Appears::No }, numbers))
}

/// Values by the number of consumers.
type Curve = Vec<(u64, f64)>;

fn least(curve: &[(u64, f64)]) -> f64 {
    curve.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min)
}

fn greatest(curve: &[(u64, f64)]) -> f64 {
    curve.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max)
}

fn middle(curve: &[(u64, f64)]) -> f64 {
    median(curve.iter().map(|(_, value)| *value).collect())
}

fn in_words(values: &[f64; 3]) -> String {
    let [one, some, many] = values.map(number);
    format!("{one}, {some} and {many}")
}

fn against(name: &str, curve: &Curve) -> String {
    format!(
        "the {name} takes {} to {} of one thread's time",
        number(least(curve)),
        number(greatest(curve))
    )
}

fn used(least: f64, most: f64) -> String {
    format!("of its threads' cores, the queue uses {} to {}", number(least), number(most))
}

/// The medians of the packed placement.
struct Shapes<'a> {
    results: &'a Results,
    consumers: RangeInclusive<u64>,
}

impl Shapes<'_> {
    fn of(results: &Results) -> Shapes<'_> {
        let numbers = results.values_of("consumers").into_iter().filter_map(|value| match value {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        });
        Shapes { results, consumers: 1..=numbers.max().unwrap_or(0) }
    }

    /// Returns the medians of a metric, or `None` if the contender was not measured throughout.
    fn curve(&self, metric: &Metric, contender: Contender, sorts: u64) -> Option<Curve> {
        let at = |consumers: u64| {
            let point = [
                ("sorts", sorts.into()),
                ("placement", "packed".into()),
                ("consumers", consumers.into()),
            ];
            let values = self.results.find(contender.name(), &point)?.values(metric.name);
            (!values.is_empty()).then(|| (consumers, median(values.to_vec())))
        };
        let curve: Option<Curve> = self.consumers.clone().map(at).collect();
        curve.filter(|curve| !curve.is_empty())
    }

    fn against(&self, contender: Contender, sorts: u64) -> Option<Curve> {
        self.curve(&AGAINST_ONE_THREAD, contender, sorts)
    }

    /// Divides a curve into the points whose threads are on one socket, and the others. The
    /// contenders all share lines, so threads on two sockets have transfers between them.
    fn split(&self, curve: &Curve) -> (Curve, Curve) {
        let crosses = |consumers: u64| {
            let crosses = self
                .curve(&CROSS, Contender::Queue, 1)
                .or_else(|| self.curve(&CROSS, Contender::Partitioned, 1));
            crosses.is_some_and(|curve| {
                curve.iter().any(|(at, cross)| *at == consumers && *cross > 0.0)
            })
        };
        curve.iter().partition(|(consumers, _)| !crosses(*consumers))
    }

    /// Tests whether a contender is faster on one socket than on two.
    fn sockets(&self, contender: Contender, name: &str) -> Option<(Appears, String)> {
        let curve = self.against(contender, 1)?;
        let (within, beyond) = self.split(&curve);
        if beyond.is_empty() || within.is_empty() {
            return Some((Appears::CannotBeSaid, NO_SECOND_SOCKET.to_owned()));
        }
        let (within, beyond) = (middle(&within), middle(&beyond));
        verdict(
            beyond > within,
            format!(
                "the {name} takes {} of one thread's time on one socket, {} on two",
                number(within),
                number(beyond)
            ),
        )
    }

    /// Tests whether the queue is faster than one thread only with more than one consumer.
    fn gains(&self, sorts: u64) -> Option<(Appears, String)> {
        let queue = self.against(Contender::Queue, sorts)?;
        let ((_, first), rest) = queue.split_first()?;
        if rest.is_empty() {
            return Some((Appears::CannotBeSaid, "no run has two consumers".to_owned()));
        }
        verdict(
            *first >= 1.0 && greatest(rest) < 1.0,
            format!(
                "the queue takes {} of one thread's time with one consumer, {} to {} with more",
                number(*first),
                number(least(rest)),
                number(greatest(rest))
            ),
        )
    }

    /// Returns the ring's time divided by the queue's, the middle of all numbers of consumers.
    fn ring_by_queue(&self, sorts: u64) -> Option<f64> {
        let queue = self.against(Contender::Queue, sorts)?;
        let ring = self.against(Contender::Partitioned, sorts)?;
        Some(middle(&divided(&ring, &queue)))
    }

    /// Returns the busy cores, divided by the number of threads.
    fn shares(&self, contender: Contender, sorts: u64) -> Option<Curve> {
        let busy = self.curve(&BUSY, contender, sorts)?;
        Some(busy.into_iter().map(|(at, cores)| (at, cores / (at + 1) as f64)).collect())
    }

    fn queue_cores_by_ring(&self, sorts: u64) -> Option<Curve> {
        let queue = self.curve(&BUSY, Contender::Queue, sorts)?;
        Some(divided(&queue, &self.curve(&BUSY, Contender::Partitioned, sorts)?))
    }
}

/// Divides a curve by another one at the same points.
fn divided(one: &Curve, by: &Curve) -> Curve {
    one.iter().zip(by).map(|((at, value), (_, by))| (*at, value / by)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::super::record::Series;
    use super::*;

    /// Returns results with these curves, by contender and sorts, of 1 to 4 consumers. The last two
    /// have threads on two sockets.
    fn results(of: impl Fn(Contender, u64) -> Option<([f64; 4], [f64; 4])>) -> Results {
        let mut series = Vec::new();
        for contender in Contender::ALL {
            for sorts in [1, 15, 300] {
                let Some((times, busy)) = of(contender, sorts) else { continue };
                for (consumers, (time, busy)) in (1_u64..).zip(times.into_iter().zip(busy)) {
                    let point = [
                        ("sorts", sorts.into()),
                        ("placement", "packed".into()),
                        ("consumers", consumers.into()),
                    ];
                    let mut one = Series::new(contender.name(), &point);
                    one.add(&AGAINST_ONE_THREAD, vec![time, time]);
                    one.add(&BUSY, vec![busy, busy]);
                    one.add(&CROSS, vec![f64::from(consumers > 2); 2]);
                    series.push(one);
                }
            }
        }
        let experiment = "scaling-simulated".to_owned();
        Results { experiment, rounds: 2, seconds: 1.0, notes: Vec::new(), series }
    }

    const ALL_CORES: [f64; 4] = [2.0, 3.0, 4.0, 5.0];

    fn as_in_the_study(contender: Contender, sorts: u64) -> Option<([f64; 4], [f64; 4])> {
        Some(match (contender, sorts) {
            (Contender::Queue, 1) => ([2.0, 2.5, 4.0, 5.0], [1.0, 1.5, 1.6, 1.6]),
            (Contender::Queue, 15) => ([1.1, 0.6, 0.5, 0.4], [2.0, 3.0, 3.0, 3.0]),
            (_, 1) => ([0.9, 0.4, 0.7, 0.8], ALL_CORES),
            (_, 15) => ([0.9, 0.5, 0.4, 0.35], ALL_CORES),
            (_, _) => ([1.05, 0.5, 0.35, 0.26], ALL_CORES),
        })
    }

    fn verdicts(of: impl Fn(Contender, u64) -> Option<([f64; 4], [f64; 4])>) -> Vec<Appears> {
        findings(&results(of)).into_iter().map(|finding| finding.appears).collect()
    }

    #[test]
    fn the_shapes_of_the_study_are_recognised() {
        let findings = findings(&results(as_in_the_study));
        for Finding { says, appears, numbers } in &findings {
            assert_eq!(*appears, Appears::Yes, "{says}: {numbers}");
        }
        assert_eq!(findings[0].numbers, "the queue takes 2 to 5 of one thread's time");
        assert!(headline(&findings).starts_with("Simulated: of 12 statements of the study"));
        assert!(headline(&findings).contains("the shapes of 12 appear"));
    }

    #[test]
    fn other_shapes_are_not() {
        // Queue and ring swap their roles.
        let swapped = |contender, sorts| match contender {
            Contender::Queue => as_in_the_study(Contender::Partitioned, sorts),
            _ => as_in_the_study(Contender::Queue, sorts),
        };
        let verdicts = verdicts(swapped);
        let no = [0, 1, 4, 5, 8, 9, 10];
        for (at, appears) in verdicts.iter().enumerate() {
            assert_eq!(*appears == Appears::No, no.contains(&at), "statement {at}: {appears}");
        }
    }

    #[test]
    fn a_contender_that_was_not_measured_decides_nothing() {
        let alone = |contender, sorts| {
            (contender == Contender::Pool).then(|| as_in_the_study(contender, sorts)).flatten()
        };
        assert!(verdicts(alone).iter().all(|appears| *appears == Appears::CannotBeSaid));
    }
}
