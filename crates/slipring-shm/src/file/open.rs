//! Reading and checking the head of a segment.
//!
//! Invariants
//! - I1: a segment is refused as one of another boot only if both boot numbers are known and
//!   differ. If one of the numbers is missing, a file on tmpfs or a held lock proves that the
//!   segment is of this boot, because neither outlives a boot.

use std::os::fd::AsFd as _;

use crate::errors::{FileProblem, HeaderProblem, Problem};
use crate::file::descriptor::{self, File, Medium};
use crate::layout::{Checked, HEAD, Head, MAX_PARTICIPANTS};
use crate::system::{lock, machine};

/// Copies the head once, and checks the copy, which no other process can change.
pub fn read_head(file: &File) -> Result<Checked, Problem> {
    let bytes = file.read(0, HEAD as usize)?;
    let found = bytes.len() as u64;
    let head =
        Head::from_bytes(bytes).ok_or(FileProblem::TooShort { bytes: found, expected: HEAD })?;
    head.check(file.length(), |made_in| check_boot(file, made_in))
}

/// Refuses a segment that was not made in this boot, as far as that can be known (I1).
fn check_boot(file: &File, made_in: [u8; 16]) -> Result<(), Problem> {
    let ours = machine::boot_id();
    match ours {
        Ok(Some(ours)) if made_in == ours => return Ok(()),
        Ok(Some(_)) if made_in != [0; 16] => return Err(HeaderProblem::Boot.into()),
        _ => {}
    }
    let held = || {
        lock::probe(file.as_fd(), 0..MAX_PARTICIPANTS + 1)
            .map_err(|error| Problem::system("probing the bytes of the file", error))
    };
    if descriptor::check_file_system(file.as_fd())? == Medium::Memory || held()?.is_some() {
        return Ok(());
    }
    match ours {
        Ok(_) => Err(HeaderProblem::UnknownBoot.into()),
        Err(error) => Err(Problem::system("reading the number of this boot", error)),
    }
}
