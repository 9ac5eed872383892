//! Stands in on systems where this program does not exchange blocks: it only shows records of other
//! systems.

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
