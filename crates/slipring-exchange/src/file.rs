//! Blocks as files: the writer writes a file and renames it, and the reader reads and removes it.

use std::fs::{self, File};
use std::hint::spin_loop;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use zerocopy::IntoBytes as _;

use crate::ends::{PATIENCE, Reader, Writer, impatient, now};

/// An end of an exchange through files in a folder.
pub struct Files {
    written: PathBuf,
    unfinished: PathBuf,
    block: Vec<u64>,
}

impl Files {
    /// Makes an end, with memory of its own for one block.
    pub fn new(folder: &Path, words: usize) -> Files {
        let file = |name| folder.join(name);
        Files { written: file("block"), unfinished: file("unfinished"), block: vec![0; words] }
    }
}

/// Waits until `poll` returns a value.
fn wait<T>(mut poll: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = poll()? {
            return Ok(found);
        }
        if since.elapsed() > PATIENCE {
            return Err(impatient());
        }
        spin_loop();
    }
}

impl Writer for Files {
    fn write(&mut self, fill: &mut dyn FnMut(&mut [u64])) -> io::Result<u64> {
        wait(|| Ok((!self.written.try_exists()?).then_some(())))?;
        fill(&mut self.block);
        File::create(&self.unfinished)?.write_all(self.block.as_bytes())?;
        let written = now();
        fs::rename(&self.unfinished, &self.written)?;
        Ok(written)
    }
}

impl Reader for Files {
    fn read(&mut self, read: &mut dyn FnMut(&[u64])) -> io::Result<(u64, u64)> {
        let mut file = wait(|| match File::open(&self.written) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })?;
        let began = now();
        file.read_exact(self.block.as_mut_bytes())?;
        read(&self.block);
        let ended = now();
        fs::remove_file(&self.written)?;
        Ok((began, ended))
    }
}
