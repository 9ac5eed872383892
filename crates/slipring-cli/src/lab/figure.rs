//! The plots of an experiment, and the table behind each of them.

use super::interval::Interval;
use super::statistics::Spread;

/// A plot, and the table behind it. The report draws it; the terminal shows the table.
#[derive(Debug)]
pub struct Figure {
    pub title: &'static str,
    /// Name of the parameter for each of whose values the plot has a panel; `None` if the plot has
    /// one panel.
    pub panels: Option<&'static str>,
    pub kind: PlotKind,
}

/// The kinds of plots.
#[derive(Debug)]
pub enum PlotKind {
    /// A line for each contender: the median of a metric over a parameter, with a band of the
    /// repetitions' spread.
    Lines { x: &'static str, metric: &'static str, logarithmic: bool },
    /// Like `Lines`, but with the mean and its 95 % interval in place of median and spread. It
    /// suits single shots, whose publications state these figures.
    Means { x: &'static str, metric: &'static str, logarithmic: bool },
    /// A dot for each contender: one metric against another.
    Scatter { x: &'static str, y: &'static str },
    /// A table of coloured fields: two parameters give the row and the column, and a metric gives
    /// the colour.
    HeatMap { row: &'static str, column: &'static str, metric: &'static str },
    /// A curve for each contender: a metric over the percentiles.
    Percentiles { metric: &'static str },
}

impl PlotKind {
    /// Returns the middle and the spread of repeated values as the plot shows them; `None` if there
    /// are no values.
    pub fn spread(&self, values: &[f64]) -> Option<Spread> {
        match self {
            PlotKind::Means { .. } => {
                let Interval { mean, half_width } = Interval::of(values)?;
                let half = half_width.unwrap_or(0.0);
                Some(Spread { low: mean - half, median: mean, high: mean + half })
            }
            _ => Spread::of(values),
        }
    }
}
