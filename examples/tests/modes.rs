//! Journal and summary are the same bytes in every mode, for any number of workers and any wait
//! strategy.

mod common;

use std::collections::BTreeSet;

use common::{HEADER, job, slice, written};
use slipring_examples::readings::input::Input;
use slipring_examples::readings::measure::{Job, Mode};
use slipring_examples::readings::ring::Wait;

/// Returns the rows of a month with a bad reading, a quoted name and a malformed row, and the
/// sequential mode's journal and summary.
fn month() -> (Input, (String, String)) {
    let mut text = slice(&["2013-09"]);
    text.push_str("EWR,2013,9,12,1,hot,,,,,,,,,2013-09-12T05:00:00Z\n");
    text.push_str("\"Two\nlines, \"\"quoted\"\"\",2013,9,12,1,1,,,,,,,,,2013-09-12T05:00:00Z\n?\n");
    let input = Input::from_text(text).unwrap();
    let expected = written(Mode::Sequential, &input, &job(1));
    assert!(expected.0.lines().count() > 10_000, "the journal has too few lines for a test");
    assert!(expected.0.contains(",alarm\n"), "the journal has no alarm");
    assert!(
        expected.0.contains(",\"Two\nlines, \"\"quoted\"\"\",temp,1\n"),
        "a name is not quoted"
    );
    assert!(expected.1.ends_with("1 malformed rows, 1 bad readings\n"), "{}", expected.1);
    (input, expected)
}

#[test]
fn the_executor_writes_the_same_as_the_sequential_mode() {
    let (input, expected) = month();
    for workers in 1..=7 {
        for batch in [1, 5, 256] {
            let job = Job { batch, ..job(workers) };
            assert!(
                written(Mode::Executor, &input, &job) == expected,
                "{workers} workers, {batch} rows a batch"
            );
        }
    }
}

#[test]
fn the_ring_writes_the_same_as_the_sequential_mode() {
    let (input, expected) = month();
    // Spinning threads are slow where threads outnumber cores, so strategies that spin get only two
    // days of rows.
    let days = Input::from_text(slice(&["2013-09-12", "2013-09-13"])).unwrap();
    let expected_days = written(Mode::Sequential, &days, &job(1));
    for wait in Wait::all() {
        let (input, expected) = if matches!(wait, Wait::BusySpin) {
            (&days, &expected_days)
        } else {
            (&input, &expected)
        };
        for workers in 1..=7 {
            let job = Job { wait: wait.clone(), ..job(workers) };
            for mode in &Mode::ALL[2..] {
                let same = written(*mode, input, &job) == *expected;
                assert!(same, "{mode}, {workers} workers, {wait}");
            }
        }
    }
}

#[test]
fn repetitions_are_the_same_in_every_mode() {
    let input = Input::from_text(slice(&["2013-09-1"])).unwrap();
    let job = Job { repeat: 5, ..job(3) };
    let expected = written(Mode::Sequential, &input, &job);
    for mode in Mode::ALL {
        assert!(written(mode, &input, &job) == expected, "{mode}");
    }
    let times: Vec<&str> = expected.0.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert!(times.is_sorted(), "a repetition begins before the end of the one before");
    let hours = |times: &[&str]| times.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(
        hours(&times),
        5 * hours(&times[..times.len() / 5]),
        "two repetitions have a time in common"
    );
}

#[test]
fn all_modes_agree_for_any_number_of_stations() {
    let hours = 0..300_u32;
    for stations in [0_u32, 1, 40] {
        let mut text = HEADER.to_owned();
        for station in 0..stations {
            for hour in hours.clone() {
                let value = f64::from((station * 7 + hour * 13) % 29) / 4.0;
                let temp = if hour == 250 && station == 0 { 1e6 } else { value };
                let (day, hour) = (1 + hour / 24, hour % 24);
                text += &format!(
                    "S{station},2020,5,{day},{hour},{temp},NA,{value},1,2,NA,0,NA,9,2020-05-{day:02}T{hour:02}:00:00Z\n"
                );
            }
        }
        let input = Input::from_text(text).unwrap();
        let expected = written(Mode::Sequential, &input, &job(1));
        assert_eq!(expected.0.lines().count() as u32, stations * 300 * 6);
        assert_eq!(
            expected.0.matches(",alarm").count(),
            usize::from(stations > 0),
            "exactly the one outlier is marked"
        );
        assert_eq!(expected.1.lines().count() as u32, 2 + 9 * stations);
        for mode in &Mode::ALL[1..] {
            assert!(written(*mode, &input, &job(2)) == expected, "{mode}, {stations} stations");
        }
    }
}
