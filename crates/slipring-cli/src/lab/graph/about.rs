//! The publication that `lab graph` reproduces, and the names of parameters and metrics.

use crate::lab::experiment::{About, Line, Reference, Source};
use crate::lab::figure::{Figure, PlotKind};
use crate::lab::metric::{Better, Fixed, Metric};

pub const TIME: Metric = Metric { name: "time", unit: "ms", better: Better::Less };
pub const PER_SLICE: Metric = Metric { name: "time per slice", unit: "ns", better: Better::Less };
pub const CORES: Metric = Metric { name: "CPU", unit: "cores", better: Better::Neither };
pub static METRICS: [Metric; 3] = [TIME, PER_SLICE, CORES];

/// Parameter that combines the shape with the number of terms. Plots have a panel for each of its
/// values.
pub const GRAPH: &str = "graph";
pub const WORKERS: &str = "workers";
pub const SLICES: &str = "slices";

/// Names of the graphs whose slices have 10 terms, as in the publication.
pub const BROADCAST: &str = "broadcast, 10 terms";
pub const POOL: &str = "pool, 10 terms";

const BY_SLICES: Option<&str> = Some(TIME.name);

const fn slices(thousands: u64) -> Fixed {
    Fixed::Number(thousands * 1_000)
}

/// The values of one row of the publication's tables, in milliseconds.
macro_rules! values {
    ($half:literal, $one:literal, $five:literal) => {
        &[(slices(500), $half), (slices(1_000), $one), (slices(5_000), $five)]
    };
}

/// A figure of the publication: mean times of 50 single shots.
macro_rules! single_shots {
    ($title:literal, $graph:expr, $workers:literal, $lines:expr) => {
        Reference {
            title: $title,
            x: SLICES,
            unit: TIME.unit,
            metric: BY_SLICES,
            at: &[(GRAPH, Fixed::Text($graph)), (WORKERS, Fixed::Number($workers))],
            lines: $lines,
        }
    };
}

pub static ABOUT: About = About {
    name: "graph",
    title: "A graph with a producer, workers and a reducer",
    paragraph: "\
A producer publishes the slices of a series for pi. Workers compute each slice's sum, and a \
reducer adds the sums up. The experiment asks what the hand-over of small work costs in three \
shapes. In a broadcast, each worker sees all slices and computes its share of them. In a pool, \
each slice goes to one worker: workers of the ring share one position, and each worker of the \
queues has one of its own, dealt slices in turn. In a fan-out, a pool stands beside a journal, and the reducer waits for both. One thread without any hand-over is the \
baseline: the work of 10 terms takes some ten nanoseconds, about as long as a hand-over. Each \
repetition is a single shot with a fresh graph and fresh threads, and its sum is checked.",
    drawing: "\
broadcast              ┌─> worker 0 (s % n = 0) ─┐
              producer ┼─> worker 1 (s % n = 1) ─┼─> reducer
                       └─> ...                  ─┘

pool                   ┌ worker 0 ┐
              producer ┤ worker 1 ├─> reducer
                       └ ...      ┘
                       each slice to one worker

pool in fan-out        ┌─> [worker 0 | worker 1 | ...] ─┐
              producer ┤                                ├─> reducer
                       └─> journal ─────────────────────┘",
    source: Source {
        citation: "V. Ilyushchenko: How we built inter-thread messaging from scratch. QuestDB \
                   blog, 15 March 2020; programs: github.com/bluestreak01/disrupting-fjp, after \
                   A. Shipilev's disrupting-fjp",
        address: Some("https://questdb.io/blog/2020/03/15/interthread"),
        machine: "a MacBook Pro of 2015 with 2 CPUs, and a machine of 4 CPUs at 4.2 GHz",
        finding: "The LMAX Disruptor and QuestDB's queue take essentially the same time where \
                  every worker sees all slices. Workers that share one position take two to \
                  three times as long.",
        figures: &[
            single_shots!(
                "Broadcast, 2 workers, 2 CPUs",
                BROADCAST,
                2,
                &[
                    Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: values!(10.043, 19.944, 133.082),
                    },
                    Line {
                        contender: "QuestDB fan-out",
                        ours: Some("ring"),
                        values: values!(13.027, 26.329, 141.686),
                    },
                ]
            ),
            single_shots!(
                "Pool, 2 workers, 2 CPUs",
                POOL,
                2,
                &[Line {
                    contender: "QuestDB workers",
                    ours: Some("ring"),
                    values: values!(29.470, 62.205, 321.697),
                }]
            ),
            single_shots!(
                "Broadcast, 4 workers, 4 CPUs",
                BROADCAST,
                4,
                &[
                    Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: values!(6.892, 10.143, 54.084),
                    },
                    Line {
                        contender: "QuestDB fan-out",
                        ours: Some("ring"),
                        values: values!(6.364, 11.454, 50.928),
                    },
                ]
            ),
            single_shots!(
                "Pool, 4 workers, 4 CPUs",
                POOL,
                4,
                &[Line {
                    contender: "QuestDB workers",
                    ours: Some("ring"),
                    values: values!(14.240, 27.246, 142.207),
                }]
            ),
        ],
    },
    figures: &[
        Figure {
            title: "Time of a single shot, mean and 95 % interval",
            panels: Some(GRAPH),
            kind: PlotKind::Means { x: SLICES, metric: TIME.name, logarithmic: true },
        },
        Figure {
            title: "Time per slice by graph",
            panels: Some(SLICES),
            kind: PlotKind::Lines { x: GRAPH, metric: PER_SLICE.name, logarithmic: true },
        },
        Figure {
            title: "Cores in use by graph",
            panels: Some(SLICES),
            kind: PlotKind::Lines { x: GRAPH, metric: CORES.name, logarithmic: false },
        },
    ],
};
