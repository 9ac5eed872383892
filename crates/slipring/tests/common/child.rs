//! Scenarios in a process of their own: those that close its streams, and those that would end it.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::LIMIT;

/// Names the part that a child process plays.
const ROLE: &str = "SLIPRING_TEST_ROLE";

/// Whether this process is a child that plays this part.
pub fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|given| given == role)
}

/// Runs one test of this program in a process of its own, where it plays its part.
pub fn child(role: &str, stderr: Stdio) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([role, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

/// Waits for a child, which must have played its part to the end.
pub fn ends_well(what: &str, mut child: Child) {
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed() > LIMIT => {
                child.kill().unwrap();
                panic!("did not end: {what}");
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{what}: {status}");
}
