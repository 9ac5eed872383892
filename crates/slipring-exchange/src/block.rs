//! A block in memory that two ends use in turns.
//!
//! Invariants
//! - I1: from `take` to `pass`, an end is the only user of the block, in all processes (I1 and I2
//!   of the crate).

use std::io;
use std::slice;
use std::sync::Arc;

use crate::ends::{Reader, Writer, now};
use crate::memory::Memory;

/// One end's right to use a block, and how that end waits for the right and passes it on.
pub trait Turn: Send {
    /// Waits until this end has the turn, and takes it with acquire ordering.
    fn take(&mut self) -> io::Result<()>;
    /// Passes the turn to the other end, with release ordering.
    fn pass(&mut self) -> io::Result<()>;
}

/// An end of an exchange through memory.
pub struct End<T> {
    pub memory: Arc<Memory>,
    pub turn: T,
}

impl<T: Turn> Writer for End<T> {
    fn write(&mut self, fill: &mut dyn FnMut(&mut [u64])) -> io::Result<u64> {
        self.turn.take()?;
        // SAFETY: this end has taken the turn, so no other thread or process uses the block (I1).
        fill(unsafe { slice::from_raw_parts_mut(self.memory.block(), self.memory.words()) });
        let written = now();
        self.turn.pass()?;
        Ok(written)
    }
}

impl<T: Turn> Reader for End<T> {
    fn read(&mut self, read: &mut dyn FnMut(&[u64])) -> io::Result<(u64, u64)> {
        self.turn.take()?;
        let began = now();
        // SAFETY: as in `write` (I1).
        read(unsafe { slice::from_raw_parts(self.memory.block(), self.memory.words()) });
        let ended = now();
        self.turn.pass()?;
        Ok((began, ended))
    }
}
