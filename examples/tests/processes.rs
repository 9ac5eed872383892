//! `field_simulation` and `field_analysis` as two processes that are killed and started again.
//! Every step is analysed in order, and only announced steps come twice. The tests assert no times.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;
#[path = "../../crates/slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::program;
use watchdog::watched;

/// The name of a segment. Dropping the value removes the segment.
struct Name(String);

impl Name {
    fn new(test: &str) -> Name {
        Name(format!("test-{test}-{}", std::process::id()))
    }

    fn exists(&self) -> bool {
        slipring_shm::inspect(&self.0).is_ok()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = slipring_shm::remove(&self.0);
    }
}

/// A running example, which is killed when the value is dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(name: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(program(name));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// Reads the next line; `None` at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.lines.read_line(&mut line).unwrap() != 0).then(|| line.trim_end().to_owned())
    }

    /// Reads until a line begins with `start`, and returns that line.
    #[track_caller]
    fn until(&mut self, start: &str) -> String {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("no line begins with {start:?}"));
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Kills the program by SIGKILL, and returns what it had printed.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
        std::iter::from_fn(|| self.line()).collect()
    }

    /// Waits for the program's end. Returns its exit code, the lines that it printed, and its error
    /// output.
    fn end(mut self) -> (i32, Vec<String>, String) {
        let lines = std::iter::from_fn(|| self.line()).collect();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code().unwrap(), lines, errors)
    }

    /// Waits for the end with success.
    #[track_caller]
    fn succeed(self) -> Vec<String> {
        let (code, lines, errors) = self.end();
        assert_eq!((code, errors.as_str()), (0, ""), "{lines:#?}");
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses a line that the analysis prints about a block. Returns the step, its figures, and whether
/// the step was announced.
fn block(line: &str) -> Option<(u64, &str, bool)> {
    let (step, figures) = line.trim_start().split_once("  ")?;
    let announced = figures.ends_with("  again");
    Some((step.parse().ok()?, figures.trim_end_matches("  again"), announced))
}

/// Returns the step of the last line, if that line is about a block.
fn last_step(lines: &[String]) -> Option<u64> {
    lines.last().and_then(|line| block(line)).map(|(step, ..)| step)
}

/// Checks all lines of all analyses of one run: each step in order, no step twice unless announced,
/// and the same figures each time. Returns the number of repetitions.
#[track_caller]
fn check(lines: &[String], steps: u64) -> usize {
    let all = lines.join("\n");
    let mut seen: Vec<&str> = Vec::new();
    let mut repetitions = 0;
    for (step, figures, announced) in lines.iter().filter_map(|line| block(line)) {
        if let Some(before) = seen.get(step as usize) {
            assert!(announced, "step {step} comes again without a word:\n{all}");
            assert_eq!(step as usize + 1, seen.len(), "step {step} is not the last:\n{all}");
            assert_eq!(*before, figures, "step {step} has changed:\n{all}");
            repetitions += 1;
        } else {
            assert_eq!(step as usize, seen.len(), "a step is missing:\n{all}");
            seen.push(figures);
        }
    }
    assert_eq!(seen.len() as u64, steps, "{all}");
    repetitions
}

/// Starts an analysis that keeps its first block for ever, and kills it. Returns its lines.
fn kill_while_it_holds(name: &Name) -> Vec<String> {
    let mut analysis = Running::start("field_analysis", &[&name.0, "--hold", "600000"]);
    let mut lines = Vec::new();
    while last_step(&lines).is_none() {
        lines.push(analysis.line().expect("the analysis ended before its first block"));
    }
    lines.extend(analysis.kill());
    lines
}

/// Starts an analysis, and kills it when it prints `step`. Returns its lines.
fn kill_at(name: &Name, step: u64) -> Vec<String> {
    let mut analysis = Running::start("field_analysis", &[&name.0, "--hold", "5"]);
    let mut lines = Vec::new();
    while last_step(&lines).is_none_or(|last| last < step) {
        lines.push(analysis.line().expect("the analysis ended before that step"));
    }
    lines.extend(analysis.kill());
    lines
}

#[test]
fn no_kill_of_the_analysis_loses_a_step() {
    let _watched = watched();
    let name = Name::new("analysis-killed");
    let arguments = [&name.0, "--steps", "30", "--capacity", "4", "--every", "1"];
    let mut simulation = Running::start("field_simulation", &arguments);
    simulation.until("made segment");

    let mut lines = Vec::new();
    for step in [3, 10, 11] {
        lines.extend(kill_at(&name, step));
        lines.extend(kill_while_it_holds(&name));
    }
    let limited = Running::start("field_analysis", &[&name.0, "--limit", "2"]).succeed();
    assert!(limited[limited.len() - 1].contains("the next analysis goes on at step"));
    lines.extend(limited);
    let last = Running::start("field_analysis", &[&name.0]).succeed();
    assert!(last.iter().any(|line| line.contains("none comes again")), "{last:#?}");
    assert!(last.iter().any(|line| line.contains("agree with theory")), "{last:#?}");
    lines.extend(last);

    let repetitions = check(&lines, 30);
    assert!(repetitions >= 3, "three were killed between a line and its release: {repetitions}");
    let said = simulation.succeed();
    assert!(said.iter().any(|line| line.contains("published 30 steps, 30 in all")), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("for `analysis`")), "{said:#?}");
}

