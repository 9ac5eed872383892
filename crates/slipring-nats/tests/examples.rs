//! The two sides of the example, started as a user starts them.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;

use common::*;

/// Returns an example's program, built from the current sources. `cargo test` builds the examples,
/// but not if it is called for a single test file, so the programs may be missing or old.
fn example(name: &str) -> Command {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let folder = profile.join("examples");
        if !["journal", "replay"].iter().all(|name| is_current(&folder.join(name))) {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--package", "slipring-nats", "--examples"]);
            build.arg("--target-dir").arg(profile.parent().unwrap());
            if cfg!(feature = "metrics") {
                build.arg("--all-features"); // as for this test, so that the library is already built
            }
            if profile.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "cannot build the examples");
        }
        folder
    });
    Command::new(FOLDER.join(name))
}

/// Returns whether a program exists and is no older than its sources in this checkout. Cargo lists
/// the sources in a file beside the program, in the form of a makefile: `program: source source`.
fn is_current(program: &Path) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    let (Some(built), Ok(listed)) =
        (modified(program), std::fs::read_to_string(program.with_extension("d")))
    else {
        return false;
    };
    let Some((_, sources)) = listed.trim_end().split_once(": ") else { return false };
    let sources = sources.replace("\\ ", "\0");
    let is_older = |source: &str| {
        modified(Path::new(&source.replace('\0', " "))).is_some_and(|changed| changed <= built)
    };
    sources.contains(env!("CARGO_MANIFEST_DIR")) && sources.split(' ').all(is_older)
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_the_journal_publishes_comes_out_of_the_replay() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let arguments =
        [server.url(), "--events".into(), "20000".into(), "--rate".into(), "1000000".into()];
    let written = text(&example("journal").args(&arguments).output().unwrap());
    let replayed = example("replay").args([&server.url(), "--until-end"]).output().unwrap();
    let last = |text: &str| text.lines().last().unwrap().to_string();
    assert_eq!(last(&written), last(&text(&replayed)));
    assert!(last(&written).starts_with("20000 events up to 20000, sum "), "{written}");

    // The next run continues behind the first.
    let written = text(&example("journal").args(&arguments).output().unwrap());
    assert!(written.contains("begins at 20000"), "{written}");
    let first = [server.url(), "--events".into(), "40000".into()];
    let replayed = text(&example("replay").args(&first).output().unwrap());
    assert!(last(&replayed).starts_with("40000 events up to 40000, "), "{replayed}");
}

#[test]
fn the_journal_shows_no_password_and_refuses_more_events_than_there_are() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let address = server.url().replace("nats://", "");
    let url = format!("nats://user:SECRET@{address}");
    let written = text(&example("journal").args([&url, "--events", "10"]).output().unwrap());
    assert!(written.contains(&format!("journal at nats://{address}\n")), "{written}");
    assert!(!written.contains("SECRET"), "{written}");
    let most = u64::MAX.to_string();
    let output = example("journal").args([&url, "--events", &most]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("error: ") && said.contains("at most"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// A program that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines that an example prints.
struct Lines(BufReader<ChildStdout>);

impl Lines {
    fn of(command: &mut Command) -> (Killed, Lines) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (Killed(child), Lines(lines))
    }

    /// Reads up to a line that contains `part`, and returns the line. The watchdog limits the wait.
    fn until(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the program ended before {part:?}");
            if line.contains(part) {
                return line;
            }
        }
    }
}

/// The server that `journal` has started. The test ends it, and removes its folder.
struct Left {
    pid: Option<String>,
    folder: String,
}

impl Left {
    fn end(&mut self) {
        if let Some(pid) = self.pid.take() {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(unix)]
#[test]
fn the_server_of_a_killed_journal_serves_the_next_one_and_its_absence_is_told() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let (mut journal, mut lines) = Lines::of(&mut example("journal"));
    let line = lines.until("kill ");
    let mut words = line.split_whitespace().skip_while(|word| *word != "kill").skip(1);
    let pid = words.next().unwrap().to_string();
    let mut left = Left { pid: Some(pid), folder: words.last().unwrap().to_string() };
    let url = lines.until("journal at ").split_whitespace().last().unwrap().to_string();
    lines.until("acknowledged, ");
    journal.0.kill().unwrap();
    journal.0.wait().unwrap();

    let (_journal, mut lines) = Lines::of(example("journal").arg(&url));
    let line = lines.until("begins at ");
    let first: u64 = line["begins at ".len()..].split(';').next().unwrap().parse().unwrap();
    assert!(first > 0, "{line}");
    lines.until("Publishing");
    let (_replay, mut replayed) = Lines::of(example("replay").arg(&url));
    replayed.until("Publishing");
    left.end();
    for lines in [&mut lines, &mut replayed] {
        assert!(lines.until("Away: ").len() > "Away: \n".len());
    }
}

#[test]
fn the_examples_refuse_what_they_do_not_know() {
    let _watched = watched();
    for (name, arguments, part) in [
        ("journal", vec!["--rat"], "--rat: known are"),
        ("journal", vec!["--events", "x"], "x is none"),
        ("journal", vec!["--events", "1", "--rate", "0"], "--rate needs a number of at least 1"),
        ("replay", vec![], "say the address"),
        ("replay", vec!["nats://127.0.0.1:1"], "no NATS server answers"),
    ] {
        let output = example(name).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{said}");
    }
}
