//! The ways to exchange a block, by name.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use slipring::Wait;

use crate::block::End;
use crate::ends::{Ends, Reader, Writer};
use crate::file::Files;
use crate::memory::Memory;
use crate::promise::{self, Halves};
use crate::ring;
use crate::semaphore::Semaphores;
use crate::spin::Spin;

/// A way to exchange blocks.
#[derive(Clone, Debug)]
pub enum Way {
    /// One thread writes each block and then reads it.
    OneThread,
    /// Two processes, and a file for each block.
    File,
    /// Two threads, which spin on an atomic word.
    ThreadsAtomics,
    /// Two processes, which spin on an atomic word in shared memory.
    ProcessesAtomics,
    /// Two threads, and a promise of the crate `oneshot` for each hand-over: of a full block to the
    /// reader, and of the free block back to the writer.
    ThreadsPromises,
    /// Two threads, and one of slipring's promises for each hand-over: of a full block to the
    /// reader, and of the free block back to the writer.
    ThreadsOwnPromises,
    /// Two processes, and two named semaphores.
    ProcessesSemaphores,
    /// Two threads, and a ring of one slot.
    ThreadsRing(Wait),
    /// Two processes, and a ring of one slot in shared memory.
    ProcessesRing(Wait),
}

impl Way {
    /// Returns the six ways of the paper, promises of slipring, and rings that spin, block, and
    /// adapt.
    #[must_use]
    pub fn all() -> Vec<Way> {
        let paper = [
            Way::OneThread,
            Way::File,
            Way::ThreadsAtomics,
            Way::ProcessesAtomics,
            Way::ThreadsPromises,
            Way::ProcessesSemaphores,
        ];
        let waits = [Wait::BusySpin, Wait::Blocking, Wait::ADAPTIVE];
        let rings = waits
            .into_iter()
            .flat_map(|wait| [Way::ThreadsRing(wait.clone()), Way::ProcessesRing(wait)]);
        paper.into_iter().chain([Way::ThreadsOwnPromises]).chain(rings).collect()
    }

    /// Returns whether the ends are in two processes.
    #[must_use]
    pub fn has_two_processes(&self) -> bool {
        matches!(
            self,
            Way::File | Way::ProcessesAtomics | Way::ProcessesSemaphores | Way::ProcessesRing(_)
        )
    }

    /// Makes both ends within this process.
    ///
    /// # Errors
    /// The way needs two processes, or the system failed.
    pub fn within(&self, words: usize) -> io::Result<Ends> {
        match self {
            Way::OneThread | Way::ThreadsAtomics => {
                let memory = Arc::new(Memory::private(words)?);
                let [writer, reader] = [0, 1].map(|first| End {
                    memory: memory.clone(),
                    turn: Spin::new(memory.clone(), first),
                });
                Ok((Box::new(writer), Box::new(reader)))
            }
            Way::ThreadsPromises => promises::<promise::Oneshot>(words),
            Way::ThreadsOwnPromises => promises::<promise::Slipring>(words),
            Way::ThreadsRing(wait) => ring::threads(words, wait),
            _ => Err(io::Error::other(format!("{self} needs two processes"))),
        }
    }

    /// Makes the writer's end, and the memory, files and semaphores that both ends share. `folder`
    /// is a new folder in memory that only the two processes use.
    ///
    /// # Errors
    /// This way works only within one process, or the system failed.
    pub fn writer(&self, folder: &Path, words: usize) -> io::Result<Box<dyn Writer>> {
        let memory = || Memory::create(&folder.join("memory"), words).map(Arc::new);
        Ok(match self {
            Way::File => Box::new(Files::new(folder, words)),
            Way::ProcessesAtomics => {
                let memory = memory()?;
                Box::new(End { memory: memory.clone(), turn: Spin::new(memory, 0) })
            }
            Way::ProcessesSemaphores => {
                Box::new(End { memory: memory()?, turn: Semaphores::create(&name(folder))? })
            }
            Way::ProcessesRing(wait) => ring::create(&folder.join("ring"), words, wait)?,
            _ => return Err(io::Error::other(format!("{self} needs no second process"))),
        })
    }

