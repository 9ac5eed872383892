//! The rule that each crate states its memory orderings in few, named places.
//!
//! `Relaxed` orders nothing and may stand anywhere. An import is not a use. An ordering of the
//! standard library is known by its name: alone, or behind `Ordering`, `atomic` or `sync`.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use crate::{
    findings::Findings,
    house::{MODELS, crates::Crate},
    source,
};

/// The orderings that order something.
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
/// The modules that may qualify the name of an ordering.
const QUALIFIERS: [&str; 3] = ["Ordering", "atomic", "sync"];

/// The places that may state orderings, each with the reason. A place is a file, or a folder with
/// all its files.
const PLACES: [(&str, &str); 18] = [
    ("crates/slipring/src/base/edge", "both ends of every edge of the protocol"),
    ("crates/slipring/src/ring/owner_count.rs", "a count of references, as in `Arc`"),
    (
        "crates/slipring-shm/src/layout/records.rs",
        "both ends of the words of a participant's record",
    ),
    ("crates/slipring-shm/src/handles/segment.rs", "one flag, which one file sets and clears"),
    ("crates/slipring-cli/src/lab/contenders", "queues that the lab compares with the library"),
    ("crates/slipring-cli/src/lab/cores/trips.rs", "a bare word between two cores is the subject"),
    ("crates/slipring-cli/src/lab/waits/wake.rs", "a bare futex word is the subject"),
    ("crates/slipring-eventfd/src/fd.rs", "one flag, which one file sets and clears"),
    ("crates/slipring-exchange/src/spin.rs", "a bare word between two processes is the subject"),
    ("crates/slipring-coherence/src/memory.rs", "late stores, made for the program"),
    ("crates/slipring-coherence/src/sync", "the standard library's primitives, made anew"),
    ("alternatives/src", "each design states its own orderings, which are a part of it"),
    ("peers/instructions/src/limit.rs", "a hand-made limit"),
    ("peers/simulated/src/hand", "published algorithms, each with its own orderings"),
    ("peers/simulated/src/tsan.rs", "accesses of other crates, made for them"),
    ("peers/src/contenders", "hand-made contenders"),
    ("peers/src/limits", "hand-made limits"),
    ("peers/src/figures", "hand-made limits, and flags that end a measurement"),
];

/// Finds orderings outside of the named places.
pub fn check(krate: &Crate, found: &mut Findings) {
    for (at, source) in krate.house.sources.iter().enumerate() {
        let path = krate.path(at);
        let is_within = |(place, _): &(&str, &str)| {
            path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if PLACES.iter().any(is_within) {
            continue;
        }
        let mut places = Vec::new();
        stated(source::stripped(&source.syntax, MODELS).to_token_stream(), &mut places);
        for (offset, ordering) in places {
            let what = "outside of the places in `tidy/orderings.rs` that may state an ordering";
            let message = format!("{path}:{}: `{ordering}` {what}", source.line(offset));
            found.breach(&krate.folder, "ordering", message);
        }
    }
}

/// Collects the orderings in `tokens`, with their places.
fn stated(tokens: TokenStream, places: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_colon = |at: usize| matches!(&tokens[at], TokenTree::Punct(p) if p.as_char() == ':');
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "use" => {
                let end =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
                // `use<'a>` in a type is not an import: it names no ordering, and no semicolon ends
                // it.
                let is_import =
                    !matches!(tokens.get(at + 1), Some(TokenTree::Punct(p)) if p.as_char() == '<');
                if is_import {
                    at += tokens[at..].iter().position(end).unwrap_or(0);
                }
            }
            TokenTree::Ident(word) => {
                let word_text = word.to_string();
                let is_qualified = at >= 2 && is_colon(at - 1) && is_colon(at - 2);
                let is_ordering = !is_qualified
                    || matches!(tokens.get(at.wrapping_sub(3)),
                        Some(TokenTree::Ident(module)) if QUALIFIERS.iter().any(|q| module == q));
                if is_ordering && ORDERINGS.contains(&word_text.as_str()) {
                    places.push((word.span().byte_range().start, word_text));
                }
            }
            TokenTree::Group(group) => stated(group.stream(), places),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{arrows::Arrows, tests::house};

    fn stated_in(folder: &str, file: &str, text: &str) -> usize {
        let module = format!("mod {};", file.trim_end_matches(".rs"));
        let house = house(&[("lib.rs", &module), (file, text)]);
        let (folder, arrows) = (folder.to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&Crate { folder, house, arrows }, &mut found);
        found.breaches.len()
    }

    #[test]
    fn orderings_outside_of_their_places_are_found() {
        let text = "use std::sync::atomic::Ordering::{Acquire, Release};
            fn f() { a.load(Acquire); b.store(1, Ordering::Release); c.swap(1, atomic::AcqRel); }";
        assert_eq!(stated_in("crates/other", "a.rs", text), 3);
        assert_eq!(stated_in("crates/slipring-eventfd", "fd.rs", text), 0);
        assert_eq!(stated_in("crates/slipring-eventfd", "fd_other.rs", text), 3);
    }

    #[test]
    fn other_words_are_no_orderings() {
        for text in [
            "fn f() { a.load(Relaxed); Step::Release; }",
            "/// Acquire\nfn f() { \"Release\"; }",
            "#[cfg(test)] mod tests { fn f() { a.load(Acquire); } }",
            "fn f() { use x::Acquire; }",
        ] {
            assert_eq!(stated_in("crates/other", "a.rs", text), 0, "{text}");
        }
    }
}
