//! The old dialect in comments, counted per crate.
//!
//! Comments were once compressed: sentences that begin with "What" or "Whose" and name no subject,
//! "that one" instead of a noun, "is to" before a verb. The check holds, for each crate, the number
//! of such lines that are left. This number may only fall.

use std::path::Path;

use super::file::File;
use crate::findings::Findings;

/// The beginnings of sentences without a head.
const BEGINNINGS: [&str; 2] = ["What ", "Whose "];
/// The phrases, wherever they stand.
const PHRASES: [&str; 5] = ["what of ", "the look before", "is to be ", "is to go ", "is to come "];
/// The phrase that refers back to a noun. It may precede a noun in which "one" is a number ("that
/// one thread").
const THAT_ONE: &str = "that one";

/// Finds the dialect in the comments of `file`, which belongs to the innermost of the crates in
/// `folders`.
pub fn check(file: &File, folders: &[&str], found: &mut Findings) {
    let within = folders.iter().filter(|folder| file.path.starts_with(Path::new(folder)));
    let Some(folder) = within.max_by_key(|folder| folder.len()).filter(|_| file.is_rust()) else {
        return;
    };
    let mut before = ".".to_owned();
    for (number, line) in file.text.lines().enumerate() {
        let Some(text) = comment(line) else {
            before = ".".to_owned();
            continue;
        };
        for phrase in dialect(&before, text) {
            let message = format!("{}:{}: {phrase}", file.path.display(), number + 1);
            found.breach(folder, "voice", message);
        }
        before = if text.is_empty() { ".".to_owned() } else { text.to_owned() };
    }
}

/// Returns the text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim())
}

/// Returns the phrases of the dialect that `line`, a line of a comment, contains. `before` is the
/// previous line.
fn dialect(before: &str, line: &str) -> Vec<&'static str> {
    let text = line.trim_start_matches(['-', '*', '|', ' ']);
    let is_new = before.ends_with(['.', ':', '|']) || text.len() < line.len();
    let is_question = line.contains('?') || line.starts_with('#');
    let begins = |beginning: &&&str| {
        let inner =
            [". ", "; ", "| "].iter().any(|end| line.contains(&format!("{end}{beginning}")));
        inner || (is_new && text.starts_with(**beginning))
    };
    let mut found: Vec<&str> =
        BEGINNINGS.iter().filter(begins).filter(|_| !is_question).copied().collect();
    let lower = format!("{} ", line.to_lowercase());
    found.extend(PHRASES.iter().filter(|phrase| lower.contains(**phrase)));
    let ends = |at: usize| {
        let rest = &lower[at + THAT_ONE.len()..];
        rest.starts_with([',', '.', ';', ':', ')', '\'']) || rest.starts_with(" is ") || rest == " "
    };
    if lower.match_indices(THAT_ONE).any(|(at, _)| ends(at)) {
        found.push(THAT_ONE);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file::tests::file;

    #[test]
    fn the_dialect_is_found() {
        for (text, count) in [
            ("/// What a reader knows.\n", 1),
            ("/// A field. What of them is known.\n/// - Whose it is.\n", 3),
            ("// It waits for that one.\n// It is to be read.\n", 2),
            ("/// A thread sees\n/// What is no sentence.\n", 0),
            ("/// # What it costs\n/// What is a ring?\nlet a = \"What \";\n", 0),
            ("/// so that one thread waits\n/// that one\n", 1),
        ] {
            let mut found = Findings::default();
            check(&file("peers/nats/src/a.rs", text), &["peers", "peers/nats"], &mut found);
            assert_eq!(found.breaches.len(), count, "{text}");
            assert!(found.breaches.iter().all(|breach| breach.place == "peers/nats"));
        }
        let mut found = Findings::default();
        check(&file("peers/a.md", "What it is."), &["peers"], &mut found);
        check(&file("fuzz/a.rs", "// What it is."), &["peers"], &mut found);
        assert!(found.breaches.is_empty());
    }
}
