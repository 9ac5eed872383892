//! The figures of an execution, and their intervals over several executions.

use serde::Serialize;
use slipring_support::numbers::median;

/// Figures of a time over the blocks of an execution, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub max_ns: f64,
}

impl Figures {
    /// Computes the figures of some values, of which there is at least one.
    pub fn of(mut values: Vec<f64>) -> Figures {
        values.sort_by(f64::total_cmp);
        let rank = (values.len() as f64 * 0.99).ceil() as usize;
        Figures {
            mean_ns: values.iter().sum::<f64>() / values.len() as f64,
            p50_ns: median(values.clone()),
            p99_ns: values[rank.clamp(1, values.len()) - 1],
            max_ns: values[values.len() - 1],
        }
    }
}

/// A mean of several executions' means, and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub mean_ns: f64,
    /// `None` of one execution.
    pub half_width_ns: Option<f64>,
}

/// 97.5 % quantiles of Student's t distribution with 1 to 9 degrees of freedom.
const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

impl Interval {
    /// Computes the interval of the mean, by Student's t distribution.
    pub fn of(means: &[f64]) -> Interval {
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let half_width = T.get(means.len().wrapping_sub(2)).map(|t| {
            let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
            t * (squares / (count - 1.0) / count).sqrt()
        });
        Interval { mean_ns: mean, half_width_ns: half_width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_hundred_values() {
        let figures = Figures::of((1..=100).rev().map(f64::from).collect());
        let Figures { mean_ns, p50_ns, p99_ns, max_ns } = figures;
        assert_eq!([mean_ns, p50_ns, p99_ns, max_ns], [50.5, 50.5, 99.0, 100.0]);
        assert_eq!(Figures::of(vec![7.0]).p99_ns, 7.0);
    }

    /// The example of five values: mean 3, standard deviation 1.58.
    #[test]
    fn an_interval_follows_students_t() {
        let Interval { mean_ns, half_width_ns } = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(mean_ns, 3.0);
        assert!((half_width_ns.unwrap() - 1.963).abs() < 0.001);
        assert_eq!(Interval::of(&[5.0]), Interval { mean_ns: 5.0, half_width_ns: None });
        assert_eq!(Interval::of(&[5.0, 5.0]).half_width_ns, Some(0.0));
    }
}
