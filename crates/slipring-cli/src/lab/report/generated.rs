//! Experiments and records that exist in tests only: plots of all kinds, with values that are hard
//! to draw.

use std::collections::BTreeMap;

use anyhow::Result;
use fastrand::Rng;

use crate::lab::experiment::{About, Case, Experiment, Line, Reference, Source};
use crate::lab::figure::{Figure, PlotKind};
use crate::lab::machine::MeasuredMachine;
use crate::lab::metric::{Better, Fixed, Value};
use crate::lab::record::{Curves, FORMAT, Record, Results, Series, VERSION, Values};
use crate::lab::size::Size;
use crate::lab::statistics::Noise;
use crate::lab::wording::Pair;

/// A text that would be markup if it were not escaped.
pub const INJECTION: &str =
    "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)></svg></pre></style>";
/// A name that is too long for any plot.
pub const LONG: &str =
    "a queue with a name that is much too long for the margin of a plot, größer als 日本語";

/// An experiment of generated results.
#[derive(Debug)]
pub struct Generated(pub About);

impl Experiment for Generated {
    fn about(&self) -> &'static About {
        // Tests have static experiments only.
        ALL.iter().find(|other| other.0.name == self.0.name).map(|found| &found.0).unwrap()
    }

    fn cases(&self, _: Size, _: &MeasuredMachine) -> Result<Vec<Case>> {
        Ok(Vec::new())
    }

    fn rounds(&self, _: Size) -> u32 {
        5
    }

    fn missing(&self, _: Size, _: &MeasuredMachine) -> Vec<String> {
        Vec::new()
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        let metric = if self.0.name == "hops" { "trip" } else { "time" };
        let mut series = results.series.iter().map(|of| (of.contender.as_str(), of.values(metric)));
        match (series.next(), series.next()) {
            (Some(one), Some(other)) => {
                let phrase = Pair { one, other }.speed(Better::Less, noise);
                format!("On this machine, {phrase}.")
            }
            _ => "On this machine, no contender leads.".to_owned(),
        }
    }
}

const DRAWING: &str = "
  producer ─> parse ─┬─> journal ─┬─> match
                     └─> risk ────┘
";

pub static ALL: [Generated; 2] = [
    Generated(About {
        name: "workers",
        title: "Workers that share one stage",
        paragraph: "A stage of `n` workers handles each event once. The experiment measures what an event \
                    costs, by the number of workers, and what it costs in processor time.\n\nAll contenders \
                    get the same events, and every repetition's sum is checked.",
        drawing: DRAWING,
        source: Source {
            citation: "A. Author, B. Author: Queues under load. Journal of Generated Figures, 2011.",
            address: Some("https://example.org/queues?a=1&b=2"),
            machine: "4 cores at 2.8 GHz, 2 MiB of cache",
            finding: "The queue with locks became slower with each worker, and the ring did not.",
            figures: &[
                Reference {
                    title: "Time of an event",
                    x: "workers",
                    unit: "ns/event",
                    metric: Some("time"),
                    at: &[("work", Fixed::Text("light"))],
                    lines: &[
                        Line {
                            contender: "Disruptor",
                            ours: Some("ring"),
                            values: &[
                                (Fixed::Number(1), 38.0),
                                (Fixed::Number(4), 40.0),
                                (Fixed::Number(16), 51.0),
                            ],
                        },
                        Line {
                            contender: "ArrayBlockingQueue",
                            ours: Some("queue"),
                            values: &[
                                (Fixed::Number(1), 187.0),
                                (Fixed::Number(4), 410.0),
                                (Fixed::Number(16), 925.0),
                            ],
                        },
                        Line {
                            contender: "none of ours",
                            ours: None,
                            values: &[(Fixed::Number(4), 120.0)],
                        },
                    ],
                },
                Reference {
                    title: "Throughput",
                    x: "workers",
                    unit: "million events/s",
                    metric: None,
                    at: &[("work", Fixed::Text("light"))],
                    lines: &[Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: &[
                            (Fixed::Number(1), 26.0),
                            (Fixed::Number(4), 24.0),
                            (Fixed::Number(16), 19.0),
                        ],
                    }],
                },
                Reference {
                    title: "Power",
                    x: "watts",
                    unit: "W",
                    metric: None,
                    at: &[],
                    lines: &[Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: &[(Fixed::Text("idle"), 20.0)],
                    }],
                },
            ],
        },
        figures: &[
            Figure {
                title: "Time by number of workers",
                panels: Some("work"),
                kind: PlotKind::Lines { x: "workers", metric: "time", logarithmic: true },
            },
            Figure {
                title: "Processor time by number of workers",
                panels: Some("work"),
                kind: PlotKind::Lines { x: "workers", metric: "cpu", logarithmic: false },
            },
            Figure {
                title: "Time by work",
                panels: None,
                kind: PlotKind::Lines { x: "work", metric: "time", logarithmic: true },
            },
            Figure {
                title: "Time against processor time",
                panels: Some("workers"),
                kind: PlotKind::Scatter { x: "cpu", y: "time" },
            },
            Figure {
                title: "Latency",
                panels: Some("work"),
                kind: PlotKind::Percentiles { metric: "latency" },
            },
            Figure {
                title: "Not measured",
                panels: None,
                kind: PlotKind::Lines { x: "workers", metric: "nothing", logarithmic: false },
            },
        ],
    }),
    Generated(About {
        name: "hops",
        title: "Hops between CPUs",
        paragraph: "A word goes to and fro between each pair of CPUs.",
        drawing: "",
        source: Source { citation: "", address: None, machine: "", finding: "", figures: &[] },
        figures: &[Figure {
            title: "Median trip",
            panels: None,
            kind: PlotKind::HeatMap { row: "from", column: "to", metric: "trip" },
        }],
    }),
];

