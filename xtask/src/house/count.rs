//! The structure of all crates in numbers, for a record to compare.

use std::{collections::BTreeMap, fmt::Write as _};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Expr, FnArg, ImplItem, Item, Stmt, Type,
    visit::{self, Visit},
};

use super::{
    MODELS, circles,
    crates::Crate,
    models,
    rooms::{self, Rooms},
};
use crate::{
    findings::Findings,
    source::{self, Source},
};

/// The names by which the library asks whether its handles lie in threads or in processes.
const QUESTIONS: [&str; 9] = [
    "SEATED",
    "APART",
    "SEGMENT",
    "between_processes",
    "peers",
    "seated_claims",
    "is_own_process",
    "has_member_bits",
    "always_fences",
];
/// The keywords before the name of a definition.
const DEFINING: [&str; 7] = ["const", "fn", "mod", "static", "struct", "type", "let"];
/// The library's file in which one-line functions that forward a call to a part are counted.
const FORWARDING: &str = "ring/control.rs";

/// Returns the numbers of `crates` as text.
pub fn draw(crates: &[Crate]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<28} {:>5} {:>5} {:>6} {:>6} {:>7} {:>7} {:>7} {:>6}  longest parameter list",
        "crate", "rooms", "files", "floors", "arrows", "upwards", "circles", "aliases", "tuples"
    );
    for krate in crates {
        let Crate { folder, house, arrows } = krate;
        let graph = rooms::graph(house, arrows);
        let floors = circles::floors(&graph).into_iter().max().unwrap_or(0);
        let rooms = Rooms::of(house, &graph).names.len();
        let mut found = Findings::default();
        rooms::check(krate, &mut found);
        models::check(krate, &mut found);
        let is_upwards = |rule| ["upwards", "model", "room circle"].contains(&rule);
        let upwards = found.breaches.iter().filter(|breach| is_upwards(breach.rule)).count();
        let circles = circles::circles(&graph).len();
        let functions = Functions::of(krate);
        let (longest, count) = functions.longest.as_ref().map_or(("-", 0), |(f, n)| (f, *n));
        let (aliases, tuples) = (aliases(krate), functions.tuples.len());
        let (files, arrows) = (house.files.len(), arrows.names.len());
        let _ = writeln!(
            text,
            "{folder:<28} {rooms:>5} {files:>5} {floors:>6} {arrows:>6} {upwards:>7} {circles:>7} \
             {aliases:>7} {tuples:>6}  {count} ({longest})"
        );
    }
    let notes = "\
        rooms: folders, or files beside them. floors: of files. arrows: between files.\n\
        upwards: arrows upwards, names of models in product code, circles of rooms.\n\
        aliases: `pub type` beside implementations. tuples: functions with a tuple as a parameter.\n";
    text.push_str(notes);
    if let Some(library) = crates.iter().find(|krate| krate.is_library()) {
        text.push_str(&library_text(library));
    }
    text
}

/// Returns the numbers of the library alone.
fn library_text(library: &Crate) -> String {
    let mut text = String::from("\nthe library: threads or processes? Lines that ask, and uses\n");
    let (mut lines, mut uses) = (0, 0);
    for (word, (of_lines, of_uses)) in questions(library) {
        let _ = writeln!(text, "  {word:<18} {of_lines:>4} {of_uses:>4}");
        (lines, uses) = (lines + of_lines, uses + of_uses);
    }
    let _ = writeln!(text, "  {:<18} {lines:>4} {uses:>4}", "in all");
    let files = library.house.files.iter().map(|file| file.display().to_string());
    if let Some(at) = files.into_iter().position(|file| file == FORWARDING) {
        let forwards = forwards(&library.house.sources[at]);
        let count = forwards.len();
        let _ = writeln!(text, "one-line forwards in {FORWARDING}: {count}");
        let _ = writeln!(text, "  {}", forwards.join(" "));
    }
    text
}

/// Returns, for each word of [`QUESTIONS`], the number of lines in the library's product code that
/// use it, and the number of uses. Imports, definitions and comments do not count, nor do fields
/// where they are declared or filled.
fn questions(library: &Crate) -> Vec<(&'static str, (usize, usize))> {
    let mut uses = BTreeMap::<&str, Vec<(usize, usize)>>::new();
    for (file, source) in library.house.sources.iter().enumerate() {
        let live = source::stripped(&source.syntax, MODELS);
        let mut found = Vec::new();
        asked(live.to_token_stream(), &mut found);
        for (word, offset) in found {
            uses.entry(word).or_default().push((file, source.line(offset)));
        }
    }
    let count = |word| {
        let mut lines = uses.remove(word).unwrap_or_default();
        let uses = lines.len();
        lines.sort_unstable();
        lines.dedup();
        (lines.len(), uses)
    };
    let mut count = count;
    QUESTIONS.into_iter().map(|word| (word, count(word))).collect()
}

