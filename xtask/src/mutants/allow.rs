//! The explanations of mutants that no model kills: `crates/slipring/mutants.allow`.
//!
//! Each line has the form `file: where: mutation — reason`, with ` — ` or ` -- `. Blank lines and
//! lines that begin with `#` are comments. *Where* is a function (`Claim::publish` or `publish`), a
//! label (`SYNC[slot-published]`) or the trimmed source line in backticks. A line has no line
//! number, so that it survives edits elsewhere.

use super::sites::Mutant;

/// One explanation.
#[derive(Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The line of the file with the explanations.
    pub line: usize,
    /// The reason why no test kills the mutants.
    pub reason: String,
    /// The line without the reason.
    pub key: String,
    file: String,
    place: String,
    mutation: String,
}

/// Reads explanations; `Err` names the line that is malformed.
pub fn parse(text: &str) -> Result<Vec<Allowed>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            entry(number, line).ok_or_else(|| {
                format!("line {number} is not of the form `file: where: mutation — reason`: {line}")
            })
        })
        .collect()
}

fn entry(line: usize, text: &str) -> Option<Allowed> {
    let dash = |mark: &str| {
        text.match_indices(mark).find(|(at, _)| text[..*at].matches('`').count().is_multiple_of(2))
    };
    let (at, mark) = [dash(" — "), dash(" -- ")].into_iter().flatten().min()?;
    let (key, reason) = (&text[..at], text[at + mark.len()..].trim());
    let (file, rest) = key.split_once(": ")?;
    let (place, mutation) = rest.rsplit_once(": ")?;
    let said = [file, place, mutation, reason].map(str::trim);
    if said.iter().any(|part| part.is_empty()) {
        return None;
    }
    let [file, place, mutation, reason] = said.map(str::to_owned);
    Some(Allowed { line, reason, key: key.to_owned(), file, place, mutation: squeezed(&mutation) })
}

/// Returns the mutation without spaces, and with each arrow written as `->`.
fn squeezed(mutation: &str) -> String {
    mutation.replace('→', "->").split_whitespace().collect()
}

impl Allowed {
    /// Returns whether this explains `mutant`.
    pub fn fits(&self, mutant: &Mutant) -> bool {
        let here = if let Some(label) =
            self.place.strip_prefix("SYNC[").and_then(|rest| rest.strip_suffix(']'))
        {
            mutant.labels.iter().any(|own| own == label)
        } else if let Some(text) =
            self.place.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'))
        {
            mutant.text == text.trim()
        } else {
            let name = mutant.function.as_str();
            name == self.place || name.rsplit("::").next() == Some(&self.place)
        };
        here && mutant.file.as_os_str() == self.file.as_str()
            && squeezed(&mutant.mutation) == self.mutation
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{layout::LIBRARY, mutants::sites, source::Source, workspace};

    #[test]
    fn explanations_fit_by_function_label_and_text() {
        let source = Source::parse(
            "impl A {\n fn f() {\n  // SYNC[x]\n  a.load(Acquire);\n\n  fence(SeqCst);\n }\n}",
        )
        .unwrap();
        let mut mutants = sites::mutants(Path::new("b/a.rs"), &source, &Default::default());
        mutants.retain(|mutant| !mutant.exchanges());
        let fits = |line: &str| {
            let allowed = parse(line).unwrap();
            mutants.iter().map(|mutant| allowed[0].fits(mutant)).collect::<Vec<_>>()
        };
        assert_eq!(fits("b/a.rs: A::f: Acquire->Relaxed — because"), [true, false]);
        assert_eq!(fits("b/a.rs: f: Acquire → Relaxed -- because"), [true, false]);
        assert_eq!(fits("b/a.rs: SYNC[x]: Acquire->Relaxed — because — truly"), [true, false]);
        assert_eq!(fits("b/a.rs: `fence(SeqCst);`: drop fence(SeqCst) — because"), [false, true]);
        assert_eq!(fits("b/a.rs: g: Acquire->Relaxed — because"), [false, false]);
        assert_eq!(fits("a.rs: f: Acquire->Relaxed — because"), [false, false]);
    }

    /// If a file moves, its explanations no longer fit. A run of the mutants would show that, but
    /// takes more than an hour, so this test shows it.
    #[test]
    fn each_explanation_fits_a_mutant() {
        let library = workspace::root().join(LIBRARY);
        let mutants = sites::find(&library.join("src")).unwrap();
        let text = std::fs::read_to_string(library.join("mutants.allow")).unwrap();
        for allowed in parse(&text).unwrap() {
            assert!(mutants.iter().any(|mutant| allowed.fits(mutant)), "{}", allowed.key);
        }
    }

    #[test]
    fn malformed_lines_are_named() {
        assert_eq!(parse("# a comment\n\n").unwrap(), []);
        assert!(parse("a.rs: f: Acquire->Relaxed").unwrap_err().contains("line 1"));
        assert!(parse("\na.rs: f — because").unwrap_err().contains("line 2"));
        assert!(parse("a.rs: f: Acquire->Relaxed —  ").is_err());
    }
}
