//! The texts of the experiment, and its figures.

use super::super::experiment::{About, Source};
use super::super::figure::{Figure, PlotKind};
use super::contenders::CAPACITY;

/// Numbers of sorts for each event.
pub const SORTS: [u32; 3] = [1, 15, 300];

/// Numbers of consumers.
pub const CONSUMERS: std::ops::RangeInclusive<usize> = 1..=11;

/// The study. Its curves are known here by their shapes alone.
pub const SOURCE: Source = Source {
    citation: "J. Sagan: Inter-thread communication efficiency",
    address: None,
    machine: "two Intel Xeon X5650 with six cores each, 2.67 GHz, in two NUMA nodes; \
        Hyper-Threading unused, Oracle Java",
    finding: "With 1 sort, the blocking queue is slower than one thread, the Disruptor much \
        faster, and both are faster on one node than on two. With 15 sorts, the queue gains from \
        the second consumer on, and the Disruptor is a little faster. With 300 sorts they are \
        alike. The Disruptor uses a whole core for each thread; the queue does so only with much \
        work. The curves of figures 3 to 8 are known here by these shapes alone.",
    figures: &[],
};

pub static ABOUT: About = About {
    name: "scaling",
    title: "One producer and one to eleven consumers that sort integers",
    paragraph: "A producer hands events to n consumers. The work on an event is 1, 15 or 300 \
        sorts of 100 consecutive integers, which are filled in afresh for each sort. From how \
        much work on do more consumers help? What does each way to divide the work cost in time \
        and in CPU? The sequential program does everything on one thread. The consumers of the \
        blocking queue take turns at one lock. A ring's partitioned handlers each see all \
        events, and handle those whose position modulo n is their own. The workers of a pool \
        claim chunks of the ring. Where the threads outnumber the cores, the pool is measured a \
        second time on shared threads, which yield. Each thread has a physical core of its own, \
        and from the sixth consumer on one of the second NUMA node. Where the physical cores are \
        fewer than the threads, the system places all threads. CPU is the processor time of the \
        process, user and system, divided by the time of the run. The time includes starting and \
        joining the threads.",
    drawing: "\
blocking queue:                    ┌── sort 0
              producer ─── queue ──┼── sort 1      each event to one,
                      (one lock)   └── sort 2      the first that takes

partitioned            ┌── sort 0: events 0, 3, 6, ...
handlers:    ring ─────┼── sort 1: events 1, 4, 7, ...
                       └── sort 2: events 2, 5, 8, ...
                           each sees every event

pool:                  ┌ sort 0 ┐
             ring ─────┤ sort 1 │   each event to one,
                       └ sort 2 ┘   in chunks",
    source: SOURCE,
    figures: &[
        Figure {
            title: "Time by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines { x: "consumers", metric: "time", logarithmic: true },
        },
        Figure {
            title: "CPU by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines { x: "consumers", metric: "CPU", logarithmic: false },
        },
    ],
};

/// Returns the differences from the study, one sentence for each. `events` holds the number of
/// events for each of [`SORTS`]; `nodes` holds the number of physical cores for each NUMA node.
pub fn missing(events: [u64; SORTS.len()], nodes: &[usize]) -> Vec<String> {
    let [one, some, many] = events;
    let mut missing = vec![
        format!(
            "The study had 40 million events; a run here has {one} with 1 sort, {some} with 15, \
             and {many} with 300."
        ),
        format!(
            "The integers stand in descending order before each sort, which the sort reverses in \
             one pass; ring and queue hold {CAPACITY} events. How it was in the study is not known \
             here."
        ),
        "All contenders are programs in Rust; those of the study were programs in Java.".to_owned(),
    ];
    let cores: usize = nodes.iter().sum();
    let most = CONSUMERS.end() + 1;
    if cores < most {
        let first = cores.max(1);
        missing.push(format!(
            "This machine has {cores} physical cores, so from {first} consumer{} on the threads \
             outnumber them, and the system places all threads.",
            if first == 1 { "" } else { "s" }
        ));
    }
    if nodes.len() < 2 {
        missing.push(
            "This machine has no second NUMA node, so the sixth and later consumers do not run on \
             one."
                .to_owned(),
        );
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_fits_a_terminal() {
        assert!(ABOUT.drawing.lines().all(|line| line.chars().count() <= 72));
    }

    #[test]
    fn few_cores_and_a_single_node_are_named() {
        let missing = |nodes: &[usize]| missing([1, 2, 3], nodes).split_off(3);
        assert_eq!(missing(&[6, 6]), [""; 0]);
        assert!(missing(&[4, 4])[0].contains("from 8 consumers on"));
        assert!(missing(&[12])[0].contains("no second NUMA node"));
        let both = missing(&[1]);
        assert!(both[0].contains("from 1 consumer on") && both[1].contains("NUMA"), "{both:?}");
    }
}
