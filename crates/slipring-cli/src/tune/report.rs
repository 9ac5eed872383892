//! The results of a search: tables for people, a record for programs, and the reason for a refusal.

use anyhow::Result;
use serde_json::{Value, json};
use slipring_machine::Machine;
use slipring_support::numbers::significant;
use slipring_support::streams::stdout_width;
use slipring_support::tables::markdown;

use super::candidate::Setting;
use super::code;
use super::demand::Demand;
use super::measure::{Bench, measured_size};
use super::search::{Choice, Goal, Measured};
use crate::lab::record;
use crate::lab::size::Size;
use crate::lab::statistics::Spread;

/// All results.
pub struct Report<'a> {
    pub machine: &'a Machine,
    pub bench: &'a Bench,
    pub size: Size,
    /// Noise floor, as a ratio less 1.
    pub noise: f64,
    pub choices: Vec<Choice>,
    /// The recommended candidate in the final comparison.
    pub best: Measured,
    /// The candidate with all defaults in the final comparison.
    pub usual: Measured,
}

impl Report<'_> {
    fn demand(&self) -> &Demand {
        &self.bench.demand
    }

    /// Returns the reason why nothing is recommended, or `None`.
    pub fn refusal(&self) -> Option<String> {
        let (latency, cores) = (self.best.latency(), self.best.cores());
        let limited = self.demand().latency.map(|limit| {
            let nanoseconds = limit.limit.0.as_nanos() as f64;
            (latency, nanoseconds, format!("the latency (p{})", limit.percentile), "µs", 1e3)
        });
        let budget = self.demand().budget.map(|budget| {
            (cores, budget.0, "the processor time of the stages".to_owned(), "cores", 1.0)
        });
        for (spread, limit, what, unit, scale) in limited.into_iter().chain(budget) {
            let show = |value: f64| significant(value / scale);
            let Spread { low, median, high } = spread;
            if median > limit {
                return Some(format!(
                    "no measured setting meets the demand; with the best one, {what} was {} {unit}, \
                     and the limit is {} {unit}",
                    show(median),
                    show(limit)
                ));
            }
            if high > limit {
                return Some(format!(
                    "the noise is too large: {what} was {} to {} {unit} in equal runs, and the \
                     limit is {} {unit}; stop what else runs on the machine and its host, or state \
                     a higher limit",
                    show(low),
                    show(high),
                    show(limit)
                ));
            }
        }
        None
    }

    /// Returns the choices, and the final comparison.
    pub fn tables(&self) -> String {
        let demand = self.demand();
        let percentile = demand.percentile();
        let events = self.best.outcomes.first().map_or(0, |outcome| outcome.events);
        let mut text = format!(
            "slipring {}, tune, {}: {} through {}, {} bytes each, {} of work in each stage\n\
             looking for {}; about {} events a run; noise floor {:.1} %\n",
            env!("CARGO_PKG_VERSION"),
            self.size,
            demand.rate,
            if demand.stages == 1 { "1 stage".into() } else { format!("{} stages", demand.stages) },
            demand.event_bytes,
            slipring_support::numbers::duration(demand.work),
            goal(demand),
            events,
            self.noise * 100.0,
        );
        if measured_size(demand.event_bytes) != Some(demand.event_bytes)
            && let Some(size) = measured_size(demand.event_bytes)
        {
            text.push_str(&format!("measured with events of {size} bytes\n"));
        }
        if self.size == Size::Smoke {
            text.push_str("smoke run: the figures mean nothing\n");
        }
        let header = [
            "choice".to_owned(),
            format!("p{percentile}, µs"),
            "cores".to_owned(),
            "next best".to_owned(),
            format!("p{percentile}, µs"),
            "cores".to_owned(),
            "clear".to_owned(),
        ];
        let rows: Vec<Vec<String>> = self.choices.iter().map(row).collect();
        text.push_str(&format!("\n{}\n", markdown(&header, &rows, stdout_width())));
        let header = ["final comparison".to_owned(), header[1].clone(), "cores".to_owned()];
        let rows = [("recommended", &self.best), ("all defaults", &self.usual)];
        let rows = rows.map(|(name, measured)| {
            vec![name.to_owned(), shown(measured.latency(), 1e3), shown(measured.cores(), 1.0)]
        });
        text.push_str(&format!("\n{}\n", markdown(&header, &rows, stdout_width())));
        text
    }

    /// Returns the program, with the crates that `Cargo.toml` needs.
    pub fn program(&self, program: &str) -> String {
        let crates = code::crates(&self.best.candidate).join(" and ");
        format!("A program with these settings, which needs {crates}:\n\n{program}")
    }

    /// Returns all runs.
    pub fn json(&self) -> Result<String> {
        let demand = self.demand();
        let measured = |measured: &Measured| -> Value {
            let settings = Setting::ALL.map(|setting| setting.of(&measured.candidate));
            let runs: Vec<Value> = measured
                .outcomes
                .iter()
                .map(|outcome| {
                    json!({
                        "latency_ns": outcome.latency_ns,
                        "p50_ns": outcome.p50_ns,
                        "cores": outcome.cores,
                        "events": outcome.events,
                    })
                })
                .collect();
            json!({ "settings": settings, "runs": runs })
        };
        let choices: Vec<Value> = self
            .choices
            .iter()
            .map(|choice| {
                json!({
                    "setting": format!("{:?}", choice.setting),
                    "chosen": measured(&choice.chosen),
                    "next": choice.next.as_ref().map(measured),
                    "clear": choice.is_clear,
                })
            })
            .collect();
        let record = json!({
            "format": "slipring-tune",
            "version": 1,
            "slipring": env!("CARGO_PKG_VERSION"),
            "command": std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>(),
            "size": self.size.to_string(),
            "build": record::build(),
            "machine": self.machine,
            "demand": {
                "event_bytes": demand.event_bytes,
                "events_per_second": demand.rate.0,
                "work_ns": demand.work.as_nanos() as u64,
                "stages": demand.stages,
                "percentile": demand.percentile(),
            },
            "noise": self.noise,
            "choices": choices,
            "recommended": measured(&self.best),
            "defaults": measured(&self.usual),
        });
        Ok(serde_json::to_string_pretty(&record)? + "\n")
    }
}

fn row(choice: &Choice) -> Vec<String> {
    let Choice { setting, chosen, next, is_clear } = choice;
    let figures =
        |measured: &Measured| [shown(measured.latency(), 1e3), shown(measured.cores(), 1.0)];
    let mut row = vec![setting.of(&chosen.candidate)];
    row.extend(figures(chosen));
    match next {
        Some(next) => {
            row.push(setting.of(&next.candidate));
            row.extend(figures(next));
        }
        None => row.extend(["–", "–", "–"].map(str::to_owned)),
    }
    row.push(if *is_clear { "yes" } else { "within noise" }.to_owned());
    row
}

/// Formats a median, and half the width of its spread.
fn shown(spread: Spread, scale: f64) -> String {
    let half = (spread.high - spread.low) / 2.0 / scale;
    format!("{} ±{}", significant(spread.median / scale), significant(half))
}

/// Returns the words for the figure that is optimised.
fn goal(demand: &Demand) -> &'static str {
    match Goal::of(demand) {
        Goal::Cores => "the least processor time that keeps the limits",
        Goal::Latency => "the least latency",
    }
}
