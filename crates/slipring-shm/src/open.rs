//! Reading a segment's head.

use crate::errors::{FileProblem, Problem};
use crate::file::File;
use crate::layout::{Checked, HEAD, Head};
use crate::machine;

/// Copies the head once, and checks the copy.
pub fn read_head(file: &File) -> Result<Checked, Problem> {
    let bytes = file.read(0, HEAD as usize)?;
    let found = bytes.len() as u64;
    let head =
        Head::from_bytes(bytes).ok_or(FileProblem::TooShort { bytes: found, expected: HEAD })?;
    head.check(file.length(), &machine::boot_id())
}
