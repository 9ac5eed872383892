//! Runs each test of a harness in a process of its own, as many at once as there are cores.
//!
//! A model maps and unmaps the stacks of its threads in each execution. If two threads of one
//! process ran models, they would wait for each other at these calls, for as long as the rest of
//! their work takes.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    command::{Line, Running, Tally, cores},
    progress,
    say::say,
};

/// Time after which a test counts as slow. Rust's test harness has the same limit.
const SLOW: Duration = Duration::from_secs(60);

/// The tests that take longest: a minute or more each. They begin first, so that no core waits for
/// one of them at the end.
const LONGEST: [&str; 3] = [
    "loom_a_lagging_bound_is_notified",
    "loom_a_producer_dies_before_its_second_claim",
    "loom_the_last_producer_dies_and_closes",
];

/// Runs the tests of the harness `program` whose names contain one of `filters`; all if there is
/// none.
pub fn run(program: &Path, filters: &[OsString]) -> ExitCode {
    let began = Instant::now();
    let (mut names, all) = match (list(program, filters), list(program, &[])) {
        (Ok(names), Ok(all)) => (names, all.len()),
        (Err(error), _) | (_, Err(error)) => {
            say!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let is_short = |name: &String| !LONGEST.iter().any(|long| name.ends_with(long));
    names.sort_by_key(is_short);
    say!("running {} tests, each in a process of its own", names.len());
    let filtered = (all - names.len()) as u64;
    let (queue, tally) =
        (Mutex::new(VecDeque::from(names)), Mutex::new(Tally { filtered, ..Tally::default() }));
    let work = || {
        loop {
            let next = lock(&queue).pop_front();
            let Some(name) = next else { return };
            let result = one(program, &name);
            lock(&tally).add(result);
        }
    };
    thread::scope(|threads| {
        for _ in 0..cores() {
            threads.spawn(work);
        }
    });
    let tally = *lock(&tally);
    say!("\n{tally}; finished in {:.2}s", began.elapsed().as_secs_f64());
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names of the tests.
fn list(program: &Path, filters: &[OsString]) -> Result<Vec<String>, String> {
    let said = Command::new(program).args(filters).arg("--list").output();
    let said = said.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !said.status.success() {
        return Err(format!("{} lists no tests: {}", program.display(), said.status));
    }
    let text = String::from_utf8_lossy(&said.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs a test and prints its result, and the output of a failed test. Prints the name of a slow
/// test while the test runs, because a check that prints nothing for long counts as hanging.
fn one(program: &Path, name: &str) -> Tally {
    let began = Instant::now();
    let (mut tally, mut text) = (Tally::default(), String::new());
    let mut command = Command::new(program);
    command.args(["--exact", name]);
    let ended = Running::start(command).and_then(|mut running| {
        let mut notice = Some(began + SLOW);
        loop {
            match running.line(notice) {
                Line::Text(line) => {
                    if let Some(executions) = progress::goes_on(name, &line) {
                        say!("{executions}");
                        notice = None;
                    } else {
                        tally.read(&line);
                        text += &line;
                    }
                }
                Line::Late => {
                    say!("{}", progress::slow(name));
                    notice = None;
                }
                Line::End => return running.status(),
            }
        }
    });
    let status = match ended {
        Ok(status) => status,
        Err(error) => {
            say!("test {name} ... FAILED: it does not start: {error}");
            return Tally { failed: 1, ..tally };
        }
    };
    // The harness reports all other tests as filtered. For a run of a single test, that number says
    // nothing.
    tally.filtered = 0;
    let took = began.elapsed().as_secs_f64();
    if status.success() && tally.failed == 0 {
        let verdict = if tally.passed == 0 { "ignored" } else { "ok" };
        say!("test {name} ... {verdict}  {took:.1} s");
    } else {
        // A process that a signal ends prints no result.
        tally.failed = tally.failed.max(1);
        say!("test {name} ... FAILED  {took:.1} s: {status}\n{text}");
    }
    tally
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    /// A harness of three tests: one passes, one is ignored, and one dies by a signal.
    const HARNESS: &str = "#!/bin/sh
case \"$*\" in
    *--list) printf 'good: test\\nidle: test\\nbad: test\\na: benchmark\\n' ;;
    *good) echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.5s' ;;
    *idle) echo 'test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.0s' ;;
    *) kill -9 $$ ;;
esac
";

    #[test]
    fn each_test_counts_once_and_one_that_a_signal_ends_has_failed() {
        let folder = std::env::temp_dir().join(format!("slipring-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("harness");
        // A shell writes the file. If this process wrote it, a child of another thread could still
        // hold the file open when the file is executed.
        let write = "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", write, "sh", HARNESS]).arg(&program).status();
        assert!(written.unwrap().success());
        assert_eq!(list(&program, &[]).unwrap(), ["good", "idle", "bad"]);
        let counts = |name| {
            let Tally { passed, failed, ignored, filtered, .. } = one(&program, name);
            [passed, failed, ignored, filtered]
        };
        assert_eq!(counts("good"), [1, 0, 0, 0]);
        assert_eq!(counts("idle"), [0, 0, 1, 0]);
        assert_eq!(counts("bad"), [0, 1, 0, 0]);
        assert_eq!(run(&program, &[]), ExitCode::FAILURE);
        assert_eq!(run(&folder.join("missing"), &[]), ExitCode::FAILURE);
        fs::remove_dir_all(folder).unwrap();
    }
}
