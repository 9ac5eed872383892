//! Rust source as the checks read it: `syn` parses the code, and the gaps between the tokens are
//! the comments.
//!
//! All ranges are byte ranges of [`Source::text`].

pub mod strip;

use std::{cell::OnceCell, ops::Range, path::PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Expr, Item, Macro, Token,
    parse::{Parse, ParseStream, Parser},
    punctuated::Punctuated,
    spanned::Spanned,
    visit::{self, Visit},
};

pub use strip::{is_gated, stripped};

/// The `cfg` conditions under which an item is compiled for tests only.
pub const TESTS: &[&str] = &["test"];

/// A parsed source file.
pub struct Source {
    /// The text of the file.
    pub text: String,
    /// The tokens of the file.
    pub tokens: TokenStream,
    /// The syntax tree of the file.
    pub syntax: syn::File,
    split: OnceCell<(String, String)>,
}

/// The body of a function.
#[derive(Debug)]
pub struct Body {
    /// `Type::method`, `module::function` or `function`.
    pub name: String,
    /// The braces and all between them.
    pub range: Range<usize>,
}

impl Source {
    /// Parses `text`; `Err` names the line that is not Rust.
    pub fn parse(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        let tokens: TokenStream = text
            .parse()
            .map_err(|error: proc_macro2::LexError| located(error.span(), &error.to_string()))?;
        let syntax = syn::parse2(tokens.clone())
            .map_err(|error| located(error.span(), &error.to_string()))?;
        Ok(Self { text, tokens, syntax, split: OnceCell::new() })
    }

    /// Returns the text, in which a blank replaces each byte of a comment.
    pub fn code(&self) -> &str {
        &self.split().0
    }

    /// Returns the text with a blank for each byte outside of comments.
    pub fn comments(&self) -> &str {
        &self.split().1
    }

    /// Code and comments, split on the first call: the parser needs neither.
    fn split(&self) -> &(String, String) {
        self.split.get_or_init(|| split(&self.text, &self.tokens))
    }

    /// Returns the line of `offset`, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset].iter().filter(|&&b| b == b'\n').count() + 1
    }

    /// Returns the syntax tree without the code that only tests compile.
    pub fn live(&self) -> syn::File {
        stripped(&self.syntax, TESTS)
    }

    /// Returns the bodies of all functions.
    pub fn functions(&self) -> Functions {
        let mut bodies = Bodies::default();
        bodies.visit_file(&self.syntax);
        Functions(bodies.found)
    }

    /// Returns the modules that lie in separate files and that only tests compile. Each module is
    /// given by its name, or by the file that its `#[path]` names.
    pub fn test_modules(&self) -> Vec<PathBuf> {
        let modules = self.syntax.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() => Some(module),
            _ => None,
        });
        modules
            .filter(|module| is_gated(&module.attrs, TESTS))
            .map(|module| path_of(&module.attrs).unwrap_or_else(|| module.ident.to_string().into()))
            .collect()
    }

    /// Returns whether only tests compile the whole file.
    pub fn is_test(&self) -> bool {
        is_gated(&self.syntax.attrs, TESTS)
    }
}

/// The functions of a file.
pub struct Functions(Vec<Body>);

impl Functions {
    /// Returns the bodies of all functions.
    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        self.0.iter()
    }

    /// Returns the name of the innermost function around `offset`, or `-` outside of any.
    pub fn around(&self, offset: usize) -> &str {
        self.0
            .iter()
            .filter(|body| body.range.contains(&offset))
            .min_by_key(|body| body.range.len())
            .map_or("-", |body| &body.name)
    }
}

#[derive(Default)]
struct Bodies {
    owners: Vec<String>,
    found: Vec<Body>,
}

impl Bodies {
    fn within(&mut self, owner: String, visit: impl FnOnce(&mut Self)) {
        self.owners.push(owner);
        visit(self);
        self.owners.pop();
    }

