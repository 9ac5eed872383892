//! The rules that no compiler knows: how long a module is, what no text may contain, that both ends
//! of a synchronisation edge carry its label, where `SeqCst` may stand.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Component, Path, PathBuf},
};

use crate::{source::Source, workspace};

/// Past this a module is two.
const LINES_AT_MOST: usize = 800;
/// Past this it is worth a thought.
const LINES_WARNED: usize = 600;
/// The folder whose edges are labelled.
const LIBRARY: &str = "crates/slipring/src";
/// Where every edge is explained.
const PROTOCOL: &str = "crates/slipring/src/PROTOCOL.md";
/// The folders whose tests wait for other threads.
const WAITING_TESTS: [&str; 2] = ["crates/slipring/tests", "crates/slipring-eventfd/tests"];
/// In those folders the tests that wait for the compiler alone.
const COMPILING_TESTS: &str = "crates/slipring/tests/must_fail.rs";
/// The one file (or folder) of the library that names the atomics.
const ATOMICS: &str = "crates/slipring/src/base/sync";

/// What the check has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What must be mended.
    pub errors: Vec<String>,
    /// What deserves a look.
    pub warnings: Vec<String>,
}

/// One file of the project.
struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// Checks the project at `root`.
pub fn check(root: &Path) -> io::Result<Findings> {
    let mut files = Vec::new();
    for path in workspace::files(root)? {
        let bytes = fs::read(root.join(&path))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path, text }); // the others are data
        }
    }
    let strays = Strays::of_this_machine(root);
    let mut found = Findings::default();
    for file in &files {
        lines(file, &mut found);
        strays.check(file, &mut found);
        registries(file, &mut found);
        library(file, &mut found);
        watchdogs(file, &mut found);
    }
    labels(&files, &mut found);
    Ok(found)
}

/// No module is too long.
fn lines(file: &File, found: &mut Findings) {
    let tests =
        |part: Component<'_>| matches!(part.as_os_str().to_str(), Some("tests" | "benches"));
    if !file.is_rust() || file.path.components().any(tests) {
        return;
    }
    let (count, path) = (file.text.lines().count(), file.path.display());
    if count > LINES_AT_MOST {
        found.errors.push(format!("{path}: {count} lines; past {LINES_AT_MOST} a module is two"));
    } else if count > LINES_WARNED {
        found
            .warnings
            .push(format!("{path}: {count} lines; a module has {LINES_WARNED} at most, as a rule"));
    }
}

