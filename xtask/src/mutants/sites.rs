//! Finding the places whose ordering can be weakened, and weakening one.
//!
//! An ordering is weakened, a fence is dropped, the barrier is not made, a statement is moved
//! behind the next one that touches shared state ([`order`]).

use std::{
    collections::HashSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use super::order;
use crate::{
    source::{self, Source},
    tidy, workspace,
};

/// What each ordering is weakened to; one mutant each.
const WEAKER: [(&str, &[&str]); 3] =
    [("Acquire", &["Relaxed"]), ("Release", &["Relaxed"]), ("AcqRel", &["Acquire", "Release"])];

/// No model sees a fence for the compiler: the orders that rest on it are those of machine code.
const UNMODELLED: &[Asked] = &[Asked::Assembly, Asked::Bells];

/// A statement is moved behind the next one that touches shared state.
const EXCHANGE: &str = "swap with next";

/// Where the orderings are found whatever the file imports.
const PATH: &str = "::core::sync::atomic::Ordering::";

/// The file of the quiet bells, which no model sees.
const BELLS: &str = "bell.rs";

/// Who is asked about a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// The models, under the model checker.
    Models,
    /// The tests of the bells, without it: every state of a quiet bell, and wake-ups that nothing
    /// makes up for.
    Bells,
    /// The machine code of a publication.
    Assembly,
}

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
    /// `Acquire->Relaxed`, `drop fence(SeqCst)`, `swap with next`, ...
    pub mutation: String,
    /// Who is asked about it, one after the other.
    pub asked: &'static [Asked],
    range: Range<usize>,
    replacement: String,
}

impl Mutant {
    /// Whether it exchanges two statements. That the compiler does not accept each exchange says
    /// nothing.
    pub fn exchanges(&self) -> bool {
        self.mutation == EXCHANGE
    }

    /// The source with this one weakness.
    pub fn apply(&self, text: &str) -> String {
        format!("{}{}{}", &text[..self.range.start], self.replacement, &text[self.range.end..])
    }
}

/// All mutants of the library whose source is `folder`, file by file.
pub fn find(folder: &Path) -> io::Result<Vec<Mutant>> {
    let files: Vec<PathBuf> = workspace::files(folder)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
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
        file.ancestors()
            .any(|part| tests.contains(&part.with_extension("")) || part.ends_with("tests"))
            || tests.contains(&file.parent().map(Path::to_path_buf).unwrap_or_default())
    };
    sources.retain(|(file, _)| !is_test(file));
    let labelled = sources.iter().flat_map(|(_, source)| order::labelled(source)).collect();
    Ok(sources.iter().flat_map(|(file, source)| mutants(file, source, &labelled)).collect())
}

/// Where the module that `file` declares lies, without its extension.
fn submodule(file: &Path, module: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let by_path = module.extension().is_some();
    if by_path || matches!(stem, "lib" | "main" | "mod") {
        folder.join(module).with_extension("")
    } else {
        folder.join(stem).join(module)
    }
}

