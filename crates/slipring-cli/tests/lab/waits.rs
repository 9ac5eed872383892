//! `slipring lab waits` as a user runs it. The tests judge no time and no rate.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use slipring::Wait;

/// Runs the program.
fn waits(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring")).args(["lab", "waits"]).args(args).output().unwrap()
}

/// Runs the program with arguments that it must refuse before it measures; returns its message.
fn refused(args: &[&str]) -> String {
    let output = waits(args);
    assert!(
        !output.status.success(),
        "{args:?} was accepted: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(output.stdout.is_empty(), "{args:?}: the measurement began");
    String::from_utf8(output.stderr).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the series of a record that contains only this experiment.
fn series(record: &Value) -> &Vec<Value> {
    let [experiment] = record["experiments"].as_array().unwrap().as_slice() else {
        panic!("not one experiment: {record}")
    };
    assert_eq!(experiment["experiment"], "waits");
    experiment["series"].as_array().unwrap()
}

/// Returns the values of a metric, or an empty list.
fn values(series: &Value, metric: &str) -> Vec<f64> {
    let values = series["metrics"][metric]["values"].as_array();
    values.map_or(Vec::new(), |values| values.iter().map(|of| of.as_f64().unwrap()).collect())
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// Returns the strategies that are measured by default.
fn default_strategies() -> Vec<String> {
    let more = "adaptive:25%".parse::<Wait>().ok();
    Wait::all().into_iter().chain(more).map(|wait| wait.to_string()).collect()
}

/// Checks the relations that hold between the figures of any run.
fn check(series: &Value, run: usize, at: &str) {
    let value = |metric: &str| values(series, metric)[run];
    let [p50, p99, p999, max] = ["p50", "p99", "p99.9", "max"].map(value);
    assert!(0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{at}: {series}");
    assert!(value("publish") > 0.0, "{at}: {series}");
    if cfg!(target_os = "linux") {
        assert!((0.0..=1.01).contains(&value("waiter CPU")), "{at}: {series}");
        assert!(value("CPU per million") > 0.0, "{at}: {series}");
    }
    let curve: Vec<(f64, f64)> =
        serde_json::from_value(series["curves"]["latency"]["rounds"][run].clone()).unwrap();
    assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{at}: {curve:?}");
    let at_quantile = |wanted| curve.iter().find(|(at, _)| *at == wanted).unwrap().1;
    assert_eq!([at_quantile(0.5), at_quantile(0.99), at_quantile(0.999)], [p50, p99, p999], "{at}");
}

#[test]
fn record_picture_and_tables_have_every_strategy_under_every_pattern() {
    let folder = tempfile::tempdir().unwrap();
    let (json, picture) = (folder.path().join("waits.json"), folder.path().join("waits.svg"));
    fs::write(&json, "an old record").unwrap();
    let output = waits(&["--smoke", "--json", path(&json), "--picture", path(&picture)]);
    let (tables, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "only a terminal gets a progress bar");

    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&record["format"], &record["version"]), (&"slipring-lab".into(), &1.into()));
    assert_eq!(record["size"], "smoke");
    assert_eq!(record["slipring"], env!("CARGO_PKG_VERSION"));
    assert!(record["machine"]["cores"].as_u64().unwrap() > 0);
    assert!(record["noise"]["handover"].as_f64().unwrap() >= 0.0);
    assert!(record["command"].as_array().unwrap().contains(&"--smoke".into()));
    let series = series(&record);
    let wake = series.iter().find(|series| series["contender"] == "waking a thread").unwrap();
    assert!(values(wake, "one way")[0] > 0.0);
    let arrival = |series: &'_ Value| -> Option<String> {
        let point = series["point"].as_array().unwrap();
        let (name, value): (String, String) =
            serde_json::from_value(point.first()?.clone()).unwrap();
        assert_eq!(name, "arrival");
        Some(value)
    };
    let arrivals: Vec<String> = series.iter().filter_map(arrival).collect();
    let arrivals = distinct(arrivals.iter().map(String::as_str));
    assert_eq!(
        arrivals,
        [
            "poisson-1k",
            "poisson-10k",
            "poisson-100k",
            "regular-10k",
            "on-off",
            "quiet-1s",
            "burst",
            "oversubscribed",
            "bystander"
        ]
    );
    for &under in &arrivals {
        let all: Vec<&Value> =
            series.iter().filter(|series| arrival(series).as_deref() == Some(under)).collect();
        let strategies: Vec<&str> =
            all.iter().map(|series| series["contender"].as_str().unwrap()).collect();
        assert_eq!(strategies, default_strategies(), "{under}");
        // All strategies meet the same schedules, so each round has the same number of events for
        // all of them.
        let mut counts = BTreeSet::new();
        for series in all {
            let at = format!("{} under {under}", series["contender"]);
            for (metric, of) in series["metrics"].as_object().unwrap() {
                assert_eq!(of["values"].as_array().unwrap().len(), 2, "{at}: {metric}");
            }
            (0..2).for_each(|run| check(series, run, &at));
            let has_loss = !values(series, "bystander loss").is_empty();
            assert_eq!(has_loss, under == "bystander", "{at}");
            let events: Vec<u64> = values(series, "events").iter().map(|of| *of as u64).collect();
            assert!(events.len() == 2 && !events.contains(&0), "{at}");
            counts.insert(events);
        }
        assert_eq!(counts.len(), 1, "{under}: {counts:?}");
        match under {
            "burst" => assert_eq!(counts, BTreeSet::from([vec![100_000; 2]])),
            "regular-10k" => assert_eq!(counts, BTreeSet::from([vec![200; 2]])),
            _ => {}
        }
    }

    let svg = fs::read_to_string(&picture).unwrap();
    let svg = roxmltree::Document::parse(&svg).expect("well-formed SVG");
    let texts: BTreeSet<&str> =
        svg.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    let strategies = default_strategies();
    for name in strategies.iter().map(String::as_str).chain(arrivals) {
        assert!(texts.contains(name), "the picture does not name {name}");
        assert!(tables.contains(name), "no table names {name}");
    }
    assert!(tables.contains("smoke run"), "{tables}");
}

#[test]
fn named_strategies_and_patterns_are_measured_once_and_no_others() {
    let output = waits(&[
        "--smoke",
        "--only",
        "blocking,sleeping",
        "--only",
        "blocking",
        "--arrivals",
        "on-off,quiet-20s,on-off",
    ]);
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        (tables.matches("| blocking ").count(), tables.matches("| sleeping ").count()),
        (2, 2),
        "{tables}"
    );
    assert!(tables.contains("quiet-20s"), "{tables}");
    assert!(!tables.contains("yielding") && !tables.contains("\nburst: "), "{tables}");
}

