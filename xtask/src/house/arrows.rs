//! The arrows between files: each name that one file uses and another one defines.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Expr, Item,
    visit::{self, Visit},
};

use super::{House, Reach, Target};
use crate::source;

/// One use of an item outside of its module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The module that uses the item.
    pub from: usize,
    /// The module that defines the item.
    pub to: usize,
    /// The name of the item.
    pub name: String,
}

/// The arrows of a house.
pub struct Arrows {
    /// The names on the arrow from one file to another.
    pub names: BTreeMap<(usize, usize), BTreeSet<String>>,
    /// The uses between modules.
    pub uses: BTreeSet<Use>,
    /// The files that hold the inherent methods of each type. The key is the file and the name of
    /// the type.
    pub homes: BTreeMap<(usize, String), BTreeSet<usize>>,
}

impl Arrows {
    /// Finds the arrows of `house`.
    pub fn of(house: &House) -> Self {
        let (names, uses, homes) = Default::default();
        let mut arrows = Self { names, uses, homes };
        for module in 0..house.modules.len() {
            arrows.imports(house, module);
            let mut paths = Paths::default();
            for item in &house.modules[module].items {
                paths.visit_item(item);
                arrows.home(house, module, item);
            }
            for path in &paths.found {
                arrows.add(house, module, &house.resolve(module, path));
            }
            for path in &paths.macros {
                arrows.add(house, module, &house.resolve_macro(module, path));
            }
        }
        arrows
    }

    /// Adds the imports of a module. A re-export from within the module does not count.
    fn imports(&mut self, house: &House, module: usize) {
        for (import, reach) in &house.modules[module].imports {
            if import.name.is_none() {
                continue; // The names that arrive through a glob are found where they are used.
            }
            let mut targets = house.resolve_macro(module, &import.path);
            targets.retain(|target| match target {
                Target::Item(home, _) => {
                    *reach == Reach::Private || !house.is_within(*home, module)
                }
                Target::Module(_) => false,
            });
            self.add(house, module, &targets);
        }
    }

    fn add(&mut self, house: &House, from: usize, targets: &BTreeSet<Target>) {
        for target in targets {
            let Target::Item(to, name) = target else { continue };
            if *to != from {
                self.uses.insert(Use { from, to: *to, name: name.clone() });
            }
            let files = (house.modules[from].file, house.modules[*to].file);
            if files.0 != files.1 {
                self.names.entry(files).or_default().insert(name.clone());
            }
        }
    }

    /// Records the file of an inherent implementation.
    fn home(&mut self, house: &House, module: usize, item: &Item) {
        let Item::Impl(item) = item else { return };
        let syn::Type::Path(path) = &*item.self_ty else { return };
        if item.trait_.is_some() {
            return;
        }
        for target in house.resolve(module, &segments(&path.path)) {
            let Target::Item(home, name) = target else { continue };
            let key = (house.modules[home].file, name);
            self.homes.entry(key).or_default().insert(house.modules[module].file);
        }
    }

    /// Returns the types whose inherent methods lie in several files, or in a file other than the
    /// type's, each with these files.
    pub fn scattered(&self) -> impl Iterator<Item = (&(usize, String), &BTreeSet<usize>)> {
        self.homes.iter().filter(|((home, _), files)| files.iter().any(|file| file != home))
    }
}

/// Returns the names of a path.
pub fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// The paths in the code of a module.
#[derive(Default)]
struct Paths {
    found: BTreeSet<Vec<String>>,
    macros: BTreeSet<Vec<String>>,
}

