//! `slipring lab graph` as a user runs it. The tests judge no time and no rate.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

const CONTENDERS: [&str; 5] =
    ["one thread", "ring", "ring on shared threads", "std channels", "blocking queues"];
const SHAPES: [&str; 3] = ["broadcast", "pool", "pool in fan-out"];

fn graph(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring")).args(["lab", "graph"]).args(args).output().unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = graph(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(output.stdout.is_empty(), "{args:?}: the measurement began");
    message
}

/// Runs the program with `--json`, and returns the experiment of the record, and the tables.
fn measured(args: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.json");
    let args = [args, &["--json", path.to_str().unwrap()]].concat();
    let output = graph(&args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "only a terminal gets a progress bar");
    let record: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&record["format"], &record["size"]), (&json!("slipring-lab"), &json!("smoke")));
    (record["experiments"][0].clone(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn every_contender_is_measured_at_every_point() {
    let (experiment, tables) = measured(&["--smoke"]);
    assert_eq!(experiment["experiment"], "graph");
    assert_eq!(experiment["rounds"], 2);
    let mut seen = BTreeSet::new();
    for series in experiment["series"].as_array().unwrap() {
        let contender = series["contender"].as_str().unwrap();
        let at = |name: &str| -> Value {
            let point = series["point"].as_array().unwrap();
            point.iter().find(|pair| pair[0] == name).map(|pair| pair[1].clone()).unwrap()
        };
        let number = |name: &str| at(name).as_u64().unwrap();
        let (graph, workers) = (at("graph"), number("workers"));
        let graph = graph.as_str().unwrap();
        let key = (contender.to_owned(), graph.to_owned(), workers, number("slices"));
        assert!(seen.insert(key), "{series} comes twice");
        for metric in ["time", "time per slice", "CPU"] {
            let values = series["metrics"][metric]["values"].as_array();
            let values = match (values, metric) {
                (None, "CPU") if !cfg!(target_os = "linux") => continue,
                (values, _) => values.unwrap(),
            };
            assert_eq!(values.len(), 2, "{contender}, {graph}: {metric}");
            assert!(values.iter().all(|value| value.as_f64().unwrap() > 0.0), "{series}");
        }
        // Besides its workers, the graph has a producer and a reducer. The last shape also has a
        // journal.
        let all = workers + 2 + u64::from(graph.starts_with(SHAPES[2]));
        match contender {
            "one thread" => assert_eq!(series["threads"], 1),
            "ring on shared threads" => assert!(series["threads"].as_u64().unwrap() <= all),
            _ => assert_eq!(series["threads"], all),
        }
    }
    // The points have 2,000 and 4,000 slices of 10 terms, and 2,000 slices of 100 terms.
    let mut points = BTreeSet::new();
    for contender in CONTENDERS {
        for shape in SHAPES {
            let workers: &[u64] = if contender == "one thread" { &[1] } else { &[2, 4] };
            for workers in workers {
                for (terms, slices) in [(10, 2_000), (10, 4_000), (100, 2_000)] {
                    let graph = format!("{shape}, {terms} terms");
                    points.insert((contender.to_owned(), graph, *workers, slices));
                }
            }
        }
    }
    assert_eq!(seen, points);
    for name in CONTENDERS {
        assert!(tables.contains(&format!("| {name}, workers ")), "no table names {name}: {tables}");
    }
    assert!(tables.contains("On this machine, ") && tables.contains(" ±"), "{tables}");
}

#[test]
fn named_contenders_are_measured_and_no_others() {
    let (experiment, tables) = measured(&["--smoke", "--only", "ring,one thread"]);
    let names = experiment["series"].as_array().unwrap().iter().map(|of| &of["contender"]);
    let names: BTreeSet<&str> = names.map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["one thread", "ring"]));
    assert!(!tables.contains("| std channels"), "{tables}");
}

#[test]
fn wrong_arguments_are_refused_before_the_measurement() {
    let message = refused(&["--smoke", "--only", "ring,abacus"]);
    assert!(message.contains("`abacus`"), "{message}");
    assert!(CONTENDERS.iter().all(|name| message.contains(name)), "{message}");
    let message = refused(&["--smoke", "--full"]);
    assert!(message.contains("--smoke") && message.contains("--full"), "{message}");
    let message = refused(&["--full", "--json", "/missing/folder/file"]);
    assert!(message.contains("cannot write to"), "{message}");
}
