//! `slipring lab cores` as a user runs it. The tests judge no time and no rate.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use std::thread;

use serde_json::Value;
use slipring_machine::{allowed_cpus, pin};

const CONTENDERS: [&str; 2] = ["atomics", "rings"];
/// Largest number of CPUs that a smoke run measures.
const MOST: usize = 4;

fn lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.arg("lab").args(args).arg("--smoke").output().unwrap()
}

/// Runs the lab in a process that may use only one CPU.
fn lab_on_one_cpu(args: &'static [&'static str]) -> Output {
    // A process inherits the CPUs of the thread that starts it.
    let run = move || {
        pin(allowed_cpus()[0]);
        lab(args)
    };
    thread::spawn(run).join().unwrap()
}

#[test]
fn both_contenders_are_measured_between_every_two_cpus() {
    let allowed = allowed_cpus();
    if allowed.len() < 2 {
        return; // The next test has the machine with one CPU.
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("cores.json");
    let output = lab(&["cores", "--json", json.to_str().unwrap()]);
    let (tables, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");

    let record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let results = &record["experiments"][0];
    assert_eq!((&results["experiment"], &results["rounds"]), (&"cores".into(), &2.into()));
    let mut pairs = BTreeSet::new();
    for series in results["series"].as_array().unwrap() {
        let contender = series["contender"].as_str().unwrap();
        assert!(CONTENDERS.contains(&contender), "{contender}");
        let cpu = |number: usize| series["point"][number][1].as_u64().unwrap() as usize;
        let (from, to) = (cpu(0), cpu(1));
        let at = format!("{contender}, {from} to {to}");
        assert!(allowed.contains(&from) && allowed.contains(&to), "{at}");
        assert_eq!(series["cpus"], serde_json::json!([from, to]), "{at}");
        assert!(pairs.insert((contender, from, to)), "{at} is there twice");
        let values = |metric: &str| series["metrics"][metric]["values"].as_array().unwrap().clone();
        for (p50, p99) in values("round trip").iter().zip(values("round trip p99")) {
            assert!(0.0 < p50.as_f64().unwrap() && p50.as_f64() <= p99.as_f64(), "{at}");
        }
        assert_eq!(values("round trip").len(), 2, "{at}");
    }
    let cpus = allowed.len().min(MOST);
    assert_eq!(pairs.len(), CONTENDERS.len() * cpus * cpus);
    assert!(CONTENDERS.iter().all(|contender| tables.contains(contender)), "{tables}");
    let is_sample = format!("Of {} CPUs, {MOST} were measured", allowed.len());
    assert_eq!(tables.contains(&is_sample), allowed.len() > MOST, "{tables}");
}

#[test]
fn one_cpu_is_too_few_for_this_experiment_and_no_reason_to_leave_out_the_others() {
    let output = lab_on_one_cpu(&["cores"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("too few cores") && message.lines().count() == 1, "{message}");
    assert!(output.stdout.is_empty());

    let output = lab_on_one_cpu(&["all", "--only", "std channel"]);
    let (tables, message) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{message}");
    assert!(message.contains("`cores` is left out: too few cores"), "{message}");
    assert!(tables.contains("| std channel "), "{tables}");
}

#[test]
fn named_contenders_are_measured_and_no_others() {
    if allowed_cpus().len() < 2 {
        return; // The test before has the machine with one CPU.
    }
    let output = lab(&["cores", "--only", "atomics"]);
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(tables.contains("atomics") && !tables.contains("contender rings"), "{tables}");
    let output = lab(&["cores", "--only", "pigeon"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(message.contains("pigeon"), "{message}");
    assert!(CONTENDERS.iter().all(|contender| message.contains(contender)), "{message}");
}
