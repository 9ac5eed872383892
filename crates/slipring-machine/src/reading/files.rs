//! Reads the system's files below a root, or from a snapshot.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::snapshot::Snapshot;
use crate::description::cpu_set::{CpuSet, shortened};

/// Greatest number of bytes that are read from a file. The processor descriptions of 8192 CPUs are
/// longer, but their beginning says enough.
const MOST_BYTES: u64 = 1 << 20;

/// The place of the files.
pub enum Source<'s> {
    Root(&'s Path),
    Snapshot(&'s Snapshot),
}

/// The files of a machine, and a record of those that were read.
pub struct Files<'s> {
    source: Source<'s>,
    read: RefCell<BTreeMap<String, String>>,
}

impl<'s> Files<'s> {
    pub fn new(source: Source<'s>) -> Self {
        Self { source, read: RefCell::default() }
    }

    /// Returns the files that were read so far.
    pub fn into_snapshot(self) -> Snapshot {
        Snapshot::new(self.read.into_inner())
    }

    /// Returns the path of a file for messages.
    pub fn path(&self, path: &str) -> PathBuf {
        match self.source {
            Source::Root(root) => root.join(path),
            Source::Snapshot(_) => path.into(),
        }
    }

    /// Reads a file without the spaces at its ends. Returns `None` if there is no such file, or if
    /// this process may not read it, as in some containers.
    pub fn text(&self, path: &str) -> Result<Option<String>, MachineError> {
        self.lines_of(path, MOST_BYTES, |line| Some(line.to_owned()))
    }

    /// Reads the lines of a file for which `wanted` returns `true`, without duplicates.
    pub fn lines(
        &self,
        path: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, MachineError> {
        self.lines_of(path, MOST_BYTES, |line| wanted(line).then(|| line.to_owned()))
    }

    /// Reads a file, calls `pick` for each line, and returns the results without duplicates. A
    /// snapshot stores these results in place of the lines, so `pick` must return one of its own
    /// results unchanged.
    pub fn picked(
        &self,
        path: &str,
        pick: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, MachineError> {
        self.lines_of(path, MOST_BYTES, pick)
    }

    /// Reads the wanted lines of a file's first 4 KiB, for files that the system is slow to
    /// generate.
    pub fn first_lines(
        &self,
        path: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, MachineError> {
        self.lines_of(path, 4096, |line| wanted(line).then(|| line.to_owned()))
    }

    fn lines_of(
        &self,
        path: &str,
        most: u64,
        pick: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, MachineError> {
        let content = match self.source {
            Source::Snapshot(snapshot) => snapshot.get(path).map(str::to_owned),
            Source::Root(root) => {
                let read = || {
                    let mut bytes = Vec::new();
                    File::open(root.join(path))?.take(most).read_to_end(&mut bytes)?;
                    Ok(bytes)
                };
                match read() {
                    Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                    Err(error) if is_absence(&error) => None,
                    Err(error) => return Err(self.unreadable(path, error)),
                }
            }
        };
        let Some(content) = content else { return Ok(None) };
        let mut seen = HashSet::new();
        let lines = content.lines().filter_map(|line| pick(line.trim()));
        let lines: Vec<String> = lines.filter(|line| seen.insert(line.clone())).collect();
        let content = lines.join("\n").trim().to_owned();
        self.read.borrow_mut().insert(path.to_owned(), content.clone());
        Ok(Some(content))
    }

    fn unreadable(&self, path: &str, error: io::Error) -> MachineError {
        let problem = Problem::Unreadable(error);
        MachineError { file: self.path(path), problem }
    }

    /// Reads a list of CPUs.
    pub fn cpus(&self, path: &str) -> Result<Option<CpuSet>, MachineError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        match text.parse() {
            Ok(cpus) => Ok(Some(cpus)),
            Err(error) => Err(self.malformed(path, error.to_string())),
        }
    }

    /// Reads a number.
    pub fn number<N: std::str::FromStr>(&self, path: &str) -> Result<Option<N>, MachineError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        self.parse(path, &text).map(Some)
    }

    /// Parses a number that was found in a file.
    pub fn parse<N: std::str::FromStr>(&self, path: &str, text: &str) -> Result<N, MachineError> {
        let number = text.parse();
        number.map_err(|_| self.malformed(path, format!("{} is no such number", quoted(text))))
    }

    /// Makes the error of a file whose content is wrong.
    pub fn malformed(&self, path: &str, problem: String) -> MachineError {
        MachineError { file: self.path(path), problem: Problem::Malformed(problem) }
    }

    /// Returns the sorted names of a folder's entries. A missing folder is empty.
    pub fn names(&self, folder: &str) -> Result<Vec<String>, MachineError> {
        let root = match self.source {
            Source::Snapshot(snapshot) => return Ok(snapshot.names(folder)),
            Source::Root(root) => root,
        };
        let read = || -> io::Result<Vec<String>> {
            let entries = fs::read_dir(root.join(folder))?;
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        match read() {
            Ok(mut names) => {
                names.sort_unstable();
                Ok(names)
            }
            Err(error) if is_absence(&error) => Ok(Vec::new()),
            Err(error) => Err(self.unreadable(folder, error)),
        }
    }

    /// Returns the numbers in the names of those folders and files that are named `prefix` and a
    /// number, such as `cpu7`.
    pub fn numbered(&self, folder: &str, prefix: &str) -> Result<CpuSet, MachineError> {
        let number = |name: String| name.strip_prefix(prefix)?.parse().ok();
        let numbers = self.names(folder)?.into_iter().filter_map(number);
        Ok(numbers.filter(|&number| number < CpuSet::LIMIT).collect())
    }
}

/// Returns a text in quotes, for messages.
pub fn quoted(text: &str) -> String {
    format!("`{}`", shortened(text).escape_debug())
}

fn is_absence(error: &io::Error) -> bool {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// The error for a machine that cannot be described. It names a file, and says what is wrong with
/// the file.
#[derive(Debug)]
pub struct MachineError {
    file: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Unreadable(io::Error),
    Malformed(String),
}

impl MachineError {
    pub(crate) fn unreadable(file: &Path, error: io::Error) -> Self {
        Self { file: file.to_owned(), problem: Problem::Unreadable(error) }
    }

    /// Returns the file.
    ///
    /// ```
    /// use slipring_machine::{Machine, Snapshot};
    ///
    /// let damaged: Snapshot = "sys/devices/system/cpu/online: none".parse()?;
    /// let error = Machine::from_snapshot(&damaged).unwrap_err();
    /// assert!(error.file().ends_with("cpu/online"));
    /// # Ok::<(), slipring_machine::SnapshotError>(())
    /// ```
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match &self.problem {
            Problem::Unreadable(error) => write!(f, "cannot read {file}: {error}"),
            Problem::Malformed(problem) => write!(f, "{file}: {problem}"),
        }
    }
}

// The text already contains the system's error, so `source` returns `None`. Otherwise a printed
// chain of sources would show that error twice.
impl std::error::Error for MachineError {}
