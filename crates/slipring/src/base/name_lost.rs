//! The loss of a segment's name, as errors and warnings report it.

use std::fmt;
use std::path::PathBuf;

/// A segment's name that no longer refers to the file to which this process is attached. See
/// [`WaitError::NameLost`](crate::errors::WaitError::NameLost).
///
/// `slipring rm` does not remove a segment to which a process is attached, but other programs may.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameLost {
    /// Path that the file had when this process attached.
    pub path: PathBuf,
    /// Whether the path now refers to another file, such as a segment that was created anew.
    pub replaced: bool,
}

impl NameLost {
    /// Not meant for users: `slipring-shm` calls this when it finds that a name is lost.
    #[doc(hidden)]
    pub fn new(path: PathBuf, replaced: bool) -> NameLost {
        NameLost { path, replaced }
    }
}

impl fmt::Display for NameLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match self.replaced {
            true => "means another file by now",
            false => "was removed or renamed",
        };
        write!(
            f,
            "{} {found}, while processes were attached to the segment: they go on in a file without that name, and programs that open or make the name do not meet them. End the attached processes, this one among them, and start them again; remove segments by `slipring rm`. If systemd-logind removed it, see `RemoveIPC` in logind.conf",
            self.path.display()
        )
    }
}