/// Text that must not be anywhere.
struct Strays(Vec<(String, &'static str)>);

impl Strays {
    /// What is always wrong, and what only shows where this machine keeps its copy.
    fn of_this_machine(root: &Path) -> Self {
        let mut strays = Self::always();
        let here = "the project does not say where a copy of it lies";
        if root.components().count() > 2 {
            strays.0.push((root.display().to_string(), here));
        }
        if let Some(home) =
            env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1)
        {
            strays.0.push((format!("{}/", home.display()), here));
        }
        strays
    }

    fn always() -> Self {
        // Written in halves, or this file would find itself.
        let private = "the path of somebody's machine";
        let halves = [
            ("/ho", "me/", private),
            ("/Us", "ers/", private),
            ("/ro", "ot/", private),
            ("<<<<", "<<< ", "an unfinished merge"),
            (">>>>", ">>> ", "an unfinished merge"),
            ("FIX", "ME", "what must be mended is mended before it goes in"),
            ("TO", "DO", "open ends belong where they can be planned, not into the text"),
            ("XX", "X:", "open ends belong where they can be planned, not into the text"),
            ("dbg", "!(", "left over from a search"),
            ("todo", "!(", "unfinished"),
        ];
        Self(halves.map(|(front, back, why)| (format!("{front}{back}"), why)).into())
    }

    fn check(&self, file: &File, found: &mut Findings) {
        let lock = file.path.file_name().is_some_and(|name| name == "Cargo.lock");
        for (number, line) in file.text.lines().enumerate().filter(|_| !lock) {
            for (stray, why) in self.0.iter().filter(|(stray, _)| line.contains(stray.as_str())) {
                found.errors.push(format!(
                    "{}:{}: `{stray}`: {why}",
                    file.path.display(),
                    number + 1
                ));
            }
        }
    }
}

/// Dependencies come from crates.io and nowhere else, and no setting of ours says otherwise.
fn registries(file: &File, found: &mut Findings) {
    const REGISTRY: &str = r#"source = "registry+https://github.com/rust-lang/crates.io-index""#;
    let name = file.path.file_name().and_then(|name| name.to_str());
    for (number, line) in file.text.lines().enumerate() {
        let wrong = match name {
            Some("Cargo.lock") => line.starts_with("source = ") && line != REGISTRY,
            Some("config.toml") => line.starts_with("[source") || line.starts_with("[registries"),
            _ => false,
        };
        if wrong {
            found.errors.push(format!(
                "{}:{}: not crates.io: {line}",
                file.path.display(),
                number + 1
            ));
        }
    }
}

/// The rules of the library's own source.
fn library(file: &File, found: &mut Findings) {
    if !file.is_rust() || !file.path.starts_with(LIBRARY) {
        return;
    }
    let source = Source::new(&*file.text);
    let (uses, tests) = (source.uses(), source.test_code().ranges);
    let mut error = |at: usize, what: &str| {
        found.errors.push(format!("{}:{}: {what}", file.path.display(), source.line(at)));
    };
    let fences = source.fences();
    // A fence for the compiler alone is none that a model could miss.
    let is_fence = |at: &usize| {
        fences.iter().any(|range| range.contains(at))
            || file.text[..*at].ends_with("compiler_fence(")
    };
    for at in source
        .words("SeqCst")
        .filter(|at| !uses.iter().any(|range| range.contains(at)) && !is_fence(at))
    {
        error(
            at,
            "`SeqCst` outside of a fence: an access needs no more than Acquire or Release, see PROTOCOL.md",
        );
    }
    if file.path.to_string_lossy().starts_with(ATOMICS) {
        return;
    }
    for path in ["std::sync::atomic", "core::sync::atomic"] {
        for (at, _) in source.code.match_indices(path) {
            if !tests.iter().any(|range| range.contains(&at)) && !is_test_file(&file.path) {
                error(at, "atomics come from the file that switches to the model checker's");
            }
        }
    }
}

/// Every test that may wait has a watchdog.
fn watchdogs(file: &File, found: &mut Findings) {
    let waits = WAITING_TESTS.iter().any(|folder| file.path.starts_with(folder))
        && file.path != Path::new(COMPILING_TESTS);
    if !file.is_rust() || !waits {
        return;
    }
    let lines: Vec<&str> = file.text.lines().collect();
    for test in (0..lines.len()).filter(|&at| lines[at].trim() == "#[test]") {
        let mut body = lines[test..].iter().skip_while(|line| !line.ends_with('{')).skip(1);
        if !body.next().is_some_and(|first| first.contains("watched()")) {
            let what = "a test that hangs must fail: its first line is `let _watched = crate::common::watched();`";
            found.errors.push(format!("{}:{}: {what}", file.path.display(), test + 1));
        }
    }
}

/// Whether a file of the library holds tests or models, to go by its name.
fn is_test_file(path: &Path) -> bool {
    path.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        ["tests", "loom", "model"].iter().any(|word| name.contains(word))
    })
}

/// Every label stands at both ends of its edge and in the protocol, and the protocol explains none
/// that has gone.
fn labels(files: &[File], found: &mut Findings) {
    let mut seen: BTreeMap<String, (Vec<String>, usize)> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with(LIBRARY)) {
        let protocol = file.path == Path::new(PROTOCOL);
        let text =
            if file.is_rust() { Source::new(&*file.text).comments } else { file.text.clone() };
        if !protocol && !file.is_rust() {
            continue;
        }
        // What a module's own documentation says about an edge is neither of its ends.
        for (number, line) in
            text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//!"))
        {
            for label in labels_in(line) {
                let (places, explained) = seen.entry(label.to_owned()).or_default();
                if protocol {
                    *explained += 1;
                } else {
                    places.push(format!("{}:{}", file.path.display(), number + 1));
                }
            }
        }
    }
    for (label, (places, explained)) in seen {
        match (places.as_slice(), explained) {
            ([], _) => found.errors.push(format!(
                "{PROTOCOL}: SYNC[{label}] is explained, but stands nowhere in the code"
            )),
            ([one], _) => found
                .errors
                .push(format!("{one}: SYNC[{label}] stands at one end only: who pairs with it?")),
            ([first, ..], 0) => {
                found.errors.push(format!("{first}: SYNC[{label}] is not explained in {PROTOCOL}"))
            }
            _ => {}
        }
    }
}

