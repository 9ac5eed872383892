//! Compares journal, summary and windows with slow and simple implementations.

mod common;

use std::collections::HashMap;

use common::{HEADER, job, text, written};
use indicatif::HumanCount;
use slipring_examples::readings::columns::DIMENSIONS;
use slipring_examples::readings::detect::{MIN_READINGS, WINDOW, Window};
use slipring_examples::readings::format::parse_time;
use slipring_examples::readings::input::Input;
use slipring_examples::readings::measure::Mode;

/// Returns count, mean and variance, computed in two passes.
fn spread(readings: &[f64]) -> (usize, f64, f64) {
    let n = readings.len() as f64;
    let mean = readings.iter().sum::<f64>() / n;
    (
        readings.len(),
        mean,
        readings.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0),
    )
}

#[test]
fn the_journal_is_that_of_a_simple_implementation() {
    let text = text();
    let mut rows: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    rows.sort_by_key(|row| (row[14], row[0]));

    let mut expected = String::new();
    let mut alarms = 0;
    let mut past: HashMap<(&str, usize), Vec<(i64, f64)>> = HashMap::new();
    for row in rows {
        let time = parse_time(row[14].as_bytes(), None).unwrap();
        for (dimension, field) in row[5..14].iter().enumerate().filter(|(_, field)| **field != "NA")
        {
            let value: f64 = field.parse().unwrap();
            let past = past.entry((row[0], dimension)).or_default();
            let from = past.partition_point(|&(t, _)| t < time - WINDOW);
            let window: Vec<f64> = past[from..].iter().map(|&(_, value)| value).collect();
            let (count, mean, variance) = spread(&window);
            let judged = count >= 100 && variance > 1e-12 && DIMENSIONS[dimension] != "wind_dir";
            let alarm = judged && (value - mean).abs() > 4.0 * variance.sqrt();
            past.push((time, value));
            alarms += u64::from(alarm);
            let mark = if alarm { ",alarm" } else { "" };
            expected +=
                &format!("{},{},{},{value}{mark}\n", row[14], row[0], DIMENSIONS[dimension]);
        }
    }
    assert!(alarms > 100, "{alarms} alarms");

    let (journal, summary) =
        written(Mode::Sequential, &Input::from_text(text.clone()).unwrap(), &job(1));
    let difference = journal.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert_eq!(difference, None);
    assert_eq!(journal.len(), expected.len());
    assert!(
        summary.contains(&format!(", {} alarms, 0 malformed rows", HumanCount(alarms))),
        "{summary}"
    );
}

#[test]
fn the_summary_is_that_of_a_simple_implementation() {
    let text = text();
    let (_, summary) = written(Mode::Sequential, &Input::from_text(text.clone()).unwrap(), &job(1));
    let lines: Vec<Vec<&str>> =
        summary.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    for station in ["EWR", "JFK", "LGA"] {
        for (dimension, name) in DIMENSIONS.iter().enumerate() {
            let rows = text.lines().skip(1).filter(|line| line.starts_with(station));
            let values: Vec<f64> =
                rows.filter_map(|row| row.split(',').nth(5 + dimension)?.parse().ok()).collect();
            let line = lines.iter().find(|line| line[..2] == [station, name]).unwrap();
            let (count, mean, _) = spread(&values);
            assert_eq!(line[2], count.to_string());
            assert_eq!(line[3], format!("{mean:.4}"));
            assert_eq!(line[4], values.iter().copied().fold(f64::MAX, f64::min).to_string());
            assert_eq!(line[5], values.iter().copied().fold(f64::MIN, f64::max).to_string());
        }
    }
}

