//! A curve for each contender: a metric over the percentiles, with the spread over repetitions.

use maud::html;

use super::scale::{Quantiles, Scale};
use super::svg::{
    Frame, NAMED_AT_MOST, Plot, SpreadPoint, WIDTH, banded, end_labels, end_margin, marker,
};
use crate::lab::statistics::Spread;
use crate::lab::table::QUANTILES;
use crate::lab::wording::number;

/// The content of a plot of percentiles.
#[derive(Debug)]
pub struct Percentiles {
    pub title: String,
    /// Metric and unit.
    pub metric: String,
    pub curves: Vec<Curve>,
}

/// A contender's curve.
#[derive(Debug)]
pub struct Curve {
    pub name: String,
    /// Number of the marker.
    pub index: usize,
    /// Quantiles from 0 to 1, in order, with the spread of the repetitions.
    pub points: Vec<(f64, Spread)>,
}

impl Percentiles {
    pub fn extent(&self) -> impl Iterator<Item = f64> + Clone {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        points.flat_map(|(_, spread)| [spread.low, spread.median, spread.high])
    }

    /// Draws the plot.
    pub fn plot(&self, scale: &Scale) -> Plot {
        let visible = |curve: &Curve| Curve {
            name: curve.name.clone(),
            index: curve.index,
            points: curve
                .points
                .iter()
                .copied()
                .filter(|(_, of)| scale.place(of.median).is_some())
                .collect(),
        };
        let curves: Vec<Curve> = self.curves.iter().map(visible).collect();
        let named = curves.len() <= NAMED_AT_MOST;
        let names = curves.iter().map(|curve| curve.name.as_str());
        let margin = if named { end_margin(names) } else { 20.0 };
        let frame = Frame { left: 52.0, right: WIDTH - margin, top: 28.0, bottom: 300.0 };
        let all =
            self.curves.iter().flat_map(|curve| curve.points.iter().map(|(quantile, _)| *quantile));
        let quantiles = Quantiles::of(all);
        let y = |value: f64| frame.y(scale.place_or_end(value));
        let place = |(quantile, spread): (f64, Spread)| SpreadPoint {
            x: frame.x(quantiles.place(quantile)),
            low: y(spread.low),
            median: y(spread.median),
            high: y(spread.high),
        };
        let ticks: Vec<(f64, String)> = quantiles
            .ticks()
            .into_iter()
            .map(|(quantile, name)| (quantiles.place(quantile), name))
            .collect();
        let places =
            |curve: &Curve| curve.points.iter().copied().map(place).collect::<Vec<SpreadPoint>>();
        let ends: Vec<(usize, &str, (f64, f64))> = curves
            .iter()
            .filter_map(|curve| {
                let place = place(*curve.points.last()?);
                Some((curve.index, curve.name.as_str(), (place.x, place.median)))
            })
            .collect();
        let body = html! {
            (frame.vertical_axis(scale, &self.metric))
            (frame.horizontal_ticks(&ticks, "percentile (each decade of rarer values as wide)"))
            @for curve in &curves { (banded(curve.index, &places(curve))) }
            // Only the percentiles of the table have markers, because a curve may have hundreds of
            // points.
            @for curve in &curves {
                @for SpreadPoint { x, median, .. } in curve.marked().into_iter().map(place) {
                    (marker(curve.index, x, median))
                }
            }
            @if named { (end_labels(&frame, &ends)) }
        };
        Plot {
            height: frame.bottom + 46.0,
            title: self.title.clone(),
            description: self.description(),
            body,
        }
    }

    /// Returns the number of values that a logarithmic scale cannot show.
    pub fn hidden(&self, scale: &Scale) -> usize {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        points.filter(|(_, spread)| scale.place(spread.median).is_none()).count()
    }

    fn description(&self) -> String {
        let mut text = format!("{} by percentile.", self.metric);
        for curve in &self.curves {
            let names = QUANTILES.iter().filter_map(|(quantile, name)| {
                let (_, spread) = curve.points.iter().find(|(at, _)| at >= quantile)?;
                Some(format!("{name} {}", number(spread.median)))
            });
            text += &format!(" {}: {}.", curve.name, names.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

impl Curve {
    /// For each percentile that the tables show, returns the curve's first point at or after it.
    fn marked(&self) -> Vec<(f64, Spread)> {
        let found = QUANTILES
            .iter()
            .filter_map(|(quantile, _)| self.points.iter().find(|(at, _)| at >= quantile).copied());
        found.collect()
    }
}