    /// Makes the reader's end in another process, after the writer's end was made.
    ///
    /// # Errors
    /// The errors of [`Way::writer`].
    pub fn reader(&self, folder: &Path, words: usize) -> io::Result<Box<dyn Reader>> {
        let memory = || Memory::open(&folder.join("memory"), words).map(Arc::new);
        Ok(match self {
            Way::File => Box::new(Files::new(folder, words)),
            Way::ProcessesAtomics => {
                let memory = memory()?;
                Box::new(End { memory: memory.clone(), turn: Spin::new(memory, 1) })
            }
            Way::ProcessesSemaphores => {
                Box::new(End { memory: memory()?, turn: Semaphores::open(&name(folder))? })
            }
            Way::ProcessesRing(wait) => ring::open(&folder.join("ring"), words, wait)?,
            _ => return Err(io::Error::other(format!("{self} needs no second process"))),
        })
    }
}

/// Makes both ends of an exchange by promises.
fn promises<H: Halves + 'static>(words: usize) -> io::Result<Ends> {
    let memory = Arc::new(Memory::private(words)?);
    let (writer, reader) = promise::promises::<H>()?;
    let writer = End { memory: memory.clone(), turn: writer };
    Ok((Box::new(writer), Box::new(End { memory, turn: reader })))
}

/// Returns the name of an exchange's semaphores, which is the name of its folder.
fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::OneThread => f.write_str("one-thread"),
            Way::File => f.write_str("file"),
            Way::ThreadsAtomics => f.write_str("threads-atomics"),
            Way::ProcessesAtomics => f.write_str("processes-atomics"),
            Way::ThreadsPromises => f.write_str("threads-promises"),
            Way::ThreadsOwnPromises => f.write_str("threads-promises-slipring"),
            Way::ProcessesSemaphores => f.write_str("processes-semaphores"),
            Way::ThreadsRing(wait) => write!(f, "threads-ring-{}", kind(wait)),
            Way::ProcessesRing(wait) => write!(f, "processes-ring-{}", kind(wait)),
        }
    }
}

/// Returns the name of a strategy's kind, without its parameters.
fn kind(wait: &Wait) -> String {
    let name = wait.to_string();
    name.split(':').next().unwrap_or_default().to_owned()
}

impl std::str::FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        Way::all().into_iter().find(|way| way.to_string() == text).ok_or_else(|| {
            let all: Vec<String> = Way::all().iter().map(Way::to_string).collect();
            format!("no way is named `{text}`; the ways are {}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn passes(writer: &mut dyn Writer, reader: &mut (impl Reader + ?Sized)) {
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut last = 0;
                for number in 1..=50 {
                    let written = writer.write(&mut |block| block.fill(number)).unwrap();
                    assert!(written >= last, "the clock goes back");
                    last = written;
                }
            });
            for number in 1..=50 {
                let mut sum = 0;
                let (began, ended) = reader.read(&mut |block| sum = block.iter().sum()).unwrap();
                assert_eq!(sum, number * 512, "the block is not the one that was written");
                assert!(began <= ended);
            }
        });
    }

    /// Each way hands over each block once, whole and in order.
    #[test]
    fn every_way_hands_over_every_block() {
        for way in Way::all() {
            // Both ends spin on atomics and in busy rings, and the machine that runs the tests may
            // have only one core.
            let spins = way.to_string().contains("atomics") || way.to_string().contains("busy");
            if matches!(way, Way::OneThread)
                || spins && thread::available_parallelism().unwrap().get() < 2
            {
                continue;
            }
            if way.has_two_processes() {
                let folder = tempfile::tempdir_in("/dev/shm").unwrap();
                let mut writer = way.writer(folder.path(), 512).unwrap();
                let mut reader = way.reader(folder.path(), 512).unwrap();
                passes(&mut *writer, &mut *reader);
            } else {
                let (mut writer, mut reader) = way.within(512).unwrap();
                passes(&mut *writer, &mut *reader);
            }
        }
    }

    #[test]
    fn one_thread_writes_and_reads_in_turns() {
        let (mut writer, mut reader) = Way::OneThread.within(512).unwrap();
        for number in 0..3 {
            writer.write(&mut |block| block.fill(number)).unwrap();
            let mut first = 9;
            reader.read(&mut |block| first = block[0]).unwrap();
            assert_eq!(first, number);
        }
    }

    #[test]
    fn ways_have_distinct_names_and_are_found_by_them() {
        for way in Way::all() {
            let found: Way = way.to_string().parse().unwrap();
            assert_eq!(found.to_string(), way.to_string());
        }
        assert!("ring".parse::<Way>().unwrap_err().contains("one-thread, file"));
    }
}