/// A pseudorandom generator with a fixed sequence.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn windows_match_two_passes_for_any_gaps_and_far_from_zero() {
    for (seed, offset) in [(1, 0.0), (2, 1e6), (3, -1e9), (4, 0.0)] {
        let mut dice = Dice(seed);
        let (mut window, mut past) = (Window::default(), Vec::new());
        let mut time = 1_000_000_000;
        for step in 0..6_000 {
            time += match dice.roll(300) {
                0 => 20 * 24 * 3600, // longer than the window
                1 => WINDOW - 3600,  // removes all readings but the newest ones
                2..=29 => 0,         // two readings at one time
                30..=99 => 3600,
                _ => dice.roll(3) as i64 * 1800,
            };
            let value = offset + dice.roll(2_000) as f64 / 100.0;
            let spread_now = window.spread_before(time);
            let from = past.partition_point(|&(t, _)| t < time - WINDOW);
            let inside: Vec<f64> = past[from..].iter().map(|&(_, value)| value).collect();
            let (count, mean, variance) = spread(&inside);
            assert_eq!(spread_now.count() as usize, count, "step {step}");
            if count > 1 {
                assert!(
                    (spread_now.mean() - mean).abs() <= 1e-12 * offset.abs().max(20.0),
                    "step {step}"
                );
                let apart = (spread_now.variance() - variance).abs();
                assert!(
                    apart <= 1e-6 * variance.max(1e-3),
                    "step {step}: {} {variance}",
                    spread_now.variance()
                );
            }
            window.push(time, value);
            past.push((time, value));
        }
    }
}

#[test]
fn a_constant_after_noise_has_no_deviation_and_raises_no_alarm() {
    let mut window = Window::default();
    let mut time = 0;
    // The window gets three weeks of noise far from zero, then a constant without an exact binary
    // fraction. A window that subtracted the values that leave it would keep a rounding error from
    // the noise.
    let mut dice = Dice(5);
    for _ in 0..500 {
        window.spread_before(time);
        window.push(time, 1e7 + dice.roll(1_000) as f64 / 7.0);
        time += 3600;
    }
    for n in 0..2_000 {
        let spread = window.spread_before(time);
        if n > 400 {
            assert_eq!(spread.variance(), 0.0, "after {n} hours");
            assert_eq!(spread.mean(), 0.1);
            assert!(
                !spread.is_alarm(0.1) && !spread.is_alarm(1e9),
                "readings without deviation raise no alarm"
            );
        }
        window.push(time, 0.1);
        time += 3600;
    }
}

#[test]
fn an_alarm_needs_enough_readings_and_more_than_four_deviations() {
    for count in [MIN_READINGS - 1, MIN_READINGS] {
        let mut window = Window::default();
        for n in 0..count {
            window.push(i64::from(n) * 3600, if n % 2 == 0 { 9.0 } else { 11.0 });
        }
        let spread = window.spread_before(i64::from(count) * 3600);
        let four = 4.0 * spread.variance().sqrt();
        assert!(!spread.is_alarm(spread.mean() + 0.999 * four));
        assert_eq!(spread.is_alarm(spread.mean() + 1.001 * four), count >= MIN_READINGS);
        assert_eq!(spread.is_alarm(spread.mean() - 1.001 * four), count >= MIN_READINGS);
    }
}

#[test]
fn the_window_has_the_preceding_fourteen_days_without_the_reading_itself() {
    let mut window = Window::default();
    window.push(0, 5.0);
    assert_eq!(window.spread_before(WINDOW).count(), 1, "a reading of exactly 14 days is inside");
    assert_eq!(window.spread_before(WINDOW + 1).count(), 0);

    // The wind's direction never raises an alarm; the temperature with the same values does.
    let mut text = HEADER.to_owned();
    for hour in 0..200 {
        let value = if hour == 199 { 1000 } else { hour % 5 };
        let (day, hour) = (1 + hour / 24, hour % 24);
        text += &format!(
            "S,2020,5,{day},{hour},{value},NA,NA,{value},NA,NA,NA,NA,NA,2020-05-{day:02}T{hour:02}:00:00Z\n"
        );
    }
    let (journal, _) = written(Mode::Sequential, &Input::from_text(text).unwrap(), &job(1));
    let marked: Vec<&str> = journal.lines().filter(|line| line.ends_with(",alarm")).collect();
    assert_eq!(marked, ["2020-05-09T07:00:00Z,S,temp,1000,alarm"]);
}
