//! The rules of the library's code: `SeqCst` appears only in fences, one module names the atomics,
//! threads, locks, thread-locals and the clock, and each test that may wait has a watchdog.

use std::{collections::BTreeMap, path::Path};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Stmt,
    visit::{self, Visit},
};

use super::file::File;
use crate::findings::Findings;
use crate::{layout, source};

/// The calls that may take `SeqCst` as an argument. `compiler_fence` is one of them because no
/// model sees compiler fences.
const FENCES: [&str; 2] = ["fence", "compiler_fence"];

/// The locks and channels of `std::sync`.
const LOCKS: [&str; 10] = [
    "Barrier",
    "Condvar",
    "Mutex",
    "MutexGuard",
    "RwLock",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "mpmc",
    "mpsc",
    "nonpoison",
];

/// Finds `SeqCst` outside of fences, and what the module `sync` chooses outside of this module.
pub fn orderings(file: &File, found: &mut Findings) {
    let Ok(within) = file.path.strip_prefix(layout::SOURCE) else { return };
    let Some(source) = file.source(found) else { return };
    let mut error = |at: usize, what: &str| {
        found.errors.push(format!("{}:{}: {what}", file.path.display(), source.line(at)));
    };
    let mut places = Vec::new();
    sequential(source.tokens.clone(), &mut places);
    for at in places {
        error(at, "`SeqCst` outside of a fence: Acquire or Release is enough, see PROTOCOL.md");
    }
    if layout::is_atomics(within) || layout::is_test_file(within) {
        return;
    }
    let live = source.live();
    let mut named = Named(BTreeMap::new());
    named.visit_file(&live);
    named.tokens(live.to_token_stream());
    for (at, service) in named.0 {
        match service {
            Service::Atomics => {
                error(at, "the module `sync` chooses the atomics: import them from there");
            }
            Service::Other if !layout::is_shim(within) => {
                let what = "the module `sync` chooses the clock, threads, locks and thread-locals: \
                            take `now`, `elapsed`, `sleep`, `Mutex`, `per_thread!` ... from there";
                error(at, what);
            }
            Service::Other => {}
        }
    }
}

