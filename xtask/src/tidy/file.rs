//! One text file of the project, parsed on demand.

use std::{cell::OnceCell, path::PathBuf};

use crate::{findings::Findings, source::Source};

/// One file of the project.
pub struct File {
    /// The path, relative to the project's root.
    pub path: PathBuf,
    /// The text.
    pub text: String,
    source: OnceCell<Option<Source>>,
}

impl File {
    /// Returns the file of this text.
    pub fn new(path: PathBuf, text: String) -> Self {
        Self { path, text, source: OnceCell::new() }
    }

    /// Returns whether the file is Rust by its name.
    pub fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    /// Returns the parsed file, or `None` if it is not Rust. A file that does not parse is reported
    /// as an error once.
    pub fn source(&self, found: &mut Findings) -> Option<&Source> {
        let mut parse = || match Source::parse(&*self.text) {
            Ok(source) => Some(source),
            Err(error) => {
                found.errors.push(format!("{}: {error}", self.path.display()));
                None
            }
        };
        self.source.get_or_init(|| if self.is_rust() { parse() } else { None }).as_ref()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn file(path: &str, text: impl Into<String>) -> File {
        File::new(PathBuf::from(path), text.into())
    }

    pub fn errors(check: impl Fn(&File, &mut Findings), file: &File) -> usize {
        let mut found = Findings::default();
        check(file, &mut found);
        found.errors.len()
    }

    #[test]
    fn a_file_that_does_not_parse_is_one_error() {
        let (file, mut found) = (file("a.rs", "fn f( {"), Findings::default());
        assert!(file.source(&mut found).is_none() && file.source(&mut found).is_none());
        assert_eq!(found.errors.len(), 1);
    }
}
