//! Finds the places whose ordering can be weakened, and weakens one.
//!
//! A mutant weakens an ordering, drops a fence or the barrier, or moves a statement behind the next
//! one that touches shared state ([`order`]).

use std::{
    collections::HashSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use syn::{
    Expr,
    visit::{self, Visit},
};

use super::order::{self, Labelled};
use crate::{
    layout,
    source::{self, Source},
    tidy::labels::labels_in,
    workspace,
};

/// Each ordering, and the weaker orderings that replace it. Each replacement makes a mutant.
const WEAKER: [(&str, &[&str]); 3] =
    [("Acquire", &["Relaxed"]), ("Release", &["Relaxed"]), ("AcqRel", &["Acquire", "Release"])];

/// The judges of a compiler fence. No model sees such a fence, because it only orders machine code.
const UNMODELLED: &[Asked] = &[Asked::Assembly, Asked::Queue];

/// The judges of an exchange of two statements if one of them has a compiler fence. The models are
/// among the judges, because that statement may also have a fence that they see.
const PARTLY_MODELLED: &[Asked] = &[Asked::Assembly, Asked::Models, Asked::Queue];

/// The mutation that moves a statement behind the next one that touches shared state.
const EXCHANGE: &str = "swap with next";

/// The path of the orderings, independent of imports.
const PATH: &str = "::core::sync::atomic::Ordering::";

/// The orderings of a fence.
const FENCE_ORDERS: [&str; 4] = ["SeqCst", "AcqRel", "Acquire", "Release"];

/// The calls of the module `system` that issue a barrier on all threads.
const BARRIERS: [&str; 2] = ["bar_all", "membarrier"];

/// The judges of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// The models, in the model checker.
    Models,
    /// The tests of the wait queue, outside of the model checker.
    Queue,
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
    /// The judges, in their order.
    pub asked: &'static [Asked],
    range: Range<usize>,
    replacement: String,
}

impl Mutant {
    /// Returns whether the mutant exchanges two statements. The compiler may refuse such a mutant.
    pub fn exchanges(&self) -> bool {
        self.mutation == EXCHANGE
    }

    /// Returns the source with this one change.
    pub fn apply(&self, text: &str) -> String {
        format!("{}{}{}", &text[..self.range.start], self.replacement, &text[self.range.end..])
    }
}

/// Returns all mutants of the library whose source is `folder`, file by file.
pub fn find(folder: &Path) -> io::Result<Vec<Mutant>> {
    let files: Vec<PathBuf> = workspace::files(folder)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    let mut sources = Vec::new();
    let mut tests = HashSet::new();
    for file in files {
        let source = Source::parse(fs::read_to_string(folder.join(&file))?)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        tests.extend(source.test_modules().iter().map(|module| submodule(&file, module)));
        if source.is_test() {
            tests.insert(file.with_extension(""));
        }
        sources.push((file, source));
    }
    let is_test = |file: &Path| {
        file.ancestors()
            .any(|part| tests.contains(&part.with_extension("")) || part.ends_with("tests"))
    };
    sources.retain(|(file, _)| !is_test(file));
    let labelled = Labelled::of(sources.iter().map(|(file, source)| (file.as_path(), source)));
    Ok(sources.iter().flat_map(|(file, source)| mutants(file, source, &labelled)).collect())
}

/// Returns the path, without its extension, of the module that `file` declares.
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

/// Returns all mutants of one file. `labelled` has the names whose calls touch shared state.
pub fn mutants(file: &Path, source: &Source, labelled: &Labelled) -> Vec<Mutant> {
    let functions = source.functions();
    let live = source.live();
    let mut found = Vec::new();
    let usual: &[Asked] =
        if layout::is_wait_queue(file) { &[Asked::Models, Asked::Queue] } else { &[Asked::Models] };
    let mut add = |range: Range<usize>,
                   replacement: String,
                   mutation: String,
                   asked: &'static [Asked],
                   own: &[String]| {
        let line = source.line(range.start);
        let function = functions.around(range.start).to_owned();
        let mut labels = labels(source, line);
        labels.extend(own.iter().cloned());
        if layout::is_edges(file) {
            labels.push(order::edge_of(file, &function).0.replace('_', "-"));
        }
        found.push(Mutant {
            file: file.to_path_buf(),
            line,
            text: source.text.lines().nth(line - 1).unwrap_or_default().trim().to_owned(),
            function,
            labels,
            mutation,
            asked,
            range,
            replacement,
        });
    };
    for pair in order::pairs(source, &live, labelled) {
        let asked = if pair.is_compiled { PARTLY_MODELLED } else { usual };
        let exchanged = pair.exchanged(&source.text);
        let range = pair.first.start..pair.second.end;
        add(range, exchanged, EXCHANGE.to_owned(), asked, &pair.labels);
    }
    let mut sites = Sites { labelled, calls: Vec::new(), orderings: Vec::new() };
    sites.visit_file(&live);
    for Call { range, name, .. } in sites.calls(FenceKind::Barrier) {
        // The mutant drops the barrier, and returns to its caller as if all threads had passed one.
        add(range.clone(), "true".to_owned(), format!("drop {name}"), &[Asked::Queue], &[]);
    }
    for (kind, asked) in [(FenceKind::CompilerFence, UNMODELLED), (FenceKind::Fence, usual)] {
        for Call { range, name, .. } in sites.calls(kind) {
            add(range.clone(), "()".to_owned(), format!("drop {name}"), asked, &[]);
        }
    }
    for (ordering, weaker) in WEAKER {
        for (range, _) in sites.orderings.iter().filter(|(_, name)| name == ordering) {
            for weak in weaker {
                let bare = !source.text[..range.start].ends_with("Ordering::");
                let replacement = if bare { format!("{PATH}{weak}") } else { (*weak).to_owned() };
                add(range.clone(), replacement, format!("{ordering}->{weak}"), usual, &[]);
            }
        }
    }
    found.sort_by_key(|mutant| mutant.range.start);
    found
}

