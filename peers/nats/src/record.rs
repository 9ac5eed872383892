//! Renders measured values as tables for people and as JSON lines for programs.

use serde::Serialize;
use slipring_support::numbers::significant;
use slipring_support::tables::markdown;

/// The values of one contender, one for each repetition, in the order of measurement.
#[derive(Serialize)]
struct Series {
    question: &'static str,
    contender: &'static str,
    metric: &'static str,
    values: Vec<f64>,
}

/// A bound on the ratio between the values of two contenders.
pub struct Target {
    pub question: &'static str,
    pub metric: &'static str,
    pub ours: &'static str,
    pub theirs: &'static str,
    pub bound: Bound,
}

/// Range of the ratios that meet a target.
#[derive(Clone, Copy)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A target and the ratios of each repetition.
#[derive(Serialize)]
struct Ratio {
    target: String,
    asked: String,
    met: bool,
    median: f64,
    values: Vec<f64>,
}

/// All values of a run.
#[derive(Default)]
pub struct Record {
    series: Vec<Series>,
}

impl Record {
    /// Adds the value of one repetition.
    pub fn add(
        &mut self,
        question: &'static str,
        contender: &'static str,
        metric: &'static str,
        value: f64,
    ) {
        let is_same = |series: &&mut Series| {
            (series.question, series.contender, series.metric) == (question, contender, metric)
        };
        match self.series.iter_mut().find(is_same) {
            Some(series) => series.values.push(value),
            None => {
                self.series.push(Series { question, contender, metric, values: vec![value] });
            }
        }
    }

    fn values(&self, question: &str, contender: &str, metric: &str) -> Option<&[f64]> {
        let is_it = |series: &&Series| {
            (series.question, series.contender, series.metric) == (question, contender, metric)
        };
        self.series.iter().find(is_it).map(|series| series.values.as_slice())
    }

    /// Compares values of the same repetition, because a slow phase of the machine hits all
    /// contenders of a repetition.
    fn ratios(&self, targets: &[Target]) -> Vec<Ratio> {
        let ratio = |target: &Target| {
            let ours = self.values(target.question, target.ours, target.metric)?;
            let theirs = self.values(target.question, target.theirs, target.metric)?;
            let values: Vec<f64> = ours.iter().zip(theirs).map(|(ours, his)| ours / his).collect();
            let median = quantile(&values, 0.5);
            let (asked, met) = match target.bound {
                Bound::AtLeast(bound) => (format!("≥ {bound}"), median >= bound),
                Bound::AtMost(bound) => (format!("≤ {bound}"), median <= bound),
            };
            let target = format!(
                "{}, {}: {} / {}",
                target.question, target.metric, target.ours, target.theirs
            );
            Some(Ratio { target, asked, met, median, values })
        };
        targets.iter().filter_map(ratio).collect()
    }

    /// Renders two tables: the values, and the targets. A cell is the median, and in brackets the
    /// least and the greatest value.
    pub fn tables(&self, targets: &[Target], width: Option<usize>) -> String {
        let strings = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        let header: Vec<String> = strings(&["question", "contender", "metric", "median (range)"]);
        let row = |s: &Series| strings(&[s.question, s.contender, s.metric, &spread(&s.values)]);
        let rows: Vec<Vec<String>> = self.series.iter().map(row).collect();
        let values = markdown(&header, &rows, width);
        let header: Vec<String> = strings(&["target", "asked", "median (range)", ""]);
        let row = |ratio: &Ratio| {
            let met = if ratio.met { "met" } else { "missed" };
            strings(&[&ratio.target, &ratio.asked, &spread(&ratio.values), met])
        };
        let rows: Vec<Vec<String>> = self.ratios(targets).iter().map(row).collect();
        format!("{values}\n\n{}\n", markdown(&header, &rows, width))
    }

    /// Renders one JSON line for each series and each target.
    pub fn json(&self, targets: &[Target]) -> serde_json::Result<String> {
        let mut lines = String::new();
        for series in &self.series {
            lines += &(serde_json::to_string(series)? + "\n");
        }
        for ratio in self.ratios(targets) {
            lines += &(serde_json::to_string(&ratio)? + "\n");
        }
        Ok(lines)
    }
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn spread(values: &[f64]) -> String {
    let at = |share| significant(quantile(values, share));
    match values {
        [value] => significant(*value),
        _ => format!("{} ({}–{})", at(0.5), at(0.0), at(1.0)),
    }
}
