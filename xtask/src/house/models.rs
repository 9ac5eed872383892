//! The rule that product code names no test module, no model and no model checker.
//!
//! Here, a line of a product file counts as product code even if it is under `cfg(test)` or
//! `cfg(slipring_loom)`, because it makes the product depend on the tests. Only a module that is a
//! test as a whole may name tests. The model checker may also be named by the files that choose
//! between the processor's atomics and the checker's.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::Item;

use super::{MODELS, crates::Crate};
use crate::{findings::Findings, layout, source};

/// The model checker's crate.
const CHECKER: &str = "loom";

/// Modules of the ground room by which models watch and steer the library. They lie below the
/// product, so an arrow from the product to one of them points downwards. The last one may name the
/// checker.
const HOOKS: [&str; 2] = ["model_hooks", "guarded"];

/// Finds product code that names a test module or the model checker.
pub fn check(krate: &Crate, found: &mut Findings) {
    let house = &krate.house;
    let mut tests = Vec::new();
    for source in &house.sources {
        let items = source.syntax.items.iter();
        tests.extend(items.filter(|item| is_tests(item)).filter_map(|item| match item {
            // An inline module that is compiled only for the model checker is not a test module: it
            // is one half of a choice between the checker and the processor.
            Item::Mod(module) if module.content.is_none() => {
                Some(module.ident.to_string()).filter(|name| !HOOKS.contains(&&name[..]))
            }
            _ => None,
        }));
    }
    for (at, source) in house.sources.iter().enumerate() {
        let file = &house.files[at];
        let is_hook = HOOKS.iter().any(|hook| file.ends_with(format!("base/{hook}.rs")));
        let chooses = krate.is_library() && (layout::is_atomics(file) || is_hook);
        let mut names = Vec::new();
        for item in source.syntax.items.iter().filter(|item| !is_tests(item)) {
            paths(item.to_token_stream(), &mut |offset, name, is_first| {
                let is_checker = is_first && name == CHECKER && !chooses;
                if is_checker || tests.iter().any(|test| test == name) {
                    names.push((offset, name.to_owned()));
                }
            });
        }
        for (offset, name) in names {
            let path = krate.path(at);
            let message = format!("{path}:{}: product code names `{name}`", source.line(offset));
            found.breach(&krate.folder, "model", message);
        }
    }
}

/// Returns whether an item is a module that only tests or models compile.
fn is_tests(item: &Item) -> bool {
    matches!(item, Item::Mod(module) if source::is_gated(&module.attrs, MODELS))
}

/// Calls `each` for every name that is followed by `::`, with the name's byte offset, its text, and
/// whether it is the first name of its path.
fn paths(tokens: TokenStream, each: &mut impl FnMut(usize, &str, bool)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let colons = |at: usize| {
        let colon =
            |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
        colon(at) && colon(at + 1)
    };
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => paths(group.stream(), each),
            TokenTree::Ident(ident) if colons(at + 1) => {
                let is_first = at < 2 || !colons(at - 2);
                each(ident.span().byte_range().start, &ident.to_string(), is_first);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{arrows::Arrows, tests::house};

    fn messages(ring: &str) -> Vec<String> {
        let house = house(&[
            ("lib.rs", "mod base; mod ring; #[cfg(all(test, slipring_loom))] mod loom_models;"),
            ("base/mod.rs", "mod sync;"),
            ("base/sync.rs", "#[cfg(slipring_loom)] mod real { use loom::sync::Mutex; }"),
            ("ring.rs", ring),
        ]);
        let (folder, arrows) = (layout::LIBRARY.to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&Crate { folder, house, arrows }, &mut found);
        found.breaches.into_iter().map(|breach| breach.message).collect()
    }

    #[test]
    fn product_code_that_names_a_model_is_found() {
        for (text, name) in [
            ("fn f() { #[cfg(test)] crate::loom_models::step(); }", "loom_models"),
            ("struct A { #[cfg(slipring_loom)] a: loom::cell::UnsafeCell<()> }", "loom"),
            ("#[cfg(slipring_loom)] use loom::{thread};", "loom"),
            ("fn f() { assert!(crate::loom_models::step()); }", "loom_models"),
        ] {
            let message = format!("crates/slipring/src/ring.rs:1: product code names `{name}`");
            assert_eq!(messages(text), [message], "{text}");
        }
    }

    #[test]
    fn tests_may_name_models() {
        for text in [
            "#[cfg(test)] mod tests { use crate::loom_models::step; }",
            "/// Modelled in `loom_models::step`.\nfn f() {}",
            "fn f() { base::loom::x(); let loom = 1; }",
        ] {
            assert!(messages(text).is_empty(), "{text}");
        }
    }
}
