//! Contenders between processes.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::fs;
use std::process::{Command, Stdio};

fn peers(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(["--smoke"]).args(args).stdin(Stdio::null());
    command
}

/// Returns the names that runs of this process have left in shared memory.
fn left_by(pid: u32) -> Vec<String> {
    let prefix = format!("slipring-peers-{pid}-");
    let files = fs::read_dir("/dev/shm").unwrap().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Runs a command to its end. Returns whether it succeeded, its standard output, and its standard
/// error.
fn ended(command: &mut Command) -> (bool, String, String) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(left_by(pid), [""; 0], "files are left in shared memory");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_contender_does_its_work() {
    let (success, tables, errors) = ended(&mut peers(&["between processes"]));
    assert!(success, "{errors}");
    for table in [
        "one by one, 8 bytes",
        "batches, 8 bytes",
        "large events",
        "round trip, 8 bytes",
        "wake of a sleeping reader",
        "checks for deaths",
        "handles for several producers",
        "a dead sleeper",
        "a killed reader",
    ] {
        assert!(tables.contains(&format!("### between processes: {table}")), "{table}: {tables}");
    }
    for name in
        ["two threads", "two processes", "shared mapping", "iceoryx2", "pipe", "Unix socket"]
    {
        assert!(tables.contains(name), "{name}: {tables}");
    }
}

/// A role that dies ends the run with an error. A run that waited for the dead role would end only
/// at its time limit, and with another message.
#[test]
fn the_death_of_a_role_is_an_error_with_its_name() {
    for (figure, only, role) in [
        ("between processes: one by one, 8 bytes, ring 1024, work 0", "two processes", "reader"),
        ("between processes: one by one, 8 bytes, ring 1024, work 0", "two processes", "writer"),
        ("between processes: batches", "iceoryx2", "reader"),
        ("between processes: round trip", "pipe", "writer"),
        ("between processes: wake", "futex", "writer"),
        ("between processes: handles for several", "three processes", "second writer"),
        ("between processes: round trip", "two threads on a segment", "run"),
        ("between processes: a dead sleeper", "killed, notice 1 ms", "writer"),
        ("between processes: a killed reader", "told, notice 1 ms", "writer"),
        ("between processes: a killed reader", "successor, notice 1 ms", "successor"),
    ] {
        let mut command = peers(&[figure, "--only", only]);
        let (success, tables, errors) = ended(command.env("SLIPRING_PEERS_DIES", role));
        assert!(!success && tables.is_empty(), "{figure}, {only}, {role}: {tables}");
        assert!(
            errors.contains(&format!("the {role}'s process ended early, signal: 9")),
            "{figure}, {only}, {role}: {errors}"
        );
    }
}

#[test]
fn a_role_without_its_measuring_process_ends() {
    let task = r#"{"role":"Reader","link":"pipe","bytes":8,"work":{"Wake":{"rounds":1}},
        "folder":"/dev/shm","notice_ms":20,"parent":1}"#;
    let (success, _, errors) = ended(peers(&[]).env("SLIPRING_PEERS_TASK", task));
    assert!(!success && errors.contains("the measuring process has ended"), "{errors}");
}
