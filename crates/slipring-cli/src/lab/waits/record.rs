//! The record of this experiment alone, for programs to read.

use serde::{Serialize, Serializer};

use super::convert;
use super::measured::Measured;
use crate::lab::record;

/// All results of `slipring lab waits`.
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
