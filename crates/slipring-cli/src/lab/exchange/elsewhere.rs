//! Systems on which this program does not exchange blocks: it shows records of other systems.

use anyhow::Result;

use crate::lab::experiment::{Measurement, Unsuitable};
use crate::lab::size::Size;

/// Fails: there is no such measurement here.
pub fn in_all(_: Size) -> Result<Box<dyn Measurement>> {
    Err(Unsuitable("blocks are exchanged on 64-bit Linux only".to_owned()).into())
}

/// Returns none: nothing is measured here.
pub fn missing_relations() -> Vec<&'static str> {
    Vec::new()
}
