//! The journal: a line per reading, `time,station,dimension,value`. Marked readings end with
//! `,alarm`. The format is CSV, so a station's name is quoted if necessary.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use csv_core::Writer;
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
    /// Whether the journal goes to a terminal. Names are then escaped, so that they cannot control
    /// the terminal.
    terminal: bool,
    /// Name of each station as a field of the journal, with the comma behind it.
    stations: Vec<Box<[u8]>>,
    checksum: crc32fast::Hasher,
    latency: Histogram<u64>,
}

impl Journal {
    /// Makes a journal. If a path is given, the journal replaces the content of that file;
    /// otherwise the journal has no file.
    pub fn create(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| -> Result<_> {
            let file = File::create(path)
                .with_context(|| format!("cannot write {}", escape::path(path)))?;
            Ok((file, path.to_owned()))
        };
        let file = path.map(open).transpose()?;
        Ok(Self {
            text: Vec::with_capacity(2 * BUFFER),
            terminal: file.as_ref().is_some_and(|(file, _)| file.is_terminal()),
            stations: Vec::new(),
            file,
            checksum: crc32fast::Hasher::new(),
            // The histogram covers 1 ns to a minute, with three digits.
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .context("cannot measure latencies")?,
        })
    }

    /// Writes a row's readings.
    pub fn write(&mut self, row: &Row) -> io::Result<()> {
        // A station's index is either known or the next one: stations are numbered in the order of
        // their first rows.
        if row.fault().is_none() && row.station_index() == self.stations.len() {
            self.stations.push(field(row.station(), self.terminal));
        }
        // All lines of a row begin with the same time and station, which are formatted once.
        let start = self.text.len();
        let mut prefix = start..start;
        for (dimension, value) in row.readings() {
            if prefix.is_empty() {
                format::push_time(&mut self.text, row.time());
                self.text.push(b',');
                self.text.extend_from_slice(&self.stations[row.station_index()]);
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

/// Returns a station's name as a field with the comma behind it.
fn field(name: &str, terminal: bool) -> Box<[u8]> {
    let escaped =
        if terminal { escape::escaped(name.as_bytes(), usize::MAX) } else { name.to_owned() };
    let mut writer = Writer::new();
    // In the longest field, every byte is doubled, and two quotes and a comma are added.
    let mut out = vec![0; 2 * escaped.len() + 3];
    let (_, _, length) = writer.field(escaped.as_bytes(), &mut out);
    let (_, rest) = writer.delimiter(&mut out[length..]);
    out.truncate(length + rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_csv_needs_it_and_escaped_on_a_terminal() {
        for (name, file, terminal) in [
            ("EWR", "EWR,", "EWR,"),
            ("New York, \"JFK\"", "\"New York, \"\"JFK\"\"\",", "\"New York, \"\"JFK\"\"\","),
            ("two\nlines", "\"two\nlines\",", "two\\nlines,"),
            ("\x1b[2J", "\x1b[2J,", "\\u{1b}[2J,"),
        ] {
            assert_eq!(*field(name, false), *file.as_bytes());
            assert_eq!(*field(name, true), *terminal.as_bytes());
        }
    }
}
