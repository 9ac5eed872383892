//! Prints to the standard streams without a panic.
//!
//! `println!` and `eprintln!` panic when the stream refuses a write: its reader has gone (`|
//! head`), or its disk is full. This program prints through this module alone; the lints at the
//! crate's root keep it so.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context as _, Result};

/// The reader of standard output has closed its end of the pipe. It has seen enough, so the program
/// ends without a message and with success.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of standard output has gone")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints to standard output. The error is [`ReaderGone`] where the reader closed the pipe.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Gives the error of a write to standard output its meaning.
pub fn printed(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints to standard error. A message that standard error refuses has no other place to go to: the
/// exit code remains.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