/// All mutants of one file. `labelled`: the functions of the library that wear labels.
pub fn mutants(file: &Path, source: &Source, labelled: &HashSet<String>) -> Vec<Mutant> {
    let functions = source.functions();
    let mut skipped = source.test_code().ranges;
    skipped.extend(source.uses());
    skipped.extend(enums(source));
    skipped.extend(twins(source));
    let mut found = Vec::new();
    let usual: &[Asked] =
        if file == Path::new(BELLS) { &[Asked::Models, Asked::Bells] } else { &[Asked::Models] };
    let mut add = |at: usize,
                   range: Range<usize>,
                   replacement: String,
                   mutation: String,
                   asked: &'static [Asked]| {
        let line = source.line(at);
        found.push(Mutant {
            file: file.to_path_buf(),
            line,
            text: source.text.lines().nth(line - 1).unwrap_or_default().trim().to_owned(),
            function: functions.around(at).to_owned(),
            labels: labels(source, line),
            mutation,
            asked,
            range,
            replacement,
        });
    };
    for pair in order::pairs(source, &right(source, &skipped), labelled) {
        let text = &source.code[pair.first.start..pair.second.end];
        let asked = if text.contains("compiler_fence(") { UNMODELLED } else { usual };
        let exchanged = pair.exchanged(&source.text);
        add(
            pair.first.start,
            pair.first.start..pair.second.end,
            exchanged,
            EXCHANGE.to_owned(),
            asked,
        );
    }
    let live = |range: &Range<usize>| !skipped.iter().any(|skip| skip.contains(&range.start));
    for range in source.calls("bar_all", |name, _| name == "bar_all").into_iter().filter(live) {
        if !source.code[range.clone()].starts_with("system::") {
            continue; // the way from the library's call to the system's
        }
        // The caller is told that all threads have passed a barrier.
        add(range.start, range, "true".to_owned(), "drop bar_all()".to_owned(), &[Asked::Bells]);
    }
    for range in source.compiler_fences().into_iter().filter(live) {
        add(
            range.start,
            range.clone(),
            "()".to_owned(),
            format!("drop {}", call_of(&source.code[range])),
            UNMODELLED,
        );
    }
    let fences: Vec<Range<usize>> = source.fences().into_iter().filter(live).collect();
    for range in fences {
        add(
            range.start,
            range.clone(),
            "()".to_owned(),
            format!("drop {}", call_of(&source.code[range.clone()])),
            usual,
        );
        skipped.push(range);
    }
    for (ordering, weaker) in WEAKER {
        for at in source.words(ordering) {
            if skipped.iter().any(|range| range.contains(&at))
                || !is_argument(&source.code, at, ordering)
            {
                continue;
            }
            let bare = !source.code[..at].ends_with("Ordering::");
            for weak in weaker {
                let replacement = if bare { format!("{PATH}{weak}") } else { (*weak).to_owned() };
                add(at, at..at + ordering.len(), replacement, format!("{ordering}->{weak}"), usual);
            }
        }
    }
    found.sort_by_key(|mutant| mutant.range.start);
    found
}

