//! The texts of the experiment, and its figures.

use super::super::experiment::{About, Source};
use super::super::figure::{Figure, PlotKind};
use super::rings;

/// Numbers of threads that build readings.
pub const THREADS: std::ops::RangeInclusive<usize> = 2..=6;

/// Maximum number of readings in flight: the size of the article's ring. It applies to all
/// contenders but the executor with large queues.
pub const CAPACITY: usize = rings::ARTICLE_CAPACITY;

pub static ABOUT: About = About {
    name: "ordered",
    title: "Readings built in parallel, released in order of time",
    paragraph: "Lines of text with sensor readings come in order of time. Several threads \
        parse them into readings in parallel, and a retriever takes the readings in order of \
        time again. Which way to restore the order has the highest throughput, and which one the \
        lowest latency? The executor has a queue before and a queue behind each thread, and a \
        thread that merges. The ring with partitioned handlers has the shape of the article. \
        Each handler sees all slots of a ring of 128, and builds the readings whose partition \
        modulo the number of handlers is its own. It writes them back into their slots, and the \
        retriever follows all handlers. The pool is what a program that uses Slipring would \
        take: its workers claim chunks of the same ring of 128. Where the cores are fewer than \
        the threads would be, the pool, its retriever and the producer share as many threads as \
        there are cores, and wait by yielding. One thread that does everything is the baseline: \
        parsing takes a fraction of a microsecond, so a hand-over can cost more than the work. \
        The producer never pauses. So the latency, from the moment when the producer asks for a \
        place to the retriever, is mostly the time in full queues or a full ring. Contenders \
        that may hold more readings have more of it. Each run checks order and content of all \
        readings.",
    drawing: "\
executor:             ┌─ queue ─ build 0 ─ queue ─┐
           producer ──┼─ queue ─ build 1 ─ queue ─┼── merge, retrieve
                      └─ queue ─ build 2 ─ queue ─┘

ring of 128,          ┌── build 0: partition % 3 = 0 ──┐
handlers:  producer ──┼── build 1: partition % 3 = 1 ──┼── retrieve
                      └── build 2: partition % 3 = 2 ──┘
                          each sees every slot

ring of 128,          ┌ build 0 ┐
pool:      producer ──┤ build 1 ├── retrieve
                      └ build 2 ┘
                          each slot to one of them",
    source: Source {
        citation: "Disruptor With Parallel Consumers vs. Multiple Worker Threads With Queues. \
            DZone",
        address: Some(
            "https://dzone.com/articles/performance-evaluation-disruptor-with-parallel-con",
        ),
        machine: "not known here",
        finding: "The article compares the throughput and the latency of an executor with multiple \
            queues and of the Disruptor with parallel consumers, on readings of molding machines \
            that must come out in ascending order of time. Its figures are not known here.",
        figures: &[],
    },
    figures: &[
        Figure {
            title: "Throughput by threads",
            panels: None,
            kind: PlotKind::Lines { x: "threads", metric: "rate", logarithmic: false },
        },
        Figure {
            title: "Mean latency by threads",
            panels: None,
            kind: PlotKind::Lines { x: "threads", metric: "mean latency", logarithmic: true },
        },
        Figure {
            title: "Median latency by threads",
            panels: None,
            kind: PlotKind::Lines { x: "threads", metric: "p50 latency", logarithmic: true },
        },
        Figure {
            title: "99th percentile of the latency by threads",
            panels: None,
            kind: PlotKind::Lines { x: "threads", metric: "p99 latency", logarithmic: true },
        },
        Figure {
            title: "Latency by percentile",
            panels: Some("threads"),
            kind: PlotKind::Percentiles { metric: "latency" },
        },
    ],
};

/// Returns the differences between this experiment and the article's, one sentence for each.
pub fn missing(count: usize, cores: usize) -> Vec<String> {
    let mut missing = vec![
        format!(
            "The {count} readings of a run are generated as lines of text with a time, a machine, \
             a dimension and a value; the article read a file of molding machines."
        ),
        "All contenders are programs in Rust; those of the article were programs in Java, and its \
         ring was the Disruptor."
            .to_owned(),
        format!(
            "The bounds of the article's queues are not known here: the queues of `executor` hold \
             {CAPACITY} readings, as the ring does, and those of a second executor 1,024."
        ),
    ];
    let most = THREADS.end() + 2;
    if cores < most {
        // Each contender also has a producer, and a merging thread or retriever.
        let fits = cores.saturating_sub(2);
        missing.push(if fits < *THREADS.start() {
            format!(
                "This machine has {cores} cores, so the executor and the partitioned handlers \
                 always have more threads than cores."
            )
        } else {
            format!(
                "This machine has {cores} cores, so from {} threads on the executor and the \
                 partitioned handlers have more threads than cores.",
                fits + 1
            )
        });
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_and_figures_name_what_is_measured() {
        assert!(ABOUT.drawing.lines().all(|line| line.chars().count() <= 72));
        let metrics = ["rate", "mean latency", "p50 latency", "p99 latency", "latency"];
        for figure in ABOUT.figures {
            let (PlotKind::Lines { metric, .. } | PlotKind::Percentiles { metric }) = figure.kind
            else {
                panic!("{}", figure.title)
            };
            assert!(metrics.contains(&metric), "{metric}");
        }
    }

    #[test]
    fn few_cores_are_named() {
        let last = |cores| missing(1_000, cores).pop().unwrap();
        assert!(last(2).contains("2 cores") && last(2).contains("always"), "{}", last(2));
        assert!(last(5).contains("from 4 threads on"), "{}", last(5));
        assert_eq!(missing(1_000, 8).len() + 1, missing(1_000, 7).len());
    }
}
