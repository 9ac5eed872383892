//! `slipring lab all` as a user runs it. The tests judge no time and no rate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn all(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring")).args(["lab", "all"]).args(args).output().unwrap()
}

#[test]
fn one_record_has_every_experiment_with_every_contender() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("all.json");
    let output = all(&["--smoke", "--json", json.to_str().unwrap()]);
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(record["stopped"], Value::Null);
    let mut contenders = BTreeMap::new();
    for experiment in record["experiments"].as_array().unwrap() {
        let name = experiment["experiment"].as_str().unwrap();
        let series = experiment["series"].as_array().unwrap();
        let names = series.iter().map(|series| series["contender"].as_str().unwrap());
        contenders.insert(name, names.collect::<BTreeSet<&str>>());
        for series in series {
            for (metric, of) in series["metrics"].as_object().unwrap() {
                assert!(!of["values"].as_array().unwrap().is_empty(), "{name}: {metric}");
            }
        }
    }
    let waits = &contenders["waits"];
    for wait in slipring::Wait::all() {
        assert!(waits.contains(wait.to_string().as_str()), "{wait}: {waits:?}");
    }
    assert!(contenders["graph"].contains("std channels"));
    if cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        assert!(contenders["exchange"].contains("processes-semaphores"));
    }
    // These measurements are no contenders, so no table shows them.
    const ASIDE: [&str; 2] = ["waking a thread", "bystander alone"];
    for (experiment, names) in contenders {
        for name in names.into_iter().filter(|name| !ASIDE.contains(name)) {
            // A heat map's contender has a table of its own.
            let rows = [format!("| {name} "), format!("| {name}, "), format!(": {name}\n")];
            assert!(rows.iter().any(|row| tables.contains(row)), "{experiment}: no row of {name}");
        }
    }
    assert!(ASIDE.iter().all(|name| !tables.contains(name)), "{tables}");
}

#[test]
fn a_contender_of_one_experiment_is_measured_there_alone() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("all.json");
    let path = json.to_str().unwrap();
    let output = all(&["--smoke", "--only", "blocking", "--json", path]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let experiments = record["experiments"].as_array().unwrap();
    let names: Vec<&Value> = experiments.iter().map(|of| &of["experiment"]).collect();
    assert_eq!(names, ["waits"]);
}

#[test]
fn an_unknown_contender_is_refused_with_the_names_of_all_experiments() {
    let output = all(&["--smoke", "--only", "abacus"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{message}");
    for name in ["`abacus`", "std channels", "busy-spin"] {
        assert!(message.contains(name), "{name}: {message}");
    }
}