/// The code with blanks for what no mutation changes: tests, imports, the wrong halves of twins.
fn right(source: &Source, skipped: &[Range<usize>]) -> String {
    let mut code = source.code.clone().into_bytes();
    for range in skipped {
        code[range.clone()].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(code).expect("whole ranges are blanked")
}

/// A call without spaces and paths: `fence(SeqCst)`.
fn call_of(code: &str) -> String {
    let call: String = code.split_whitespace().collect();
    let (path, order) = call.trim_end_matches(')').split_once('(').unwrap_or_default();
    let last = |path: &str| path.rsplit("::").next().unwrap_or_default().to_owned();
    format!("{}({})", last(path), last(order))
}

/// Whether the name at `at` is a value: an argument, or the outcome of a block.
/// A type, a variant of something else or a pattern of that name is not.
fn is_argument(code: &str, at: usize, ordering: &str) -> bool {
    let before = code[..at].trim_end();
    let before = before.strip_suffix("Ordering::").map_or(before, |path| {
        path.trim_end_matches(|c: char| c == ':' || c.is_alphanumeric() || c == '_').trim_end()
    });
    let after = code[at + ordering.len()..].trim_start();
    let argument = before.ends_with(['(', ',', '{', '='])
        || before.ends_with("=>")
        || before.ends_with("return");
    let right = before.ends_with("\":") && after.starts_with("=>"); // twin!("name": right => wrong)
    right || (argument && after.starts_with([')', ',', '}', ';']))
}

/// The wrong halves of `twin!("name": right => wrong)`, which only the models that expect to fail
/// ever run.
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
        compiler_fence(SeqCst);
        let barred = system::bar_all() && chosen::bar_all();
    }
}
#[cfg(test)]
mod tests { fn f() { x.load(Acquire); fence(SeqCst) } }
fn fence_before_ring() {}
"#;

    #[test]
    fn every_site_is_found_once() {
        let source = Source::new(TEXT);
        let found = mutants(Path::new("claim.rs"), &source, &HashSet::new());
        let said: Vec<String> =
            found.iter().map(|m| format!("{} {}", m.line, m.mutation)).collect();
        assert_eq!(
            said,
            [
                "8 swap with next",
                "10 Acquire->Relaxed",
                "11 swap with next",
                "11 drop fence(SeqCst)",
                "13 swap with next",
                "13 AcqRel->Acquire",
                "13 AcqRel->Release",
                "13 Acquire->Relaxed",
                "14 swap with next",
                "14 drop fence(SeqCst)",
                "15 swap with next",
                "15 Release->Relaxed",
                "15 drop fence_before_ring()",
                "17 swap with next",
                "17 Release->Relaxed",
                "18 swap with next",
                "18 drop fence(SeqCst)",
                "19 swap with next",
                "19 AcqRel->Acquire",
                "19 AcqRel->Release",
                "20 swap with next",
                "20 drop compiler_fence(SeqCst)",
                "21 drop bar_all()",
            ]
        );
        assert!(found.iter().all(|m| m.function == "Claim::take"));
        assert_eq!(found[1].labels, ["claim-word", "second"]);
        assert_eq!(found[1].text, ".load(Acquire); // SYNC[second]");
        assert!(found[3].labels.is_empty());
        let asked = |line: usize| {
            found.iter().filter(|m| m.line == line).map(|m| m.asked).collect::<Vec<_>>()
        };
        assert_eq!(asked(10), [[Asked::Models]]);
        assert_eq!(asked(19)[0], UNMODELLED, "it changes places with a fence for the compiler");
        assert_eq!((asked(20)[1], asked(21)[0]), (UNMODELLED, &[Asked::Bells][..]));
        let bells = mutants(Path::new("bell.rs"), &source, &HashSet::new());
        assert_eq!(bells[1].asked, [Asked::Models, Asked::Bells]);
    }

    #[test]
    fn a_mutant_differs_in_one_place() {
        let source = Source::new(TEXT);
        let found = mutants(Path::new("claim.rs"), &source, &HashSet::new());
        let applied = |line: usize, mutation: &str| {
            let mutant = found.iter().find(|m| m.line == line && m.mutation == mutation).unwrap();
            mutant.apply(TEXT)
        };
        assert!(
            applied(10, "Acquire->Relaxed")
                .contains(".load(::core::sync::atomic::Ordering::Relaxed); // SYNC")
        );
        assert!(applied(11, "drop fence(SeqCst)").contains("// SYNC[second]\n        ();\n"));
        assert!(applied(13, "Acquire->Relaxed").contains("AcqRel, Ordering::Relaxed)"));
        assert!(
            applied(17, "Release->Relaxed").contains(
                "twin!(\"no-release\": ::core::sync::atomic::Ordering::Relaxed => Relaxed)"
            )
        );
        assert!(applied(14, "drop fence(SeqCst)").contains(".ok();\n        ();\n"));
        assert!(
            applied(20, "drop compiler_fence(SeqCst)")
                .contains("        ();\n        let barred = system::bar_all()")
        );
        assert!(applied(21, "drop bar_all()").contains("let barred = true && chosen::bar_all();"));
        let exchanged = applied(17, EXCHANGE);
        let (first, second) =
            (exchanged.find("no-release").unwrap(), exchanged.find("no-fence").unwrap());
        assert!(second < first && exchanged.len() > TEXT.len() - 20);
    }

    #[test]
    fn the_library_has_sites_of_every_kind() {
        let folder = workspace::root().join("crates/slipring/src");
        let found = find(&folder).unwrap();
        for kind in [
            "Acquire->Relaxed",
            "drop fence(SeqCst)",
            "drop compiler_fence(SeqCst)",
            "drop bar_all()",
            EXCHANGE,
        ] {
            assert!(found.iter().any(|mutant| mutant.mutation == kind), "{kind}");
        }
        for mutant in found.iter().filter(|mutant| mutant.exchanges()) {
            let text = fs::read_to_string(folder.join(&mutant.file)).unwrap();
            // An exchange moves text, and at most names the value of its block.
            let letters = |text: &str| {
                let mut letters: Vec<char> =
                    text.replace("exchanged", "").chars().filter(|c| !c.is_whitespace()).collect();
                letters.sort_unstable();
                letters
            };
            let (before, after) = (letters(&text), letters(&mutant.apply(&text)));
            assert!(
                before == after || after.len() == before.len() + "let=;".len(),
                "{}:{}",
                mutant.file.display(),
                mutant.line
            );
        }
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        assert_eq!(submodule(Path::new("lib.rs"), Path::new("models")), Path::new("models"));
        assert_eq!(
            submodule(Path::new("ring/mod.rs"), Path::new("models")),
            Path::new("ring/models")
        );
        assert_eq!(submodule(Path::new("ring.rs"), Path::new("models")), Path::new("ring/models"));
        assert_eq!(submodule(Path::new("ring.rs"), Path::new("ring/t.rs")), Path::new("ring/t"));
    }
}
