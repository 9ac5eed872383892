//! Blocks in a ring of one slot, between threads or between processes.
//!
//! Invariants
//! - I1: a segment lies in a new folder that only the two processes of one exchange use, and both
//!   run this program, so they follow the protocol.

use std::io;
use std::path::Path;
use std::time::Instant;

use slipring::{Graph, Producer, Wait, markers::Layout};
use slipring_shm::{Event, Segment};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ends::{Ends, PATIENCE, Reader, Writer, now};

/// A block as an event of a segment. Its size is part of its type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Block<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Event for Block<WORDS> {
    const NAME: &'static str = "exchange/block";
    const VERSION: u32 = 1;
}

/// An event that is a block.
trait Words: Send {
    fn words(&self) -> &[u64];
    fn words_mut(&mut self) -> &mut [u64];
}

impl<const WORDS: usize> Words for Block<WORDS> {
    fn words(&self) -> &[u64] {
        &self.0
    }
    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl Words for Vec<u64> {
    fn words(&self) -> &[u64] {
        self
    }
    fn words_mut(&mut self) -> &mut [u64] {
        self
    }
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl<E: Words, L: Layout> Writer for Producer<E, L> {
    fn write(&mut self, fill: &mut dyn FnMut(&mut [u64])) -> io::Result<u64> {
        let mut written = 0;
        let filled = |block: &mut E| {
            fill(block.words_mut());
            written = now();
        };
        self.publish_by(Instant::now() + PATIENCE, filled).map_err(failed)?;
        Ok(written)
    }
}

/// The reading end of a ring between threads.
struct ThreadsEnd(slipring::Reader<Vec<u64>>);

/// The reading end of a ring between processes.
struct ProcessesEnd<const WORDS: usize>(slipring_shm::Reader<Block<WORDS>>);

/// Implements [`Reader`] for an end whose handle lends batches.
macro_rules! reads {
    ($([$($parameter:tt)*] $end:ty)*) => {$(
        impl<$($parameter)*> Reader for $end {
            fn read(&mut self, read: &mut dyn FnMut(&[u64])) -> io::Result<(u64, u64)> {
                let deadline = Instant::now() + PATIENCE;
                let batch = self.0.batch_by(1, deadline).map_err(failed)?;
                let began = now();
                read(batch[0].words());
                let ended = now();
                batch.release();
                Ok((began, ended))
            }
        }
    )*};
}

reads! {
    [] ThreadsEnd
    [const WORDS: usize] ProcessesEnd<WORDS>
}

/// Makes a ring between two threads.
pub fn threads(words: usize, wait: &Wait) -> io::Result<Ends> {
    let graph = Graph::new(1, move || vec![0u64; words]).wait(wait.clone());
    let key = graph.reader("reader");
    let ring = graph.build().map_err(failed)?;
    Ok((Box::new(ring.producer()), Box::new(ThreadsEnd(ring.reader(key)))))
}

/// Calls a function for blocks of `$words` words; the sizes below are the ones that the lab
/// measures.
macro_rules! of_size {
    ($words:expr, $function:ident($($argument:expr),*)) => {
        match $words {
            512 => $function::<512>($($argument),*),
            2_048 => $function::<2_048>($($argument),*),
            8_192 => $function::<8_192>($($argument),*),
            32_768 => $function::<32_768>($($argument),*),
            131_072 => $function::<131_072>($($argument),*),
            524_288 => $function::<524_288>($($argument),*),
            2_097_152 => $function::<2_097_152>($($argument),*),
            8_388_608 => $function::<8_388_608>($($argument),*),
            words => Err(failed(format!("no block of {words} words"))),
        }
    };
}

/// Makes a ring between processes, and the writer's end.
pub fn create(path: &Path, words: usize, wait: &Wait) -> io::Result<Box<dyn Writer>> {
    of_size!(words, create_of(path, wait))
}

fn create_of<const WORDS: usize>(path: &Path, wait: &Wait) -> io::Result<Box<dyn Writer>> {
    let segment = Segment::<Block<WORDS>>::create_at(path).capacity(1).reader("reader").build();
    let segment = segment.map_err(failed)?;
    // SAFETY: only processes of this program attach, and they follow the protocol (I1).
    let attached = unsafe { segment.attach() }.map_err(failed)?;
    let attached = attached.wait(wait.clone()).map_err(failed)?;
    Ok(Box::new(attached.producer().map_err(failed)?))
}

/// Opens a ring between processes, and makes the reader's end.
pub fn open(path: &Path, words: usize, wait: &Wait) -> io::Result<Box<dyn Reader>> {
    of_size!(words, open_of(path, wait))
}

fn open_of<const WORDS: usize>(path: &Path, wait: &Wait) -> io::Result<Box<dyn Reader>> {
    let segment = Segment::<Block<WORDS>>::open_at(path).map_err(failed)?;
    // SAFETY: as in `create_of` (I1).
    let attached = unsafe { segment.attach() }.map_err(failed)?;
    let attached = attached.wait(wait.clone()).map_err(failed)?;
    Ok(Box::new(ProcessesEnd(attached.reader("reader").map_err(failed)?)))
}
