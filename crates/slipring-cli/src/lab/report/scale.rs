//! Scales of axes: the place of a value between both ends of an axis, and the values that have
//! ticks.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// Makes a linear scale that begins at 0, or at the least value if that is negative.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let (low, high) = if low == high { (0.0, 1.0) } else { (low, high) };
        let step = step((high - low) / 5.0);
        Self {
            low: (low / step).floor() * step,
            high: (high / step).ceil() * step,
            is_logarithmic: false,
        }
    }

    /// Makes a logarithmic scale of the values above 0.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(values.filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        // The axis has a margin, so that no point lies on the frame, and spans a factor of four at
        // least, so that noise is not drawn large.
        let margin = (2.0 / (high / low).sqrt()).max((high / low).powf(0.05)).max(1.1);
        Self { low: low / margin, high: high * margin, is_logarithmic: true }
    }

    /// Makes a logarithmic scale where the values above 0 span a factor of 20 or more, else a
    /// linear one.
    pub fn fitting(values: impl Iterator<Item = f64> + Clone) -> Self {
        match range(values.clone().filter(|value| *value > 0.0)) {
            Some((low, high)) if high / low >= 20.0 => Self::logarithmic(values),
            _ => Self::linear(values),
        }
    }

    pub fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    /// Returns the place of a value: 0 at the low end, 1 at the high end. Returns `None` if a
    /// logarithmic scale has no place for it.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = if self.is_logarithmic {
            if value <= 0.0 {
                return None;
            }
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.is_finite().then(|| place.clamp(0.0, 1.0))
    }

    /// Returns the place of an end of a spread, or the low end of the axis if the scale has no
    /// place for it.
    pub fn place_or_end(&self, value: f64) -> f64 {
        self.place(value).unwrap_or(0.0)
    }

    /// Returns at most `most` values that have ticks.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if !self.is_logarithmic || self.high / self.low < 5.0 {
            let mut step = step((self.high - self.low) / most as f64);
            while (self.high - self.low) / step > most as f64 {
                step = self::step(step * 1.5);
            }
            let (first, last) =
                ((self.low / step).ceil(), (self.high / step * (1.0 + 1e-9)).floor());
            let count = (last - first).clamp(0.0, 100.0) as usize;
            return (0..=count).map(|i| (first + i as f64) * step).collect();
        }
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().floor() as i32);
        let decades = last - first + 1;
        let within = |value: &f64| (self.low..=self.high).contains(value);
        let of = |multiples: &[f64], every: i32| -> Vec<f64> {
            let exponents = (first..=last).filter(|exponent| exponent.rem_euclid(every) == 0);
            let all = exponents
                .flat_map(|exponent| multiples.iter().map(move |m| m * 10_f64.powi(exponent)));
            all.filter(within).collect()
        };
        [(&[1.0, 2.0, 5.0][..], 1), (&[1.0, 3.0], 1), (&[1.0], 1), (&[1.0], 2), (&[1.0], 3)]
            .into_iter()
            .map(|(multiples, every)| of(multiples, every))
            .find(|ticks| ticks.len() <= most)
            .unwrap_or_else(|| of(&[1.0], decades / most as i32 + 1))
    }
}

/// Returns the least and the largest value.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// Returns the least step that is not below `least`. Steps are 1, 2 and 5, times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(power)
}

/// The scale of quantiles. Each decade of rarer values (from 0.9 to 0.99, from 0.99 to 0.999) has
/// the same width.
#[derive(Clone, Copy, Debug)]
pub struct Quantiles {
    /// Width of the scale without the maximum, in decades.
    decades: f64,
    /// Width of the last step, to the maximum, in decades; 0 if there is no maximum.
    last: f64,
}

impl Quantiles {
    pub fn of(quantiles: impl Iterator<Item = f64>) -> Self {
        let mut quantiles_of = Self { decades: 1.0, last: 0.0 };
        for quantile in quantiles {
            if quantile >= 1.0 {
                quantiles_of.last = 0.6;
            } else {
                let decades = -(1.0 - quantile).log10();
                quantiles_of.decades = decades.max(quantiles_of.decades).min(9.0);
            }
        }
        quantiles_of
    }

    /// Returns the place of a quantile: 0 for 0, and 1 for the maximum.
    pub fn place(&self, quantile: f64) -> f64 {
        let end = self.decades + self.last;
        if quantile >= 1.0 {
            1.0
        } else {
            (-(1.0 - quantile).log10()).clamp(0.0, self.decades) / end
        }
    }

    /// Returns the quantiles that have ticks, with their names.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = vec![(0.5, "50 %".to_owned())];
        for nines in 1..=(self.decades + 0.01) as i32 {
            let decimals = (nines - 2).max(0) as usize;
            let quantile = 1.0 - 10_f64.powi(-nines);
            ticks.push((quantile, format!("{:.decimals$} %", quantile * 100.0)));
        }
        if self.last > 0.0 {
            ticks.push((1.0, "max".to_owned()));
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_round_and_on_the_scale() {
        let cases: [&[f64]; 8] = [
            &[],
            &[0.0],
            &[5.0],
            &[1.0, 12.3],
            &[-3.0, 8.0],
            &[1e-9, 1e12],
            &[99.0, 101.0],
            &[3.3e7],
        ];
        for values in cases {
            for scale in
                [Scale::linear(values.iter().copied()), Scale::logarithmic(values.iter().copied())]
            {
                for most in [2, 5, 8] {
                    let ticks = scale.ticks(most);
                    assert!(
                        (1..=most + 1).contains(&ticks.len()),
                        "{values:?} {scale:?} {ticks:?}"
                    );
                    for tick in ticks {
                        let place = scale.place(tick).unwrap();
                        assert!((0.0..=1.0).contains(&place), "{values:?} {scale:?} {tick}");
                    }
                }
            }
        }
        assert_eq!(
            Scale::linear([0.0, 93.0].into_iter()).ticks(5),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0][..6]
        );
    }

    #[test]
    fn places_keep_the_order_of_values() {
        let values = [0.5, 1.0, 7.0, 300.0];
        for scale in [Scale::linear(values.into_iter()), Scale::logarithmic(values.into_iter())] {
            let places = values.map(|value| scale.place(value).unwrap());
            assert!(places.is_sorted() && places[0] < places[3], "{places:?}");
        }
        let scale = Scale::fitting(values.into_iter());
        assert!(
            scale.is_logarithmic() && scale.place(0.0).is_none() && scale.place(-1.0).is_none()
        );
        assert!(!Scale::fitting([3.0, 4.0].into_iter()).is_logarithmic());
    }

    #[test]
    fn quantiles_have_a_place_for_each_nine_and_the_maximum() {
        let quantiles = Quantiles::of([0.5, 0.9, 0.999, 1.0].into_iter());
        let names: Vec<String> = quantiles.ticks().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["50 %", "90 %", "99 %", "99.9 %", "max"]);
        assert_eq!((quantiles.place(0.0), quantiles.place(1.0)), (0.0, 1.0));
        assert!(quantiles.place(0.9) < quantiles.place(0.99));
    }
}
