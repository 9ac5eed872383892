//! The rules that no compiler knows.

pub mod examples;
pub mod labels;
mod library;
mod segment;
mod text;

use std::{
    cell::OnceCell,
    fs, io,
    path::{Path, PathBuf},
};

use crate::findings::Findings;
use crate::{
    house::{House, arrows::Arrows, rooms},
    source::Source,
    workspace,
};

/// One file of the project.
pub struct File {
    path: PathBuf,
    text: String,
    source: OnceCell<Option<Source>>,
}

impl File {
    fn new(path: PathBuf, text: String) -> Self {
        Self { path, text, source: OnceCell::new() }
    }

    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    /// The parsed file, or `None` if it is no Rust. A file that does not parse is an error, once.
    fn source(&self, found: &mut Findings) -> Option<&Source> {
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

/// Checks the project at `root`.
pub fn check(root: &Path) -> io::Result<Findings> {
    let files = read(root)?;
    let strays = text::Strays::of_this_machine(root);
    let mut found = Findings::default();
    for file in &files {
        text::lines(file, &mut found);
        text::columns(file, &mut found);
        strays.check(file, &mut found);
        text::registries(file, &mut found);
        library::orderings(file, &mut found);
        library::watchdogs(file, &mut found);
    }
    segment::check(&files, &mut found);
    let house = House::read(root)?;
    let arrows = Arrows::of(&house);
    labels::check(&files, &labels::edges(&house, &arrows), &mut found);
    rooms::check(&house, &arrows, &mut found);
    examples::Examples::of(&house).check(&examples::list(root), &mut found);
    Ok(found)
}

/// The files of the project that are text.
fn read(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for path in workspace::files(root)? {
        let bytes = fs::read(root.join(&path))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(path, text));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
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
