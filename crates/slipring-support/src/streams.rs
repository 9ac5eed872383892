//! Files and standard streams: prints into a pipe that may be closed, finds the terminal's width,
//! and recognises two paths of one file.

use std::fs::Metadata;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Writes a text and flushes it. A reader that closed the pipe early (`| head`) is no error.
pub fn print(out: &mut dyn Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// If standard output is a terminal, returns its width in characters.
pub fn stdout_width() -> Option<usize> {
    console::Term::stdout().size_checked().map(|(_rows, columns)| columns.into())
}

/// Returns the device and inode of a file, if the system has them.
pub fn inode(metadata: &Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Some((metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}

/// Returns whether two paths name one existing file, also through links and second names. It opens
/// neither file, because opening a named pipe waits for its other end.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let (Ok(first), Ok(second)) = (one.metadata(), other.metadata()) else { return false };
    match (inode(&first), inode(&second)) {
        (Some(first), Some(second)) => first == second,
        _ => one.canonicalize().ok().is_some_and(|one| other.canonicalize().ok() == Some(one)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_under_every_spelling() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let spelled = file.parent().unwrap().join("src/../Cargo.toml");
        assert!(same_file(&file, &spelled));
        assert!(!same_file(&file, &file.with_file_name("src")));
        let missing = file.with_file_name("missing");
        assert!(!same_file(&missing, &missing), "a file that does not exist has no identity");
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
        struct Refusing(ErrorKind);
        impl Write for Refusing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert!(print(&mut Refusing(ErrorKind::BrokenPipe), "text").is_ok());
        assert!(print(&mut Refusing(ErrorKind::StorageFull), "text").is_err());
    }
}
