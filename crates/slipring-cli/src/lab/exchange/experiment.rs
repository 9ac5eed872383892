//! The experiment for readers, and its part of a run of all experiments.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use slipring_exchange::Way;

use super::convert::{self, BYTES, LATENCY, READ, SETTING};
use super::placement::{self, Placement};
use super::plan::{Amount, Plan};
use super::report::Measured;
use super::{PAPER_BLOCK, WORD};
use crate::lab::experiment::{About, Experiment, Measurement, Source, Value};
use crate::lab::figure::{Figure, Kind};
use crate::lab::machine::MeasuredMachine;
use crate::lab::record::{Results, Series};
use crate::lab::size::Size;
use crate::lab::statistics::{Noise, Spread, Verdict, compare};

static ABOUT: About = About {
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
            kind: Kind::Means { x: BYTES, metric: READ.name, logarithmic: true },
        },
        Figure {
            title: "From written to begun, mean and 95 % interval",
            panels: Some(SETTING),
            kind: Kind::Means { x: BYTES, metric: LATENCY.name, logarithmic: true },
        },
        Figure {
            title: "From written to begun, by the reader's core and caches",
            panels: Some(BYTES),
            kind: Kind::Means { x: SETTING, metric: LATENCY.name, logarithmic: true },
        },
    ],
};

/// The experiment.
pub struct Exchange;

impl Experiment for Exchange {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn measurement(&self, size: Size) -> Result<Option<Box<dyn Measurement>>> {
        Ok(Some(Box::new(Plan { ways: Way::all(), amount: Amount::in_all(size) })))
    }

    fn missing(&self, _: Size, _: &MeasuredMachine) -> Vec<String> {
        let mut missing =
            vec!["The file is in memory (/dev/shm), so no disk is part of it.".to_owned()];
        let relations = placement::missing(&Placement::all());
        if !relations.is_empty() {
            missing.push(format!("This machine has no such cores: {}.", relations.join(", ")));
        }
        missing
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        comparison(results, noise).unwrap_or_else(|| {
            "On this machine, too few ways were measured for a comparison.".to_owned()
        })
    }
}

impl Measurement for Plan {
    fn contenders(&self) -> Vec<String> {
        self.ways.iter().map(Way::to_string).collect()
    }

    fn keep(&mut self, only: &[String]) {
        self.ways.retain(|way| only.contains(&way.to_string()));
    }

    fn expected(&self) -> Duration {
        Plan::expected(self)
    }

    fn measure(&mut self, bar: &ProgressBar) -> Result<(Results, bool)> {
        let mut measured = Measured::begin(self);
        let is_complete = Plan::run(self, &mut measured, bar)?;
        Ok((convert::results(&measured), is_complete))
    }
}

/// Compares the ways' latencies between two processes, for the paper's block with warm caches and
/// the reader on the last core.
fn comparison(results: &Results, noise: &Noise) -> Option<String> {
    let paper = Value::from(PAPER_BLOCK * WORD);
    let warm = |series: &&Series| {
        let setting = series.at(SETTING).map(Value::to_string);
        series.at(BYTES) == Some(&paper) && setting.is_some_and(|setting| setting.ends_with("warm"))
    };
    let between = results.series.iter().filter(warm).filter(|of| of.contender.starts_with("proc"));
    let setting = between.clone().filter_map(|series| series.at(SETTING)).next_back()?;
    let median = |series: &Series| Some(Spread::of(series.values(LATENCY.name))?.median);
    let all = between.filter(|series| series.at(SETTING) == Some(setting));
    let mut all: Vec<(&Series, f64)> =
        all.filter_map(|series| Some((series, median(series)?))).collect();
    all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let ((first, best), (last, worst)) = (all.first()?, all.last()?);
    let (name, other) = (&first.contender, &last.contender);
    if name == other {
        return None;
    }
    let verdict = compare(last.values(LATENCY.name), first.values(LATENCY.name), noise.floor())?;
    Some(match verdict {
        Verdict::Differs(ratio) => format!(
            "On this machine, with the reader on {setting}, {name} tells another process of 1 MiB \
             {ratio:.1} times as soon as {other}: {:.1} µs against {:.1} µs.",
            best / 1e3,
            worst / 1e3
        ),
        Verdict::WithinNoise => format!(
            "On this machine, with the reader on {setting}, no way to tell another process of 1 \
             MiB differs beyond the noise: {:.1} to {:.1} µs.",
            best / 1e3,
            worst / 1e3
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_fits() {
        assert!(ABOUT.drawing.lines().all(|line| line.chars().count() <= 72));
    }

    #[test]
    fn the_headline_compares_processes_on_the_last_core() {
        let series = |way: &str, setting: &str, latency: f64| {
            let bytes = (PAPER_BLOCK * WORD).into();
            let point = [(SETTING, setting.into()), (BYTES, bytes)];
            let mut series = Series::new(way, &point);
            series.add(&LATENCY, vec![latency, latency * 1.01]);
            series
        };
        let headline = |series: Vec<Series>| {
            let (experiment, notes) = ("exchange".to_owned(), Vec::new());
            let results = Results { experiment, rounds: 2, seconds: 1.0, notes, series };
            Exchange.headline(&results, &Noise { computing: 0.01, handover: 0.1, repetitions: 5 })
        };
        let text = headline(vec![
            series("processes-atomics", "core 0, warm", 9_000.0),
            series("threads-atomics", "core 1, warm", 1.0),
            series("processes-semaphores", "core 1, warm", 5_000.0),
            series("processes-atomics", "core 1, warm", 500.0),
        ]);
        assert!(text.contains("on core 1, warm, processes-atomics tells"), "{text}");
        assert!(text.contains("10.0 times as soon as processes-semaphores"), "{text}");
        let text = headline(vec![
            series("processes-semaphores", "core 1, warm", 520.0),
            series("processes-atomics", "core 1, warm", 500.0),
        ]);
        assert!(text.contains("differs beyond the noise"), "{text}");
        assert!(headline(Vec::new()).contains("too few"));
    }
}
