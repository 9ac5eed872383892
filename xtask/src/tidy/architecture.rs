//! The tables of rooms in `ARCHITECTURE.md`, compared with the crates.
//!
//! A table of rooms follows a heading that names the folder of its crate in backticks. Its rows are
//! listed from the ground up: `| room | holds | files |`.
//!
//! - A room is a folder of the crate's source, or `.` for the files beside the folders. It may have
//!   several rows.
//! - The files are names without `.rs`; a name that ends with `/` is a folder with all that lies
//!   below it.
//! - Each file of the crate stands in one row, and no arrow leads to a later row. The files that
//!   only name others (`lib`, `main`, `mod`) may be left out.
//!
//! ARCHITECTURE.md may also name files and rooms of the other crates in backticks. Each of them
//! must exist.

use std::collections::BTreeSet;

use crate::{
    findings::Findings,
    house::{ROOTS, crates::Crate, rooms},
    layout,
};

/// The page.
const PAGE: &str = "ARCHITECTURE.md";
/// The first line of a table of rooms.
const HEADER: &str = "| room | holds | files |";
/// The rule's name.
const RULE: &str = "table";

/// One row of a table of rooms.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The line, from 1.
    line: usize,
    /// The folder, with a `/` at its end; empty for the files beside the folders.
    room: String,
    /// The names of files and folders.
    names: Vec<String>,
}

impl Row {
    /// Returns the number of names that stand for `file`.
    fn holds(&self, file: &str) -> usize {
        let stands = |name: &&String| match name.strip_suffix('/') {
            Some(_) => file.starts_with(&format!("{}{name}", self.room)),
            None => file == format!("{}{name}.rs", self.room),
        };
        self.names.iter().filter(stands).count()
    }
}

/// Compares the page `text` with `crates`.
pub fn check(crates: &[Crate], text: &str, found: &mut Findings) {
    for krate in crates {
        match table(text, &krate.folder) {
            Some(rows) => check_table(krate, &rows, found),
            None if layout::MAPPED.contains(&krate.folder.as_str()) => {
                let message = format!("{PAGE} has no table `{HEADER}` below `{}`", krate.folder);
                found.breach(&krate.folder, RULE, message);
            }
            None => {}
        }
    }
}

/// Returns the rows of the table of the crate in `folder`.
fn table(text: &str, folder: &str) -> Option<Vec<Row>> {
    let heading = |line: &str| {
        line.starts_with('#') && line.split('`').nth(1).is_some_and(|name| name == folder)
    };
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.iter().position(|line| heading(line))? + 1;
    let next = lines[from..].iter().position(|line| line.starts_with('#'));
    let to = next.map_or(lines.len(), |next| from + next);
    let header = from + lines[from..to].iter().position(|line| *line == HEADER)?;
    let rows = (header + 2..to).take_while(|&at| lines[at].starts_with('|')).map(|at| {
        let cells: Vec<&str> = lines[at].split('|').map(str::trim).collect();
        let cell = |number: usize| cells.get(number).copied().unwrap_or_default();
        let room = cell(1).trim_matches('`').trim_start_matches('.').to_owned();
        let names = cell(3).split_whitespace().map(|name| name.replace('`', "")).collect();
        Row { line: at + 1, room, names }
    });
    Some(rows.collect())
}

fn check_table(krate: &Crate, rows: &[Row], found: &mut Findings) {
    let Crate { folder, house, arrows } = krate;
    let files: Vec<String> = house.files.iter().map(|file| file.display().to_string()).collect();
    let row = |file: usize| rows.iter().position(|row| row.holds(&files[file]) > 0);
    for file in &files {
        let count: usize = rows.iter().map(|row| row.holds(file)).sum();
        let name = file.rsplit('/').next().unwrap_or(file);
        let may_be_left_out = name == "mod.rs" || ROOTS.contains(&file.as_str());
        if count > 1 || (count == 0 && !may_be_left_out) {
            let what = format!("names {file} of {folder} {count} times, and not once");
            found.breach(folder, RULE, format!("{PAGE} {what}"));
        }
    }
    for Row { line, room, names } in rows {
        for name in names {
            let one = [name.clone()].into();
            let alone = Row { line: *line, room: room.clone(), names: one };
            if !files.iter().any(|file| alone.holds(file) > 0) {
                let message = format!("{PAGE}:{line}: {folder} has no {room}{name}");
                found.breach(folder, RULE, message);
            }
        }
    }
    for &(from, to) in arrows.names.keys() {
        let (Some(low), Some(high)) = (row(from), row(to)) else { continue };
        if high > low {
            let names = rooms::names(arrows, from, to);
            let (from, to) = (&files[from], &files[to]);
            let rows = format!("line {} to line {}", rows[low].line, rows[high].line);
            let message = format!("{from} imports {to} upwards, {PAGE} {rows}: {names}");
            found.breach(folder, "upwards", message);
        }
    }
}