/// The labels in a line of text: `SYNC[this]`.
pub fn labels_in(line: &str) -> impl Iterator<Item = &str> {
    line.split("SYNC[").skip(1).filter_map(|rest| rest.split_once(']').map(|(label, _)| label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: impl Into<String>) -> File {
        File { path: PathBuf::from(path), text: text.into() }
    }

    fn errors(check: impl Fn(&File, &mut Findings), file: &File) -> usize {
        let mut found = Findings::default();
        check(file, &mut found);
        found.errors.len()
    }

    #[test]
    fn long_modules_are_found() {
        let mut found = Findings::default();
        for (path, count) in [
            ("a/src/a.rs", 600),
            ("a/src/b.rs", 601),
            ("a/src/c.rs", 801),
            ("a/tests/d.rs", 900),
            ("a.md", 900),
        ] {
            lines(&file(path, "x\n".repeat(count)), &mut found);
        }
        assert_eq!((found.errors.len(), found.warnings.len()), (1, 1));
        assert!(found.errors[0].starts_with("a/src/c.rs: 801 lines"));
    }

    #[test]
    fn strays_are_found() {
        let strays = Strays::always();
        let check = |file: &File, found: &mut Findings| strays.check(file, found);
        assert_eq!(errors(check, &file("a.md", "all is well")), 0);
        assert_eq!(
            errors(
                check,
                &file("a.md", format!("see /{}/somebody and {}", "home", "TO".to_owned() + "DO"))
            ),
            2
        );
        let own = Strays::of_this_machine(Path::new("/some/where/else"));
        assert_eq!(
            errors(|file, found| own.check(file, found), &file("a.md", "in /some/where/else/a")),
            1
        );
    }

    #[test]
    fn other_registries_are_found() {
        let good = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        let bad = "source = \"registry+https://example.org/index\"";
        assert_eq!(errors(registries, &file("Cargo.lock", format!("{good}\n{bad}"))), 1);
        assert_eq!(errors(registries, &file(".cargo/config.toml", "[source.crates-io]\n")), 1);
    }

    #[test]
    fn sequential_consistency_is_for_fences() {
        let of = |text: &str| errors(library, &file("crates/slipring/src/ring.rs", text));
        assert_eq!(
            of(
                "use crate::sync::{Ordering::SeqCst, fence}; fn f() { fence(SeqCst); sync::fence(sync::SeqCst) } // SeqCst"
            ),
            0
        );
        assert_eq!(of("fn f() { compiler_fence(SeqCst) }"), 0);
        assert_eq!(of("fn f() { a.load(SeqCst); b.store(1, Ordering::SeqCst); }"), 2);
    }

    #[test]
    fn atomics_are_named_in_one_file() {
        let text = "//! std::sync::atomic\nuse std::sync::atomic::AtomicBool;\n#[cfg(test)] mod tests { use std::sync::atomic::AtomicU8; }";
        assert_eq!(errors(library, &file("crates/slipring/src/ring.rs", text)), 1);
        assert_eq!(errors(library, &file("crates/slipring/src/base/sync.rs", text)), 0);
        assert_eq!(errors(library, &file("crates/slipring/src/loom_gating.rs", text)), 0);
        assert_eq!(errors(library, &file("crates/other/src/ring.rs", text)), 0);
    }

    #[test]
    fn tests_without_a_watchdog_are_found() {
        let of = |path: &str, text: &str| errors(watchdogs, &file(path, text));
        let watched = "#[test]\n#[ignore]\nfn a() {\n    let _watched = crate::common::watched();\n    b();\n}\n";
        assert_eq!(of("crates/slipring/tests/a.rs", watched), 0);
        let bare = "#[test]\nfn a() {\n    b();\n}\n";
        assert_eq!(of("crates/slipring/tests/a/b.rs", &format!("{bare}{watched}{bare}")), 2);
        assert_eq!(of("crates/slipring-eventfd/tests/a.rs", bare), 1);
        assert_eq!(of(COMPILING_TESTS, bare) + of("crates/slipring-cli/tests/a.rs", bare), 0);
    }

    #[test]
    fn edges_need_both_ends_and_an_explanation() {
        let found = |code: &str, protocol: &str| {
            let mut found = Findings::default();
            labels(&[file("crates/slipring/src/a.rs", code), file(PROTOCOL, protocol)], &mut found);
            found.errors.join("\n")
        };
        assert_eq!(
            found(
                "// SYNC[a]: with b\nx();\n// SYNC[a]: with c\n",
                "SYNC[a] is enough because ..."
            ),
            ""
        );
        assert!(found("// SYNC[a]\n", "SYNC[a]").contains("one end only"));
        assert!(found("//! I1: SYNC[a]\nx(); // SYNC[a]\n", "SYNC[a]").contains("one end only"));
        assert!(found("// SYNC[a]\n// SYNC[a]\n", "").contains("not explained"));
        assert!(found("", "SYNC[a]").contains("nowhere in the code"));
        assert!(found("let x = \"SYNC[a]\"; // SYNC[b]\n// SYNC[b]", "SYNC[b]").is_empty());
    }
}
