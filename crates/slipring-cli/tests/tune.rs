//! `slipring tune` as a user runs it. The tests judge no time and no rate: in a smoke run, the
//! program recommends something in any case, and says that the figures mean nothing.
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;

fn tune(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring")).arg("tune").args(args).output().unwrap()
}

/// Runs the program with arguments that it must refuse with this exit code; returns its message.
fn refused(args: &[&str], code: i32) -> String {
    let output = tune(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert!(output.stdout.is_empty(), "{args:?}: the measurement began");
    message
}

/// Sets of arguments that describe the work. Each line sets different options; the first sets none.
const WORKS: [&[&str]; 3] = [
    &[],
    &["--event-bytes", "100", "--rate", "20k", "--stages", "3", "--latency", "p99:50us"],
    &["--event-bytes", "1", "--work", "2us", "--stages", "2", "--cpu-budget", "150%"],
];

#[test]
fn every_recommended_program_compiles_and_runs() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tune");
    fs::create_dir_all(&folder).unwrap();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = |name: &str| crates.join(name).display().to_string();
    let mut manifest = format!(
        "[package]\nname = \"tune\"\nedition = \"2024\"\nautobins = false\n\n[dependencies]\n\
         slipring = {{ path = {:?} }}\nslipring-machine = {{ path = {:?} }}\n\n[workspace]\n",
        path("slipring"),
        path("slipring-machine"),
    );
    for (number, work) in WORKS.iter().enumerate() {
        let file = folder.join(format!("work{number}.rs"));
        let json = folder.join(format!("work{number}.json"));
        let files = ["--output", file.to_str().unwrap(), "--json", json.to_str().unwrap()];
        let output = tune(&[&["--smoke"], *work, &files].concat());
        let (tables, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{work:?}: {errors}");
        assert_eq!(errors, "", "only a terminal gets a progress bar");
        let program = fs::read_to_string(&file).unwrap();
        assert!(tables.contains(&program) && tables.contains("smoke run"), "{tables}");
        let choices = check_record(&json);
        for choice in ["slots", "a thread for each stage", "stamps", "batches"] {
            assert!(choices.contains(choice) || tables.contains(choice), "{choice}: {tables}");
        }
        let _ = write!(manifest, "\n[[bin]]\nname = \"work{number}\"\npath = {file:?}\n");
    }
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // With the workspace's lock file, cargo needs no network.
    let lock = crates.join("../Cargo.lock");
    if lock.exists() {
        fs::copy(lock, folder.join("Cargo.lock")).unwrap();
    }
    let cargo = || {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(name);
        }
        cargo.current_dir(&folder);
        cargo
    };
    let target = folder.join("target");
    let built = cargo().args(["build", "--offline", "--target-dir"]).arg(&target).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for number in 0..WORKS.len() {
        let ran = Command::new(target.join(format!("debug/work{number}"))).output().unwrap();
        let report = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && report.contains("1000"), "{report}");
    }
}

/// Checks the record, and returns all settings that it names.
fn check_record(path: &Path) -> String {
    let record: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((&record["format"], &record["version"]), (&"slipring-tune".into(), &1.into()));
    let choices = record["choices"].as_array().unwrap();
    assert!(choices.len() >= 4, "{record}");
    for measured in choices.iter().map(|choice| &choice["chosen"]).chain([&record["defaults"]]) {
        let runs = measured["runs"].as_array().unwrap();
        assert!(!runs.is_empty());
        for run in runs {
            let [latency, p50] = ["latency_ns", "p50_ns"].map(|name| run[name].as_f64().unwrap());
            assert!(latency >= p50 && p50 > 0.0, "{run}");
            assert!(run["events"].as_u64() > Some(0) && run["cores"].as_f64() >= Some(0.0));
        }
    }
    record.to_string()
}

#[test]
fn wrong_arguments_are_refused_with_an_example_of_right_ones() {
    for (args, text) in [
        (["--rate", "fast"], "200k"),
        (["--rate", "0"], "200k"),
        (["--work", "5"], "300ns"),
        (["--latency", "50us"], "p99:50us"),
        (["--latency", "p100:50us"], "p99.99"),
        (["--cpu-budget", "none"], "30%"),
        (["--event-bytes", "0"], "4096"),
        (["--event-bytes", "5000"], "Box"),
        (["--stages", "0"], "1 to 64"),
        (["--stages", "1000"], "1 to 64"),
    ] {
        let message = refused(&args, 2);
        assert!(message.contains(args[0]) && message.contains(text), "{args:?}: {message}");
    }
    assert!(refused(&["--smoke", "--full"], 2).contains("--full"));
}

#[test]
fn demands_that_nothing_can_meet_are_refused_with_the_reason_before_the_measurement() {
    for (args, reason) in [
        (&["--rate", "1M", "--work", "2us"][..], "200 %"),
        (&["--rate", "100k", "--work", "5us", "--cpu-budget", "30%"], "0.5 cores"),
        (&["--rate", "10k", "--work", "5us", "--stages", "4", "--latency", "p99:10us"], "20µs"),
    ] {
        let message = refused(args, 1);
        assert!(message.contains(reason) && message.lines().count() == 1, "{args:?}: {message}");
    }
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_measurement() {
    for option in ["--output", "--json"] {
        let message = refused(&["--full", option, "/missing/folder/file"], 2);
        assert!(message.contains("cannot write to"), "{message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("same");
    let file = file.to_str().unwrap();
    let message = refused(&["--full", "--output", file, "--json", file], 2);
    assert!(message.contains("same file"), "{message}");
}
