//! The description of the experiment for readers, the block of the paper, and the names of
//! parameters and metrics in records.

use crate::lab::experiment::{About, Source};
use crate::lab::figure::{Figure, PlotKind};
use crate::lab::metric::{Better, Metric};

/// Size of a word, in bytes.
pub const WORD: usize = 8;
/// Size of the paper's block (1 MiB), in words.
pub const PAPER_BLOCK: usize = (1 << 20) / WORD;

/// Parameter: size of a block, in bytes.
pub const BYTES: &str = "bytes";
/// Parameter that combines the reader's core with the state of the caches. Plots have a panel for
/// each of its values.
pub const SETTING: &str = "reader";

/// Returns a metric in nanoseconds.
pub const fn ns(name: &'static str) -> Metric {
    Metric { name, unit: "ns", better: Better::Less }
}

/// Mean time to read a block.
pub const READ: Metric = ns("read");
/// Mean time from the end of writing to the start of reading.
pub const LATENCY: Metric = ns("latency");

/// The texts.
pub static ABOUT: About = About {
    name: "exchange",
    title: "Exchange of a block",
    paragraph: "\
A writer fills a block of memory with ones, and a reader adds them up. One of several ways tells \
the reader that the block is written: two threads or two processes by atomics, promises, named \
semaphores, a file in memory, or a ring of one slot that spins, blocks, or adapts. Two times are \
measured. The time to read says what the distance of the reader's core from the writer's costs. \
The time from written to begun is the latency of the way itself. One thread that does both is the \
baseline. Blocks have 4 KiB to 64 MiB, and caches are warm or cold.",
    drawing: "\
writer ──> block ──────────────────> reader
fills it     └─ written ··· begun ─┘ adds it up
                 a way: atomics, promises, semaphores, file, ring",
    source: Source {
        citation: "Dokulil and Benkner: exchange of a block between threads and processes by \
                   atomics, promises, named semaphores and a file",
        address: None,
        machine: "not stated here",
        finding: "The experiment compares the ways for a block of 1 MiB. Its figures are not \
                  repeated here.",
        figures: &[],
    },
    figures: &[
        Figure {
            title: "Time to read a block, mean and 95 % interval",
            panels: Some(SETTING),
            kind: PlotKind::Means { x: BYTES, metric: READ.name, logarithmic: true },
        },
        Figure {
            title: "From written to begun, mean and 95 % interval",
            panels: Some(SETTING),
            kind: PlotKind::Means { x: BYTES, metric: LATENCY.name, logarithmic: true },
        },
        Figure {
            title: "From written to begun, by the reader's core and caches",
            panels: Some(BYTES),
            kind: PlotKind::Means { x: SETTING, metric: LATENCY.name, logarithmic: true },
        },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_fits() {
        assert!(ABOUT.drawing.lines().all(|line| line.chars().count() <= 72));
    }
}
