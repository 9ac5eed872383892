//! Reading a segment's head, and comparing it with what this program expects.

use crate::errors::{FileProblem, Problem};
use crate::event::Event;
use crate::file::File;
use crate::layout::{Checked, HEAD, Head};
use crate::machine;

/// The type of events that a program expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Name of the type.
    pub name: &'static str,
    /// Version of the type.
    pub version: u32,
    /// Size, in bytes.
    pub size: u64,
    /// Alignment, in bytes.
    pub align: u64,
}

impl Expected {
    /// Returns what segments of `E` say.
    pub fn of<E: Event>() -> Expected {
        Expected {
            name: E::NAME,
            version: E::VERSION,
            size: size_of::<E>() as u64,
            align: align_of::<E>() as u64,
        }
    }
}

/// Copies the head once, and checks the copy. `None` as type: any type will do.
pub fn read_head(file: &File, expected: Option<&Expected>) -> Result<Checked, Problem> {
    let bytes = file.read(0, HEAD as usize)?;
    let found = bytes.len() as u64;
    let head =
        Head::from_bytes(bytes).ok_or(FileProblem::TooShort { bytes: found, expected: HEAD })?;
    let checked = head.check(file.length(), &machine::boot_id())?;
    if let Some(expected) = expected {
        compare(&checked, expected)?;
    }
    Ok(checked)
}

fn compare(checked: &Checked, expected: &Expected) -> Result<(), Problem> {
    let header = &checked.header;
    let differ = |property, segment: String, program: String| {
        Err(Problem::EventType { property, segment, program })
    };
    let name = checked.type_name();
    if name != expected.name {
        return differ("name", format!("`{name}`"), format!("`{}`", expected.name));
    }
    let numbers = [
        ("version", u64::from(header.type_version), u64::from(expected.version)),
        ("size", header.event_size, expected.size),
        ("alignment", header.event_align.into(), expected.align),
    ];
    for (property, segment, program) in numbers {
        if segment != program {
            return differ(property, segment.to_string(), program.to_string());
        }
    }
    Ok(())
}
