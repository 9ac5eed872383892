//! Files that results are saved to.
//!
//! 1. [`Destination::open`] finds out before anything is measured whether the file can be written.
//!    It changes nothing.
//! 2. [`Destination::save`] replaces a regular file as a whole: the new content is written beside
//!    it and renamed, so that a failure leaves the old content. Pipes and devices are written as
//!    they are.
//! 3. Content that cannot be saved is kept in the folder for temporary files, or else printed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use tempfile::NamedTempFile;

use crate::console;

/// A file that was named on the command line, ready to be written.
#[derive(Debug)]
pub struct Destination {
    /// The option that names the file.
    option: &'static str,
    /// The file as the user named it.
    path: PathBuf,
    identity: Identity,
    kind: Kind,
}

/// Tells files apart, however they are spelled.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode of a file that exists, where the system has such.
    Inode(u64, u64),
    /// Absolute path without links, of any other file.
    Path(PathBuf),
}

/// How the content reaches the file.
#[derive(Debug)]
enum Kind {
    /// Through this process's standard output, which is the same pipe or file.
    Stdout,
    /// Through this process's standard error.
    Stderr,
    /// Through this descriptor of a pipe or device.
    Stream(File),
    /// To a regular file. A new file has no descriptor yet; a file without a path left has only
    /// that.
    Regular { path: Option<PathBuf>, existing: Option<File> },
}

impl Destination {
    /// Opens the file that an option names. The error says why it cannot be written.
    pub fn open(option: &'static str, path: &Path) -> Result<Self> {
        let opened = Self::identify(path)
            .with_context(|| format!("{option}: cannot write to {}", path.display()));
        let (identity, kind) = opened?;
        Ok(Self { option, path: path.to_owned(), identity, kind })
    }

