//! The programs against closed pipes and full disks, and numbers that are too large to be
//! multiplied.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// Past this a program counts as one that hangs.
const LIMIT: Duration = Duration::from_secs(120);

const ALL: [&str; 7] = [
    "readings",
    "fizzbuzz",
    "many_to_many",
    "late_subscriber",
    "opening_hours",
    "tokio_stage",
    "epoll_loop",
];

/// An example as cargo builds it. Built here, since a test alone would meet whatever was built
/// last.
fn program(name: &str) -> PathBuf {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "--package",
            "slipring-examples",
            "--examples",
            "--target-dir",
        ]);
        build.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the examples do not build");
        profile.join("examples")
    });
    FOLDER.join(name)
}

fn example(name: &str) -> Command {
    let mut command = Command::new(program(name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Its exit code and what it says on standard error; a panic, a signal or no end is a failure.
fn ended(mut child: Child) -> (i32, String) {
    let said = child.stderr.take().map(|mut stderr| {
        thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).unwrap();
            String::from_utf8_lossy(&said).into_owned()
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
    let said = said.map(|said| said.join().unwrap()).unwrap_or_default();
    assert_eq!(status.signal(), None, "{said}");
    let code = status.code().unwrap();
    assert!(code != 101 && !said.contains("panicked"), "it panicked: {said}");
    (code, said)
}

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
        let (code, said) = unread(example(name).arg("--smoke"));
        match name {
            "readings" => assert_eq!(code, 0, "{name}: {said}"),
            _ => assert!(code == 1 && said.contains("Broken pipe"), "{name}: {code}: {said}"),
        }
        let (code, said) = ended(example(name).arg("--smoke").stdout(full()).spawn().unwrap());
        assert!(code == 1 && said.contains("No space left"), "{name}: {code}: {said}");
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
fn the_journal_is_whole_where_nothing_reads_the_summary() {
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
fn the_journal_is_not_written_over_its_input_or_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let [rows, hard, out] = ["rows.csv", "hard.csv", "out"].map(|name| folder.path().join(name));
    let header =
        "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";
    fs::write(&rows, header).unwrap();
    fs::hard_link(&rows, &hard).unwrap();
    let (code, said) =
        ended(example("readings").arg(&rows).arg("--output").arg(&hard).spawn().unwrap());
    assert!(code == 1 && said.contains("overwrite"), "{said}");
    assert_eq!(fs::read_to_string(&rows).unwrap(), header);
    for name in [out.as_os_str(), "/dev/stdout".as_ref()] {
        let mut command = example("readings");
        command
            .args(["--mode", "sequential", "--output"])
            .arg(name)
            .stdout(File::create(&out).unwrap());
        let (code, said) = ended(command.spawn().unwrap());
        assert!(code == 1 && said.contains("overwrite"), "{said}");
    }
    let mut command = example("readings");
    command
        .args(["--mode", "sequential", "--output"])
        .arg(&out)
        .stderr(File::create(&out).unwrap());
    let (code, _) = ended(command.spawn().unwrap());
    let said = fs::read_to_string(&out).unwrap();
    assert!(code == 1 && said.contains("overwrite"), "{said}");
}

#[test]
fn numbers_that_are_too_large_are_refused() {
    let most = u64::MAX.to_string();
    for (name, args) in [
        ("readings", ["--repeat", &most].as_slice()),
        ("readings", &["--repeat", &most, "--smoke"]),
        ("readings", &["--repeat", &most, "--mode", "slipring"]),
        ("many_to_many", &["--each", &most]),
        ("opening_hours", &["--orders", &most]),
        ("tokio_stage", &["--bursts", &most]),
        ("epoll_loop", &["--count", &most]),
    ] {
        let (code, said) = ended(example(name).args(args).stdout(Stdio::null()).spawn().unwrap());
        assert!(code == 1 || code == 2, "{name} {args:?}: {said}");
        assert!(
            said.contains("before the year 9999 ends") || said.contains("invalid value"),
            "{name} {args:?}: {said}"
        );
    }
}
