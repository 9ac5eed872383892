//! The standing of a contender among others: the number of points at which it is the best beyond
//! the noise.

use super::metric::{Better, Value};
use super::record::Results;
use super::statistics::{Spread, Verdict, compare};
use super::wording::ratio;

/// How often a contender leads, trails, or is level with the best of the others, in numbers of
/// points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Number of points where the contender leads.
    pub leads: usize,
    /// Number of points where another contender leads.
    pub trails: usize,
    /// Number of points where the difference is within the noise.
    pub level: usize,
    /// The factor by which the contender is better than its best rival, for each point that is
    /// counted in `leads`.
    pub factors: Vec<f64>,
}

/// A contender, its rivals, and how they are compared.
#[derive(Clone, Copy, Debug)]
pub struct Contest<'a> {
    pub ours: &'a str,
    pub rivals: &'a [&'a str],
    /// Name of the metric.
    pub metric: &'a str,
    pub better: Better,
    /// Noise floor: relative difference below which two values are level.
    pub floor: f64,
}

/// Compares a contender with its best rival at each value of the parameter `x`, among the series
/// whose other parameters have the values `at`. A point counts only if both were measured there.
pub fn standing(
    contest: Contest<'_>,
    results: &Results,
    x: &str,
    at: &[(&str, Value)],
) -> Standing {
    let Contest { ours, rivals, metric, better, floor } = contest;
    let mut standing = Standing::default();
    for value in results.values_of(x) {
        let mut point = at.to_vec();
        point.push((x, value.clone()));
        let values = |name: &str| Some(results.find(name, &point)?.values(metric));
        // From here on, greater values are better.
        let score = |values: &[f64]| {
            let median = Spread::of(values)?.median;
            Some(if better == Better::Less { -median } else { median })
        };
        let scored = rivals.iter().filter_map(|name| {
            let values = values(name)?;
            Some((score(values)?, values))
        });
        let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let (Some((_, best)), Some(own)) = (best, values(ours)) else { continue };
        match compare(own, best, floor) {
            None => {}
            Some(Verdict::WithinNoise) => standing.level += 1,
            Some(Verdict::Differs(ratio)) => {
                let factor = if better == Better::Less { 1.0 / ratio } else { ratio };
                if factor > 1.0 {
                    standing.leads += 1;
                    standing.factors.push(factor);
                } else {
                    standing.trails += 1;
                }
            }
        }
    }
    standing
}

impl Standing {
    /// Returns the standing in words, such as "at 3 of 5 sizes (1.2 to 1.9 times, 1 lost, 1 within
    /// the noise)", or `None` if there were no points. `points` is the word for the points, in the
    /// plural.
    pub fn in_words(&self, points: &str) -> Option<String> {
        let Standing { leads, trails, level, factors } = self;
        let all = leads + trails + level;
        if all == 0 {
            return None;
        }
        let mut details = Vec::new();
        let least = factors.iter().copied().min_by(f64::total_cmp);
        let most = factors.iter().copied().max_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (least, most) {
            details.push(match (ratio(least), ratio(most)) {
                (least, most) if least == most => format!("{least} times"),
                (least, most) => format!("{least} to {most} times"),
            });
        }
        if *trails > 0 {
            details.push(format!("{trails} lost"));
        }
        if *level > 0 {
            details.push(format!("{level} within the noise"));
        }
        Some(format!("at {leads} of {all} {points} ({})", details.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::record::{Series, Values};
    use super::*;

    /// Results with the contenders `a`, `b` and `c` at the points 1, 2, ..., with five nearly equal
    /// values each.
    fn results(rows: &[[f64; 3]]) -> Results {
        let series = rows.iter().zip(1_u64..).flat_map(|(row, x)| {
            ["a", "b", "c"].into_iter().zip(row).map(move |(contender, value)| Series {
                contender: contender.to_owned(),
                point: vec![("x".to_owned(), x.into())],
                threads: 1,
                cpus: Vec::new(),
                oversubscribed: false,
                metrics: BTreeMap::from([(
                    "m".to_owned(),
                    Values {
                        unit: String::new(),
                        better: Better::More,
                        values: [0.998, 0.999, 1.0, 1.001, 1.002].map(|by| value * by).into(),
                    },
                )]),
                curves: BTreeMap::new(),
            })
        });
        Results {
            experiment: String::new(),
            rounds: 5,
            seconds: 0.0,
            notes: Vec::new(),
            series: series.collect(),
        }
    }

    fn of(better: Better, rows: &[[f64; 3]]) -> Standing {
        let rivals = ["b", "c", "absent"];
        let contest = Contest { ours: "a", rivals: &rivals, metric: "m", better, floor: 0.05 };
        standing(contest, &results(rows), "x", &[])
    }

    #[test]
    fn the_best_rival_counts_and_small_differences_do_not() {
        let rows = [[30.0, 10.0, 20.0], [30.0, 60.0, 20.0], [10.0, 10.2, 5.0]];
        let more = of(Better::More, &rows);
        assert_eq!((more.leads, more.trails, more.level), (1, 1, 1));
        assert_eq!(more.factors, [1.5]);
        assert_eq!(
            more.in_words("sizes").unwrap(),
            "at 1 of 3 sizes (1.50 times, 1 lost, 1 within the noise)"
        );

        let less = of(Better::Less, &[[10.0, 20.0, 40.0], [10.0, 30.0, 90.0], [9.0, 8.0, 4.0]]);
        assert_eq!((less.leads, less.trails, less.level), (2, 1, 0));
        assert_eq!(less.in_words("sizes").unwrap(), "at 2 of 3 sizes (2.0 to 3.0 times, 1 lost)");
    }

    #[test]
    fn without_points_there_are_no_words() {
        assert_eq!(of(Better::More, &[]).in_words("sizes"), None);
        let better = Better::More;
        let alone = Contest { ours: "a", rivals: &[], metric: "m", better, floor: 0.0 };
        assert_eq!(standing(alone, &results(&[[1.0; 3]]), "x", &[]).in_words("sizes"), None);
    }
}
