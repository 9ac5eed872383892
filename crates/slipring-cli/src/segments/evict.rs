//! `slipring evict`: kills a process that has a place in a ring, and frees all of that process's
//! places.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use slipring_shm::{
    SegmentError,
    summaries::{Eviction, Occupant},
};

use crate::base::console;

/// The help's paragraphs on safety and on the exit code.
const ABOUT_KILL: &str = "\
Without --kill the command changes nothing: it says which process it would kill.

The signal goes to the process that the segment names, and to no later process
of its number: number, start time and pid namespace are compared. The places are
free once the kernel has freed the process's lock. A process that writes a core
dump, or waits inside of the kernel, keeps its lock until it is done.

Exit code:
  0  evicted; without --kill: it can be evicted
  1  it is not evicted, or cannot be
  2  wrong arguments";

/// Kills the process at a place of a ring, and frees the place
///
/// Use this for a process that is stopped or hangs: such a process is alive, so
/// no other process takes its place. The next process at the place continues
/// where the killed one stopped.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_KILL, verbatim_doc_comment)]
pub struct Args {
    /// The segment: a name, or a path with a slash
    name: OsString,
    /// The place: a stage, or `producer`
    stage: String,
    /// The process to evict, if several processes have places of the stage
    #[arg(long)]
    pid: Option<u32>,
    /// Kill the process (SIGKILL), and recover all places that it has in the segment
    #[arg(long)]
    kill: bool,
    /// Longest time to wait for the process's end, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "kill")]
    timeout: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let eviction = find(&args.name, &args.stage, args.pid)?;
    if args.kill {
        let occupant = eviction.kill(Duration::from_secs(args.timeout))?;
        let done = if occupant.dead { "recovered" } else { "evicted" };
        let places = occupant.places.join(", ");
        let state = match occupant.recovered {
            true => format!("free: {places}"),
            false => format!("the ring's processes recover {places} when they wait or attach"),
        };
        return console::print(&format!("{done} {}; {state}\n", process(&occupant)));
    }
    let occupant = eviction.occupant();
    let (place, name) = (&args.stage, args.name.display());
    let pid = args.pid.map_or(String::new(), |pid| format!(" --pid {pid}"));
    let (state, would) = match occupant {
        Occupant { dead: true, .. } => ("dead", "only recover its places"),
        Occupant { stopped: true, .. } => ("stopped", "kill it, and recover its places"),
        _ => ("alive", "kill it, and recover its places"),
    };
    console::print(&format!(
        "`{place}` of {name} has {}, which is {state}\n\
         nothing is changed; this would {would} ({}):\n  \
         slipring evict {name} {place}{pid} --kill\n",
        process(occupant),
        occupant.places.join(", "),
    ))
}

fn find(name: &OsStr, stage: &str, pid: Option<u32>) -> Result<Eviction, SegmentError> {
    match name.as_bytes().contains(&b'/') {
        true => Eviction::find_at(name, stage, pid),
        false => Eviction::find(name, stage, pid),
    }
}

fn process(occupant: &Occupant) -> String {
    let Occupant { name, pid, participant, .. } = occupant;
    format!("{name} (pid {pid}, participant {participant})")
}
