//! The rule for messages of the commits that follow [`BASE`].
//!
//! The first line of a message has at most 72 characters. The message of a large change also needs
//! a body that says why the change was made. If the history is missing, as in a shallow clone or an
//! unpacked archive, the check is skipped, and a note says so.

use std::{path::Path, process::Command};

use crate::findings::Findings;

/// The last commit to which the rule does not apply.
const BASE: &str = "d194395b3a78521083d97dd28ffca180eb158d7c";
/// The longest first line, in characters.
const FIRST_LINE: usize = 72;
/// The largest number of files that a commit without a body may change. Among the hundred commits
/// before [`BASE`], one commit without a body changes more files.
const FILES: usize = 8;
/// The largest number of lines that a commit without a body may add and remove. Among the hundred
/// commits before [`BASE`], two commits without a body change more lines.
const LINES: usize = 200;
/// The place that a report of this rule names. Other rules name the folder of a crate.
const PLACE: &str = "commits";
/// The beginning of a commit in the output of git.
const MARK: char = '\u{1}';
/// The end of a commit's message.
const END: char = '\u{2}';

/// Checks the commits behind [`BASE`] of the checkout at `root`.
pub fn check(root: &Path, found: &mut Findings) {
    match log(root) {
        Ok(log) => {
            let count = log.split(MARK).skip(1).map(|commit| check_commit(commit, found)).count();
            found.notes.push(format!("{count} commits since {BASE}"));
        }
        Err(why) => found.notes.push(format!("commits: not checked: {why}")),
    }
}

/// Returns the messages and the counts of changed lines; `Err` says why there are none.
fn log(root: &Path) -> Result<String, String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output();
        let output = output.map_err(|error| format!("git: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err("git knows no such history".to_owned()) }
    };
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(top.trim()).canonicalize().ok() != root.canonicalize().ok() {
        return Err("this folder is no checkout of its own".to_owned());
    }
    let commit = format!("{BASE}^{{commit}}");
    git(&["rev-parse", "--quiet", "--verify", &commit])
        .map_err(|_| format!("the history does not reach {BASE}"))?;
    let format = format!("--format={MARK}%s%n%b{END}");
    git(&["log", "--no-merges", "--numstat", &format, &format!("{BASE}..HEAD")])
}

/// Checks one commit, given by its first line, its body, [`END`], and a line for each changed file.
fn check_commit(commit: &str, found: &mut Findings) {
    let (message, files) = commit.split_once(END).unwrap_or((commit, ""));
    let (first, body) = message.split_once('\n').unwrap_or((message, ""));
    let length = first.chars().count();
    if length > FIRST_LINE {
        let what = format!("{length} characters; a first line has {FIRST_LINE} at most");
        found.breach(PLACE, "first line", format!("`{first}`: {what}"));
    }
    let changes: Vec<usize> = files.lines().filter_map(changed).collect();
    let (count, lines) = (changes.len(), changes.iter().sum::<usize>());
    if body.trim().is_empty() && (count > FILES || lines > LINES) {
        let what = format!("{count} files and {lines} lines, and no body says why");
        found.breach(PLACE, "body", format!("`{first}`: {what}"));
    }
}

/// Returns the number of lines that a file adds and removes; none for a record, or a file that
/// programs write.
fn changed(line: &str) -> Option<usize> {
    let mut cells = line.split('\t');
    let (added, removed, path) = (cells.next()?, cells.next()?, cells.next()?);
    if path.starts_with("records/") || path.ends_with(".lock") {
        return None;
    }
    // A binary file has no lines.
    Some(added.parse().unwrap_or(0) + removed.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_judged_by_their_change() {
        let lines = "10\t1\ta.rs\n";
        for (message, files, rules) in [
            ("A rule", lines.to_owned(), &[][..]),
            (&"é".repeat(72), lines.to_owned(), &[]),
            (&"a".repeat(73), lines.to_owned(), &["first line"]),
            ("A rule", lines.repeat(9), &["body"]),
            ("A rule", "150\t51\ta.rs\n".to_owned(), &["body"]),
            ("A rule", "-\t-\ta.png\n900\t0\trecords/a.txt\n9\t999\tCargo.lock\n".to_owned(), &[]),
            ("A rule\nIts reason.", lines.repeat(9), &[]),
        ] {
            let mut found = Findings::default();
            check_commit(&format!("{message}\n{END}\n{files}"), &mut found);
            let broken: Vec<&str> = found.breaches.iter().map(|breach| breach.rule).collect();
            assert_eq!(broken, rules, "{message} {files}");
        }
    }

    #[test]
    fn a_folder_without_history_is_a_note() {
        let mut found = Findings::default();
        check(Path::new("/"), &mut found);
        assert!(found.breaches.is_empty() && found.notes[0].contains("not checked"));
    }
}