impl Paths {
    /// Adds the paths in the brackets of a macro. In a macro's definition (`is_definition`), only
    /// `$crate` paths count, because the others resolve at the call.
    fn tokens(&mut self, tokens: TokenStream, is_definition: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |at: usize, character| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == character);
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream(), is_definition),
                TokenTree::Ident(ident) => {
                    let is_member = at > 0 && punct(at - 1, '.') && !(at > 1 && punct(at - 2, '.'));
                    let is_variable = at > 0 && punct(at - 1, '$') && ident != "crate";
                    let mut path = vec![ident.to_string()];
                    while punct(at + 1, ':')
                        && punct(at + 2, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    let is_call = matches!(tokens.get(at + 1),
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    let is_known = !is_definition || path[0] == "crate";
                    if punct(at + 1, '!') && !punct(at + 2, '=') {
                        self.macros.insert(path);
                    } else if !is_member && !is_variable && is_known && (is_call || tells(&path)) {
                        self.found.insert(path);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Returns whether a path that is not called may name an item. A lone lower-case name does not: it
/// is a variable.
fn tells(path: &[String]) -> bool {
    path.len() > 1 || path[0].starts_with(char::is_uppercase)
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = segments(path);
        if tells(&names) {
            self.found.insert(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            self.found.insert(segments(&function.path));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_some() {
            self.tokens(item.mac.tokens.clone(), true);
        } else {
            self.visit_macro(&item.mac);
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.macros.insert(segments(&mac.path));
        // Only the right variant counts: the wrong one belongs to a model, or to a planted defect.
        if source::has_wrong_half(mac) {
            for right in source::arguments(mac) {
                self.visit_expr(&right);
            }
        } else {
            self.tokens(mac.tokens.clone(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::tests::house;

    /// Returns the arrows as `from -> to: names`.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let house = house(files);
        let file = |at: usize| house.files[at].display().to_string();
        Arrows::of(&house)
            .names
            .iter()
            .map(|((from, to), names)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("{} -> {}: {}", file(*from), file(*to), names.join(", "))
            })
            .collect()
    }

    /// Returns the arrows from `a.rs` with this text to `b.rs`.
    fn from_a(text: &str) -> Vec<String> {
        let b =
            "pub struct B; pub fn look() {} pub const C: u8 = 1; pub mod inner { pub struct D; }
            macro_rules! twin { () => {} } pub(crate) use twin; pub trait Tap {}";
        let found =
            arrows(&[("lib.rs", "mod a; mod b; pub use b::B;"), ("a.rs", text), ("b.rs", b)]);
        found
            .into_iter()
            .filter_map(|one| one.strip_prefix("a.rs -> b.rs: ").map(str::to_owned))
            .collect()
    }

    #[test]
    fn every_way_to_a_name_is_an_arrow() {
        for (text, name) in [
            ("use crate::b::B;", "B"),
            ("use crate::B as Other;", "B"),
            ("use super::b::{inner::D, self};", "D"),
            ("fn f() { crate::b::look() }", "look"),
            ("fn f(b: super::b::inner::D) {}", "D"),
            ("use crate::b; fn f() { b::look(); }", "look"),
            ("use crate::b::*; fn f() { look(); }", "look"),
            ("use crate::b::Tap as _;", "Tap"),
            ("use crate::b::twin; fn f() { twin!(); }", "twin"),
            ("fn f() { twin!(); }", "twin"),
            ("fn f() { assert!(x == crate::b::C); }", "C"),
            ("use crate::b; fn f() { assert!(b::look()); }", "look"),
            ("macro_rules! m { () => { $crate::b::C } }", "C"),
            ("fn f() { use crate::b::C; }", "C"),
            ("impl crate::b::B { }", "B"),
        ] {
            assert_eq!(from_a(text), [name], "{text}");
        }
    }

    #[test]
    fn a_module_or_a_test_is_no_arrow() {
        for text in [
            "use crate::b;",
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, slipring_loom))] fn f() { crate::b::look() }",
            "#[cfg(slipring_loom)] use crate::b::B;",
            "use crate::b::*; fn f(look: u8) -> u8 { look }",
            "macro_rules! m { () => { b::C } }",
            "/// See [`crate::b::B`].\nfn f() {}",
            "pub(in crate::b) struct X;",
        ] {
            assert!(from_a(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_folder_and_its_module_may_point_at_each_other() {
        let found = arrows(&[
            ("lib.rs", "mod ring;"),
            (
                "ring/mod.rs",
                "mod slots; pub use slots::Slots; pub struct Own; fn f() { slots::go() }",
            ),
            ("ring/slots.rs", "use super::Own; pub struct Slots; pub fn go() {}"),
        ]);
        assert_eq!(
            found,
            ["ring/mod.rs -> ring/slots.rs: go", "ring/slots.rs -> ring/mod.rs: Own"]
        );
        let exported = arrows(&[
            ("lib.rs", "mod ring; mod top;"),
            ("ring/mod.rs", "mod slots; pub use slots::Slots; pub(crate) use crate::top::Top;"),
            ("ring/slots.rs", "pub struct Slots;"),
            ("top.rs", "use crate::ring::Slots; pub struct Top;"),
        ]);
        assert_eq!(exported, ["ring/mod.rs -> top.rs: Top", "top.rs -> ring/slots.rs: Slots"]);
    }

    #[test]
    fn scattered_types_are_found() {
        let house = house(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A; impl A {} impl Drop for A {} pub struct C; impl C {}"),
            ("b.rs", "use crate::a::{A, C}; impl A {} impl Clone for C {}"),
        ]);
        let arrows = Arrows::of(&house);
        let scattered: Vec<&str> = arrows.scattered().map(|((_, name), _)| name.as_str()).collect();
        assert_eq!(scattered, ["A"]);
    }
}
