//! Finding the places whose ordering can be weakened, and weakening one.

use std::{
    collections::HashSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{
    source::{self, Source},
    tidy, workspace,
};

/// What each ordering is weakened to; one mutant each.
const WEAKER: [(&str, &[&str]); 3] = [("Acquire", &["Relaxed"]), ("Release", &["Relaxed"]), ("AcqRel", &["Acquire", "Release"])];

/// Where the orderings are found whatever the file imports.
const PATH: &str = "::core::sync::atomic::Ordering::";

/// One weakened copy of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// The file, relative to the library's `src`.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The line's text, trimmed.
    pub text: String,
    /// The function around it.
    pub function: String,
    /// The labels of its edge.
    pub labels: Vec<String>,
    /// `Acquire->Relaxed`, `drop fence(SeqCst)`, ...
    pub mutation: String,
    range: Range<usize>,
    replacement: String,
}

impl Mutant {
    /// The source with this one weakness.
    pub fn apply(&self, text: &str) -> String {
        format!("{}{}{}", &text[..self.range.start], self.replacement, &text[self.range.end..])
    }
}

/// All mutants of the library whose source is `folder`, file by file.
pub fn find(folder: &Path) -> io::Result<Vec<Mutant>> {
    let files: Vec<PathBuf> = workspace::files(folder)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).collect();
    let mut sources = Vec::new();
    let mut tests = HashSet::new();
    for file in files {
        let source = Source::new(fs::read_to_string(folder.join(&file))?);
        for module in source.test_code().modules {
            tests.insert(submodule(&file, &module));
        }
        sources.push((file, source));
    }
    let is_test = |file: &Path| {
        file.ancestors().any(|part| tests.contains(&part.with_extension("")) || part.ends_with("tests"))
            || tests.contains(&file.parent().map(Path::to_path_buf).unwrap_or_default())
    };
    Ok(sources.iter().filter(|(file, _)| !is_test(file)).flat_map(|(file, source)| mutants(file, source)).collect())
}

/// Where the module that `file` declares lies, without its extension.
fn submodule(file: &Path, module: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let by_path = module.extension().is_some();
    if by_path || matches!(stem, "lib" | "main" | "mod") { folder.join(module).with_extension("") } else { folder.join(stem).join(module) }
}

/// All mutants of one file.
pub fn mutants(file: &Path, source: &Source) -> Vec<Mutant> {
    let functions = source.functions();
    let mut skipped = source.test_code().ranges;
    skipped.extend(source.uses());
    skipped.extend(enums(source));
    skipped.extend(twins(source));
    let mut found = Vec::new();
    let mut add = |at: usize, range: Range<usize>, replacement: String, mutation: String| {
        let line = source.line(at);
        found.push(Mutant {
            file: file.to_path_buf(),
            line,
            text: source.text.lines().nth(line - 1).unwrap_or_default().trim().to_owned(),
            function: functions.around(at).to_owned(),
            labels: labels(source, line),
            mutation,
            range,
            replacement,
        });
    };
    let mut fences = source.fences();
    fences.retain(|fence| !skipped.iter().any(|skip| skip.contains(&fence.start)));
    for range in fences {
        let call: String = source.code[range.clone()].split_whitespace().collect();
        let (path, order) = call.trim_end_matches(')').split_once('(').unwrap_or_default();
        let last = |path: &str| path.rsplit("::").next().unwrap_or_default().to_owned();
        let mutation = format!("drop {}({})", last(path), last(order));
        add(range.start, range.clone(), "()".to_owned(), mutation);
        skipped.push(range);
    }
    for (ordering, weaker) in WEAKER {
        for at in source.words(ordering) {
            if skipped.iter().any(|range| range.contains(&at)) || !is_argument(&source.code, at, ordering) {
                continue;
            }
            let bare = !source.code[..at].ends_with("Ordering::");
            for weak in weaker {
                let replacement = if bare { format!("{PATH}{weak}") } else { (*weak).to_owned() };
                add(at, at..at + ordering.len(), replacement, format!("{ordering}->{weak}"));
            }
        }
    }
    found.sort_by_key(|mutant| mutant.range.start);
    found
}

/// Whether the name at `at` is a value: an argument, or the outcome of a block.
/// A type, a variant of something else or a pattern of that name is not.
fn is_argument(code: &str, at: usize, ordering: &str) -> bool {
    let before = code[..at].trim_end();
    let before = before
        .strip_suffix("Ordering::")
        .map_or(before, |path| path.trim_end_matches(|c: char| c == ':' || c.is_alphanumeric() || c == '_').trim_end());
    let after = code[at + ordering.len()..].trim_start();
    let argument = before.ends_with(['(', ',', '{', '=']) || before.ends_with("=>") || before.ends_with("return");
    let right = before.ends_with("\":") && after.starts_with("=>"); // twin!("name": right => wrong)
    right || (argument && after.starts_with([')', ',', '}', ';']))
}

