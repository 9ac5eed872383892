//! Figures, contenders, and how they are measured: interleaved in one run, every result checked by
//! the contender itself before it comes back.

use std::collections::BTreeMap;
use std::time::Instant;

/// How much each measurement does; figures scale their own amounts by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Enough to see that everything works: a test, no figure.
    Smoke,
    /// A few seconds a figure.
    Quick,
    /// What records are made with.
    Full,
}

impl Size {
    /// Picks by size.
    pub fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Size::Smoke => smoke,
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// What a contender is to the reader of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The library.
    Ours,
    /// Hand-made, protecting nothing: what the hardware allows.
    Limit,
    /// What else a user would pick.
    Peer,
    /// The same work without any hand-over.
    Alone,
    /// A design of ours that was rejected.
    Rejected,
}

/// What one measurement says, by metric: `ns` (per event), or `p50` and `p99`.
pub type Values = Vec<(&'static str, f64)>;

/// One way to do a figure's work. It checks order and sum of what it handed over, and panics where
/// they are wrong.
pub struct Contender {
    pub name: String,
    pub kind: Kind,
    run: Box<dyn Fn() -> Values>,
}

impl Contender {
    /// A contender whose one metric is nanoseconds per event.
    pub fn new(kind: Kind, name: impl Into<String>, run: impl Fn() -> f64 + 'static) -> Self {
        Self::with_metrics(kind, name, move || vec![("ns", run())])
    }
    /// A contender with several metrics.
    pub fn with_metrics(kind: Kind, name: impl Into<String>, run: impl Fn() -> Values + 'static) -> Self {
        Contender { name: name.into(), kind, run: Box::new(run) }
    }
}

/// The same work by several contenders: one column of a table.
pub struct Figure {
    /// The table it is in, such as `one by one, 8 bytes, ring 1024`.
    pub table: String,
    /// Its column there, such as `work 8`.
    pub column: String,
    /// Nanoseconds per event that are no hand-over; measured in each repetition and taken off every
    /// contender's `ns` of that repetition.
    pub alone: Option<Box<dyn Fn() -> f64>>,
    pub contenders: Vec<Contender>,
}

/// All repetitions of one contender in one figure, in the order measured.
pub struct Series {
    pub table: String,
    pub column: String,
    pub contender: String,
    pub kind: Kind,
    pub metric: &'static str,
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
    /// The values between which the middle four fifths lie.
    pub fn middle(&self) -> (f64, f64) {
        (self.quantile(0.1), self.quantile(0.9))
    }
}

/// Measures all figures `reps` times. Within a repetition the contenders of a figure follow each
/// other at once, each time starting with another one, so that none always runs behind the same
/// neighbour; `progress` is told before each.
pub fn measure(figures: &[Figure], reps: usize, mut progress: impl FnMut(usize, &Figure, &Contender)) -> Vec<Series> {
    let mut order = Vec::new();
    let mut all: BTreeMap<(usize, usize, &'static str), Vec<f64>> = BTreeMap::new();
    for rep in 0..reps {
        for (f, figure) in figures.iter().enumerate() {
            let alone = figure.alone.as_ref().map_or(0.0, |alone| alone());
            for turn in 0..figure.contenders.len() {
                let c = (turn + rep) % figure.contenders.len();
                let contender = &figure.contenders[c];
                progress(rep, figure, contender);
                for (metric, value) in (contender.run)() {
                    let value = if metric == "ns" { value - alone } else { value };
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
            metric,
            values: all.remove(&key).unwrap_or_default(),
        }
    });
    series.collect()
}

/// Nanoseconds per event since `begin`.
pub fn per_event(begin: Instant, events: u64) -> f64 {
    begin.elapsed().as_nanos() as f64 / events as f64
}
