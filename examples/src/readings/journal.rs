//! The journal: a line per reading, `time,station,dimension,value`. Marked readings end with
//! `,alarm`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;

use super::columns::DIMENSIONS;
use super::row::Row;
use super::{escape, format};

/// Number of buffered bytes after which the buffer is written.
const BUFFER: usize = 1 << 16;

/// Writes the journal to a file or only to its checksum, and measures each row's latency.
#[derive(Debug)]
#[repr(align(128))] // on cache lines of its own: see `Stages`
pub struct Journal {
    /// Buffered lines.
    text: Vec<u8>,
    file: Option<(File, PathBuf)>,
    checksum: crc32fast::Hasher,
    latency: Histogram<u64>,
}

impl Journal {
    /// Makes a journal in a file, whose old content is replaced, or without a file.
    pub fn create(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| -> Result<_> {
            let file = File::create(path)
                .with_context(|| format!("cannot write {}", escape::path(path)))?;
            Ok((file, path.to_owned()))
        };
        Ok(Self {
            text: Vec::with_capacity(2 * BUFFER),
            file: path.map(open).transpose()?,
            checksum: crc32fast::Hasher::new(),
            // From 1 ns to a minute, with three digits.
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .context("cannot measure latencies")?,
        })
    }

    /// Writes a row's readings.
    pub fn write(&mut self, row: &Row) -> io::Result<()> {
        // All lines of a row begin with the same time and station, which are formatted once.
        let start = self.text.len();
        let mut prefix = start..start;
        for (dimension, value) in row.readings() {
            if prefix.is_empty() {
                format::push_time(&mut self.text, row.time());
                self.text.push(b',');
                self.text.extend_from_slice(row.station().as_bytes());
                self.text.push(b',');
                prefix.end = self.text.len();
            } else {
                self.text.extend_from_within(prefix.clone());
            }
            self.text.extend_from_slice(DIMENSIONS[dimension].as_bytes());
            self.text.push(b',');
            format::push_number(&mut self.text, value);
            self.text.extend_from_slice(if row.is_alarm(dimension) { b",alarm\n" } else { b"\n" });
        }
        self.latency.saturating_record(row.entered().elapsed().as_nanos() as u64);
        if self.text.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered lines to the file, and adds them to the checksum.
    pub fn flush(&mut self) -> io::Result<()> {
        self.checksum.update(&self.text);
        if let Some((file, path)) = &mut self.file {
            let failed = |e: io::Error| {
                io::Error::new(e.kind(), format!("cannot write {}: {e}", escape::path(path)))
            };
            file.write_all(&self.text).map_err(failed)?;
        }
        self.text.clear();
        Ok(())
    }

    /// Returns the CRC-32 of all lines that were flushed.
    pub fn checksum(&self) -> u32 {
        self.checksum.clone().finalize()
    }

    /// Returns the times from a row's entry until its lines were written, in nanoseconds.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }
}
