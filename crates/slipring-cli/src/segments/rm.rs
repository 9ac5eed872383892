//! `slipring rm`: removes segments of shared memory that no living process is attached to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use slipring_shm::parts::layout::HEAD;
use slipring_shm::{SegmentError, errors::Problem};

use crate::base::console;

/// The help's paragraph on the exit code.
const ABOUT_EXIT: &str = "\
Exit code:
  0  all of them are removed
  1  at least one cannot be removed; the others are. With --stale: at least one
     cannot be removed, or whether it is stale cannot be said
  2  wrong arguments, or output that cannot be written";

/// Removes rings between processes
///
/// A segment that a living process is attached to is not removed. Events that
/// stages have not read are lost. Damaged segments, and segments of an earlier
/// boot, are removed, too. A file that does not begin like a segment is removed
/// only if you name it.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_EXIT, verbatim_doc_comment)]
pub struct Args {
    /// Segments to remove: names, or paths with a slash
    #[arg(required_unless_present = "stale")]
    names: Vec<OsString>,
    /// Remove every segment of /dev/shm that no process is attached to
    #[arg(long, conflicts_with = "names")]
    stale: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.stale {
        return remove_stale();
    }
    let mut code = ExitCode::SUCCESS;
    for name in &args.names {
        match remove(name) {
            Ok(()) => console::print(&format!("removed {}\n", name.display()))?,
            Err(error) => code = failed(&error),
        }
    }
    Ok(code)
}

/// Prints why a segment is not removed. Returns the exit code.
fn failed(error: &SegmentError) -> ExitCode {
    console::print_error(&format!("slipring: {error}\n"));
    ExitCode::FAILURE
}

/// Removes the segments that no process is attached to. The removal itself checks for attached
/// processes, so a damaged segment that living processes still use is kept.
fn remove_stale() -> Result<ExitCode> {
    let (mut removed, mut code) = (false, ExitCode::SUCCESS);
    for segment in slipring_shm::list()? {
        let (path, state) = match segment {
            Ok(summary) if summary.stale => (summary.path, None),
            Ok(_) => continue,
            Err(error) => match state(error.problem()) {
                Some(state) => (error.location().into(), Some(state)),
                None => {
                    code = failed(&error);
                    continue;
                }
            },
        };
        match slipring_shm::remove_at(&path) {
            Ok(()) => {
                let state = state.map_or_else(String::new, |state| format!(", which {state}"));
                console::print(&format!("removed {}{state}\n", path.display()))?;
                removed = true;
            }
            // The segment was stale when it was listed, but not when it was to be removed.
            Err(error) if state.is_none() && is_beaten(&error) => {}
            Err(error) if matches!(error.problem(), Problem::Missing) => {}
            Err(error) => code = failed(&error),
        }
    }
    if !removed && code == ExitCode::SUCCESS {
        console::print("there are no stale segments in /dev/shm\n")?;
    }
    Ok(code)
}

/// Returns the state of a segment that cannot be read but can be removed. Returns `None` if the
/// file may be in use (a segment of another user or of another version), or if it does not begin
/// like a segment and may be any file.
fn state(problem: &Problem) -> Option<&'static str> {
    use slipring_shm::errors::{FileProblem as File, HeaderProblem as Header};
    match problem {
        Problem::Header(Header::Boot) => Some("was of an earlier boot"),
        Problem::Header(
            Header::Checksum { .. }
            | Header::Field { .. }
            | Header::Stage { .. }
            | Header::Overlap { .. },
        )
        | Problem::File(File::TooLong { .. }) => Some("was damaged"),
        // A file that is too short for a complete head may be any file.
        Problem::File(File::TooShort { bytes, .. }) if *bytes >= HEAD => Some("was damaged"),
        _ => None,
    }
}

fn remove(name: &OsStr) -> Result<(), SegmentError> {
    match name.as_bytes().contains(&b'/') {
        true => slipring_shm::remove_at(name),
        false => slipring_shm::remove(name),
    }
}

/// Returns whether another process has attached to the segment, or removed it, since it was listed.
fn is_beaten(error: &SegmentError) -> bool {
    matches!(error.problem(), Problem::InUse { .. } | Problem::Busy | Problem::Missing)
}
