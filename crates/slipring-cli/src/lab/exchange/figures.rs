//! The figures of an execution.

use slipring_support::numbers::median;

/// Statistics of one time that is measured for each block of an execution, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub max_ns: f64,
    /// Values by quantile from 0 to 1.
    pub curve: Vec<(f64, f64)>,
}

/// Quantiles of the curve.
const QUANTILES: [f64; 8] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];

impl Figures {
    /// Computes the figures of a list of values, which must not be empty.
    pub fn of(mut values: Vec<f64>) -> Figures {
        values.sort_by(f64::total_cmp);
        let at = |quantile: f64| {
            let rank = (values.len() as f64 * quantile).ceil() as usize;
            values[rank.clamp(1, values.len()) - 1]
        };
        Figures {
            mean_ns: values.iter().sum::<f64>() / values.len() as f64,
            p50_ns: median(values.clone()),
            p99_ns: at(0.99),
            max_ns: at(1.0),
            curve: QUANTILES.map(|quantile| (quantile, at(quantile))).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_hundred_values() {
        let figures = Figures::of((1..=100).rev().map(f64::from).collect());
        let Figures { mean_ns, p50_ns, p99_ns, max_ns, curve } = figures;
        assert_eq!((curve[0], curve[7]), ((0.01, 1.0), (1.0, 100.0)));
        assert_eq!([mean_ns, p50_ns, p99_ns, max_ns], [50.5, 50.5, 99.0, 100.0]);
        assert_eq!(Figures::of(vec![7.0]).p99_ns, 7.0);
    }
}
