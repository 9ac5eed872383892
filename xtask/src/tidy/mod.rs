//! The rules that no compiler knows.

mod architecture;
mod commits;
pub mod examples;
mod file;
mod invariants;
mod known;
pub mod labels;
mod library;
mod orderings;
mod segment;
mod text;
mod voice;

use std::{fs, io, path::Path};

use file::File;

use crate::findings::Findings;
use crate::{
    house::{crates::Crate, models, rooms},
    workspace,
};

/// Checks the project at `root`.
pub fn check(root: &Path) -> io::Result<Findings> {
    let (mut found, known) = read_and_check(root)?;
    known.settle(&mut found);
    Ok(found)
}

/// Rewrites the lists of known exceptions of the project at `root`.
pub fn update(root: &Path) -> io::Result<()> {
    let (found, known) = read_and_check(root)?;
    known.shrink(root, &found.breaches)
}

/// Returns the lists that would name every breach in the project at `root`, each behind its path.
pub fn breaches(root: &Path) -> io::Result<String> {
    let (found, _) = read_and_check(root)?;
    Ok(known::lists(&found.breaches))
}

/// Checks the project at `root`. The caller compares the breaches with the lists.
fn read_and_check(root: &Path) -> io::Result<(Findings, known::Known)> {
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
    let crates = Crate::all(root)?;
    let library = crates.iter().find(|krate| krate.is_library());
    let docs = library.map(|library| examples::Docs::of(&library.house));
    for krate in &crates {
        let Crate { house, arrows, .. } = krate;
        if krate.is_library() {
            labels::check(&files, &labels::edges(house, arrows), &mut found);
        }
        text::beginnings(krate, &mut found);
        rooms::check(krate, &mut found);
        models::check(krate, &mut found);
        orderings::check(krate, &mut found);
        invariants::check(krate, &mut found);
        if krate.is_for_users() {
            let below = if krate.is_library() { None } else { docs.as_ref() };
            examples::check(krate, below, &mut found);
        }
    }
    if let Some(page) = files.iter().find(|file| file.path == Path::new("ARCHITECTURE.md")) {
        let paths: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
        architecture::check(&crates, &page.text, &mut found);
        architecture::check_names(&page.text, &paths, &mut found);
    }
    let mut folders: Vec<&str> = crates.iter().map(|krate| krate.folder.as_str()).collect();
    files.iter().for_each(|file| voice::check(file, &folders, &mut found));
    commits::check(root, &mut found);
    folders.push(commits::LIST);
    let known = known::Known::read(root, &folders, &mut found)?;
    Ok((found, known))
}

/// Returns the files of the project that are text.
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