    fn add(&mut self, name: &syn::Ident, block: &syn::Block) {
        let name = match self.owners.last() {
            None => name.to_string(),
            Some(owner) => format!("{owner}::{name}"),
        };
        // Only the braces are asked for their spans: to find the block's span, `syn` would first
        // collect all tokens of the block.
        let braces = block.brace_token.span;
        let range = braces.open().byte_range().start..braces.close().byte_range().end;
        self.found.push(Body { name, range });
    }
}

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = type_name(&item.self_ty).unwrap_or_else(|| "-".to_owned());
        self.within(owner, |bodies| visit::visit_item_impl(bodies, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(item.ident.to_string(), |bodies| visit::visit_item_trait(bodies, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(item.ident.to_string(), |bodies| visit::visit_item_mod(bodies, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig.ident, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Returns the last name in the path of a type; a reference counts as its target.
pub fn type_name(of: &syn::Type) -> Option<String> {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        syn::Type::Reference(reference) => type_name(&reference.elem),
        syn::Type::Group(group) => type_name(&group.elem),
        syn::Type::Paren(paren) => type_name(&paren.elem),
        _ => None,
    }
}

/// Returns the bytes of a piece of syntax.
pub fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

/// Returns the file that `#[path = "..."]` names.
pub fn path_of(attributes: &[syn::Attribute]) -> Option<PathBuf> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => {
            string(&pair.value).map(PathBuf::from)
        }
        _ => None,
    })
}

/// Returns the value of a string literal.
pub fn string(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// One name that a `use` brings in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The path as it is written; without its last `self`.
    pub path: Vec<String>,
    /// The name in the importing module, or `None` for a glob.
    pub name: Option<String>,
}

/// Returns the names that a `use` brings in.
pub fn imports(item: &syn::ItemUse) -> Vec<Import> {
    fn flatten(tree: &syn::UseTree, path: &[String], found: &mut Vec<Import>) {
        let mut add = |ident: &syn::Ident, name: &syn::Ident| {
            let mut path = path.to_vec();
            if ident != "self" || path.is_empty() {
                path.push(ident.to_string());
            }
            let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
            found.push(Import { path, name });
        };
        match tree {
            syn::UseTree::Path(inner) => {
                let path = [path, &[inner.ident.to_string()]].concat();
                flatten(&inner.tree, &path, found);
            }
            syn::UseTree::Name(inner) => add(&inner.ident, &inner.ident),
            syn::UseTree::Rename(inner) => add(&inner.ident, &inner.rename),
            syn::UseTree::Glob(_) => found.push(Import { path: path.to_vec(), name: None }),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|inner| flatten(inner, path, found));
            }
        }
    }
    let mut found = Vec::new();
    flatten(&item.tree, &[], &mut found);
    found
}

/// Returns whether the macro is `twin!` or `planted!`, of which only tests run the wrong half.
pub fn has_wrong_half(mac: &Macro) -> bool {
    is_named(&mac.path, "twin") || is_named(&mac.path, "planted")
}

/// Returns the expressions in a macro's brackets: the right half of `twin!("name": right =>
/// wrong)` or of `planted!`, or a list with commas. Empty where the macro takes something else.
pub fn arguments(mac: &Macro) -> Vec<Expr> {
    if has_wrong_half(mac) {
        return mac.parse_body::<Twin>().map(|twin| vec![twin.right]).unwrap_or_default();
    }
    let list = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(mac.tokens.clone());
    list.map(|list| list.into_iter().collect()).unwrap_or_default()
}

/// Returns whether the last segment of `path` is `name`.
pub fn is_named(path: &syn::Path, name: &str) -> bool {
    path.segments.last().is_some_and(|last| last.ident == name)
}

/// The arguments of `twin!` and `planted!`. Only tests that expect a failure run the wrong half.
struct Twin {
    right: Expr,
}

impl Parse for Twin {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<syn::LitStr>()?;
        input.parse::<Token![:]>()?;
        let right = input.parse()?;
        input.parse::<Token![=>]>()?;
        input.parse::<Expr>()?;
        input.parse::<Option<Token![,]>>()?;
        Ok(Self { right })
    }
}

fn located(span: proc_macro2::Span, error: &str) -> String {
    format!("line {}: {error}", span.start().line)
}

/// Splits `text` into code and comments, both as long as `text`.
fn split(text: &str, tokens: &TokenStream) -> (String, String) {
    let mut is_code = vec![false; text.len()];
    mark(text, tokens.clone(), &mut is_code);
    let keep = |code: bool| {
        let kept = text
            .bytes()
            .zip(&is_code)
            .map(|(byte, &is_code)| if is_code == code || byte == b'\n' { byte } else { b' ' });
        String::from_utf8(kept.collect()).expect("whole tokens are kept or blanked")
    };
    (keep(true), keep(false))
}