/// Makes a record of both experiments.
pub fn record(seed: u64) -> Record {
    let mut random = Rng::with_seed(seed);
    Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        slipring: "0.1.0".to_owned(),
        build: "rustc 1.90.0, optimised".to_owned(),
        command: ["/usr/bin/slipring", "lab", "all", "--json", "a.json"]
            .map(str::to_owned)
            .to_vec(),
        date: "2026-11-24T10:00:00Z".to_owned(),
        size: "full".to_owned(),
        seed,
        machine: MeasuredMachine {
            cores: 4,
            cpu: Some("Generated Processor 9000 @ 2.8 GHz".to_owned()),
            kernel: Some("Linux 6.1.0".to_owned()),
            clock_ns: 24.0,
            description: None,
        },
        noise: Noise { computing: 0.004, handover: 0.051, repetitions: 9 },
        others: Some(0.02),
        simulated: None,
        stopped: None,
        experiments: vec![workers(&mut random), hops(&mut random, 6)],
    }
}

fn results(experiment: &str, series: Vec<Series>) -> Results {
    let notes = vec!["The source used 24 cores; here are 4.".to_owned()];
    Results { experiment: experiment.to_owned(), rounds: 9, seconds: 312.4, notes, series }
}

/// Makes a series without values.
pub fn series(contender: &str, point: &[(&str, Value)]) -> Series {
    Series {
        contender: contender.to_owned(),
        point: point.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        threads: 2,
        cpus: vec![0, 1],
        oversubscribed: false,
        metrics: BTreeMap::new(),
        curves: BTreeMap::new(),
    }
}

/// Makes repeated values around a median.
pub fn values(random: &mut Rng, unit: &str, better: Better, median: f64, noise: f64) -> Values {
    let mut one = || median * (1.0 + noise * (random.f64() + random.f64() - 1.0));
    Values { unit: unit.to_owned(), better, values: (0..9).map(|_| one()).collect() }
}

/// Contenders whose times grow, stay the same, are missing, are 0, scatter widely, or exist at one
/// point only.
fn workers(random: &mut Rng) -> Results {
    let contenders = [
        "ring",
        "ring, adaptive",
        "queue",
        "std channel",
        LONG,
        INJECTION,
        "zero",
        "one point only",
    ];
    let mut all = Vec::new();
    for (work, factor) in [("light", 1.0), ("heavy <b>", 12.0)] {
        for (number, contender) in contenders.into_iter().enumerate() {
            for workers in [1_u64, 2, 4, 8, 16] {
                let is_missing = (contender == "std channel" && workers == 4)
                    || (contender == "one point only" && workers != 2)
                    || (contender == "queue" && workers == 16 && factor > 1.0);
                if is_missing {
                    continue;
                }
                let mut of =
                    series(contender, &[("workers", workers.into()), ("work", work.into())]);
                of.oversubscribed = workers > 4;
                let time = match contender {
                    "zero" => 0.0,
                    "queue" => factor * 90.0 * (workers as f64).powf(0.7),
                    _ => factor * (10.0 + 9.0 * number as f64),
                };
                let noise = if contender == LONG { 0.6 } else { 0.05 };
                of.metrics.insert(
                    "time".to_owned(),
                    values(random, "ns/event", Better::Less, time, noise),
                );
                let cpu = 1.0 + (workers as f64).min(4.0) * 0.8 - 0.15 * number as f64;
                of.metrics
                    .insert("cpu".to_owned(), values(random, "CPUs", Better::Neither, cpu, 0.03));
                let curve = |random: &mut Rng| {
                    let quantiles = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];
                    let tail = 40.0 * (1.0 + number as f64) * factor * (0.9 + 0.2 * random.f64());
                    quantiles.map(|q: f64| (q, tail * (1.0 + 0.3 / (1.0001 - q)))).to_vec()
                };
                if workers == 2 && number != 3 {
                    let rounds = (0..5).map(|_| curve(random)).collect();
                    of.curves
                        .insert("latency".to_owned(), Curves { unit: "ns".to_owned(), rounds });
                }
                all.push(of);
            }
        }
    }
    results("workers", all)
}

fn hops(random: &mut Rng, cpus: u64) -> Results {
    let mut all = Vec::new();
    for contender in ["atomics", "ring"] {
        for (from, to) in (0..cpus).flat_map(|from| (0..cpus).map(move |to| (from, to))) {
            if from == 2 && to == 3 {
                continue;
            }
            let near = if from == to {
                900.0
            } else if from / 2 == to / 2 {
                25.0
            } else {
                60.0
            };
            let trip = near * if contender == "ring" { 1.6 } else { 1.0 };
            let mut of = series(contender, &[("from", from.into()), ("to", to.into())]);
            of.metrics.insert("trip".to_owned(), values(random, "ns", Better::Less, trip, 0.1));
            all.push(of);
        }
    }
    results("hops", all)
}