/// Finds names in backticks that are wrong: names of files that the project lacks, and names of
/// rooms that the crate at the beginning of the row lacks. `paths` are the project's files.
pub fn check_names(text: &str, paths: &[String], found: &mut Findings) {
    let mut in_code = false;
    let mut missing = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        let names = || line.split('`').skip(1).step_by(2).filter(|_| !in_code);
        let folder = names().next().filter(|_| line.starts_with("| `")).unwrap_or_default();
        for name in names().filter(|name| !name.contains([' ', '*', '<'])) {
            let ends = |path: &String| *path == name || path.ends_with(&format!("/{name}"));
            let source = format!("{folder}/src/{name}");
            let is_there = if name.ends_with(".rs") {
                paths.iter().any(ends)
            } else {
                let is_crate = paths.iter().any(|path| path.starts_with(&format!("{folder}/src/")));
                let is_room = name.ends_with('/') && is_crate && !folder.is_empty();
                !is_room || paths.iter().any(|path| path.starts_with(&source))
            };
            if !is_there {
                missing.insert((number + 1, name.to_owned()));
            }
        }
    }
    let error = |(line, name)| format!("{PAGE}:{line}: there is no `{name}`");
    found.errors.extend(missing.into_iter().map(error));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{arrows::Arrows, tests::house};

    fn messages(rows: &str) -> Vec<String> {
        let house = house(&[
            ("lib.rs", "mod base; mod ring; mod run;"),
            ("base/mod.rs", "pub mod edge; pub mod name;"),
            ("base/edge/mod.rs", "mod one;"),
            ("base/edge/one.rs", ""),
            ("base/name.rs", "pub struct Name;"),
            ("ring.rs", "mod slots; use crate::base::name::Name; pub struct Ring;"),
            ("ring/slots.rs", "use super::Ring;"),
            ("run.rs", "use crate::ring::Ring;"),
        ]);
        let (folder, arrows) = ("crates/x".to_owned(), Arrows::of(&house));
        let text = format!("# Page\n### `crates/x`\n\nText.\n\n{HEADER}\n|---|---|---|\n{rows}\n");
        let mut found = Findings::default();
        check(&[Crate { folder, house, arrows }], &text, &mut found);
        found.breaches.into_iter().map(|breach| breach.message).collect()
    }

    #[test]
    fn a_true_table_has_no_error() {
        let rows = "| `base/` | a | name edge/ |\n| `.` | b | ring run |\n| `ring/` | c | slots |";
        assert_eq!(messages(rows), [""; 0]);
        let split = "| base/ | a | mod name edge/ |\n| . | b | ring |\n| . | b | run lib |\n\
                     | ring/ | c | slots |";
        assert_eq!(messages(split), [""; 0]);
    }

    #[test]
    fn each_falsehood_of_a_table_is_found() {
        for (rows, says) in [
            ("| base/ | a | name |\n| . | b | ring run |\n| ring/ | c | slots |", "one.rs of"),
            (
                "| base/ | a | name edge/ edge/ |\n| . | b | ring run |\n| ring/ | c | slots |",
                "2 times",
            ),
            (
                "| base/ | a | name edge/ lost |\n| . | b | ring run |\n| ring/ | c | slots |",
                "ARCHITECTURE.md:8: crates/x has no base/lost",
            ),
            (
                "| . | b | ring run |\n| base/ | a | name edge/ |\n| ring/ | c | slots |",
                "ring.rs imports base/name.rs upwards, ARCHITECTURE.md line 8 to line 9: Name",
            ),
        ] {
            let found = messages(rows).join("\n");
            assert!(found.contains(says), "{rows}\n{found}");
        }
    }

    #[test]
    fn a_missing_table_and_missing_files_are_found() {
        let house = house(&[("lib.rs", "")]);
        let (folder, arrows) = (layout::LIBRARY.to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&[Crate { folder, house, arrows }], "### `crates/x`", &mut found);
        assert_eq!(found.breaches.len(), 1);
        let text = "`a.rs`, `x/b.rs` and `c.rs`\n```\n`d.rs`\n```\n| `crates/y` | `top/`, `lab/` |";
        let paths = ["crates/a.rs", "x/b.rs", "crates/y/src/top/mod.rs"].map(str::to_owned);
        check_names(text, &paths, &mut found);
        let missing = |line, name| format!("ARCHITECTURE.md:{line}: there is no `{name}`");
        assert_eq!(found.errors, [missing(1, "c.rs"), missing(5, "lab/")]);
    }
}