/// Ctrl-C during the first pattern ends the measurement after the current run.
#[test]
#[cfg(unix)]
fn an_interrupt_ends_the_measurement_and_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.args(["lab", "waits", "--smoke", "--arrivals", "quiet-20s,poisson-1k,burst,bystander"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    assert!(text.starts_with("slipring "), "{text}");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    out.read_to_string(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("stopped early: interrupted during `waits`"), "{text}");
    assert!(!text.contains("\nbystander: "), "the measurement went on: {text}");
}

#[test]
fn a_wrong_name_is_refused_with_a_list_of_the_right_ones() {
    let message = refused(&["--smoke", "--only", "blocking,sleepy"]);
    assert!(
        message.contains("sleepy") && message.contains("busy-spin") && message.contains("yielding"),
        "{message}"
    );
    let message = refused(&["--smoke", "--arrivals", "poisson"]);
    assert!(
        message.contains("poisson-10k") && message.contains("on-off") && message.contains("burst"),
        "{message}"
    );
    let message = refused(&["--smoke", "--full"]);
    assert!(message.contains("--smoke") && message.contains("--full"), "{message}");
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--json", "--picture"] {
        let message =
            refused(&["--full", option, path(&folder.path().join("missing").join("file"))]);
        assert!(message.contains("cannot write to") && message.contains("missing"), "{message}");
    }
}

#[test]
fn help_names_the_options_in_lines_of_a_terminal() {
    let output = waits(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    for text in
        ["--picture", "--json", "--only", "--arrivals", "--quick", "--full", "quiet-20s", "SVG"]
    {
        assert!(help.contains(text), "{text}: {help}");
    }
    // clap does not wrap the long lines of its lists by itself.
    let longest = help.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "{longest:?}: {help}");
    let output =
        Command::new(env!("CARGO_BIN_EXE_slipring")).args(["lab", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("waits") && !help.contains("bystander"), "{help}");
}
