//! Runs of `slipring lab` as a user makes them: files, terminals, interruptions, wrong arguments.
//! The tests judge no time and no rate.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::watched;
use crate::pty::Pty;

fn shapes(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.args(["lab", "shapes"]).args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    shapes(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Checks that each series has the repetitions that the record says it has.
fn check(record: &Value) -> u64 {
    assert_eq!((&record["format"], &record["version"]), (&"slipring-lab".into(), &1.into()));
    let results = &record["experiments"][0];
    let rounds = results["rounds"].as_u64().unwrap();
    let series = results["series"].as_array().unwrap();
    assert!(!series.is_empty());
    for series in series {
        let metrics = series["metrics"].as_object().unwrap();
        for values in metrics.values() {
            assert_eq!(values["values"].as_array().unwrap().len() as u64, rounds, "{series}");
        }
    }
    rounds
}

#[test]
fn a_record_on_standard_output_stands_alone_and_tables_go_to_standard_error() {
    for name in ["/dev/stdout", "-"] {
        let output = run(&["--smoke", "--rounds", "1", "--json", name]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let record: Value = serde_json::from_slice(&output.stdout).expect("only the record");
        assert_eq!(check(&record), 1);
        let tables = text(&output.stderr);
        assert!(tables.contains("noise floor") && tables.contains("smoke run"), "{tables}");
        for series in record["experiments"][0]["series"].as_array().unwrap() {
            let contender = series["contender"].as_str().unwrap();
            assert!(tables.contains(contender), "{contender}: {tables}");
        }
    }
}

#[test]
fn a_closed_pipe_costs_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.json");
    let mut child = shapes(&["--smoke", "--rounds", "1", "--json", path(&file)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    check(&serde_json::from_slice(&fs::read(&file).unwrap()).unwrap());
}

#[test]
fn a_terminal_of_forty_columns_has_no_broken_line() {
    let _watched = watched();
    let mut pty = Pty::start(shapes(&["--smoke", "--rounds", "2"]), 40, 500);
    assert_eq!(pty.end().code(), Some(0), "{}", pty.text());
    assert!(pty.text().contains("smoke run"), "{}", pty.text());
    let wrapped: Vec<u16> = (0..500).filter(|row| pty.screen().row_wrapped(*row)).collect();
    assert!(wrapped.is_empty(), "{wrapped:?}: {}", pty.text());
}

/// A comparison stays narrow even if its table is too wide for the terminal.
#[test]
fn a_comparison_on_forty_columns_has_no_broken_line() {
    let _watched = watched();
    let folder = tempfile::tempdir().unwrap();
    let mut record: Value =
        serde_json::from_slice(&run(&["--smoke", "--json", "-"]).stdout).unwrap();
    let files = [("old.json", 100.0), ("new.json", 200.0)].map(|(name, centre)| {
        for series in record["experiments"][0]["series"].as_array_mut().unwrap() {
            for values in series["metrics"].as_object_mut().unwrap().values_mut() {
                values["values"] = (0..5).map(|i| centre + f64::from(i) / 10.0).collect();
            }
        }
        record["noise"] =
            serde_json::json!({"computing": 0.01, "handover": 0.01, "repetitions": 5});
        let file = folder.path().join(name);
        fs::write(&file, record.to_string()).unwrap();
        file
    });
    for (columns, is_table) in [(40, false), (250, true)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
        command.args(["lab", "compare"]).args(&files);
        let mut pty = Pty::start(command, columns, 900);
        assert_eq!(pty.end().code(), Some(0), "{}", pty.text());
        assert!(pty.text().contains("0 within the noise"), "{}", pty.text());
        assert_eq!(pty.text().contains("| new/old |"), is_table, "{}", pty.text());
        let wrapped: Vec<u16> = (0..900).filter(|row| pty.screen().row_wrapped(*row)).collect();
        assert!(wrapped.is_empty(), "{wrapped:?}: {}", pty.text());
    }
}

#[test]
fn ctrl_c_keeps_the_finished_rounds() {
    let _watched = watched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.json");
    let args = ["--smoke", "--rounds", "100000", "--json", path(&file)];
    for signal in [Signal::INT, Signal::TERM] {
        let mut pty = Pty::start(shapes(&args), 120, 500);
        // The first round is complete, and the third one may be, too.
        pty.until(|screen| {
            let shown = screen.contents();
            shown.contains(" of 100000: ") && !shown.contains("round 1 of ")
        });
        pty.signal(signal);
        assert_eq!(pty.end().code(), Some(130), "{}", pty.text());
        let shown = pty.text();
        assert!(
            shown.contains("slipring: interrupted during `shapes`: finished rounds are kept"),
            "{shown}"
        );
        assert!(shown.contains("ended early: interrupted during `shapes`"), "{shown}");
        let record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert!(check(&record) >= 1);
        assert_eq!(record["stopped"], "interrupted during `shapes`");
        let notes = record["experiments"][0]["notes"].to_string();
        assert!(notes.contains("of 100000 rounds"), "{notes}");
    }
}

#[test]
fn ctrl_c_before_the_first_round_saves_nothing() {
    let _watched = watched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.json");
    let mut pty = Pty::start(shapes(&["--full", "--json", path(&file)]), 120, 50);
    pty.until(|screen| screen.contents().contains("noise floor"));
    pty.signal(Signal::INT);
    assert_eq!(pty.end().code(), Some(130), "{}", pty.text());
    assert!(pty.text().contains("nothing was saved"), "{}", pty.text());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The program is stopped while both signals are sent, so it gets both at once: it has no time to
/// end in good order between them.
#[test]
fn a_second_signal_ends_the_program_at_once() {
    let _watched = watched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.json");
    let args = ["--smoke", "--rounds", "100000", "--json", path(&file)];
    let mut pty = Pty::start(shapes(&args), 120, 50);
    pty.until(|screen| screen.contents().contains("round 3"));
    let stat = format!("/proc/{}/stat", pty.child.id());
    pty.signal(Signal::STOP);
    while !fs::read_to_string(&stat).unwrap().contains(") T ") {
        std::thread::yield_now();
    }
    pty.signal(Signal::INT);
    pty.signal(Signal::TERM);
    pty.signal(Signal::CONT);
    assert_eq!(pty.end().code(), Some(130), "{}", pty.text());
    assert!(!pty.text().contains("interrupted"), "{}", pty.text());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was saved");
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").join("file");
    let refused = |args: &[&str], named: &str| {
        let output = run(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(output.stdout.is_empty() && message.contains(named), "{args:?}: {message}");
        message.to_owned()
    };
    for (args, named) in [
        (&["--smoke", "--only", "nonsense"][..], "nonsense"),
        (&["--full", "--json", path(&missing)], "cannot write to"),
        (&["--full", "--json", "/dev/full"], "cannot write to"),
        (&["--full", "--json", path(folder.path())], "cannot write to"),
        (&["--smoke", "--full"], "--full"),
        (&["--rounds", "0"], "--rounds"),
        (&["--rounds", "many"], "many"),
        (&["--round", "1"], "a similar argument exists: '--rounds'"),
    ] {
        let message = refused(args, named);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
