//! Tests that no measured value is lost to a closed pipe, a full disk, or a file that is a standard
//! stream.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

/// Arguments for one contender in one figure.
const SHORT: [&str; 4] = ["--smoke", "round trip", "--only", "slipring"];

fn peers(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the exit code and the standard error of a command. Fails if the command panicked.
fn ended(output: &Output) -> (i32, String) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!errors.contains("panicked"), "{errors}");
    (output.status.code().unwrap(), errors)
}

/// Runs a command whose standard output is a pipe that its reader has closed.
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
        let mut command = peers(&SHORT);
        command.arg("--json").arg(&path);
        let (code, errors) = if disk {
            ended(&command.stdout(full()).output().unwrap())
        } else {
            unread(&mut command)
        };
        assert_eq!(code, i32::from(disk), "{errors}");
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.ends_with('\n')
                && text.lines().all(|line| line.starts_with('{') && line.ends_with('}')),
            "{text}"
        );
    }
}

#[test]
fn values_that_cannot_be_saved_are_printed_to_standard_output() {
    let output = peers(&SHORT).args(["--json", "/dev/full"]).output().unwrap();
    let (code, errors) = ended(&output);
    assert!(code == 1 && errors.contains("No space left"), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("### round trip") && text.contains("{\"table\":\"round trip"), "{text}");
}

#[test]
fn a_file_that_is_standard_output_is_refused_for_the_values() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("both");
    let out = File::create(&path).unwrap();
    let output = peers(&SHORT).arg("--json").arg(&path).stdout(out).output().unwrap();
    let (code, errors) = ended(&output);
    assert!(code == 1 && errors.contains("overwrite"), "{errors}");
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_list_into_a_closed_pipe_or_a_full_disk_is_no_panic() {
    assert_eq!(unread(&mut peers(&["--list"])).0, 0);
    assert_eq!(ended(&peers(&["--list"]).stdout(full()).output().unwrap()).0, 1);
}