/// The calls and orderings that can be weakened.
struct Sites<'l> {
    labelled: &'l Labelled,
    calls: Vec<Call>,
    orderings: Vec<(Range<usize>, String)>,
}

struct Call {
    kind: FenceKind,
    range: Range<usize>,
    /// The call without its paths: `fence(SeqCst)`.
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FenceKind {
    Barrier,
    CompilerFence,
    Fence,
}

impl Sites<'_> {
    fn calls(&self, kind: FenceKind) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.kind == kind)
    }
}

impl<'ast> Visit<'ast> for Sites<'_> {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let Some((kind, name)) = ordering_call(call, self.labelled) else {
            return visit::visit_expr_call(self, call);
        };
        self.calls.push(Call { kind, range: source::range(call), name });
    }

    fn visit_expr_path(&mut self, expression: &'ast syn::ExprPath) {
        let mut segments = expression.path.segments.iter().rev();
        let Some(last) = segments.next() else { return };
        if segments.next().is_none_or(|before| before.ident == "Ordering") {
            self.orderings.push((source::range(&last.ident), last.ident.to_string()));
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        for argument in source::arguments(mac) {
            self.visit_expr(&argument);
        }
    }
}

/// Returns the kind and the name of a call that only orders memory accesses.
fn ordering_call(call: &syn::ExprCall, labelled: &Labelled) -> Option<(FenceKind, String)> {
    let Expr::Path(function) = &*call.func else { return None };
    let mut segments = function.path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let (name, module) = (segments.next()?, segments.next());
    let argument = call.args.last().and_then(|argument| match argument {
        Expr::Path(order) => order.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    });
    let kind = match (name.as_str(), &argument) {
        ("compiler_fence", Some(_)) => FenceKind::CompilerFence,
        ("fence", Some(order)) if FENCE_ORDERS.contains(&order.as_str()) => FenceKind::Fence,
        // The fence of an edge is dropped where the edge defines it.
        (_, None) if module.as_deref().is_some_and(|module| labelled.is_edge(module)) => {
            return None;
        }
        (fence, _) if fence.starts_with("fence_") && call.args.is_empty() => FenceKind::Fence,
        // Calls within the module `system` only pass the library's call on to the system, so they
        // do not count.
        (barrier, _) if BARRIERS.contains(&barrier) && module.as_deref() == Some("system") => {
            FenceKind::Barrier
        }
        _ => return None,
    };
    Some((kind, format!("{name}({})", argument.unwrap_or_default())))
}

/// Returns the labels that belong to `line`: on it, in its statement, or in the comment right
/// above.
fn labels(source: &Source, line: usize) -> Vec<String> {
    let code: Vec<&str> = source.code().lines().collect();
    let comments: Vec<&str> = source.comments().lines().collect();
    let mut found = Vec::new();
    for at in (0..line).rev() {
        let (code, comment) = (code[at].trim(), comments[at].trim());
        let own = at + 1 == line;
        if !own && (code.ends_with([';', '{', '}']) || (code.is_empty() && comment.is_empty())) {
            break;
        }
        found.extend(labels_in(comment).map(str::to_owned));
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
        self.word.store(1, if say.is_empty() { Relaxed } else { Release }); queue::fence_before_notify();
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
fn fence_before_notify() {}
"#;

    #[test]
    fn every_site_is_found_once() {
        let source = Source::parse(TEXT).unwrap();
        let found = mutants(Path::new("claim.rs"), &source, &Labelled::default());
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
                "15 drop fence_before_notify()",
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
        assert_eq!(asked(19)[0], PARTLY_MODELLED, "the pair has a compiler fence");
        assert_eq!((asked(20)[1], asked(21)[0]), (UNMODELLED, &[Asked::Queue][..]));
        let queue = mutants(Path::new("wait/queue.rs"), &source, &Labelled::default());
        assert_eq!(queue[1].asked, [Asked::Models, Asked::Queue]);
    }

    #[test]
    fn a_mutant_differs_in_one_place() {
        let source = Source::parse(TEXT).unwrap();
        let found = mutants(Path::new("claim.rs"), &source, &Labelled::default());
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
            "drop membarrier()",
            EXCHANGE,
        ] {
            assert!(found.iter().any(|mutant| mutant.mutation == kind), "{kind}");
        }
        for mutant in found.iter().filter(|mutant| mutant.exchanges()) {
            let text = fs::read_to_string(folder.join(&mutant.file)).unwrap();
            // An exchange only moves text. At most, it adds the name `exchanged` for the value of
            // its block.
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