/// Collects the places at which `tokens` use the words of [`QUESTIONS`].
fn asked(tokens: TokenStream, found: &mut Vec<(&'static str, usize)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let punct = |at: usize, character| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == character);
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => asked(group.stream(), found),
            TokenTree::Ident(word) if word == "use" && !punct(at + 1, '<') => {
                at += (at..tokens.len()).position(|end| punct(end, ';')).unwrap_or(0);
            }
            TokenTree::Ident(word) => {
                let is_defined = at > 0
                    && matches!(&tokens[at - 1], TokenTree::Ident(before)
                        if DEFINING.iter().any(|keyword| before == keyword));
                let is_field = punct(at + 1, ':') && !punct(at + 2, ':');
                // A word before `::`, as in `peers::name`, is the name of a module.
                let is_module = punct(at + 1, ':') && punct(at + 2, ':');
                let asks = QUESTIONS.into_iter().find(|question| word == question);
                if let Some(asks) = asks.filter(|_| !is_defined && !is_field && !is_module) {
                    found.push((asks, word.span().byte_range().start));
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Returns the functions that do nothing but call one other function with their own parameters.
fn forwards(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for item in source.live().items {
        let Item::Impl(item) = item else { continue };
        for method in &item.items {
            let ImplItem::Fn(method) = method else { continue };
            let [Stmt::Expr(only, _)] = method.block.stmts.as_slice() else { continue };
            let Expr::MethodCall(call) = only else { continue };
            let is_own = |arg: &Expr| match arg {
                Expr::Path(path) => path.path.get_ident().is_some(),
                Expr::Reference(inner) => is_part(&inner.expr),
                other => is_part(other),
            };
            if is_part(&call.receiver) && call.args.iter().all(is_own) {
                found.push(method.sig.ident.to_string());
            }
        }
    }
    found
}

/// Returns whether an expression is a part of `self`.
fn is_part(expression: &Expr) -> bool {
    match expression {
        Expr::Field(field) => {
            is_part(&field.base)
                || matches!(&*field.base, Expr::Path(path) if path.path.is_ident("self"))
        }
        _ => false,
    }
}

/// Returns the number of the public aliases of types.
fn aliases(krate: &Crate) -> usize {
    let items = krate.house.modules.iter().flat_map(|module| &module.items);
    let is_alias = |item: &&Item| matches!(item, Item::Type(item) if matches!(item.vis, syn::Visibility::Public(_)));
    items.filter(is_alias).count()
}

/// The parameters of a crate's functions.
#[derive(Default)]
struct Functions {
    file: String,
    /// The function with the most parameters beside `self`, and their number.
    longest: Option<(String, usize)>,
    /// The functions with a tuple as a parameter.
    tuples: Vec<String>,
}

impl Functions {
    fn of(krate: &Crate) -> Self {
        let mut functions = Self::default();
        for module in &krate.house.modules {
            functions.file = krate.house.files[module.file].display().to_string();
            module.items.iter().for_each(|item| functions.visit_item(item));
        }
        functions
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let typed = || {
            signature.inputs.iter().filter_map(|input| match input {
                FnArg::Typed(typed) => Some(&*typed.ty),
                FnArg::Receiver(_) => None,
            })
        };
        let name = || format!("{}: {}", self.file, signature.ident);
        let count = typed().count();
        if self.longest.as_ref().is_none_or(|(_, longest)| count > *longest) {
            self.longest = Some((name(), count));
        }
        let is_tuple = |of: &Type| match of {
            Type::Reference(inner) => matches!(&*inner.elem, Type::Tuple(_)),
            other => matches!(other, Type::Tuple(tuple) if !tuple.elems.is_empty()),
        };
        if typed().any(is_tuple) {
            self.tuples.push(name());
        }
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        house::{arrows::Arrows, tests::house},
        layout,
    };

    fn library(control: &str) -> Crate {
        let house = house(&[
            ("lib.rs", "mod ring; pub type A = u8; type B = u8;"),
            ("ring/mod.rs", "mod control;"),
            (FORWARDING, control),
        ]);
        let (folder, arrows) = (layout::LIBRARY.to_owned(), Arrows::of(&house));
        Crate { folder, house, arrows }
    }

    #[test]
    fn questions_are_counted_where_they_are_asked() {
        let library = library(
            "use x::SEGMENT; // SEGMENT
             struct S { peers: u8 } const SEATED: bool = R::SEATED;
             fn f() { if self.peers.is_some() { peers() } peers::go(); S { peers: 1 } }
             #[cfg(test)] mod tests { fn f() { S::APART } }",
        );
        let counts = questions(&library);
        let of = |word: &str| counts.iter().find(|(one, _)| *one == word).unwrap().1;
        assert_eq!((of("SEGMENT"), of("APART")), ((0, 0), (0, 0)));
        assert_eq!((of("SEATED"), of("peers")), ((1, 1), (1, 2)));
    }

    #[test]
    fn parameters_and_forwards_are_counted() {
        let library = library(
            "impl C { fn a(&self, x: u8) { self.part.a(x) } fn b(&self) { self.b.c.d(&self.e); }
             fn c(&self, x: (u8, u8), y: u8) { self.c(x); } fn d(&self) { self.p.d(1 + 2) } }",
        );
        assert_eq!(forwards(&library.house.sources[2]), ["a", "b"]);
        let functions = Functions::of(&library);
        assert_eq!(functions.longest, Some((format!("{FORWARDING}: c"), 2)));
        assert_eq!((functions.tuples.len(), aliases(&library)), (1, 1));
        let text = draw(&[library]);
        assert!(text.contains("one-line forwards in ring/control.rs: 2\n  a b"), "{text}");
    }
}
