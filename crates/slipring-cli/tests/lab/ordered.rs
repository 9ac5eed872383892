//! `slipring lab ordered` as a user runs it. The tests judge no time and no rate.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

const CONTENDERS: [&str; 5] = [
    "one thread",
    "executor",
    "executor with long queues",
    "ring with partitioned handlers",
    "slipring pool",
];

fn ordered(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring"))
        .args(["lab", "ordered"])
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn a_smoke_run_has_every_contender_with_every_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("ordered.json");
    let output = ordered(&["--smoke", "--json", json.to_str().unwrap()]);
    let (tables, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "only a terminal gets a progress bar");

    let record: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let results = &record["experiments"][0];
    assert_eq!(results["experiment"], "ordered");
    let series = results["series"].as_array().unwrap();
    let found: BTreeSet<(&str, u64)> = series
        .iter()
        .map(|series| {
            assert_eq!(series["point"][0][0], "threads");
            let threads = series["point"][0][1].as_u64().unwrap();
            (series["contender"].as_str().unwrap(), threads)
        })
        .collect();
    let expected: BTreeSet<(&str, u64)> =
        (2..=6).flat_map(|threads| CONTENDERS.map(|name| (name, threads))).collect();
    assert_eq!(found, expected);
    assert_eq!(series.len(), expected.len());
    for series in series {
        let at = format!("{}, {}", series["contender"], series["point"]);
        let values = |metric: &str| -> Vec<f64> {
            let values = series["metrics"][metric]["values"].as_array().unwrap();
            values.iter().map(|value| value.as_f64().unwrap()).collect()
        };
        for metric in ["rate", "mean latency", "p50 latency", "p99 latency"] {
            let values = values(metric);
            assert_eq!(values.len(), 2, "{at}: {metric}");
            assert!(values.iter().all(|value| *value > 0.0), "{at}: {metric}");
        }
        let curves = series["curves"]["latency"]["rounds"].as_array().unwrap();
        assert_eq!(curves.len(), 2, "{at}");
        for (round, curve) in curves.iter().enumerate() {
            let points: Vec<(f64, f64)> = serde_json::from_value(curve.clone()).unwrap();
            assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{at}: {points:?}");
            assert_eq!(points.last().unwrap().0, 1.0, "{at}");
            let p99 = points.iter().find(|point| point.0 == 0.99).unwrap().1;
            assert_eq!(p99, values("p99 latency")[round], "{at}");
        }
    }
    for table in ["Throughput by threads", "Mean latency by threads", "Latency by percentile"] {
        assert!(tables.contains(table), "{table}");
    }
    assert!(CONTENDERS.iter().all(|name| tables.contains(name)), "{tables}");
    assert!(tables.contains("On this machine, the pool leads the other contenders"), "{tables}");
}

#[test]
fn wrong_options_are_refused_before_the_measurement() {
    let refused = |args: &[&str]| {
        let output = ordered(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let message = refused(&["--full", "--only", "queues"]);
    assert!(message.contains("queues") && message.contains("one thread"), "{message}");
    let message = refused(&["--quick", "--smoke"]);
    assert!(message.contains("--smoke") && message.contains("--quick"), "{message}");
}
