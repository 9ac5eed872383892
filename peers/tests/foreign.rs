//! If a tool for contenders in other languages is missing, the run leaves these contenders out and
//! says so in one line.
#![cfg(unix)]

mod common;

use std::process::{Command, Output, Stdio};

use common::{empty, hollow_jdk};

/// Returns a command for one figure, with slipring and the contenders whose names contain `part`.
fn peers(part: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(["--smoke", "round trip", "--only", &format!("slipring,{part}")]);
    command.stdin(Stdio::null()).env_remove("JAVA_HOME").env_remove("CXX");
    command
}

/// Checks that the run succeeds with slipring alone. Returns its only line on standard error.
fn skipped(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{errors}");
    assert!(text.contains("**slipring**"), "{text}");
    assert!(!text.contains("Java") && !text.contains("C++"), "{text}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

#[test]
fn a_home_without_a_jdk_leaves_out_the_contenders_in_java() {
    let home = empty("no-jdk");
    let line = skipped(&peers("Java").env("JAVA_HOME", &home).output().unwrap());
    assert!(line.starts_with("peers: skipping contenders in Java: JAVA_HOME: "), "{line}");
    assert!(line.contains("no bin/java; install a JDK"), "{line}");
    let line = skipped(&peers("Java").arg("--java").arg(&home).output().unwrap());
    assert!(line.starts_with("peers: skipping contenders in Java: ") && line.contains("no-jdk"));
}

#[test]
fn a_search_path_without_the_tools_leaves_out_their_contenders() {
    let none = empty("no-tools");
    let line = skipped(&peers("Java").env("PATH", &none).output().unwrap());
    assert!(line.contains("no `java` is on the PATH; install a JDK"), "{line}");
    let home = hollow_jdk("without-maven");
    let mut command = peers("Java");
    let line = skipped(&command.env("PATH", &none).arg("--java").arg(home).output().unwrap());
    assert!(line.contains("`mvn` is not on the PATH; install Maven"), "{line}");
    let line = skipped(&peers("C++").env("PATH", &none).output().unwrap());
    assert!(line.contains("no g++ and no clang++ is on the PATH; install g++"), "{line}");
}

#[test]
fn contenders_that_no_argument_chooses_need_no_tool() {
    let none = empty("no-tools-needed");
    let mut command = peers("rtrb");
    let output = command.env("PATH", &none).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_run_without_any_contender_left_is_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(["--smoke", "round trip", "--only", "Java", "--java", "/no/such/jdk"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.lines().count() == 2 && !errors.contains("panicked"), "{errors}");
}

#[test]
fn a_list_names_each_jdk_and_starts_none() {
    let home = hollow_jdk("listed");
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    let none = empty("no-tools-listed");
    command.args(["--list", "round trip", "--java"]).arg(home).env("PATH", none);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(text.contains("LMAX Disruptor 4.0.0, Java 21\n"), "{text}");
    assert!(text.contains("Boost spsc_queue, C++\n"), "{text}");
}
