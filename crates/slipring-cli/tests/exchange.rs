//! `slipring lab exchange` as a user runs it. The tests judge no time and no rate.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const WAYS: [&str; 13] = [
    "one-thread",
    "file",
    "threads-atomics",
    "processes-atomics",
    "threads-promises",
    "processes-semaphores",
    "threads-promises-slipring",
    "threads-ring-busy-spin",
    "processes-ring-busy-spin",
    "threads-ring-blocking",
    "processes-ring-blocking",
    "threads-ring-adaptive",
    "processes-ring-adaptive",
];

fn exchange(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.args(["lab", "exchange"]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let made = format!("slipring-exchange-{}-", child.id());
    let output = child.wait_with_output().unwrap();
    let mut names = fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
    let left = names.find(|name| name.to_string_lossy().contains(&made));
    assert_eq!(left, None, "a folder or semaphore is left behind");
    output
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_way_is_measured_on_every_core() {
    let folder = tempfile::tempdir().unwrap();
    let (json, picture) = (folder.path().join("exchange.json"), folder.path().join("exchange.svg"));
    let output = exchange(&["--smoke", "--json", path(&json), "--picture", path(&picture)]);
    let (tables, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");

    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = record["series"].as_array().unwrap();
    let cores: BTreeSet<u64> = series.iter().filter_map(|of| of["reader"].as_u64()).collect();
    for way in WAYS {
        let own: Vec<&Value> = series.iter().filter(|of| of["way"] == way).collect();
        let readers: BTreeSet<u64> = own.iter().filter_map(|of| of["reader"].as_u64()).collect();
        match way {
            "one-thread" => assert!(readers.len() <= 1),
            _ => assert_eq!(readers, cores, "{way}"),
        }
        assert!(own.iter().any(|of| of["cold"] == true), "{way} is not measured cold");
        assert!(own.iter().any(|of| of["bytes"] == 4096), "{way} has one size");
        for of in own {
            let executions = of["executions"].as_array().unwrap();
            assert_eq!(executions.len(), 2, "{way}");
            for execution in executions {
                assert_eq!(execution["blocks"], 3, "{way}");
                for time in ["read", "latency"] {
                    let figure = |name: &str| execution[time][name].as_f64().unwrap();
                    let [p50, p99, max] = ["p50_ns", "p99_ns", "max_ns"].map(figure);
                    assert!(0.0 <= p50 && p50 <= p99 && p99 <= max, "{way}: {execution}");
                }
                assert!(execution["read"]["mean_ns"].as_f64() > Some(0.0), "{way}: {execution}");
            }
            let mean = of["read"]["mean_ns"].as_f64().unwrap();
            let half_width = of["read"]["half_width_ns"].as_f64().unwrap();
            assert!(mean > 0.0 && half_width >= 0.0, "{way}");
        }
        assert!(tables.matches(&format!("| {way} ")).count() == 4, "{tables}");
    }
    let svg = fs::read_to_string(&picture).unwrap();
    let svg = roxmltree::Document::parse(&svg).expect("well-formed SVG");
    let texts: BTreeSet<&str> =
        svg.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    assert!(WAYS.iter().all(|way| texts.contains(way)), "{texts:?}");
}

#[test]
fn named_ways_are_measured_and_no_others() {
    let output = exchange(&["--smoke", "--only", "one-thread,processes-semaphores"]);
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(tables.contains("| processes-semaphores ") && !tables.contains("-ring-"), "{tables}");
}

#[test]
fn wrong_arguments_are_refused_before_the_measurement() {
    let output = exchange(&["--smoke", "--only", "pigeon"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("pigeon") && WAYS.iter().all(|way| message.contains(way)),
        "{message}"
    );
    let output = exchange(&["--full", "--json", "/missing/folder/file"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.contains("cannot write to"), "{message}");
    assert!(output.stdout.is_empty());
}
