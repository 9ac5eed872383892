//! A mean of repeated values, and half the width of its 95 % interval.

/// A mean of repeated values, and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    /// Half the width of the interval; `None` if there is only one value.
    pub half_width: Option<f64>,
}

/// 97.5 % quantiles of Student's t distribution with 1 to 9 degrees of freedom.
const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
/// 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_964;

impl Interval {
    /// Computes the interval of the mean, by Student's t distribution; `None` if there are no
    /// values.
    pub fn of(values: &[f64]) -> Option<Interval> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let half_width = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            quantile(values.len() - 1) * (squares / (count - 1.0) / count).sqrt()
        });
        Some(Interval { mean, half_width })
    }
}

/// Returns the 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom.
fn quantile(freedom: usize) -> f64 {
    if let Some(t) = T.get(freedom.wrapping_sub(1)) {
        return *t;
    }
    // These are the first terms of the expansion in 1 / freedom (Abramowitz and Stegun, 26.7.5).
    // From 10 degrees on, the error is below 0.0002.
    let n = freedom as f64;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    let third = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
    Z + first / n + second / n.powi(2) + third / n.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example has five values, with mean 3 and standard deviation 1.58.
    #[test]
    fn an_interval_follows_students_t() {
        let Interval { mean, half_width } = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(mean, 3.0);
        assert!((half_width.unwrap() - 1.963).abs() < 0.001);
        assert_eq!(Interval::of(&[5.0]), Some(Interval { mean: 5.0, half_width: None }));
        assert_eq!(Interval::of(&[5.0, 5.0]).unwrap().half_width, Some(0.0));
        assert_eq!(Interval::of(&[]), None);
    }

    /// Values of published tables.
    #[test]
    fn quantiles_of_many_values_are_those_of_the_tables() {
        for (freedom, t) in [(1, 12.706), (9, 2.262), (10, 2.228), (20, 2.086), (49, 2.0096)] {
            assert!((quantile(freedom) - t).abs() < 0.0006, "{freedom}: {}", quantile(freedom));
        }
    }
}