/// Marks the bytes of all tokens except those of documentation comments.
fn mark(text: &str, tokens: TokenStream, is_code: &mut [bool]) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                mark(text, group.stream(), is_code);
            }
            TokenTree::Group(group) => {
                let open = group.span_open().byte_range();
                // The lexer turns a documentation comment into `#[doc = "..."]`, and each of these
                // tokens claims the place of the comment.
                if text[open.clone()].starts_with('/') {
                    continue;
                }
                is_code[open].fill(true);
                is_code[group.span_close().byte_range()].fill(true);
                mark(text, group.stream(), is_code);
            }
            leaf => {
                let own = leaf.span().byte_range();
                let is_comment =
                    text[own.clone()].starts_with("//") || text[own.clone()].starts_with("/*");
                is_code[own].fill(!is_comment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::parse(text).unwrap()
    }

    #[test]
    fn comments_are_separated_from_code() {
        let text = r####"/// doc
fn f() { //! no
let a = "x // in \" y"; // yes
let b = 'z'; let c: &'static str = r#"raw " /* in */ "#; /* a /* nested */ block */ let é = 'é';
}"####;
        let source = source(&text.replace("//! no", ""));
        assert_eq!(
            (source.code().len(), source.comments().len()),
            (source.text.len(), source.text.len())
        );
        for comment in ["/// doc", "// yes", "/* a /* nested */ block */"] {
            assert!(source.comments().contains(comment) && !source.code().contains(comment));
        }
        for code in ["// in", "let c: &'static str", "/* in */", "let é = 'é';"] {
            assert!(source.code().contains(code) && !source.comments().contains(code), "{code}");
        }
    }

    #[test]
    fn a_syntax_error_is_located() {
        assert!(Source::parse("fn f() {}\nfn {}").err().unwrap().starts_with("line 2: "));
        assert!(Source::parse("fn f() {\n").err().unwrap().starts_with("line "));
    }

    #[test]
    fn functions_are_named_by_their_owner() {
        let source = source(
            "fn free(x: [u8; 4]) -> impl Fn() { one }
             impl<T: Fn() -> u8> Drop for ring::Claim<'_, T> where T: Send {
                 fn drop(&mut self) { let f = || { two }; fn inner() { three } }
             }
             trait Wait { fn wait(&self); fn both(&self) { four } }
             mod edge { fn seen() { five } }
             const X: u8 = six;",
        );
        let functions = source.functions();
        let of = |word: &str| functions.around(source.text.find(word).unwrap()).to_owned();
        assert_eq!(
            ["one", "two", "three", "four", "five", "six"].map(of),
            ["free", "Claim::drop", "Claim::inner", "Wait::both", "edge::seen", "-"]
        );
    }

    #[test]
    fn test_modules_are_found() {
        let source = source(
            "#[cfg(all(test, slipring_loom))] #[allow(x)] mod models;
             #[cfg(test)] #[path = \"elsewhere/t.rs\"] mod t;
             #[cfg(any(test, x))] mod live; #[cfg(test)] mod inline {} mod plain;",
        );
        assert_eq!(
            source.test_modules(),
            [PathBuf::from("models"), PathBuf::from("elsewhere/t.rs")]
        );
        assert!(Source::parse("#![cfg(all(test, a))] fn a() {}").unwrap().is_test());
        assert!(!source.is_test());
    }

    #[test]
    fn imports_are_flattened() {
        let item = syn::parse_str("use a::{self, b::C as D, e::*, f::{self as g, H}};").unwrap();
        let of: Vec<String> = imports(&item)
            .iter()
            .map(|import| format!("{} {:?}", import.path.join("::"), import.name))
            .collect();
        assert_eq!(
            of,
            [
                "a Some(\"a\")",
                "a::b::C Some(\"D\")",
                "a::e None",
                "a::f Some(\"g\")",
                "a::f::H Some(\"H\")"
            ]
        );
    }

    #[test]
    fn a_macro_shows_its_right_half_and_its_list() {
        let count = |text: &str| arguments(&syn::parse_str::<Macro>(text).unwrap()).len();
        assert_eq!(count("twin!(\"name\": { a; } => b)"), 1);
        assert_eq!(count("planted!(\"name\": a => b)"), 1);
        assert_eq!(count("assert!(a, b, c)"), 3);
        assert_eq!(count("make!(a b c)"), 0);
    }
}
