//! Phrases for numbers, comparisons and the noise, so that all headlines and tables say the same
//! thing in the same words.

use slipring_support::numbers::significant;

use super::metric::Better;
use super::record::Record;
use super::statistics::{Noise, Spread, Verdict, compare};

/// Formats a number with three significant digits. Numbers that are too small for decimals have an
/// exponent, so that only 0 is shown as 0.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(0.005..1e12).contains(&size) => format!("{value:.2e}"),
        _ => significant(value),
    }
}

/// Formats a share with two significant digits, as a percentage.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size < 0.05 => "0 %".to_owned(),
        size if size < 9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a ratio of at least 1: `1.08`, `2.3`, `41`.
pub fn ratio(ratio: f64) -> String {
    let size = if ratio < 1.0 { 1.0 / ratio } else { ratio };
    match size {
        size if size < 1.995 => format!("{size:.2}"),
        size if size < 9.95 => format!("{size:.1}"),
        size => number(size),
    }
}

/// Two contenders' names and values of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    pub one: (&'a str, &'a [f64]),
    pub other: (&'a str, &'a [f64]),
}

impl Pair<'_> {
    /// Compares times or rates: "`a` is 2.3 times as fast as `b`". The faster contender comes
    /// first. `better` says whether the values are times (less is better) or rates.
    pub fn speed(&self, better: Better, noise: &Noise) -> String {
        self.phrase(noise, |first, second, ratio| match better {
            Better::Less => format!("`{second}` is {ratio} times as fast as `{first}`"),
            Better::More | Better::Neither => {
                format!("`{first}` is {ratio} times as fast as `{second}`")
            }
        })
    }

    /// Describes the difference. If the values differ, `differ` makes the phrase. Its arguments are
    /// the contender with the larger values, the other contender, and the ratio.
    fn phrase(&self, noise: &Noise, differ: impl Fn(&str, &str, &str) -> String) -> String {
        let ((one, values), (other, others)) = (self.one, self.other);
        match compare(values, others, noise.floor()) {
            Some(Verdict::Differs(by)) if by > 1.0 => differ(one, other, &ratio(by)),
            Some(Verdict::Differs(by)) if by > 0.0 => differ(other, one, &ratio(by)),
            Some(Verdict::Differs(_)) | None => {
                let shown = |values: &[f64]| {
                    Spread::of(values).map_or("no value".to_owned(), |of| number(of.median))
                };
                format!("`{one}` has {}, and `{other}` {}", shown(values), shown(others))
            }
            Some(Verdict::WithinNoise) => format!(
                "`{one}` and `{other}` do not differ beyond the noise ({} and {})",
                number(Spread::of(values).map_or(0.0, |of| of.median)),
                number(Spread::of(others).map_or(0.0, |of| of.median)),
            ),
        }
    }
}

/// Says in words how large the noise is.
pub fn noise(noise: &Noise) -> String {
    format!(
        "Two equal programs, measured {} times each, have medians that differ by up to {} when they \
         compute, and by up to {} when two threads hand events over (in 95 of 100 cases). Smaller \
         differences count as none.",
        noise.repetitions,
        percent(noise.computing),
        percent(noise.handover),
    )
}

/// Returns the warnings that a reader needs before the figures of a record. Each is one sentence.
pub fn marks(record: &Record) -> Vec<String> {
    let mut marks = Vec::new();
    if let Some(model) = &record.simulated {
        marks.push(format!(
            "Simulated: all figures come from a model of {}, and none is a speed.",
            model.name
        ));
    }
    if record.size == "smoke" {
        marks.push(
            "This is a smoke run: it checks that everything works, and its figures mean nothing."
                .to_owned(),
        );
    }
    if is_debug(record) && record.simulated.is_none() {
        marks.push(
            "The program was built without optimisation: its figures mean little.".to_owned(),
        );
    }
    marks.extend(others(record));
    if let Some(stopped) = &record.stopped {
        marks.push(format!("The measurement ended early: {stopped}."));
    }
    if record.experiments.iter().flat_map(|results| &results.series).any(|of| of.oversubscribed) {
        marks.push("Figures marked * were measured with more threads than CPUs.".to_owned());
    }
    marks
}

/// The report mentions other processes if they used at least this many CPUs.
const DISTURBED: f64 = 0.1;

/// States how much other processes worked during a measurement, if they may have disturbed it.
pub fn others(record: &Record) -> Option<String> {
    let used = record.others.filter(|used| *used >= DISTURBED)?;
    let cpus = record.machine.cores;
    Some(format!(
        "Other processes used {used:.1} of {cpus} CPUs meanwhile: measure on an idle machine."
    ))
}

/// Returns the date and time for readers.
pub fn date(record: &Record) -> String {
    match record.date.strip_suffix('Z').and_then(|date| date.split_once('T')) {
        Some((day, time)) => format!("{day}, {time} UTC"),
        None => record.date.clone(),
    }
}

/// Returns whether the program that wrote the record was built without optimisation.
pub fn is_debug(record: &Record) -> bool {
    record.build.ends_with("not optimised")
}

/// Breaks a text between words into lines of `width` characters at most, where its words allow it.
pub fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let mut current = String::new();
        for word in line.split(' ') {
            let length = current.chars().count() + 1 + word.chars().count();
            if !current.is_empty() && length > width {
                lines.push(std::mem::take(&mut current));
            } else if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(current);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Noise = Noise { computing: 0.01, handover: 0.05, repetitions: 5 };
    const FAST: [f64; 5] = [10.0, 10.1, 10.2, 9.9, 9.8];
    const SLOW: [f64; 5] = [23.0, 23.1, 23.2, 22.9, 22.8];
    const ALIKE: [f64; 5] = [10.1, 10.0, 10.3, 9.9, 9.7];

    #[test]
    fn numbers_keep_their_size() {
        let cases =
            [(0.0, "0"), (0.001, "1.00e-3"), (-0.5, "-0.5"), (12.34, "12.3"), (2e15, "2.00e15")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!([0.0, 0.021, 0.5, 3.0].map(percent), ["0 %", "2.1 %", "50 %", "300 %"]);
        assert_eq!([0.5, 1.081, 2.34, 41.2].map(ratio), ["2.0", "1.08", "2.3", "41.2"]);
    }

    #[test]
    fn the_faster_contender_is_named_first_in_either_order() {
        for (one, other) in
            [(("ring", &FAST), ("queue", &SLOW)), (("queue", &SLOW), ("ring", &FAST))]
        {
            let pair = Pair { one: (one.0, one.1), other: (other.0, other.1) };
            assert_eq!(pair.speed(Better::Less, &NOISE), "`ring` is 2.3 times as fast as `queue`");
            assert_eq!(pair.speed(Better::More, &NOISE), "`queue` is 2.3 times as fast as `ring`");
        }
    }

    #[test]
    fn no_contender_is_named_within_the_noise_nor_without_values() {
        let level = Pair { one: ("a", &FAST), other: ("b", &ALIKE) };
        let text = "`a` and `b` do not differ beyond the noise (10 and 10)";
        assert_eq!(level.speed(Better::Less, &NOISE), text);
        let missing = Pair { one: ("a", &FAST), other: ("b", &[]) };
        assert_eq!(missing.speed(Better::Less, &NOISE), "`a` has 10, and `b` no value");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", Some(7)), "one two\nthree");
        assert_eq!(wrapped("a\n\nverylongword b", Some(5)), "a\n\nverylongword\nb");
        assert_eq!(wrapped("one two", None), "one two");
    }
}
