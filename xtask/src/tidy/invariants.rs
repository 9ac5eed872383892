//! The rule that unsafe code rests on stated invariants.
//!
//! The documentation of a module with unsafe code states the invariants of the module: `I1`, `I2`,
//! and so on. A `SAFETY` comment may cite an invariant of its own module, of a module that the
//! comment names, or of the module around its own. A lint of clippy checks that every `unsafe` has
//! such a comment.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};

use crate::{
    findings::Findings,
    house::{MODELS, crates::Crate},
    source::{self, Source},
};

/// Finds modules with unsafe code that state no invariant, and cited invariants that no module
/// states.
pub fn check(krate: &Crate, found: &mut Findings) {
    let house = &krate.house;
    let all: Vec<BTreeSet<String>> = house.sources.iter().map(stated).collect();
    for (at, source) in house.sources.iter().enumerate() {
        let file = house.files[at].display().to_string();
        let mut code = Unsafe(false);
        code.visit_file(&source::stripped(&source.syntax, MODELS));
        if code.0 && all[at].is_empty() {
            let what = "has unsafe code, and its documentation states no invariant";
            found.breach(&krate.folder, "invariants", format!("{file} {what}"));
        }
        for (line, comment) in safety(source) {
            let known = |name: &String| {
                let knows = |other: usize| other == at || names(&comment, house.stem(other));
                (0..all.len()).any(|other| knows(other) && all[other].contains(name))
                    || around(krate, at).is_some_and(|around| all[around].contains(name))
            };
            for name in invariants(&comment).into_iter().filter(|name| !known(name)) {
                let message = format!("{}:{line}: no module states {name}", krate.path(at));
                found.breach(&krate.folder, "invariants", message);
            }
        }
    }
}

/// Returns the invariants that the documentation of a file states: `I1: ...` in a line of its own.
fn stated(source: &Source) -> BTreeSet<String> {
    let documentation = source.comments().lines().map(str::trim);
    let lines = documentation.filter(|line| line.starts_with("//!") || line.starts_with("///"));
    let names = lines.filter_map(|line| {
        let (name, _) = line[3..].trim_start_matches([' ', '-', '*']).split_once(':')?;
        Some(invariants(name).into_iter().filter(move |only| only == name))
    });
    names.flatten().collect()
}

/// Returns the names of invariants in a text: `I1`, `I2`, ...
fn invariants(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_name = |word: &&str| {
        word.strip_prefix('I').is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    words.filter(is_name).map(str::to_owned).collect()
}

/// Returns whether a comment names the module `stem` as a word.
fn names(comment: &str, stem: &str) -> bool {
    comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == stem)
}

/// Returns the file of the module that contains the module in the file `at`.
fn around(krate: &Crate, at: usize) -> Option<usize> {
    let modules = &krate.house.modules;
    let module = modules.iter().find(|module| module.file == at)?;
    Some(modules[module.parent?].file)
}

/// Returns the `SAFETY` comments of a file outside of documentation, with their lines.
fn safety(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::<(usize, String)>::new();
    let mut is_open = false;
    for (number, line) in source.comments().lines().enumerate() {
        let comment = line.trim().strip_prefix("//").filter(|rest| !rest.starts_with(['/', '!']));
        match comment {
            Some(text) if text.trim_start().starts_with("SAFETY") => {
                found.push((number + 1, text.to_owned()));
                is_open = true;
            }
            Some(text) if is_open => {
                if let Some((_, comment)) = found.last_mut() {
                    comment.push_str(text);
                }
            }
            _ => is_open = false,
        }
    }
    found
}

/// Whether there is unsafe code.
struct Unsafe(bool);

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_expr_unsafe(&mut self, _: &'ast syn::ExprUnsafe) {
        self.0 = true;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.0 |= item.unsafety.is_some();
        visit::visit_item_impl(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{arrows::Arrows, tests::house};

    fn messages(text: &str) -> Vec<String> {
        let house = house(&[
            ("lib.rs", "//! - I7: around.\nmod a; mod slots;"),
            ("a.rs", text),
            ("slots.rs", "//! - I2: slots.\n"),
        ]);
        let (folder, arrows) = ("crates/x".to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&Crate { folder, house, arrows }, &mut found);
        found.breaches.into_iter().map(|breach| breach.message).collect()
    }

    #[test]
    fn unsafe_code_rests_on_stated_invariants() {
        let code = "fn f() {\n// SAFETY: I1 holds,\n// and I2 of `slots`; I7.\nunsafe { g() } }";
        assert!(messages(&format!("//! - I1: one.\n\n{code}")).is_empty());
        assert_eq!(
            messages(&format!("//! Nothing.\n{code}")),
            [
                "a.rs has unsafe code, and its documentation states no invariant",
                "crates/x/src/a.rs:3: no module states I1"
            ]
        );
        let other = code.replace("slots", "places");
        let found = messages(&format!("//! - I1: one.\n{other}"));
        assert_eq!(found, ["crates/x/src/a.rs:3: no module states I2"]);
        assert!(messages("fn f() { let i = I4; } // I3\n").is_empty());
    }
}
