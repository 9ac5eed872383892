//! Runs scenarios in a child process, because they close the process's standard streams or could
//! abort it.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::LIMIT;

/// Environment variable that names a child's test.
const ROLE: &str = "SLIPRING_TEST_ROLE";

/// Returns whether this process is the child that runs the test `role`.
pub fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|given| given == role)
}

/// Starts a child process that runs the test `role` of this program.
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

/// Waits for a child, and asserts that its test passed. A panic's message contains `name`.
pub fn ends_well(name: &str, mut child: Child) {
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed() > LIMIT => {
                child.kill().unwrap();
                panic!("did not end: {name}");
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "{name}: {status}");
}
