//! Messages of errors whose wording depends on the error's values.
//!
//! Invariants
//! - I1: a message with a list or a number of processes is worded correctly for none, one and
//!   several.

use std::fmt;
use std::io;
use std::ops::Range;

use rustix::io::Errno;
use slipring::errors::PeerDead;
use slipring::errors::WaitError;
use slipring::segment::Bytes;

use crate::system::limits::SLOTS_ALIGN;

/// Returns the names as a list for a message, or `none` if there are none.
pub(super) fn names(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

/// Returns the numbers as a list for a message.
pub(super) fn numbers(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn capacity(asked: &u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if *asked == 0 {
        return f.write_str("the capacity is 0: take a power of two, at least 1");
    }
    write!(f, "the capacity {asked} is not a power of two: ")?;
    match asked.checked_next_power_of_two() {
        Some(next) => write!(f, "take {} or {next}", next / 2),
        None => f.write_str("take a smaller one"),
    }
}

pub(super) fn declaration(
    what: &&str,
    asked: &u64,
    most: &u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match asked {
        0 => write!(f, "the declaration asks for no {what}: take 1 to {most}"),
        _ => write!(f, "the declaration asks for {asked} {what}: take at most {most}"),
    }
}

pub(super) fn event_size(size: &u64, align: &u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if *size == 0 {
        return f.write_str(
            "an event has no bytes: give its type a field, or state the size of a block (`block`)",
        );
    }
    if !align.is_power_of_two() || *align > SLOTS_ALIGN {
        return write!(
            f,
            "the alignment of an event or block cannot be {align}: take a power of two, 1 to {SLOTS_ALIGN}"
        );
    }
    let larger = size.saturating_add(align - size % align);
    write!(
        f,
        "the size of an event or block, {size} bytes, is no multiple of its alignment, {align}: take {larger}, or the alignment 1"
    )
}

pub(super) fn access(stage: &str, writes: &bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (article, access) = if *writes { ("an", "updater") } else { ("a", "reader") };
    write!(
        f,
        "stage `{stage}` was declared as {article} {access}: ask for it by `{access}` (a pool: `pool_{access}`; shards: `shard_{access}`)"
    )
}

pub(super) fn delivery(stage: &str, delivery: &&str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match *delivery {
        "each" => write!(
            f,
            "stage `{stage}` was declared so that one handle sees each event: ask for it by `reader` or `updater`"
        ),
        "pool" => write!(
            f,
            "stage `{stage}` was declared as a pool: ask for it by `pool_reader` or `pool_updater`"
        ),
        "shards" => write!(
            f,
            "stage `{stage}` was declared with shards: ask for one by `shard_reader` or `shard_updater`, with its number"
        ),
        "tap" => write!(f, "`{stage}` was declared as a tap: join it by `subscribe`"),
        _ => write!(
            f,
            "stage `{stage}` was declared with the delivery `{delivery}`, which this call does not serve"
        ),
    }
}

pub(super) fn key_range(
    stage: &str,
    key: &Range<usize>,
    size: &u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "the key of stage `{stage}`, the bytes {key:?}")?;
    if key.is_empty() {
        return write!(
            f,
            " of a block of {size} bytes, is empty: give a range of at least one byte, as in `8..16`"
        );
    }
    if key.end as u64 > *size {
        return write!(
            f,
            ", does not lie in a block of {size} bytes: give a range that ends within the block, or a larger block"
        );
    }
    write!(
        f,
        " of a block of {size} bytes, begins behind the first 4 GiB, or is longer: put the key at the block's begin"
    )
}

pub(super) fn producers(declared: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match declared {
        1 => f.write_str(
            "its ring has room for a single producer: call `producer`, or make the segment with `producers(n)`",
        ),
        _ => write!(f, "its ring has room for {declared} producers: call `shared_producer`"),
    }
}

pub(super) fn no_space(bytes: &u64, room: &Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "there is no room for its {}", Bytes(*bytes))?;
    if let Some(room) = room {
        write!(f, ": its file system has {} left", Bytes(*room))?;
    }
    f.write_str(
        "; remove stale segments (`slipring ls`, `slipring rm`), mount the file system with a larger size, or take a smaller capacity",
    )
}

pub(super) fn event_type(
    property: &&str,
    segment: &str,
    program: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match *property {
        "kind" => write!(
            f,
            "it holds {segment}, and this program asks for {program}: open it as `Segment<Blocks>`, `Segment<Messages>`, or with the type of its events"
        ),
        _ => write!(
            f,
            "the {property} of its events is {segment}, and this program's is {program}: build both programs with one definition of the event, or take another name"
        ),
    }
}

pub(super) fn full(participants: &u32, dead: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "all {participants} places of participants are taken")?;
    if *dead > 0 {
        write!(f, ", {dead} of them by dead ones that no process has recovered")?;
    }
    f.write_str(": end a participant, or make the segment anew with more (`participants`)")
}

pub(super) fn system(step: &&str, error: &io::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "the system refused {step}: {error}")?;
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => f.write_str(
            "; this process has no file descriptor left: close some, or raise its limit (`ulimit -n`)",
        ),
        Some(Errno::NFILE) => f.write_str(
            "; the system has no open file left: end programs, or raise `fs.file-max`",
        ),
        _ => Ok(()),
    }
}

pub(super) fn owner_dead(dead: &PeerDead, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match dead.pid {
        0 => f.write_str("the process that owned the promise")?,
        pid => write!(f, "process {pid}, which owned the promise,")?,
    }
    f.write_str(" has died and has not fulfilled it: start it again, and wait again")
}

pub(super) fn request(reason: &WaitError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        WaitError::Closed => f.write_str(
            "the ring of the request was closed, and every stage has passed the request without an answer: see whether a stage opens the promise",
        ),
        reason => write!(f, "the ring of the request gives no answer: {reason}"),
    }
}
