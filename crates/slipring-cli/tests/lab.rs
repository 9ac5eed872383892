//! `slipring lab waits` as its user meets it. What it measures is not judged here: no time and no
//! rate is right or wrong.

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

/// Runs it where it must fail; gives what it says.
fn refused(args: &[&str]) -> String {
    let output = waits(args);
    assert!(
        !output.status.success(),
        "{args:?} was accepted: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(output.stdout.is_empty(), "{args:?}: it began all the same");
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

/// The strategies that are measured unless some are named.
fn contenders() -> Vec<String> {
    let more = "adaptive:25%".parse::<Wait>().ok();
    Wait::all().into_iter().chain(more).map(|wait| wait.to_string()).collect()
}

/// What holds for the figures of any run.
fn check(run: &Value, told: &str) {
    let [p50, p99, p999, max] =
        ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|figure| run[figure].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{told}: {run}");
    assert!(run["publish_ns"].as_f64().unwrap() > 0.0, "{told}: {run}");
    if cfg!(target_os = "linux") {
        let share = run["waiter_share"].as_f64().unwrap();
        assert!((0.0..=1.01).contains(&share), "{told}: {run}");
        assert!(run["cpu_s_per_million"].as_f64().unwrap() > 0.0, "{told}: {run}");
    }
}

#[test]
fn everything_is_measured_written_down_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let (json, picture) = (folder.path().join("waits.json"), folder.path().join("waits.svg"));
    fs::write(&json, "what was there before, and is longer than nothing").unwrap();
    let output = waits(&["--smoke", "--json", path(&json), "--picture", path(&picture)]);
    let (said, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "a bar is for terminals");

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
            "crowd",
            "bystander"
        ]
    );
    for scene in record["arrivals"].as_array().unwrap() {
        let arrival = scene["arrival"].as_str().unwrap();
        assert_eq!(names(scene, "strategies", "strategy"), contenders(), "{arrival}");
        // The same schedules for everybody: in each round so many events, whatever the strategy.
        let mut counts = BTreeSet::new();
        for series in scene["strategies"].as_array().unwrap() {
            let told = format!("{} under {arrival}", series["strategy"]);
            let runs = series["runs"].as_array().unwrap();
            assert_eq!(runs.len(), 2, "{told}");
            for run in runs {
                check(run, &told);
                assert_eq!(run["bystander_loss"].is_null(), arrival != "bystander", "{told}");
            }
            let events: Vec<u64> = runs.iter().map(|run| run["events"].as_u64().unwrap()).collect();
            assert!(!events.contains(&0), "{told}");
            counts.insert(events);
            let [low, middle, high] =
                ["min", "median", "max"].map(|which| series[which]["p50_ns"].as_f64().unwrap());
            assert!(low <= middle && middle <= high, "{told}");
        }
        assert_eq!(counts.len(), 1, "{arrival}: {counts:?}");
        match arrival {
            "burst" => assert_eq!(counts, BTreeSet::from([vec![100_000; 2]])),
            "regular-10k" => assert_eq!(counts, BTreeSet::from([vec![200; 2]])),
            _ => {}
        }
    }

    let svg = fs::read_to_string(&picture).unwrap();
    let svg = roxmltree::Document::parse(&svg).expect("a picture that can be read");
    let texts: BTreeSet<&str> =
        svg.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for name in contenders().iter().chain(&arrivals) {
        assert!(texts.contains(name.as_str()), "the picture does not name {name}");
        assert!(said.contains(name.as_str()), "no table names {name}");
    }
    assert!(said.contains("these are no figures"), "{said}");
}

#[test]
fn some_can_be_chosen() {
    let output = waits(&[
        "--smoke",
        "--only",
        "blocking,sleeping",
        "--only",
        "blocking",
        "--arrivals",
        "on-off,quiet-20s,on-off",
    ]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        (said.matches("| blocking ").count(), said.matches("| sleeping ").count()),
        (2, 2),
        "{said}"
    );
    assert!(
        said.contains("quiet-20s") && !said.contains("yielding") && !said.contains("\nburst: "),
        "{said}"
    );
}

#[test]
fn bad_input_is_refused_with_what_there_is() {
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
fn files_that_cannot_be_written_are_found_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--json", "--picture"] {
        let message =
            refused(&["--full", option, path(&folder.path().join("missing").join("file"))]);
        assert!(message.contains("cannot write to") && message.contains("missing"), "{message}");
    }
}

#[test]
fn help_says_what_can_be_had() {
    let output = waits(&["--help"]);
    let said = String::from_utf8(output.stdout).unwrap();
    for text in
        ["--picture", "--json", "--only", "--arrivals", "--quick", "--full", "quiet-20s", "SVG"]
    {
        assert!(said.contains(text), "{text}: {said}");
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_slipring")).args(["lab", "--help"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("waits") && !said.contains("bystander"), "{said}");
}
