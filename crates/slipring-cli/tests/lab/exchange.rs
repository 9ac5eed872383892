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
    assert_eq!((&record["format"], &record["version"]), (&"slipring-lab".into(), &1.into()));
    assert_eq!(record["size"], "smoke");
    let [experiment] = record["experiments"].as_array().unwrap().as_slice() else {
        panic!("not one experiment: {record}")
    };
    assert_eq!((&experiment["experiment"], &experiment["rounds"]), (&"exchange".into(), &2.into()));
    let series = experiment["series"].as_array().unwrap();
    let at = |series: &Value, name: &str| -> Value {
        let point = series["point"].as_array().unwrap();
        point.iter().find(|pair| pair[0] == name).map(|pair| pair[1].clone()).unwrap()
    };
    // The reader's core is the last core that the series lists.
    let reader = |series: &Value| series["cpus"].as_array().unwrap().last()?.as_u64();
    let cores: BTreeSet<u64> = series.iter().filter_map(reader).collect();
    for way in WAYS {
        let own: Vec<&Value> = series.iter().filter(|of| of["contender"] == way).collect();
        let readers: BTreeSet<u64> = own.iter().filter_map(|of| reader(of)).collect();
        match way {
            "one-thread" => assert!(readers.len() <= 1),
            _ => assert_eq!(readers, cores, "{way}"),
        }
        for caches in ["warm", "cold"] {
            let is_measured =
                own.iter().any(|of| at(of, "reader").as_str().unwrap().ends_with(caches));
            assert!(is_measured, "{way} is not measured {caches}");
        }
        assert!(own.iter().any(|of| at(of, "bytes") == 4096), "{way} has one size");
        for of in own {
            let values = |metric: &str| -> [f64; 2] {
                serde_json::from_value(of["metrics"][metric]["values"].clone())
                    .unwrap_or_else(|error| panic!("{way}: {metric}: {error}"))
            };
            assert_eq!(values("blocks"), [3.0; 2], "{way}");
            for time in ["read", "latency"] {
                for execution in 0..2 {
                    let [p50, p99, max] = ["p50", "p99", "max"]
                        .map(|name| values(&format!("{time} {name}"))[execution]);
                    assert!(0.0 <= p50 && p50 <= p99 && p99 <= max, "{way}: {of}");
                    let curve: Vec<(f64, f64)> =
                        serde_json::from_value(of["curves"][time]["rounds"][execution].clone())
                            .unwrap();
                    assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{way}: {curve:?}");
                    assert_eq!(curve.last(), Some(&(1.0, max)), "{way}");
                }
            }
            assert!(values("read").iter().all(|mean| *mean > 0.0), "{way}: {of}");
        }
        assert!(tables.matches(&format!("| {way} ")).count() == 4, "{tables}");
    }
    assert!(tables.contains(" ±"), "the tables state no interval: {tables}");
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
