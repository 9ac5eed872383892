//! Files to which results are saved.
//!
//! 1. [`Destination::open`] checks before the measurement that the file can be written. It changes
//!    no file.
//! 2. [`Destination::save`] writes the content to a temporary file in the same folder, and renames
//!    it to the destination, so a failure leaves the old content. Pipes and devices are written
//!    directly.
//! 3. Content that cannot be saved goes to the folder for temporary files, or else to standard
//!    output.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use slipring_support::streams::inode;
use tempfile::NamedTempFile;

use crate::base::{console, exit};

/// A file from the command line that has been checked and can be written.
#[derive(Debug)]
pub struct Destination {
    /// The command line option that named the file.
    option: &'static str,
    /// The path as the user wrote it.
    path: PathBuf,
    identity: Identity,
    channel: Channel,
}

/// The identity of a file, independent of the path's spelling.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode of an existing file, where the system has these.
    Inode(u64, u64),
    /// Absolute path without links, for all other files.
    Path(PathBuf),
}

/// The channel by which the content reaches the file.
#[derive(Debug)]
enum Channel {
    /// The file is this process's standard output, and the content goes through that stream.
    Stdout,
    /// The file is this process's standard error, and the content goes through that stream.
    #[cfg_attr(not(unix), expect(dead_code, reason = "no file is known to be the same there"))]
    Stderr,
    /// The file is a pipe or device, and the content goes through this descriptor.
    Stream(File),
    /// The file is a regular one. It has no descriptor if it does not exist yet, and no path if it
    /// has been deleted.
    Regular { path: Option<PathBuf>, existing: Option<File> },
}

impl Destination {
    /// Opens the file that an option names; `-` is standard output. The error gives the reason why
    /// the file cannot be written, and has the exit code for wrong arguments.
    pub fn open(option: &'static str, path: &Path) -> Result<Self> {
        let opened = if path == Path::new("-") { Ok(Self::stdout()) } else { Self::identify(path) };
        let (identity, channel) = opened.map_err(|error| {
            exit::usage(format!("{option}: cannot write to {}: {error:#}", path.display()))
        })?;
        Ok(Self { option, path: path.to_owned(), identity, channel })
    }

    fn stdout() -> (Identity, Channel) {
        let metadata = fs::metadata("/dev/stdout").ok();
        let inode = metadata.and_then(|metadata| inode(&metadata));
        let identity = inode.map(|(device, inode)| Identity::Inode(device, inode));
        (identity.unwrap_or_else(|| Identity::Path("-".into())), Channel::Stdout)
    }

