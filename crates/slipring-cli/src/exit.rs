//! Exit codes of errors: 2 for wrong arguments, 130 for an interrupted measurement, 1 for the rest.

use std::fmt;

use anyhow::Error;

/// Exit code of a failure.
const FAILURE: u8 = 1;
/// Exit code of wrong arguments, as clap has it.
const USAGE: u8 = 2;
/// Exit code of a program that Ctrl-C ended, by the convention of shells.
pub const INTERRUPTED: u8 = 130;

/// An error that sets the exit code.
#[derive(Debug)]
struct Exit {
    code: u8,
    message: String,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Exit {}

/// Makes the error of wrong arguments. The message is one line that says what to do.
pub fn usage(message: impl fmt::Display) -> Error {
    Exit { code: USAGE, message: message.to_string() }.into()
}

/// Makes the error of a measurement that Ctrl-C ended.
pub fn interrupted(message: impl fmt::Display) -> Error {
    Exit { code: INTERRUPTED, message: message.to_string() }.into()
}

/// Returns the exit code of a program that ends with this error.
pub fn code(error: &Error) -> u8 {
    error.downcast_ref().map_or(FAILURE, |exit: &Exit| exit.code)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn the_exit_code_is_found_behind_contexts() {
        assert_eq!(code(&anyhow!("failed")), FAILURE);
        assert_eq!(code(&Err::<(), _>(usage("wrong")).context("more").unwrap_err()), USAGE);
        assert_eq!(code(&interrupted("stopped").context("more")), INTERRUPTED);
    }
}
