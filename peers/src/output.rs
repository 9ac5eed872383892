//! Files that receive results. They are opened before the measurement, so that a wrong path costs
//! no measurement.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use slipring_support::streams::same_file;

/// A file that the command line names.
pub struct Output {
    /// Option that names the file, such as `--json`.
    option: &'static str,
    path: PathBuf,
    file: File,
}

impl Output {
    /// Opens a file for results. Fails if it is standard output or standard error.
    pub fn open(option: &'static str, path: &Path) -> Result<Output, String> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file =
            file.map_err(|error| format!("{option}: cannot write {}: {error}", path.display()))?;
        for stream in ["/dev/stdout", "/dev/stderr"] {
            if path.is_file() && same_file(path, Path::new(stream)) {
                return Err(format!(
                    "{option}: the file and the text on {stream} would overwrite each other: give \
                     the option a file of its own"
                ));
            }
        }
        Ok(Output { option, path: path.to_owned(), file })
    }

    /// Fails if a path names this file, even through a symbolic or hard link.
    pub fn differs_from(&self, option: &str, path: &Path) -> Result<(), String> {
        if same_file(&self.path, path) {
            return Err(format!(
                "{option} and {} name one file, {}: give each a file of its own",
                self.option,
                self.path.display()
            ));
        }
        Ok(())
    }

    /// Replaces the content of the file, or writes to a pipe or device.
    pub fn save(mut self, text: &str) -> Result<(), String> {
        self.replace(text).map_err(|error| format!("{}: {error}", self.option))
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}
