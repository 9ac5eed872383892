//! The pages of a library's documentation, and the names on them.
//!
//! The page of a module shows its public items, its inner modules, and what it re-exports. A reader
//! who opens a page looks for one name, so a page is short enough to be read as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::examples::{is_hidden, is_public};
use crate::{
    findings::Findings,
    house::{House, Reach, Target, crates::Crate, defined},
};

/// Number of names past which a page is divided into modules.
const NAMES_AT_MOST: usize = 40;

/// The crate that programs import in place of the standard library. Its pages are as long as those
/// that it replaces.
const STAND_IN: &str = "crates/slipring-coherence";

/// The page of one module: each name on it, with its meanings.
type Page = BTreeMap<String, BTreeSet<Target>>;

/// Finds crowded pages, and names that stand on several pages.
pub fn check(krate: &Crate, found: &mut Findings) {
    let (folder, pages) = (&krate.folder, pages(&krate.house));
    if folder == STAND_IN {
        return;
    }
    let mut homes: BTreeMap<&Target, Vec<&str>> = BTreeMap::new();
    for (page, names) in &pages {
        if names.len() > NAMES_AT_MOST {
            let count = names.len();
            let what = format!("past {NAMES_AT_MOST} some move into modules");
            found.breach(folder, "crowded page", format!("{page} shows {count} names; {what}"));
        }
        for target in names.values().flatten() {
            homes.entry(target).or_default().push(page);
        }
    }
    for (target, homes) in homes.iter().filter(|(_, homes)| homes.len() > 1) {
        let Target::Item(_, name) = target else { continue };
        let message = format!("{name} stands on the pages {}: leave one", homes.join(" and "));
        found.breach(folder, "second path", message);
    }
}

/// Returns the pages of all modules that users reach, by path.
fn pages(house: &House) -> BTreeMap<String, Page> {
    let mut pages = BTreeMap::new();
    let mut open = vec![("crate".to_owned(), 0)];
    while let Some((path, module)) = open.pop() {
        let mut page = Page::new();
        fill(house, module, &mut page, &mut BTreeSet::new());
        for (name, targets) in &page {
            let inner = targets.iter().filter_map(|target| match target {
                Target::Module(module) => Some((format!("{path}::{name}"), *module)),
                Target::Item(..) => None,
            });
            open.extend(inner.filter(|(inner, _)| !pages.contains_key(inner)));
        }
        pages.insert(path, page);
    }
    pages
}

/// Adds the names that `module` shows to `page`. `seen` ends circles of globs.
fn fill(house: &House, module: usize, page: &mut Page, seen: &mut BTreeSet<usize>) {
    if !seen.insert(module) {
        return;
    }
    let this = &house.modules[module];
    for item in this.items.iter().filter(|item| is_public(item)) {
        let Some(name) = defined(item) else { continue };
        page.entry(name.clone()).or_default().insert(Target::Item(module, name));
    }
    for (name, &child) in &this.children {
        let inner = &house.modules[child];
        if inner.reach == Reach::Public && !is_hidden(&inner.attributes) {
            page.entry(name.clone()).or_default().insert(Target::Module(child));
        }
    }
    for (import, _) in this.imports.iter().filter(|(_, reach)| *reach == Reach::Public) {
        let targets = house.resolve(module, &import.path);
        match &import.name {
            // A name of another crate has no meaning here, and still takes a line.
            Some(name) => page.entry(name.clone()).or_default().extend(targets),
            None => {
                for target in targets {
                    if let Target::Module(inner) = target {
                        fill(house, inner, page, seen);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{arrows::Arrows, tests::house};

    /// Returns the messages about a crate with these files.
    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let house = house(files);
        let (folder, arrows) = ("crates/any".to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&Crate { folder, house, arrows }, &mut found);
        found.breaches.into_iter().map(|breach| breach.message).collect()
    }

    #[test]
    fn a_page_shows_forty_names_at_most() {
        let items = |count: usize| -> String {
            (0..count).map(|i| format!("pub struct S{i};")).collect::<String>()
        };
        let lib = "mod a; pub use a::*; pub mod b; mod c {} pub const C: u8 = 0; struct P;\
            pub use other::{One, Two}; #[doc(hidden)] pub mod parts { pub struct Q; }";
        let forty = items(36);
        assert!(errors(&[("lib.rs", lib), ("a.rs", &forty), ("b.rs", "")]).is_empty());
        let more = items(37);
        assert_eq!(
            errors(&[("lib.rs", lib), ("a.rs", &more), ("b.rs", "")]),
            ["crate shows 41 names; past 40 some move into modules"]
        );
        let crowded = items(41);
        assert_eq!(
            errors(&[("lib.rs", lib), ("a.rs", ""), ("b.rs", &crowded)]),
            ["crate::b shows 41 names; past 40 some move into modules"]
        );
    }

    #[test]
    fn an_item_stands_on_one_page() {
        let files = [
            ("lib.rs", "pub mod a; pub use a::A; pub use a::B;"),
            ("a.rs", "pub struct A; pub(crate) struct B;"),
        ];
        assert_eq!(errors(&files), ["A stands on the pages crate and crate::a: leave one"]);
    }
}
