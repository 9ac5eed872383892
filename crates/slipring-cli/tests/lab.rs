//! `slipring lab waits` as a user runs it. The tests judge no time and no rate.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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

fn names(of: &Value, list: &str, name: &str) -> Vec<String> {
    of[list]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item[name].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the strategies that are measured by default.
fn default_strategies() -> Vec<String> {
    let more = "adaptive:25%".parse::<Wait>().ok();
    Wait::all().into_iter().chain(more).map(|wait| wait.to_string()).collect()
}

/// Checks the relations that hold between the figures of any run.
fn check(run: &Value, at: &str) {
    let [p50, p99, p999, max] =
        ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|figure| run[figure].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{at}: {run}");
    assert!(run["publish_ns"].as_f64().unwrap() > 0.0, "{at}: {run}");
    if cfg!(target_os = "linux") {
        let share = run["waiter_share"].as_f64().unwrap();
        assert!((0.0..=1.01).contains(&share), "{at}: {run}");
        assert!(run["cpu_s_per_million"].as_f64().unwrap() > 0.0, "{at}: {run}");
    }
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
    assert_eq!(record["size"], "smoke");
    assert_eq!(record["slipring"], env!("CARGO_PKG_VERSION"));
    assert!(record["wake"]["one_way_ns"].as_f64().unwrap() > 0.0);
    assert!(record["machine"]["cores"].as_u64().unwrap() > 0);
    let arrivals = names(&record, "arrivals", "arrival");
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
    for result in record["arrivals"].as_array().unwrap() {
        let arrival = result["arrival"].as_str().unwrap();
        assert_eq!(names(result, "strategies", "strategy"), default_strategies(), "{arrival}");
        // All strategies meet the same schedules, so the numbers of events by round are the same.
        let mut counts = BTreeSet::new();
        for series in result["strategies"].as_array().unwrap() {
            let at = format!("{} under {arrival}", series["strategy"]);
            let runs = series["runs"].as_array().unwrap();
            assert_eq!(runs.len(), 2, "{at}");
            for run in runs {
                check(run, &at);
                assert_eq!(run["bystander_loss"].is_null(), arrival != "bystander", "{at}");
            }
            let events: Vec<u64> = runs.iter().map(|run| run["events"].as_u64().unwrap()).collect();
            assert!(!events.contains(&0), "{at}");
            counts.insert(events);
            let [low, middle, high] =
                ["min", "median", "max"].map(|which| series[which]["p50_ns"].as_f64().unwrap());
            assert!(low <= middle && middle <= high, "{at}");
        }
        assert_eq!(counts.len(), 1, "{arrival}: {counts:?}");
        match arrival {
            "burst" => assert_eq!(counts, BTreeSet::from([vec![100_000; 2]])),
            "regular-10k" => assert_eq!(counts, BTreeSet::from([vec![200; 2]])),
            _ => {}
        }
    }

    let svg = fs::read_to_string(&picture).unwrap();
    let svg = roxmltree::Document::parse(&svg).expect("well-formed SVG");
    let texts: BTreeSet<&str> =
        svg.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for name in default_strategies().iter().chain(&arrivals) {
        assert!(texts.contains(name.as_str()), "the picture does not name {name}");
        assert!(tables.contains(name.as_str()), "no table names {name}");
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