#[test]
fn no_kill_of_the_simulation_loses_a_step() {
    let _watched = watched();
    let name = Name::new("simulation-killed");
    let arguments = [&name.0, "--steps", "40", "--capacity", "4", "--every", "2"];
    let mut simulation = Running::start("field_simulation", &arguments);
    simulation.until("made segment");
    let mut analysis = Running::start("field_analysis", &[&name.0, "--hold", "2"]);
    let mut lines = Vec::new();
    for step in [5, 12, 20] {
        while last_step(&lines).is_none_or(|last| last < step) {
            lines.push(analysis.line().expect("the analysis ended before that step"));
        }
        simulation.kill();
        if step == 20 {
            // Now both are gone.
            lines.extend(analysis.kill());
            analysis = Running::start("field_analysis", &[&name.0]);
        }
        simulation = Running::start("field_simulation", &arguments);
        let found = simulation.until("took over");
        assert!(found.contains("which is still in its slot"), "{found}");
    }
    let said = simulation.succeed();
    assert!(said.iter().any(|line| line.contains(", 40 in all")), "{said:#?}");
    lines.extend(analysis.succeed());
    check(&lines, 40);
}

#[test]
fn errors_say_what_to_do() {
    let _watched = watched();
    let name = Name::new("errors");
    let (code, _, errors) = Running::start("field_analysis", &[&name.0]).end();
    assert!(code == 1 && errors.contains("start the program that makes it first"), "{errors}");

    // The ring has room for all steps, so no analysis is needed.
    let arguments = [&name.0, "--steps", "5", "--every", "600000"];
    let mut simulation = Running::start("field_simulation", &arguments);
    simulation.until("made segment");
    let first = Running::start("field_analysis", &[&name.0, "--limit", "1"]).succeed();
    let (code, _, errors) = Running::start("field_simulation", &arguments).end();
    let pid = format!("process {}", simulation.child.id());
    assert!(code == 1 && errors.contains(&pid) && errors.contains("end it first"), "{errors}");
    let (code, _, errors) = Running::start("field_simulation", &[&name.0, "--anew"]).end();
    assert!(code == 1 && errors.contains("end that process first"), "{errors}");

    // As Ctrl-C does.
    let pid = rustix::process::Pid::from_child(&simulation.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let said = simulation.succeed();
    assert!(said.iter().any(|line| line.starts_with("interrupted: ")), "{said:#?}");
    let (code, _, errors) = Running::start("field_simulation", &[&name.0, "--steps", "1"]).end();
    assert!(code == 1 && errors.contains("has ended") && errors.contains("--anew"), "{errors}");

    let rest = Running::start("field_analysis", &[&name.0]).succeed();
    assert!(rest[rest.len() - 1].contains("removed segment"), "{rest:#?}");
    let lines = [first, rest].concat();
    check(&lines, lines.iter().filter(|line| block(line).is_some()).count() as u64);
    assert!(!name.exists());
}
