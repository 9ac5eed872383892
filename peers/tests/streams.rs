//! What was measured against closed pipes and full disks.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

/// One contender in one figure.
const LITTLE: [&str; 4] = ["--smoke", "round trip", "--only", "slipring"];

fn peers(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Its exit code and what it says on standard error; a panic is a failure.
fn ended(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code().unwrap(), said)
}

fn unread(command: &mut Command) -> (i32, String) {
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    ended(&child.wait_with_output().unwrap())
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn values_are_saved_before_the_tables_are_printed() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("values.json");
    for disk in [false, true] {
        fs::write(&path, "an old record\n".repeat(1_000)).unwrap();
        let mut command = peers(&LITTLE);
        command.arg("--json").arg(&path);
        let (code, said) = if disk { ended(&command.stdout(full()).output().unwrap()) } else { unread(&mut command) };
        assert_eq!(code, i32::from(disk), "{said}");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with('\n') && text.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{text}");
    }
}

#[test]
fn values_that_cannot_be_saved_are_printed() {
    let output = peers(&LITTLE).args(["--json", "/dev/full"]).output().unwrap();
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("No space left"), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("### round trip") && text.contains("{\"table\":\"round trip"), "{text}");
}

#[test]
fn values_are_not_written_over_the_tables() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("both");
    let out = File::create(&path).unwrap();
    let output = peers(&LITTLE).arg("--json").arg(&path).stdout(out).output().unwrap();
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("overwrite"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_list_that_nothing_reads_is_no_panic() {
    assert_eq!(unread(&mut peers(&["--list"])).0, 0);
    assert_eq!(ended(&peers(&["--list"]).stdout(full()).output().unwrap()).0, 1);
}
