//! The experiment: its part in a run of all experiments, and its conclusion.

use anyhow::Result;

use super::about::{ABOUT, BYTES, LATENCY, PAPER_BLOCK, SETTING, WORD};
use super::measurement;
use crate::lab::experiment::{About, Experiment, Measurement};
use crate::lab::machine::MeasuredMachine;
use crate::lab::metric::Value;
use crate::lab::record::{Results, Series};
use crate::lab::size::Size;
use crate::lab::statistics::{Noise, Spread, Verdict, compare};

/// The experiment.
pub struct Exchange;

impl Experiment for Exchange {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn measurement(&self, size: Size) -> Result<Option<Box<dyn Measurement>>> {
        measurement::in_all(size).map(Some)
    }

    fn missing(&self, _: Size, _: &MeasuredMachine) -> Vec<String> {
        let mut missing =
            vec!["The file is in memory (/dev/shm), so no disk is part of it.".to_owned()];
        let relations = measurement::missing_relations();
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

/// Compares the latencies of the ways that use two processes. The comparison is for the paper's
/// block, with warm caches and the reader on the last core.
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
             {ratio:.1} times as soon as {other}: medians of {:.1} and {:.1} µs.",
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
