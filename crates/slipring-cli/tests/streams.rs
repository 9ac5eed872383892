//! Results against closed pipes, full disks, pipes as files and the same file named twice: what was
//! measured is saved or told of, nothing panics and nothing hangs. What the figures are is no
//! matter here.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Past this a program counts as one that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The least that is measured: a second or so.
const LITTLE: [&str; 7] = ["lab", "waits", "--smoke", "--only", "blocking", "--arrivals", "burst"];

fn slipring() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `slipring lab waits` over little, with more arguments.
fn little<A: AsRef<OsStr>>(more: &[A]) -> Command {
    let mut command = slipring();
    command.args(LITTLE).args(more);
    command
}

/// The end of a child, or a failure where it does not come.
fn end(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("the program hangs");
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Output {
    finish(command.spawn().unwrap())
}

/// Hears a program to its end.
fn finish(mut child: Child) -> Output {
    fn gather(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut all = Vec::new();
            if let Some(mut from) = from {
                from.read_to_end(&mut all).unwrap();
            }
            all
        })
    }
    let (out, err) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let status = end(&mut child);
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// Its exit code and what it says on standard error; a panic or a signal is a failure.
fn ended(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), None, "{said}");
    let code = output.status.code().unwrap();
    assert!(code != 101 && !said.contains("panicked"), "it panicked: {said}");
    (code, said)
}

/// Runs a program that must refuse its arguments before it measures; gives what it says.
fn refused(command: &mut Command) -> String {
    let output = run(command);
    let (code, said) = ended(&output);
    assert!(code == 1 || code == 2, "{code}: {said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "it measured all the same: {said}");
    said
}

#[test]
fn a_bystander_with_impossible_cores_says_so() {
    for (cores, reason) in [
        ("99999999", "core 99999999 is not"),
        ("1023", "core 1023 is not"),
        ("18446744073709551615", "core 18446744073709551615 is not"),
        ("18446744073709551616", "18446744073709551616"),
        ("-1", "-1"),
        ("", "--cores"),
    ] {
        let message = refused(slipring().args(["lab", "bystander", &format!("--cores={cores}")]));
        assert!(message.contains(reason), "{cores}: {message}");
    }
    let first = first_core();
    let message = refused(slipring().args(["lab", "bystander", "--cores", &format!("{first},{first}")]));
    assert!(message.contains("twice"), "{message}");
    // One that can be had, and an input that ends at once.
    let output = run(slipring().args(["lab", "bystander", "--cores", &first]));
    assert_eq!(ended(&output).0, 0);
    assert!(output.stdout.starts_with(b"ready\n{\"units\":"));
}

/// The first core that this process may use.
fn first_core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn a_system_without_threads_is_an_error() {
    // No stack is as large as this one.
    let output = run(little::<&str>(&[]).env("RUST_MIN_STACK", "1000000000000000"));
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("thread"), "{said}");
    let output = run(slipring().args(["lab", "bystander"]).env("RUST_MIN_STACK", "1000000000000000"));
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("thread"), "{said}");
}
