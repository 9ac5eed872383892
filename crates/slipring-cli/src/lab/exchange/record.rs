//! The record of this experiment alone, for programs to read, and the parts of it that the tables
//! and the picture show.

use serde::{Serialize, Serializer};

use super::about::{PAPER_BLOCK, WORD};
use super::convert;
use super::measured::{Measured, Series};
use super::placement::Placement;
use crate::lab::record;

/// All results of `slipring lab exchange`.
#[derive(Clone, Debug)]
pub struct Record {
    /// Versions, machine and noise floor, which the records of all experiments have.
    pub head: record::Record,
    pub measured: Measured,
}

/// A record is saved in the form that all experiments have in common.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let experiments = vec![convert::results(&self.measured)];
        record::Record { experiments, ..self.head.clone() }.serialize(serializer)
    }
}

impl Record {
    /// Returns the distinct names of the ways, in the order of the record.
    pub fn ways(&self) -> Vec<&str> {
        let mut ways: Vec<&str> = self.measured.series.iter().map(|series| &*series.way).collect();
        ways.dedup();
        ways
    }

    /// Returns the series of the paper's block.
    pub fn paper(&self) -> impl Iterator<Item = &Series> {
        self.measured.series.iter().filter(|series| series.bytes == PAPER_BLOCK * WORD)
    }

    /// Returns the placement at which blocks of all sizes are measured: the last one.
    pub fn apart(&self) -> Option<Placement> {
        self.measured.series.iter().map(|series| series.placement).max_by_key(|place| place.reader)
    }
}
