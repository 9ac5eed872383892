//! Turns passed by one atomic word, on which the waiting end spins.

use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use crate::block::Turn;
use crate::ends::{PATIENCE, impatient};
use crate::memory::Memory;

/// Number of polls between two readings of the clock.
const POLLS: u32 = 1 << 14;

/// One end's turns: the word holds the number of the next turn. The writer has the even numbers,
/// and the reader the odd ones.
pub struct Spin {
    memory: Arc<Memory>,
    next: u64,
}

impl Spin {
    /// Makes the turns of the writer (`first` is 0) or of the reader (1).
    pub fn new(memory: Arc<Memory>, first: u64) -> Spin {
        Spin { memory, next: first }
    }
}

impl Turn for Spin {
    fn take(&mut self) -> io::Result<()> {
        let mut since = None;
        loop {
            for _ in 0..POLLS {
                if self.memory.turn().load(Acquire) == self.next {
                    return Ok(());
                }
                spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(impatient());
            }
        }
    }

    fn pass(&mut self) -> io::Result<()> {
        self.memory.turn().store(self.next + 1, Release);
        self.next += 2;
        Ok(())
    }
}