    fn identify(path: &Path) -> Result<(Identity, Channel)> {
        let metadata = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::missing(path)?);
            }
            metadata => metadata?,
        };
        let inode = inode(&metadata).map(|(device, inode)| Identity::Inode(device, inode));
        let identity = || inode.map_or_else(|| path.canonicalize().map(Identity::Path), Ok);
        if let Some(kind) = system::standard_stream(&metadata) {
            return Ok((identity()?, kind));
        }
        if metadata.is_file() {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok((
                identity()?,
                Channel::Regular { path: path.canonicalize().ok(), existing: Some(file) },
            ));
        }
        let mut file = system::open_stream(path, &metadata)?;
        // A full device refuses even an empty write.
        system::write_nothing(&mut file)?;
        Ok((identity()?, Channel::Stream(file)))
    }

    /// Identifies a file that does not exist yet. Only creating a file shows that it can be
    /// created, so this function creates the file and removes it again.
    fn missing(path: &Path) -> io::Result<(Identity, Channel)> {
        OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        let path = path.canonicalize()?;
        fs::remove_file(&path)?;
        Ok((Identity::Path(path.clone()), Channel::Regular { path: Some(path), existing: None }))
    }

    /// Fails if both destinations are one file, because the second content would replace the first.
    pub fn refuse_same(&self, other: &Self) -> Result<()> {
        let same = match (&self.identity, &other.identity) {
            (Identity::Path(one), Identity::Path(other)) if one != other => {
                would_be_same(one, other)?
            }
            (one, other) => one == other,
        };
        if !same {
            return Ok(());
        }
        Err(exit::usage(format!(
            "{} and {} name the same file, {self} and {other}: give each option its own file",
            self.option, other.option
        )))
    }

    /// Returns whether the content goes to standard output, which must then carry nothing else.
    pub fn is_stdout(&self) -> bool {
        matches!(self.channel, Channel::Stdout)
    }

    /// Saves the content. An error names the place where the content was kept instead.
    pub fn save(self, content: &str) -> Result<()> {
        let (option, shown) = (self.option, self.to_string());
        let saved = match self.channel {
            Channel::Stdout => console::print(content),
            Channel::Stderr => io::stderr().write_all(content.as_bytes()).map_err(Into::into),
            Channel::Stream(mut file) => file.write_all(content.as_bytes()).map_err(Into::into),
            Channel::Regular { path, existing } => {
                save_regular(path.as_deref(), existing, content).map_err(Into::into)
            }
        };
        saved.map_err(|error| {
            let kept = keep_elsewhere(&self.path, content);
            exit::unwritten(format!("{option}: cannot write to {shown}: {error:#}; {kept}"))
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Returns whether two absolute paths would name the same file, which does not exist yet. That
/// happens in a folder that is mounted twice, or that ignores case.
fn would_be_same(one: &Path, other: &Path) -> io::Result<bool> {
    if other.exists() {
        return Ok(false);
    }
    match File::create_new(one) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        created => drop(created?),
    }
    let same = other.exists();
    fs::remove_file(one)?;
    Ok(same)
}

/// Replaces a regular file as a whole, or overwrites it where it cannot be replaced.
fn save_regular(path: Option<&Path>, existing: Option<File>, content: &str) -> io::Result<()> {
    let replacement = path.and_then(|path| temporary(path, existing.as_ref()).ok());
    if let (Some(mut replacement), Some(path)) = (replacement, path) {
        replacement.write_all(content.as_bytes())?;
        // Some file systems report a full disk only at this call.
        replacement.as_file().sync_all()?;
        match (replacement.persist(path), &existing) {
            (Ok(_), _) => return Ok(()),
            (Err(error), None) => return Err(error.error),
            // For example, a rename cannot replace a file that is a mount point.
            (Err(_), Some(_)) => {}
        }
    }
    let mut file = match (existing, path) {
        (Some(file), _) => file,
        (None, Some(path)) => File::create(path)?,
        (None, None) => return Err(io::ErrorKind::NotFound.into()),
    };
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// Creates a temporary file that may replace `path`, in the same folder. Fails where the rename
/// would lose the file's other hard links or its owner.
fn temporary(path: &Path, existing: Option<&File>) -> io::Result<NamedTempFile> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".slipring-");
    let Some(existing) = existing else {
        return system::with_usual_mode(&mut builder).tempfile_in(folder);
    };
    let (existing, file) = (existing.metadata()?, builder.tempfile_in(folder)?);
    if !system::may_replace(&existing, &file.as_file().metadata()?) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    file.as_file().set_permissions(existing.permissions())?;
    Ok(file)
}

/// Called when content could not reach its destination: saves it in another place, and describes
/// that place.
fn keep_elsewhere(path: &Path, content: &str) -> String {
    let extension =
        path.extension().map(|extension| format!(".{}", extension.display())).unwrap_or_default();
    let kept = || -> Result<PathBuf> {
        let mut file =
            tempfile::Builder::new().prefix("slipring-").suffix(&extension).tempfile()?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        Ok(file.keep()?.1)
    };
    match kept().map_err(|_| console::print(content)) {
        Ok(kept) => format!("the content is in {} instead", kept.display()),
        Err(Ok(())) => "the content is printed to standard output instead".to_owned(),
        Err(Err(_)) => {
            "the content is lost: temporary files and standard output failed too".to_owned()
        }
    }
}

#[cfg(unix)]
mod system {
    use std::fs::{self, File, Metadata, OpenOptions, Permissions};
    use std::io::{self, Write as _};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{
        FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    };
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    use anyhow::{Result, bail};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::Errno;
    use slipring_support::streams::inode;

    use super::Channel;

    /// Time limit for another process to open a named pipe for reading.
    const READER_TIMEOUT: Duration = Duration::from_secs(3);

    /// Returns the standard stream that is the same file, if there is one. Devices are left out,
    /// because they can be opened twice without harm.
    pub fn standard_stream(metadata: &Metadata) -> Option<Channel> {
        if metadata.file_type().is_char_device() {
            return None;
        }
        let same = |stream: &dyn AsFd| -> io::Result<bool> {
            let stream = File::from(stream.as_fd().try_clone_to_owned()?).metadata()?;
            Ok(inode(&stream) == inode(metadata))
        };
        if same(&io::stdout()).unwrap_or(false) {
            Some(Channel::Stdout)
        } else if same(&io::stderr()).unwrap_or(false) {
            Some(Channel::Stderr)
        } else {
            None
        }
    }

    /// Opens a pipe or a device; waits for a pipe's reader for [`READER_TIMEOUT`] at most.
    pub fn open_stream(path: &Path, metadata: &Metadata) -> Result<File> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            bail!("it is a disk, not a file");
        }
        if kind.is_fifo() && is_own_input(metadata) {
            bail!("this process only reads from that pipe, so its content would reach no reader");
        }
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let deadline = Instant::now() + READER_TIMEOUT;
        let file = loop {
            match OpenOptions::new().write(true).custom_flags(flags).open(path) {
                Err(error)
                    if kind.is_fifo()
                        && error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) =>
                {
                    if Instant::now() > deadline {
                        bail!("no process reads from that pipe: start the reader first");
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                opened => break opened?,
            }
        };
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    }

    /// Returns whether this process itself holds the reading end of the pipe, as for `<(command)`
    /// or `/dev/stdin`.
    fn is_own_input(metadata: &Metadata) -> bool {
        let own = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        own.map(|entry| entry.path()).any(|path| {
            let same = fs::metadata(&path).is_ok_and(|other| inode(&other) == inode(metadata));
            same && fs::symlink_metadata(&path).is_ok_and(|link| link.mode() & 0o200 == 0)
        })
    }

    /// Even if the content is empty, this makes a write call; `write_all` would make none.
    pub fn write_nothing(file: &mut File) -> io::Result<()> {
        file.write(&[]).map(drop)
    }

    /// Returns whether a rename over the old file would lose only that file's content.
    pub fn may_replace(old: &Metadata, new: &Metadata) -> bool {
        // A file that was removed meanwhile has 0 links.
        old.nlink() <= 1 && (old.uid(), old.gid()) == (new.uid(), new.gid())
    }

    /// Gives the temporary file the usual mode of a new file; by default only its owner can read
    /// it.
    pub fn with_usual_mode<'a>(
        builder: &'a mut tempfile::Builder<'static, 'static>,
    ) -> &'a mut tempfile::Builder<'static, 'static> {
        builder.permissions(Permissions::from_mode(0o666))
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    use anyhow::Result;

    use super::Channel;

    pub fn standard_stream(_metadata: &Metadata) -> Option<Channel> {
        None
    }

    pub fn open_stream(path: &Path, _metadata: &Metadata) -> Result<File> {
        Ok(OpenOptions::new().write(true).open(path)?)
    }

    pub fn write_nothing(_file: &mut File) -> io::Result<()> {
        Ok(())
    }

    pub fn may_replace(_old: &Metadata, _new: &Metadata) -> bool {
        true
    }

    pub fn with_usual_mode<'a>(
        builder: &'a mut tempfile::Builder<'static, 'static>,
    ) -> &'a mut tempfile::Builder<'static, 'static> {
        builder
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A link stands in for a folder that is mounted twice.
    #[test]
    fn two_paths_of_one_missing_file_are_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(would_be_same(&real.join("file"), &link.join("file")).unwrap());
        assert!(!would_be_same(&real.join("file"), &link.join("other")).unwrap());
        assert_eq!(fs::read_dir(&real).unwrap().count(), 0, "nothing is left behind");
    }
}
