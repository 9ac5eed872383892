//! The journal: a line per reading, `time,station,dimension,value`, with `,alarm` behind it where
//! the reading is marked.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;

use super::columns::DIMENSIONS;
use super::format;
use super::row::Row;

/// Bytes that are gathered before they are handed on.
const GATHER: usize = 1 << 16;

/// Writes the journal, to a file or only to its checksum, and measures how long each row took to
/// come here.
#[derive(Debug)]
pub struct Journal {
    text: Vec<u8>,
    file: Option<(File, PathBuf)>,
    checksum: crc32fast::Hasher,
    latency: Histogram<u64>,
}

impl Journal {
    /// A journal in a file, which is made anew, or in none.
    pub fn create(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| -> Result<_> {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Ok((file, path.to_owned()))
        };
        Ok(Self {
            text: Vec::with_capacity(2 * GATHER),
            file: path.map(open).transpose()?,
            checksum: crc32fast::Hasher::new(),
            // From 1 ns to a minute, to three digits.
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .context("cannot measure latencies")?,
        })
    }

    /// Writes a row's readings.
    pub fn write(&mut self, row: &Row) -> io::Result<()> {
        // What all lines of a row begin with is made once and copied.
        let start = self.text.len();
        let mut begun = start..start;
        for (dimension, value) in row.readings() {
            if begun.is_empty() {
                format::push_time(&mut self.text, row.time());
                self.text.push(b',');
                self.text.extend_from_slice(row.station().as_bytes());
                self.text.push(b',');
                begun.end = self.text.len();
            } else {
                self.text.extend_from_within(begun.clone());
            }
            self.text.extend_from_slice(DIMENSIONS[dimension].as_bytes());
            self.text.push(b',');
            format::push_number(&mut self.text, value);
            self.text.extend_from_slice(if row.is_alarm(dimension) { b",alarm\n" } else { b"\n" });
        }
        self.latency.saturating_record(row.entered().elapsed().as_nanos() as u64);
        if self.text.len() >= GATHER { self.hand_on() } else { Ok(()) }
    }

    /// Hands on what is left.
    pub fn finish(&mut self) -> io::Result<()> {
        self.hand_on()
    }

    fn hand_on(&mut self) -> io::Result<()> {
        self.checksum.update(&self.text);
        if let Some((file, path)) = &mut self.file {
            let failed = |e: io::Error| {
                io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()))
            };
            file.write_all(&self.text).map_err(failed)?;
        }
        self.text.clear();
        Ok(())
    }

    /// The CRC-32 of all that was handed on.
    pub fn checksum(&self) -> u32 {
        self.checksum.clone().finalize()
    }

    /// Nanoseconds from a row's entry until its lines were written here.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }
}
