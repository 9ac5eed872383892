//! `slipring rm`: removes segments of shared memory that no living process is attached to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use slipring_shm::{Problem, SegmentError};

use crate::console;

/// The help's paragraph on the exit code.
const ABOUT_EXIT: &str = "\
Exit code:
  0  all of them are removed
  1  at least one cannot be removed; the others are
  2  wrong arguments, or output that cannot be written";

/// Removes rings between processes
///
/// A segment that a living process is attached to is not removed. What stages
/// have not read is lost. Damaged segments, and those of an earlier boot, are
/// removed, too.
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
    let names = if args.stale { stale()? } else { args.names.clone() };
    if names.is_empty() {
        console::print("there are no stale segments in /dev/shm\n")?;
    }
    let mut code = ExitCode::SUCCESS;
    for name in names {
        match remove(&name) {
            Ok(()) => console::print(&format!("removed {}\n", name.display()))?,
            // A segment that was stale a moment ago may be in use, or gone.
            Err(error) if args.stale && is_beaten(&error) => {}
            Err(error) => {
                console::print_error(&format!("slipring: {error}\n"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Returns the paths of the segments that no process is attached to. A segment that cannot be read
/// is none of them.
fn stale() -> Result<Vec<OsString>> {
    let segments = slipring_shm::list()?.into_iter().flatten();
    Ok(segments.filter(|one| one.stale).map(|one| one.path.into_os_string()).collect())
}

fn remove(name: &OsStr) -> Result<(), SegmentError> {
    match name.as_bytes().contains(&b'/') {
        true => slipring_shm::remove_at(name),
        false => slipring_shm::remove(name),
    }
}

/// Whether another process has attached to the segment, or removed it, since it was listed.
fn is_beaten(error: &SegmentError) -> bool {
    matches!(error.problem(), Problem::InUse { .. } | Problem::Busy | Problem::Missing)
}
