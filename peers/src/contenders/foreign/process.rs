//! A running program that answers requests.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A program that has not answered after this time counts as hanging.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// Time that a program has to end after its standard input is closed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Number of lines of standard error that a message shows.
const ERROR_LINES: usize = 5;

/// A child process. Between two requests it blocks. Dropping this value ends it.
pub struct Process {
    child: Child,
    /// Standard input of the program; `None` once it is closed.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The last lines of standard error.
    errors: Arc<Mutex<VecDeque<String>>>,
    /// A channel that disconnects once all of standard error is in `errors`.
    errors_read: Receiver<()>,
}

impl Process {
    /// Starts the program. The two threads that read its output block while it writes nothing.
    pub fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
        let requests = child.stdin.take();
        let (to, answers) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            // The thread ends at the end of the output, or when the receiver is dropped.
            each_line(output, move |line| to.send(line).is_ok());
        }
        let errors: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let (reading, errors_read) = mpsc::channel();
        if let Some(output) = child.stderr.take() {
            let errors = errors.clone();
            each_line(output, move |line| {
                let _dropped_at_the_end: &Sender<()> = &reading;
                let Ok(mut lines) = errors.lock() else { return false };
                if lines.len() == ERROR_LINES {
                    lines.pop_front();
                }
                lines.push_back(line);
                true
            });
        }
        Ok(Process { child, requests, answers, errors, errors_read })
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &str) -> Result<String, String> {
        let sent = self.requests.as_mut().map_or(Ok(()), |requests| {
            requests.write_all(format!("{request}\n").as_bytes()).and_then(|()| requests.flush())
        });
        let answer = self.answers.recv_timeout(ANSWER_LIMIT);
        match (sent, answer) {
            (_, Ok(answer)) => Ok(answer),
            (_, Err(RecvTimeoutError::Timeout)) => {
                Err(format!("its program gave no answer within {} s", ANSWER_LIMIT.as_secs()))
            }
            (_, Err(RecvTimeoutError::Disconnected)) => Err(self.death()),
        }
    }

    /// Returns how the program ended, with its last errors.
    fn death(&mut self) -> String {
        self.end();
        // The wait is limited, because a child of the program may keep standard error open.
        let _ = self.errors_read.recv_timeout(END_LIMIT);
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let errors = self.errors.lock().map_or_else(
            |_| String::new(),
            |lines| lines.iter().map(|line| format!("\n    {line}")).collect(),
        );
        format!("its program ended early, {status}{errors}")
    }

    /// Closes the program's input and waits for its end; kills it if it takes long.
    fn end(&mut self) {
        drop(self.requests.take());
        let limit = Instant::now() + END_LIMIT;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a thread that calls `f` with each line of the output, as long as `f` returns true.
fn each_line(output: impl Read + Send + 'static, f: impl Fn(String) -> bool + Send + 'static) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            if !line.is_ok_and(&f) {
                return;
            }
        }
    });
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    #[test]
    fn a_program_answers_line_by_line() {
        let mut echo = shell("while read line; do echo \"ns $line\"; done");
        assert_eq!(echo.ask("1").unwrap(), "ns 1");
        assert_eq!(echo.ask("2").unwrap(), "ns 2");
    }

    #[test]
    fn the_end_of_a_program_is_an_error_with_its_last_lines() {
        let message = shell("read line; echo no memory >&2; exit 3").ask("1").unwrap_err();
        assert!(message.contains("3") && message.contains("no memory"), "{message}");
    }

    #[test]
    fn a_program_that_ignores_the_end_of_its_input_is_killed() {
        drop(shell("trap '' TERM; while true; do sleep 1; done"));
    }

    #[test]
    fn a_missing_program_does_not_start() {
        let started = Process::start(Command::new("/no/such/program"));
        assert!(started.err().unwrap().starts_with("it does not start"));
    }
}
