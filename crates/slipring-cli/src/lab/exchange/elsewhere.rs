//! The stand-in for this experiment on systems on which the program does not exchange blocks. There
//! it can only show the records of other systems.

use anyhow::Result;

use crate::lab::experiment::{Measurement, Unsuitable};
use crate::lab::size::Size;

/// Fails, because there is no such measurement on this system.
pub fn in_all(_: Size) -> Result<Box<dyn Measurement>> {
    Err(Unsuitable("blocks are exchanged on 64-bit Linux only".to_owned()).into())
}

/// Returns an empty list, because nothing is measured here.
pub fn missing_relations() -> Vec<&'static str> {
    Vec::new()
}
