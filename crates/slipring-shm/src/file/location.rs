//! The location of a segment: a name in `/dev/shm`, a path, or a memfd without either.
//!
//! Invariants
//! - I1: a name has 1 to 48 bytes of `[A-Za-z0-9_.-]` and does not begin with a dot. So the file of
//!   that name lies directly in the folder, and its path needs no quotes on a command line.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::errors::{NameProblem, SegmentError};
use crate::system::limits::{FOLDER, MAX_NAME, SUFFIX};

/// Location of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file that is found by a name or a path.
    Path(PathBuf),
    /// A memfd, which can be opened only through its descriptors. The label appears in messages.
    Memfd(String),
}

impl Location {
    /// Returns the location of a name. The name may come from the command line, so it need not be
    /// UTF-8.
    pub fn named(name: impl AsRef<OsStr>) -> Result<Location, SegmentError> {
        let given = name.as_ref();
        let name =
            check_name(given).map_err(|error| SegmentError::new(format!("{given:?}"), error))?;
        Ok(Location::Path(Path::new(FOLDER).join(format!("{name}{SUFFIX}"))))
    }

    /// Returns the path, or `None` for a memfd.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::Path(path) => Some(path),
            Location::Memfd(_) => None,
        }
    }
}

/// Returns the name of the segment in a file of [`FOLDER`], or `None` if no segment can have that
/// file name.
pub fn name_of(file: &OsStr) -> Option<&str> {
    let name = file.to_str()?.strip_suffix(SUFFIX)?;
    check_name(OsStr::new(name)).ok()
}

/// Checks I1.
pub fn check_name(name: &OsStr) -> Result<&str, NameProblem> {
    let bytes = name.len();
    let Some(name) = name.to_str() else { return Err(NameProblem::NotUtf8) };
    if name.is_empty() {
        return Err(NameProblem::Empty);
    }
    if name.contains('/') {
        return Err(NameProblem::Slash);
    }
    if name.starts_with('.') {
        return Err(NameProblem::LeadingDot);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if let Some(character) = name.chars().find(|&c| !allowed(c)) {
        return Err(NameProblem::Character { character });
    }
    if bytes > MAX_NAME {
        return Err(NameProblem::TooLong { bytes });
    }
    Ok(name)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Path(path) => write!(f, "{}", path.display()),
            Location::Memfd(label) => write!(f, "memfd {label:?}"),
        }
    }
}