/// The wrong halves of `twin!("name": right => wrong)`, which only the models that expect to fail ever run.
fn twins(source: &Source) -> impl Iterator<Item = Range<usize>> {
    source.words("twin").filter_map(|at| {
        let open = at + "twin!".len();
        if !source.code[at..].starts_with("twin!(") {
            return None;
        }
        let close = source::closing(source.code.as_bytes(), open)?;
        let wrong = open + source.code[open..close].rfind("=>")?;
        Some(wrong..close)
    })
}

/// The definitions of enums, whose variants may have an ordering's name.
fn enums(source: &Source) -> impl Iterator<Item = Range<usize>> {
    source.words("enum").filter_map(|at| {
        let open = at + source.code[at..].find('{')?;
        Some(at..source::closing(source.code.as_bytes(), open)?)
    })
}

/// The labels that belong to `line`: on it, in its statement, or in the comment right above.
fn labels(source: &Source, line: usize) -> Vec<String> {
    let code: Vec<&str> = source.code.lines().collect();
    let comments: Vec<&str> = source.comments.lines().collect();
    let mut found = Vec::new();
    for at in (0..line).rev() {
        let (code, comment) = (code[at].trim(), comments[at].trim());
        let own = at + 1 == line;
        if !own && (code.ends_with([';', '{', '}']) || (code.is_empty() && comment.is_empty())) {
            break;
        }
        found.extend(tidy::labels_in(comment).map(str::to_owned));
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
use crate::sync::{Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst}, fence};
// Acquire in a comment, "Release" in a string
enum Deferred { Release, Acquire }
impl Claim {
    fn take(&self) -> Option<Release> {
        // SYNC[claim-word]: pairs with `put`.
        let word = self
            .word
            .load(Acquire); // SYNC[second]
        fence(SeqCst);
        let say = "Acquire";
        self.word.compare_exchange(word, 0, AcqRel, Ordering::Acquire).ok();
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.word.store(1, if say.is_empty() { Relaxed } else { Release }); bell::fence_before_ring();
        match order { Acquire => (), _ => Deferred::Release }
        self.word.store(1, twin!("no-release": Release => Relaxed));
        twin!("no-fence": fence(SeqCst) => fence(Acquire));
        self.word.swap(1, twin!("half": AcqRel => Acquire));
    }
}
#[cfg(test)]
mod tests { fn f() { x.load(Acquire); fence(SeqCst) } }
fn fence_before_ring() {}
"#;

    #[test]
    fn every_site_is_found_once() {
        let source = Source::new(TEXT);
        let found = mutants(Path::new("claim.rs"), &source);
        let said: Vec<String> = found.iter().map(|m| format!("{} {}", m.line, m.mutation)).collect();
        assert_eq!(
            said,
            [
                "10 Acquire->Relaxed",
                "11 drop fence(SeqCst)",
                "13 AcqRel->Acquire",
                "13 AcqRel->Release",
                "13 Acquire->Relaxed",
                "14 drop fence(SeqCst)",
                "15 Release->Relaxed",
                "15 drop fence_before_ring()",
                "17 Release->Relaxed",
                "18 drop fence(SeqCst)",
                "19 AcqRel->Acquire",
                "19 AcqRel->Release",
            ]
        );
        assert!(found.iter().all(|m| m.function == "Claim::take"));
        assert_eq!(found[0].labels, ["claim-word", "second"]);
        assert_eq!(found[0].text, ".load(Acquire); // SYNC[second]");
        assert!(found[1].labels.is_empty());
    }

    #[test]
    fn a_mutant_differs_in_one_place() {
        let source = Source::new(TEXT);
        let found = mutants(Path::new("claim.rs"), &source);
        assert!(found[0].apply(TEXT).contains(".load(::core::sync::atomic::Ordering::Relaxed); // SYNC"));
        assert!(found[1].apply(TEXT).contains("// SYNC[second]\n        ();\n"));
        assert!(found[4].apply(TEXT).contains("AcqRel, Ordering::Relaxed)"));
        assert!(found[8].apply(TEXT).contains("twin!(\"no-release\": ::core::sync::atomic::Ordering::Relaxed => Relaxed)"));
        assert!(found[5].apply(TEXT).contains(".ok();\n        ();\n"));
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        assert_eq!(submodule(Path::new("lib.rs"), Path::new("models")), Path::new("models"));
        assert_eq!(submodule(Path::new("ring/mod.rs"), Path::new("models")), Path::new("ring/models"));
        assert_eq!(submodule(Path::new("ring.rs"), Path::new("models")), Path::new("ring/models"));
        assert_eq!(submodule(Path::new("ring.rs"), Path::new("ring/t.rs")), Path::new("ring/t"));
    }
}
