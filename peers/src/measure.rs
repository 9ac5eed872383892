//! Figures and contenders, and their interleaved measurement. Each contender checks its own result
//! before its time counts.

use std::collections::BTreeMap;

/// How much to measure. The size determines the number of events in each figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Small amounts, to check that everything works. The figures mean nothing.
    Smoke,
    /// A few seconds for each figure.
    Quick,
    /// The amount for published records.
    Full,
}

impl Size {
    /// Returns the argument that belongs to the size.
    pub fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Size::Smoke => smoke,
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// The kind of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContenderKind {
    /// slipring.
    Ours,
    /// Hand-made code without any protection. It measures the lower bound that the hardware sets.
    Limit,
    /// Another crate, or the standard library.
    Peer,
    /// The same work on one thread, without a hand-over.
    Alone,
    /// A design that slipring tried and rejected.
    Rejected,
}

/// The values of one run, in nanoseconds, by metric: `ns` (per event), or percentiles such as `p50`
/// and `p99`.
pub type Values = Vec<(&'static str, f64)>;

/// Where to find a contender that is written in another language.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Index of the contender's program among all programs in other languages.
    pub program: usize,
    /// The contender's name in its program.
    pub id: &'static str,
    /// Runtime or compiler of the program, once it is built.
    pub built_with: Option<String>,
}

/// One implementation of a figure's work. It panics or fails if events are lost, doubled, damaged
/// or out of order.
pub struct Contender {
    pub name: String,
    pub kind: ContenderKind,
    /// Where to find the contender, if it is written in another language.
    pub foreign: Option<Foreign>,
    run: Box<dyn Fn() -> Result<Values, String>>,
}

impl Contender {
    /// Makes a contender whose only metric is nanoseconds per event.
    pub fn new(
        kind: ContenderKind,
        name: impl Into<String>,
        run: impl Fn() -> f64 + 'static,
    ) -> Self {
        Self::with_metrics(kind, name, move || vec![("ns", run())])
    }
    /// Makes a contender with several metrics.
    pub fn with_metrics(
        kind: ContenderKind,
        name: impl Into<String>,
        run: impl Fn() -> Values + 'static,
    ) -> Self {
        Contender { name: name.into(), kind, foreign: None, run: Box::new(move || Ok(run())) }
    }
    /// Makes a contender between processes, whose runs can fail.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub fn fallible(
        kind: ContenderKind,
        name: impl Into<String>,
        run: impl Fn() -> Result<Values, String> + 'static,
    ) -> Self {
        Contender { name: name.into(), kind, foreign: None, run: Box::new(run) }
    }
    /// Makes a contender in another language. Its program has already subtracted a figure's
    /// baseline from `ns`.
    pub fn foreign(
        name: String,
        foreign: Foreign,
        run: impl Fn() -> Result<Values, String> + 'static,
    ) -> Self {
        Contender { name, kind: ContenderKind::Peer, foreign: Some(foreign), run: Box::new(run) }
    }
}

/// The same work by several contenders: one column of a table.
pub struct Figure {
    /// Name of the table, such as `one by one, 8 bytes, ring 1024`.
    pub table: String,
    /// Name of the column, such as `work 10 ns`.
    pub column: String,
    /// Measures the producer's or the handlers' work without a hand-over, in nanoseconds per event.
    /// Each repetition measures this work once and subtracts it from every contender's `ns`, except
    /// for contenders in other languages, which subtract their own.
    pub baseline: Option<Box<dyn Fn() -> f64>>,
    pub contenders: Vec<Contender>,
}

/// The values of one contender in one figure, one for each repetition, in the order of measurement.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Series {
    pub table: String,
    pub column: String,
    pub contender: String,
    pub kind: ContenderKind,
    /// Runtime or compiler of a contender in another language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built_with: Option<String>,
    pub metric: String,
    pub values: Vec<f64>,
}

impl Series {
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
    /// Returns the 10th and the 90th percentile.
    pub fn middle(&self) -> (f64, f64) {
        (self.quantile(0.1), self.quantile(0.9))
    }
}

/// Returns the name of a column that is a number and its unit, such as `2 stages`.
pub fn numbered_column(number: usize, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

/// Measures all figures `reps` times, and calls `progress` before each run.
///
/// Within a repetition, the contenders of a figure run directly one after another, and each
/// repetition starts with another contender. So a slow phase of the machine hits all contenders.
///
/// Fails if a contender in another language fails. The other contenders panic.
pub fn measure(
    figures: &[Figure],
    reps: usize,
    mut progress: impl FnMut(usize, &Figure, &Contender),
) -> Result<Vec<Series>, String> {
    let mut order = Vec::new();
    let mut all: BTreeMap<(usize, usize, &'static str), Vec<f64>> = BTreeMap::new();
    for rep in 0..reps {
        for (f, figure) in figures.iter().enumerate() {
            let baseline = figure.baseline.as_ref().map_or(0.0, |baseline| baseline());
            for turn in 0..figure.contenders.len() {
                let c = (turn + rep) % figure.contenders.len();
                let contender = &figure.contenders[c];
                progress(rep, figure, contender);
                let values = (contender.run)().map_err(|error| {
                    format!("{}, {}: {}: {error}", figure.table, figure.column, contender.name)
                })?;
                let baseline = if contender.foreign.is_some() { 0.0 } else { baseline };
                for (metric, value) in values {
                    let value = if metric == "ns" { value - baseline } else { value };
                    let key = (f, c, metric);
                    let values = all.entry(key).or_default();
                    if values.is_empty() {
                        order.push(key);
                    }
                    values.push(value);
                }
            }
        }
    }
    order.sort();
    let series = order.into_iter().map(|key| {
        let (f, c, metric) = key;
        let (figure, contender) = (&figures[f], &figures[f].contenders[c]);
        Series {
            table: figure.table.clone(),
            column: figure.column.clone(),
            contender: contender.name.clone(),
            kind: contender.kind,
            built_with: contender.foreign.as_ref().and_then(|foreign| foreign.built_with.clone()),
            metric: metric.to_owned(),
            values: all.remove(&key).unwrap_or_default(),
        }
    });
    Ok(series.collect())
}
