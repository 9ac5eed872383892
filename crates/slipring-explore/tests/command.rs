//! The command: it repeats itself, finds planted defects, and refuses bad input with the names that
//! there are.

use std::process::{Command, Output};

fn explore(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slipring-explore")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_seed_repeats_itself() {
    for seed in ["1", "2", "3", "4", "5"] {
        let [first, second] = [0; 2].map(|_| explore(&["--seed", seed]));
        assert!(first.status.success(), "{first:?}");
        assert_eq!(text(&first.stdout), text(&second.stdout));
        assert!(text(&first.stdout).contains("holds: "), "{first:?}");
    }
}

/// The case that a found twin leaves fails with the twin, and holds without it.
#[test]
fn a_planted_defect_is_found_and_its_case_fails_again() {
    let found = explore(&["60", "--from", "1", "--threads", "1", "--twin", "closed-unnotified"]);
    assert!(found.status.success(), "{found:?}");
    let found = text(&found.stdout);
    assert!(found.contains("deadlock") && found.contains("the last accesses:"), "{found}");
    let case = found.lines().rfind(|line| line.starts_with('{')).unwrap();
    let file = std::env::temp_dir().join(format!("explore-{}.jsonl", std::process::id()));
    std::fs::write(&file, case).unwrap();
    let again = explore(&["--cases", file.to_str().unwrap()]);
    assert!(again.status.success(), "{again:?}");
    // A ring without shards holds with another twin, so a case that says it fails is wrong.
    let other = case.replace("\"closed-unnotified\"", "\"one-shard-gates\"");
    std::fs::write(&file, other).unwrap();
    let wrong = explore(&["--cases", file.to_str().unwrap(), "--schedules", "20"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(text(&wrong.stdout).contains("one-shard-gates is no longer found"), "{wrong:?}");
    std::fs::write(&file, "\n# a comment\n{\"twin\":1}\n").unwrap();
    let damaged = explore(&["--cases", file.to_str().unwrap()]);
    assert_eq!(damaged.status.code(), Some(2), "{damaged:?}");
    assert!(text(&damaged.stderr).contains("line 3 holds no case"), "{damaged:?}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn bad_input_is_refused_with_what_there_is() {
    for (args, expected) in [
        (&["--twin", "closed-unheard"][..], "similar ones are"),
        (&["--twin", "xyz"], "no twin has this name; there are abandoned-"),
        (&["--shape", "square"], "there are handles, handlers, visitors, disrupted, rings"),
        (&["--seed", "first"], "invalid value 'first'"),
        (&["--cases", "/no/such/file"], "/no/such/file"),
        (&["--seed", "1", "--from", "2"], "cannot be used with"),
    ] {
        let refused = explore(args);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
}

#[test]
fn a_minute_of_seeds_can_be_cut_short() {
    let short = explore(&["60", "--programs", "50", "--from", "1"]);
    assert!(short.status.success(), "{short:?}");
    assert!(text(&short.stdout).contains(": 50 programs, "), "{short:?}");
}