/// Collects the places of `SeqCst` outside of imports and fences.
fn sequential(tokens: TokenStream, places: &mut Vec<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => sequential(group.stream(), places),
            TokenTree::Ident(ident) if ident == "use" => {
                let is_bound = |token: &TokenTree| is_punct(token, '<');
                if !tokens.peek().is_some_and(is_bound) {
                    tokens.by_ref().find(|token| is_punct(token, ';'));
                }
            }
            TokenTree::Ident(ident) if FENCES.iter().any(|fence| ident == fence) => {
                tokens.next_if(is_call);
            }
            TokenTree::Ident(ident) if ident == "SeqCst" => {
                places.push(ident.span().byte_range().start);
            }
            _ => {}
        }
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_call(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

/// A service of the standard library that the module `sync` chooses.
#[derive(Clone, Copy)]
enum Service {
    Atomics,
    /// The clock, threads, locks and thread-locals.
    Other,
}

impl Service {
    /// Returns the service that a path names.
    fn of(path: &[&str]) -> Option<Service> {
        match path {
            ["std" | "core", "sync", "atomic", ..] => Some(Service::Atomics),
            ["std", "sync", lock, ..] if LOCKS.contains(lock) => Some(Service::Other),
            ["std", "thread" | "thread_local", ..]
            | ["std", "time", "SystemTime", ..]
            | ["std" | "core", "hint", "spin_loop"]
            | ["thread_local"]
            | [.., "Instant" | "SystemTime", "now" | "elapsed"] => Some(Service::Other),
            _ => None,
        }
    }
}

/// The places that name a service, each with the service.
struct Named(BTreeMap<usize, Service>);

impl Named {
    /// Adds the paths and the readings of the clock in `tokens`, including those in calls of
    /// macros.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut start = None;
        // The last identifier before a dot, if the dot was the last token.
        let mut receiver: Option<String> = None;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let before_dot = receiver.take();
            match token {
                // A `WaitContext`, which is always named `context`, knows the time without a
                // reading.
                TokenTree::Ident(ident) if ident == "elapsed" && before_dot.is_some() => {
                    path.clear();
                    let is_clock = before_dot.is_some_and(|receiver| receiver != "context");
                    if is_clock && tokens.peek().is_some_and(is_call) {
                        self.0.insert(ident.span().byte_range().start, Service::Other);
                    }
                }
                TokenTree::Ident(ident) => {
                    if path.last().is_none_or(|last| last != "::") {
                        (path, start) = (Vec::new(), Some(ident.span()));
                    }
                    path.push(ident.to_string());
                    let parts: Vec<&str> =
                        path.iter().map(String::as_str).filter(|part| *part != "::").collect();
                    if let (Some(service), Some(span)) = (Service::of(&parts), start) {
                        self.0.insert(span.byte_range().start, service);
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '.' => {
                    // Two dots in a row are a range.
                    receiver = before_dot.is_none().then(|| path.pop().unwrap_or_default());
                    path.clear();
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    if path.last().is_some_and(|last| last != "::") {
                        path.push("::".to_owned());
                    }
                }
                TokenTree::Group(group) => {
                    path.clear();
                    self.tokens(group.stream());
                }
                _ => path.clear(),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for import in source::imports(item) {
            let path: Vec<&str> = import.path.iter().map(String::as_str).collect();
            if let Some(service) = Service::of(&path) {
                self.0.insert(source::range(&item.tree).start, service);
            }
        }
    }
}

/// Finds tests that may wait and have no watchdog.
pub fn watchdogs(file: &File, found: &mut Findings) {
    let waits = layout::WAITING_TESTS.iter().any(|folder| file.path.starts_with(folder))
        && file.path != Path::new(layout::COMPILING_TESTS);
    if !waits {
        return;
    }
    let Some(source) = file.source(found) else { return };
    let mut bare = Bare(Vec::new());
    bare.visit_file(&source.syntax);
    let rule =
        "a test that hangs must fail: begin it with `let _watched = crate::common::watched();`";
    let errors =
        bare.0.into_iter().map(|at| format!("{}:{}: {rule}", file.path.display(), source.line(at)));
    found.errors.extend(errors);
}

/// The tests whose first statement is no watchdog.
struct Bare(Vec<usize>);

impl<'ast> Visit<'ast> for Bare {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let is_test = item.attrs.iter().any(|attribute| attribute.path().is_ident("test"));
        let watches = |first: &Stmt| {
            first.to_token_stream().to_string().split_whitespace().any(|word| word == "watched")
        };
        if is_test && !item.block.stmts.first().is_some_and(watches) {
            self.0.push(source::range(&item.sig).start);
        }
        visit::visit_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file::tests::{errors, file};

    #[test]
    fn sequential_consistency_is_for_fences() {
        let of =
            |text: &str| errors(orderings, &file("crates/slipring/src/ring.rs", text.to_owned()));
        let fences = "use crate::sync::{Ordering::SeqCst, fence};
            fn f() { fence(SeqCst); sync::fence(sync::SeqCst); twin!(\"a\": fence(SeqCst) => ()) }
            // SeqCst";
        assert_eq!(of(fences), 0);
        assert_eq!(of("fn f() { compiler_fence(SeqCst) }"), 0);
        assert_eq!(of("fn f() { a.load(SeqCst); b.store(1, Ordering::SeqCst); }"), 2);
        assert_eq!(of("fn f() { twin!(\"a\": b.load(SeqCst) => ()) }"), 1);
        assert_eq!(of("fn f() -> impl A + use<'_> { a.load(SeqCst); b }"), 1);
    }

    #[test]
    fn atomics_are_named_in_one_module() {
        let of = |path: &str, text: &str| errors(orderings, &file(path, text.to_owned()));
        let text = "//! std::sync::atomic\nuse std::sync::atomic::AtomicBool;
            #[cfg(test)] mod tests { use std::sync::atomic::AtomicU8; }";
        assert_eq!(of("crates/slipring/src/ring.rs", text), 1);
        assert_eq!(of("crates/slipring/src/base/sync.rs", text), 0);
        assert_eq!(of("crates/slipring/src/loom_gating.rs", text), 0);
        assert_eq!(of("crates/other/src/ring.rs", text), 0);
        let grouped = "use std::{sync::{Arc, atomic}, fmt};";
        assert_eq!(of("crates/slipring/src/ring.rs", grouped), 1);
        let inline = "fn f() { assert!(core::sync::atomic::AtomicU8::new(1) == x::sync::atomic) }";
        assert_eq!(of("crates/slipring/src/ring.rs", inline), 1);
    }

    #[test]
    fn clocks_threads_locks_and_thread_locals_are_named_in_one_module() {
        let of = |path: &str, text: &str| errors(orderings, &file(path, text.to_owned()));
        let ring = |text: &str| of("crates/slipring/src/ring.rs", text);
        for breach in [
            "use std::thread;",
            "use std::{sync::{Arc, Mutex as Lock}, fmt};",
            "use std::time::SystemTime;",
            "fn f() { let now = std::time::Instant::now(); }",
            "fn f(clock: C) { clock.get_or_insert_with(Instant::now); }",
            "fn f(began: Instant) { g(self.began.elapsed()) }",
            "fn f() { assert!(began().elapsed() > LIMIT) }",
            "fn f() { std::thread::sleep(TIME) }",
            "fn f() -> bool { std::thread::panicking() }",
            "fn f() { core::hint::spin_loop() }",
            "fn f() { let channel = std::sync::mpsc::channel(); }",
            "thread_local! { static A: u8 = const { 0 }; }",
            "std::thread_local! { static A: u8 = const { 0 }; }",
        ] {
            assert_eq!(ring(breach), 1, "{breach}");
            assert_eq!(of("crates/slipring/src/base/sync.rs", breach), 0, "{breach}");
            assert_eq!(of("crates/slipring/src/base/system.rs", breach), 0, "{breach}");
            assert_eq!(ring(&format!("#[cfg(test)] mod tests {{ {breach} }}")), 0, "{breach}");
        }
        assert_eq!(of("crates/slipring/src/base/system.rs", "use std::sync::atomic::AtomicU8;"), 1);
        for right in [
            "//! `Instant::now()` and `began.elapsed()`",
            "use std::{sync::{Arc, OnceLock}, time::{Duration, Instant}};",
            "use crate::base::sync::{Mutex, now, sleep};",
            "fn f(context: &WaitContext) { g(context.elapsed(), 0..elapsed(began), times.elapsed) }",
            "per_thread! { static A: u8 = const { 0 }; }",
        ] {
            assert_eq!(ring(right), 0, "{right}");
        }
    }

    #[test]
    fn tests_without_a_watchdog_are_found() {
        let of = |path: &str, text: &str| errors(watchdogs, &file(path, text.to_owned()));
        let watched =
            "#[test]\n#[ignore]\nfn a() {\n    let _watched = crate::common::watched();\n}\n";
        assert_eq!(of("crates/slipring/tests/a.rs", watched), 0);
        let bare = "#[test]\nfn a() {\n    b();\n}\n";
        assert_eq!(of("crates/slipring/tests/a/b.rs", &format!("{bare}{watched}{bare}")), 2);
        assert_eq!(of("crates/slipring-eventfd/tests/a.rs", bare), 1);
        let exempt = ["crates/slipring-cli/tests/a.rs", layout::COMPILING_TESTS];
        assert_eq!(exempt.map(|path| of(path, bare)), [0, 0]);
        assert_eq!(of("crates/slipring/tests/a.rs", "fn a( {"), 1, "no Rust");
    }
}
