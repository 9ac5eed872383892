//! `slipring lab shapes` as a user runs it. The tests judge no time and no rate.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use std::thread::available_parallelism;

use serde_json::Value;

const SHAPES: [&str; 5] = ["unicast", "pipeline", "sequencer", "multicast", "diamond"];
const CONTENDERS: [&str; 4] = ["ring", "ring yielding", "blocking queue", "std channel"];
/// The contender that is measured only in shapes with several stages, and only if threads outnumber
/// cores.
const SHARED: &str = "ring shared threads";

fn shapes(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.args(["lab", "shapes", "--smoke"]).args(args).output().unwrap()
}

fn numbers(of: &Value) -> Vec<f64> {
    of.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

#[test]
fn every_contender_is_measured_in_every_shape() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("shapes.json");
    let output = shapes(&["--json", json.to_str().unwrap()]);
    let (tables, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "only a terminal gets a progress bar");

    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let results = &record["experiments"][0];
    assert_eq!((&results["experiment"], &results["rounds"]), (&"shapes".into(), &2.into()));
    let cores = available_parallelism().unwrap().get();
    let mut expected = BTreeSet::new();
    for shape in SHAPES {
        expected.extend(CONTENDERS.map(|contender| (contender, shape)));
        if cores < 4 && !["unicast", "sequencer"].contains(&shape) {
            expected.insert((SHARED, shape));
        }
    }
    let mut measured = BTreeSet::new();
    for series in results["series"].as_array().unwrap() {
        let shape = series["point"][0][1].as_str().unwrap();
        let contender = series["contender"].as_str().unwrap();
        let at = format!("{contender}, {shape}");
        assert!(measured.insert((contender, shape)), "{at} is there twice");
        let metrics = &series["metrics"];
        let values = |metric: &str| numbers(&metrics[metric]["values"]);
        assert_eq!(values("time").len(), 2, "{at}");
        assert!(values("time").iter().all(|time| *time > 0.0), "{at}");
        if cfg!(target_os = "linux") {
            assert!(values("CPU").iter().all(|cores| *cores > 0.0), "{at}");
        }
        if shape == "sequencer" {
            assert!(series["curves"].is_null() && metrics["latency p50"].is_null(), "{at}");
            continue;
        }
        let [p50, p99] = ["latency p50", "latency p99"].map(values);
        assert!(p50.len() == 2 && p50.iter().zip(&p99).all(|(p50, p99)| p50 <= p99), "{at}");
        let curves = series["curves"]["latency"]["rounds"].as_array().unwrap();
        assert_eq!(curves.len(), 2, "{at}");
        for curve in curves {
            let points: Vec<Vec<f64>> = curve.as_array().unwrap().iter().map(numbers).collect();
            assert!(points.is_sorted_by(|one, next| one[0] < next[0] && one[1] <= next[1]), "{at}");
        }
    }
    assert_eq!(measured, expected);
    for name in CONTENDERS.iter().chain(&SHAPES) {
        assert!(tables.contains(name), "no table names {name}: {tables}");
    }
    assert!(tables.contains("On this machine, "), "{tables}");
}

#[test]
fn named_contenders_are_measured_and_no_others() {
    let output = shapes(&["--only", "ring,std channel"]);
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(tables.contains("| ring ") && tables.contains("| std channel "), "{tables}");
    assert!(!tables.contains("| ring yielding ") && !tables.contains("| blocking"), "{tables}");
}

#[test]
fn a_wrong_contender_is_refused_with_a_list_of_the_right_ones() {
    let output = shapes(&["--only", "ring,rope"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{message}");
    assert!(message.contains("rope"), "{message}");
    assert!(CONTENDERS.iter().all(|contender| message.contains(contender)), "{message}");
}
