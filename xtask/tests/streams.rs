//! Tests the checks with closed pipes, full disks and odd arguments.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

fn xtask(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// The exit code; a panic is a failure.
fn code(output: &Output) -> i32 {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    output.status.code().unwrap()
}

#[test]
fn the_verdict_does_not_depend_on_who_reads_it() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for args in [
        ["help"].as_slice(),
        &["tidy"],
        &["mutants", "--list"],
        &["nonsense"],
        &["miri", "--seeds", "x"],
    ] {
        let read = code(&xtask(args).output().unwrap());
        assert_eq!(
            code(&xtask(args).stdout(full()).output().unwrap()),
            read,
            "{args:?}: a full disk"
        );
        assert_eq!(
            code(&xtask(args).stdout(full()).stderr(full()).output().unwrap()),
            read,
            "{args:?}: two of them"
        );
        let mut child = xtask(args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(code(&child.wait_with_output().unwrap()), read, "{args:?}: a closed pipe");
    }
}

#[test]
fn an_argument_that_is_not_utf_8_is_refused() {
    let output = xtask(&["loom"]).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid UTF-8"));
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_anything_is_judged() {
    let mut command = xtask(&["mutants", "--output", "/nowhere/at/all"]);
    let output = command.stdout(Stdio::piped()).output().unwrap();
    assert_eq!(code(&output), 1);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("cannot write to /nowhere/at/all") && !said.contains("models pass"),
        "{said}"
    );
}
