//! Prints to the standard streams without a panic.
//!
//! `println!` and `eprintln!` panic when the stream refuses a write, because its reader has closed
//! it (`| head`) or its disk is full. This program prints through this module alone; the lints at
//! the crate's root enforce that.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

use anyhow::Result;

use crate::base::exit;

/// The error of a write to a standard output whose reader has closed the pipe. The program then
/// ends without a message and with success.
#[derive(Debug)]
pub struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of standard output has closed it")
    }
}

impl std::error::Error for StdoutClosed {}

/// Prints to standard output. The error is [`StdoutClosed`] if the reader has closed the pipe.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    stdout_result(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Turns the error of a write to standard output into this program's error.
pub fn stdout_result(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        written => written
            .map_err(|error| exit::unwritten(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints to standard error. A refused write is ignored: there is no other stream to report it to,
/// and the exit code still reports the failure.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
