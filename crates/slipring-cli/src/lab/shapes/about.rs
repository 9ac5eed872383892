//! The description of the experiment, its metrics, and the figures of its source.

use crate::lab::experiment::{About, Line, Reference, Source};
use crate::lab::figure::{Figure, PlotKind};
use crate::lab::metric::{Better, Fixed, Metric};

pub static TIME: Metric = Metric { name: "time", unit: "ns/event", better: Better::Less };
pub static CPU: Metric = Metric { name: "CPU", unit: "cores", better: Better::Less };
pub static P50: Metric = Metric { name: "latency p50", unit: "ns", better: Better::Less };
pub static P99: Metric = Metric { name: "latency p99", unit: "ns", better: Better::Less };
pub static CURVE: Metric = Metric { name: "latency", unit: "ns", better: Better::Less };
/// Processor time of all threads but the producer's, which spins until the next event is due.
pub static STAGE_CPU: Metric = Metric { name: "stage CPU", unit: "cores", better: Better::Less };

pub static ABOUT: About = About {
    name: "shapes",
    title: "Rings and queues in five shapes",
    paragraph: "\
A program whose threads hand events to each other can put a queue between each two threads, or one \
ring under all of them. The experiment builds five shapes in both ways: with slipring's ring, with \
a blocking queue (one lock and two conditions, as Java's ArrayBlockingQueue), and with the bounded \
channel of Rust's standard library. The queues need one queue for each arrow of the drawing; the \
ring holds each event once, and the stages follow each other over it. `ring` has the default \
settings; `ring yielding` has the wait strategy of the paper's tests; with `ring shared threads`, \
where threads outnumber cores, all stages share as many threads as there are cores. Each stage does the same few \
instructions of work in all contenders, and each repetition checks that every stage has handled \
every event once and in order. First the producer publishes as fast as the contender takes the \
events, which measures the time per event and the cores in use. Then it publishes at a fixed rate \
that all contenders sustain, which measures latency. Latency counts from the time at which an event \
is due, so a delay counts for every event behind it.",
    drawing: "\
unicast     P ──> sum

pipeline    P ──> one ──> two ──> three

sequencer   P1 ──┐
            P2 ──┼──> sum
            P3 ──┘

                 ┌──> one
multicast   P ───┼──> two
                 └──> three

                 ┌──> left ───┐
diamond     P ───┤            ├──> join
                 └──> right ──┘",
    source: Source {
        citation: "Martin Thompson, Dave Farley, Michael Barker, Patricia Gee, Andrew Stewart: \
                   Disruptor: High performance alternative to bounded queues for exchanging data \
                   between concurrent threads. Technical paper, LMAX, 2011",
        address: Some("https://lmax-exchange.github.io/disruptor/disruptor.html"),
        machine: "Throughput: Intel Core i7 860, 2.8 GHz, without hyper-threading, Windows 7; and \
                  Intel Core i7-2720QM, 2.2 GHz, Ubuntu 11.04, which measured latency, too; Java \
                  1.6.0_25. Later editions of the page add AMD EPYC 9374F, Linux 5.4, OpenJDK 11.",
        finding: "In all five shapes the Disruptor moved 2.4 to 42 times as many events as \
                  ArrayBlockingQueue, and its mean latency per hop of the pipeline was 52 ns \
                  instead of 32,757 ns. On the newer machine, version 3 of the Disruptor lost the \
                  sequencer to the queue, and version 4 won all five.",
        figures: &[
            Reference {
                title: "Time per event, Intel Core i7 860",
                x: "shape",
                unit: "ns/event",
                metric: Some("time"),
                at: &[],
                lines: &[
                    Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: &by_shape([
                            25_998_336.0,
                            16_806_157.0,
                            13_403_268.0,
                            9_377_871.0,
                            16_143_613.0,
                        ]),
                    },
                    Line {
                        contender: "ArrayBlockingQueue",
                        ours: Some("blocking queue"),
                        values: &by_shape([
                            5_339_256.0,
                            2_128_918.0,
                            5_539_531.0,
                            1_077_384.0,
                            2_113_941.0,
                        ]),
                    },
                ],
            },
            Reference {
                title: "Time per event, Intel Core i7-2720QM",
                x: "shape",
                unit: "ns/event",
                metric: Some("time"),
                at: &[],
                lines: &[
                    Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: &by_shape([
                            22_381_378.0,
                            15_857_913.0,
                            14_540_519.0,
                            10_860_121.0,
                            15_295_197.0,
                        ]),
                    },
                    Line {
                        contender: "ArrayBlockingQueue",
                        ours: Some("blocking queue"),
                        values: &by_shape([
                            4_057_453.0,
                            2_006_903.0,
                            2_056_118.0,
                            260_733.0,
                            2_082_725.0,
                        ]),
                    },
                ],
            },
            Reference {
                title: "Time per event, AMD EPYC 9374F",
                x: "shape",
                unit: "ns/event",
                metric: Some("time"),
                at: &[],
                lines: &[
                    Line {
                        contender: "Disruptor 4",
                        ours: Some("ring"),
                        values: &by_shape([
                            160_359_204.0,
                            101_317_122.0,
                            29_726_516.0,
                            70_018_204.0,
                            63_123_343.0,
                        ]),
                    },
                    Line {
                        contender: "Disruptor 3",
                        ours: None,
                        values: &by_shape([
                            134_553_283.0,
                            76_068_766.0,
                            16_010_759.0,
                            68_157_033.0,
                            61_229_488.0,
                        ]),
                    },
                    Line {
                        contender: "ArrayBlockingQueue",
                        ours: Some("blocking queue"),
                        values: &by_shape([
                            20_895_148.0,
                            5_216_647.0,
                            18_791_340.0,
                            2_355_379.0,
                            3_433_665.0,
                        ]),
                    },
                ],
            },
            Reference {
                title: "Latency per hop of the pipeline, Intel Core i7-2720QM",
                x: "statistic",
                unit: "ns",
                metric: None,
                at: &[("shape", Fixed::Text("pipeline"))],
                lines: &[
                    Line {
                        contender: "Disruptor",
                        ours: Some("ring"),
                        values: &latencies([29.0, 52.0, 128.0, 8_192.0, 175_567.0]),
                    },
                    Line {
                        contender: "ArrayBlockingQueue",
                        ours: Some("blocking queue"),
                        values: &latencies([
                            145.0,
                            32_757.0,
                            2_097_152.0,
                            4_194_304.0,
                            5_069_086.0,
                        ]),
                    },
                ],
            },
        ],
    },
    figures: &[
        Figure {
            title: "Time per event by shape, events at once",
            panels: None,
            kind: PlotKind::Lines { x: "shape", metric: "time", logarithmic: true },
        },
        Figure {
            title: "Cores in use by shape, events at once",
            panels: None,
            kind: PlotKind::Lines { x: "shape", metric: "CPU", logarithmic: false },
        },
        Figure {
            title: "Latency against cores used by the stages, paced events",
            panels: Some("shape"),
            kind: PlotKind::Scatter { x: "stage CPU", y: "latency p50" },
        },
        Figure {
            title: "Latency, paced events",
            panels: Some("shape"),
            kind: PlotKind::Percentiles { metric: "latency" },
        },
    ],
};

/// Returns the time per event for each shape. `per_second` has the operations per second, in the
/// paper's order of shapes.
const fn by_shape(per_second: [f64; 5]) -> [(Fixed, f64); 5] {
    [
        (Fixed::Text("unicast"), 1e9 / per_second[0]),
        (Fixed::Text("pipeline"), 1e9 / per_second[1]),
        (Fixed::Text("sequencer"), 1e9 / per_second[2]),
        (Fixed::Text("multicast"), 1e9 / per_second[3]),
        (Fixed::Text("diamond"), 1e9 / per_second[4]),
    ]
}

/// Returns the paper's latencies, in nanoseconds; the values at 99 % and 99.99 % are upper bounds.
const fn latencies(values: [f64; 5]) -> [(Fixed, f64); 5] {
    [
        (Fixed::Text("minimum"), values[0]),
        (Fixed::Text("mean"), values[1]),
        (Fixed::Text("99 %"), values[2]),
        (Fixed::Text("99.99 %"), values[3]),
        (Fixed::Text("maximum"), values[4]),
    ]
}
