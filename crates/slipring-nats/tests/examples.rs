//! The two sides of the example, as a user starts them.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use common::*;

/// Returns an example's program. `cargo test` builds all examples, but not for a single test.
fn example(name: &str) -> Command {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let folder = profile.join("examples");
        if !["journal", "replay"].iter().all(|name| folder.join(name).exists()) {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--package", "slipring-nats", "--examples"]);
            build.arg("--target-dir").arg(profile.parent().unwrap());
            if profile.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "cannot build the examples");
        }
        folder
    });
    Command::new(FOLDER.join(name))
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

    // The next run goes on behind the first.
    let written = text(&example("journal").args(&arguments).output().unwrap());
    assert!(written.contains("begins at 20000"), "{written}");
    let first = [server.url(), "--events".into(), "40000".into()];
    let replayed = text(&example("replay").args(&first).output().unwrap());
    assert!(last(&replayed).starts_with("40000 events up to 40000, "), "{replayed}");
}

#[test]
fn the_examples_refuse_what_they_do_not_know() {
    let _watched = watched();
    for (name, arguments, part) in [
        ("journal", vec!["--rat"], "--rat: known are"),
        ("journal", vec!["--events", "x"], "x is none"),
        ("replay", vec![], "say the address"),
        ("replay", vec!["nats://127.0.0.1:1"], "no NATS server answers"),
    ] {
        let output = example(name).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{said}");
    }
}
