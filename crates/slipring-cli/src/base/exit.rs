//! Exit codes of errors: 2 for wrong arguments and for output that cannot be written, 130 for an
//! interrupted measurement, 1 for the rest.

use std::fmt;

use anyhow::Error;

/// Exit code of a failure.
const FAILURE: u8 = 1;
/// Exit code for wrong arguments (the same as clap's), and for output that cannot be written.
pub const USAGE: u8 = 2;
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

/// Creates the error for wrong arguments. The message is one line that says what to do.
pub fn usage(message: impl fmt::Display) -> Error {
    Exit { code: USAGE, message: message.to_string() }.into()
}

/// Creates the error for output that cannot be written. The message is one line that says where the
/// content is, or what to do.
pub fn unwritten(message: impl fmt::Display) -> Error {
    usage(message)
}

/// Creates the error for arguments that clap refuses. The message is one line: the mistake, clap's
/// hints, and how to get help.
pub fn refused(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let mut message = String::new();
    let mut help = "--help".to_owned();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(usage) = line.strip_prefix("Usage: ") {
            let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_lowercase());
            let command: Vec<&str> = usage.split_whitespace().take_while(is_name).collect();
            help = format!("{} --help", command.join(" "));
        }
        // The lines from the usage on are left out: they only say that there is help.
        if line.starts_with("Usage: ") || line.starts_with("For more information") {
            break;
        }
        if !message.is_empty() {
            let is_list = message.ends_with(':') || line.starts_with('[');
            message.push_str(if is_list { " " } else { "; " });
        }
        message.push_str(line.strip_prefix("error: ").unwrap_or(line));
    }
    usage(format!("{message}; see `{help}`"))
}

/// Joins errors into one, whose message has one line and whose exit code is the highest of theirs.
/// Succeeds if there are no errors.
pub fn join(errors: Vec<Error>) -> Result<(), Error> {
    let Some(code) = errors.iter().map(code).max() else { return Ok(()) };
    match <[Error; 1]>::try_from(errors) {
        Ok([only]) => Err(only),
        Err(errors) => {
            let texts: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
            Err(Exit { code, message: texts.join("; ") }.into())
        }
    }
}

/// Creates the error for a measurement that Ctrl-C ended.
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
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn clap_refuses_in_one_line() {
        let refused = |args: &[&str]| {
            let lab = Command::new("lab")
                .arg(Arg::new("rounds").long("rounds").value_name("N").value_parser(["1", "2"]))
                .arg(Arg::new("output").long("output").value_name("FILE").required(true));
            let command = Command::new("slipring").subcommand(lab);
            let error = command.try_get_matches_from([&["slipring", "lab"], args].concat());
            refused(&error.unwrap_err()).to_string()
        };
        assert_eq!(
            refused(&[]),
            "the following required arguments were not provided: --output <FILE>; see \
             `slipring lab --help`"
        );
        assert_eq!(
            refused(&["--outputs", "a"]),
            "unexpected argument '--outputs' found; tip: a similar argument exists: '--output'; see \
             `slipring lab --help`"
        );
        assert_eq!(
            refused(&["--output", "a", "--rounds", "3"]),
            "invalid value '3' for '--rounds <N>' [possible values: 1, 2]; see `--help`"
        );
    }

    #[test]
    fn errors_are_joined_in_one_line_with_the_highest_code() {
        assert!(join(Vec::new()).is_ok());
        let joined = join(vec![anyhow!("failed"), usage("wrong"), anyhow!("lost")]).unwrap_err();
        assert_eq!((code(&joined), joined.to_string().as_str()), (USAGE, "failed; wrong; lost"));
    }

    #[test]
    fn the_exit_code_is_found_behind_contexts() {
        assert_eq!(code(&anyhow!("failed")), FAILURE);
        assert_eq!(code(&Err::<(), _>(usage("wrong")).context("more").unwrap_err()), USAGE);
        assert_eq!(code(&interrupted("stopped").context("more")), INTERRUPTED);
    }
}
