//! The rules that no compiler knows.

mod architecture;
mod commits;
pub mod examples;
mod file;
mod invariants;
pub mod labels;
mod library;
mod orderings;
mod pages;
mod planted;
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
    planted::check(&files, &mut found);
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
            pages::check(krate, &mut found);
        }
    }
    if let Some(page) = files.iter().find(|file| file.path == Path::new("ARCHITECTURE.md")) {
        let paths: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
        architecture::check(&crates, &page.text, &mut found);
        architecture::check_names(&page.text, &paths, &mut found);
    }
    let folders: Vec<&str> = crates.iter().map(|krate| krate.folder.as_str()).collect();
    files.iter().for_each(|file| voice::check(file, &folders, &mut found));
    commits::check(root, &mut found);
    found.settle();
    Ok(found)
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
