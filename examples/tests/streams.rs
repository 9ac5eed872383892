//! Tests how the programs end with closed pipes, full disks, and arguments that are too large.
#![cfg(target_os = "linux")]

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::program;

/// Time after which a program counts as hanging.
const LIMIT: Duration = Duration::from_secs(120);

const ALL: [&str; 9] = [
    "readings",
    "fizzbuzz",
    "many_to_many",
    "late_subscriber",
    "opening_hours",
    "tokio_stage",
    "epoll_loop",
    "field_simulation",
    "field_analysis",
];

fn example(name: &str) -> Command {
    let mut command = Command::new(program(name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a process and returns exit code and standard error. Fails after a panic, a
/// signal, or [`LIMIT`].
fn ended(mut child: Child) -> (i32, String) {
    let errors = child.stderr.take().map(|mut stderr| {
        thread::spawn(move || {
            let mut errors = Vec::new();
            stderr.read_to_end(&mut errors).unwrap();
            String::from_utf8_lossy(&errors).into_owned()
        })
    });
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().unwrap();
                panic!("the program hangs");
            }
        }
    };
    let errors = errors.map(|errors| errors.join().unwrap()).unwrap_or_default();
    assert_eq!(status.signal(), None, "{errors}");
    let code = status.code().unwrap();
    assert!(code != 101 && !errors.contains("panicked"), "the program panicked: {errors}");
    (code, errors)
}

/// Runs a command whose standard output is a pipe that its reader has closed.
fn unread(command: &mut Command) -> (i32, String) {
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    ended(child)
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn no_example_panics_on_a_closed_pipe_or_a_full_disk() {
    for name in ALL {
        let (code, errors) = unread(example(name).arg("--smoke"));
        match name {
            "readings" => assert_eq!(code, 0, "{name}: {errors}"),
            _ => assert!(code == 1 && errors.contains("Broken pipe"), "{name}: {code}: {errors}"),
        }
        let (code, errors) = ended(example(name).arg("--smoke").stdout(full()).spawn().unwrap());
        assert!(code == 1 && errors.contains("No space left"), "{name}: {code}: {errors}");
    }
    let (code, _) =
        ended(example("fizzbuzz").stdout(full()).stderr(full()).arg("--smoke").spawn().unwrap());
    assert_eq!(code, 1);
    assert_eq!(
        ended(example("readings").arg("/nowhere/at/all").stderr(full()).spawn().unwrap()).0,
        1
    );
}

#[test]
fn the_journal_is_complete_when_standard_output_is_closed_or_full() {
    let folder = tempfile::tempdir().unwrap();
    let [read, unread_, refused] =
        ["read", "unread", "refused"].map(|name| folder.path().join(name));
    let run = |journal: &PathBuf| {
        let mut command = example("readings");
        command.args(["--mode", "sequential", "--output"]).arg(journal);
        command
    };
    assert_eq!(ended(run(&read).stdout(Stdio::null()).spawn().unwrap()).0, 0);
    assert_eq!(unread(&mut run(&unread_)).0, 0);
    assert_eq!(ended(run(&refused).stdout(full()).spawn().unwrap()).0, 1);
    let journal = fs::read(&read).unwrap();
    assert!(journal.len() > 1_000_000);
    assert!([unread_, refused].iter().all(|other| fs::read(other).unwrap() == journal));
}

#[test]
fn a_journal_that_would_overwrite_its_input_or_the_summary_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [rows, hard, out] = ["rows.csv", "hard.csv", "out"].map(|name| folder.path().join(name));
    let header =
        "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";
    fs::write(&rows, header).unwrap();
    fs::hard_link(&rows, &hard).unwrap();
    let (code, errors) =
        ended(example("readings").arg(&rows).arg("--output").arg(&hard).spawn().unwrap());
    assert!(code == 1 && errors.contains("overwrite"), "{errors}");
    assert_eq!(fs::read_to_string(&rows).unwrap(), header);
    for name in [out.as_os_str(), "/dev/stdout".as_ref()] {
        let mut command = example("readings");
        command
            .args(["--mode", "sequential", "--output"])
            .arg(name)
            .stdout(File::create(&out).unwrap());
        let (code, errors) = ended(command.spawn().unwrap());
        assert!(code == 1 && errors.contains("overwrite"), "{errors}");
    }
    let mut command = example("readings");
    command
        .args(["--mode", "sequential", "--output"])
        .arg(&out)
        .stderr(File::create(&out).unwrap());
    let (code, _) = ended(command.spawn().unwrap());
    let errors = fs::read_to_string(&out).unwrap();
    assert!(code == 1 && errors.contains("overwrite"), "{errors}");
}

#[test]
fn a_file_of_malformed_rows_ends_the_program_with_1_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.csv");
    let header =
        "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";
    fs::write(&rows, format!("{header}A,1,2,3,4,5,6,7,8,9,2020-05-01 00:00:00\n")).unwrap();
    for (zone, expected) in [(&[][..], 1), (&["--zone", "UTC"][..], 0)] {
        let mut command = example("readings");
        command.arg(&rows).args(["--mode", "sequential"]).args(zone).stdout(Stdio::null());
        let (code, errors) = ended(command.spawn().unwrap());
        assert_eq!(code, expected, "{errors}");
        assert_eq!(errors.contains("rows are malformed"), code == 1, "{errors}");
    }
}

#[test]
fn arguments_that_are_too_large_are_refused() {
    let max = u64::MAX.to_string();
    for (name, args) in [
        ("readings", ["--repeat", &max].as_slice()),
        ("readings", &["--repeat", &max, "--smoke"]),
        ("readings", &["--repeat", &max, "--mode", "slipring"]),
        ("many_to_many", &["--each", &max]),
        ("opening_hours", &["--orders", &max]),
        ("tokio_stage", &["--bursts", &max]),
        ("epoll_loop", &["--count", &max]),
    ] {
        let (code, errors) = ended(example(name).args(args).stdout(Stdio::null()).spawn().unwrap());
        assert!(code == 1 || code == 2, "{name} {args:?}: {errors}");
        assert!(
            errors.contains("before the year 9999 ends") || errors.contains("invalid value"),
            "{name} {args:?}: {errors}"
        );
    }
}