    fn identify(path: &Path) -> Result<(Identity, Kind)> {
        let metadata = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::missing(path)?);
            }
            metadata => metadata?,
        };
        let inode = system::inode(&metadata).map(|(device, inode)| Identity::Inode(device, inode));
        let identity = || inode.map_or_else(|| path.canonicalize().map(Identity::Path), Ok);
        if let Some(kind) = system::standard_stream(&metadata) {
            return Ok((identity()?, kind));
        }
        if metadata.is_file() {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok((
                identity()?,
                Kind::Regular { path: path.canonicalize().ok(), existing: Some(file) },
            ));
        }
        let mut file = system::open_stream(path, &metadata)?;
        // A full device refuses even this.
        system::write_nothing(&mut file)?;
        Ok((identity()?, Kind::Stream(file)))
    }

    /// A file that does not exist. To create it is the only sure test that it can be created; it is
    /// removed at once.
    fn missing(path: &Path) -> io::Result<(Identity, Kind)> {
        OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        let path = path.canonicalize()?;
        fs::remove_file(&path)?;
        Ok((Identity::Path(path.clone()), Kind::Regular { path: Some(path), existing: None }))
    }

    /// Refuses two names of one file, which would keep only the content that is saved last.
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
        bail!(
            "{} and {} name the same file, {self} and {other}: give each a file of its own",
            self.option,
            other.option
        )
    }

    /// Whether the content goes to standard output, so that nothing else should.
    pub fn is_stdout(&self) -> bool {
        matches!(self.kind, Kind::Stdout)
    }

    /// Saves the content. Where that fails, the error says where the content is instead.
    pub fn save(self, content: &str) -> Result<()> {
        let (option, shown) = (self.option, self.to_string());
        let saved = match self.kind {
            Kind::Stdout => console::print(content),
            Kind::Stderr => io::stderr().write_all(content.as_bytes()).map_err(Into::into),
            Kind::Stream(mut file) => file.write_all(content.as_bytes()).map_err(Into::into),
            Kind::Regular { path, existing } => {
                save_regular(path.as_deref(), existing, content).map_err(Into::into)
            }
        };
        match saved {
            Err(error) if !error.is::<console::ReaderGone>() => {
                let kept = keep(&self.path, content);
                Err(anyhow!("{option}: cannot write to {shown}: {error:#}; {kept}"))
            }
            saved => saved,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Whether two paths without links name one file that does not exist yet: a folder that is mounted
/// twice has two such paths, and in some folders upper and lower case are the same.
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

/// Replaces a regular file as a whole, or writes over it where it cannot be replaced.
fn save_regular(path: Option<&Path>, existing: Option<File>, content: &str) -> io::Result<()> {
    let beside = path.and_then(|path| temporary(path, existing.as_ref()).ok());
    if let (Some(mut beside), Some(path)) = (beside, path) {
        beside.write_all(content.as_bytes())?;
        // Some file systems find out only here that there is no room.
        beside.as_file().sync_all()?;
        match (beside.persist(path), &existing) {
            (Ok(_), _) => return Ok(()),
            (Err(error), None) => return Err(error.error),
            // For example a file that is mounted by itself.
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

/// A temporary file in the folder of `path` that may take its place. An error where the rename
/// would lose other names of the file, or its owner.
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

/// Keeps content that could not be saved; says where it is.
fn keep(path: &Path, content: &str) -> String {
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
        Err(Err(_)) => "the content is lost, since no other file and no output takes it".to_owned(),
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

    use super::Kind;

    /// How long a fifo may take to get a reader.
    const PATIENCE: Duration = Duration::from_secs(3);

    pub fn inode(metadata: &Metadata) -> Option<(u64, u64)> {
        Some((metadata.dev(), metadata.ino()))
    }

    /// The standard stream that is the same file, if one is. A device shares nothing with its other
    /// descriptors that a write through this one could spoil.
    pub fn standard_stream(metadata: &Metadata) -> Option<Kind> {
        if metadata.file_type().is_char_device() {
            return None;
        }
        let same = |stream: &dyn AsFd| -> io::Result<bool> {
            let stream = File::from(stream.as_fd().try_clone_to_owned()?).metadata()?;
            Ok(inode(&stream) == inode(metadata))
        };
        if same(&io::stdout()).unwrap_or(false) {
            Some(Kind::Stdout)
        } else if same(&io::stderr()).unwrap_or(false) {
            Some(Kind::Stderr)
        } else {
            None
        }
    }

    /// Opens a pipe or a device without waiting for its other end forever.
    pub fn open_stream(path: &Path, metadata: &Metadata) -> Result<File> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            bail!("it is a disk");
        }
        if kind.is_fifo() && is_own_input(metadata) {
            bail!("this process only reads from that pipe, so nothing would read what is written");
        }
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let deadline = Instant::now() + PATIENCE;
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

    /// Whether a descriptor of this process reads from that pipe, as for `<(command)` or
    /// `/dev/stdin`.
    fn is_own_input(metadata: &Metadata) -> bool {
        let own = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        own.map(|entry| entry.path()).any(|path| {
            let same = fs::metadata(&path).is_ok_and(|other| inode(&other) == inode(metadata));
            same && fs::symlink_metadata(&path).is_ok_and(|link| link.mode() & 0o200 == 0)
        })
    }

    /// A write of no bytes, which `write_all` leaves out.
    pub fn write_nothing(file: &mut File) -> io::Result<()> {
        file.write(&[]).map(drop)
    }

    /// Whether a file that takes the place of another loses nothing but the content.
    pub fn may_replace(old: &Metadata, new: &Metadata) -> bool {
        // One that was removed meanwhile has no name left to lose.
        old.nlink() <= 1 && (old.uid(), old.gid()) == (new.uid(), new.gid())
    }

    /// The mode of a new file as any program creates it, instead of that of a secret.
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

    use super::Kind;

    pub fn inode(_metadata: &Metadata) -> Option<(u64, u64)> {
        None
    }

    pub fn standard_stream(_metadata: &Metadata) -> Option<Kind> {
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

    /// A link stands for a folder that is mounted twice: only the file system knows either.
    #[test]
    fn one_file_under_two_paths_is_known_before_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(would_be_same(&real.join("file"), &link.join("file")).unwrap());
        assert!(!would_be_same(&real.join("file"), &link.join("other")).unwrap());
        assert_eq!(fs::read_dir(&real).unwrap().count(), 0, "nothing is left behind");
    }
}
