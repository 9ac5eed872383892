//! Finds pairs of statements whose order an edge may rest on.
//!
//! The two statements of a pair stand in one block. Each of them *touches* shared state: it
//! accesses an atomic, fences, calls an operation of a module of edges, or calls a function that
//! carries a label. At least one of the two accesses, fences, or carries a label itself. Two
//! relaxed accesses are no pair, because nothing orders them.
//!
//! The first statement must be movable behind the second: it binds no name that the rest needs, and
//! it contains no `return`, `break`, `continue` or `?`. The statements between the two touch no
//! shared state.

use std::{collections::HashSet, ops::Range, path::Path};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Expr, Stmt,
    visit::{self, Visit},
};

use crate::{
    layout,
    source::{self, Body, Source, strip::statement_attributes},
    tidy::labels::labels_in,
};

/// The accesses of an atomic.
const ACCESSES: [&str; 6] =
    ["load", "store", "swap", "compare_exchange", "compare_exchange_weak", "fetch_update"];
/// The orderings by which an access counts as more than relaxed.
const ORDERINGS: [&str; 3] = ["Acquire", "Release", "AcqRel"];
/// Functions that order memory accesses without a label.
const FENCES: [&str; 4] = ["fence", "compiler_fence", "bar_all", "membarrier"];
/// Names that labelled functions share with other functions; calls by these names do not count.
const COMMON_NAMES: [&str; 7] = ["new", "drop", "next", "get", "poll", "len", "sleep"];

/// Two statements, the first of which may move behind the second.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    /// The statement that comes first.
    pub first: Range<usize>,
    /// The statement that comes later.
    pub second: Range<usize>,
    /// Whether the second statement is the value of its block.
    pub is_value: bool,
    /// Whether one of the two statements has a fence for the compiler.
    pub is_compiled: bool,
    /// The labels of the edges that the first statement operates.
    pub labels: Vec<String>,
}

impl Pair {
    /// Returns the source from the first statement to the end of the second, with the two
    /// exchanged.
    pub fn exchanged(&self, text: &str) -> String {
        let (first, second) = (&text[self.first.clone()], &text[self.second.clone()]);
        let between = &text[self.first.end..self.second.start];
        // The text between the statements keeps its lines, so that no comment swallows a statement.
        if self.is_value {
            format!("{between}let exchanged = {second};\n{first}\nexchanged")
        } else {
            format!("{between}{second}\n{first}")
        }
    }
}

/// The names whose calls touch shared state.
#[derive(Debug, Default)]
pub struct Labelled {
    /// The functions whose bodies carry a label in a comment.
    functions: HashSet<String>,
    /// The modules whose functions are the operations of one edge.
    edges: HashSet<String>,
    /// The operations, by module and name, whose fence binds only the compiler.
    compiled: HashSet<(String, String)>,
}

impl Labelled {
    /// Collects the names of edges and functions from a library's files.
    pub fn of<'s>(files: impl Iterator<Item = (&'s Path, &'s Source)> + Clone) -> Self {
        let mut labelled = Self::default();
        for (file, source) in files.clone().filter(|(file, _)| layout::is_edges(file)) {
            labelled.add_edges(file, source);
        }
        for (_, source) in files.filter(|(file, _)| !layout::is_edges(file)) {
            labelled.add_functions(source);
        }
        labelled
    }

    fn add_edges(&mut self, file: &Path, source: &Source) {
        for body in source.functions().bodies() {
            let (module, name) = edge_of(file, &body.name);
            if source.text[body.range.clone()].contains("compiler_fence(") {
                self.compiled.insert((module.clone(), name.to_owned()));
            }
            self.edges.insert(module);
        }
    }

    /// Adds the functions that carry a label, or call an operation of an edge.
    fn add_functions(&mut self, source: &Source) {
        let mut operations = Operations { edges: &self.edges, found: Vec::new() };
        operations.visit_file(&source.live());
        let mut places = operations.found;
        if labels_in(&source.text).next().is_some() {
            let comments = source.comments();
            places.extend(comments.match_indices("SYNC[").map(|(at, _)| at));
        }
        if places.is_empty() {
            return;
        }
        let functions = source.functions();
        let wears = |body: &&Body| places.iter().any(|place| body.range.contains(place));
        let names = functions
            .bodies()
            .filter(wears)
            .map(|body| body.name.rsplit("::").next().unwrap_or(&body.name).to_owned());
        self.functions.extend(names.filter(|name| !COMMON_NAMES.contains(&name.as_str())));
    }

    /// Returns whether `module` is the module of an edge.
    pub fn is_edge(&self, module: &str) -> bool {
        self.edges.contains(module)
    }
}

/// The places that call an operation of an edge.
struct Operations<'l> {
    edges: &'l HashSet<String>,
    found: Vec<usize>,
}

impl<'ast> Visit<'ast> for Operations<'_> {
    fn visit_expr_path(&mut self, expression: &'ast syn::ExprPath) {
        let module = expression.path.segments.iter().rev().nth(1);
        if module.is_some_and(|module| self.edges.contains(&module.ident.to_string())) {
            self.found.push(source::range(&expression.path).start);
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        for argument in source::arguments(mac) {
            self.visit_expr(&argument);
        }
    }
}

/// Returns the module and the bare name of an edge's function. The module is the inline one around
/// the function, or else the whole file.
pub fn edge_of<'n>(file: &Path, name: &'n str) -> (String, &'n str) {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    name.rsplit_once("::")
        .map_or((stem.into_owned(), name), |(module, name)| (module.to_owned(), name))
}

/// Returns all pairs in `live`, the syntax tree of `source` without the code of tests.
pub fn pairs(source: &Source, live: &syn::File, labelled: &Labelled) -> Vec<Pair> {
    let mut finder = Finder { source, labelled, depth: 0, found: Vec::new() };
    finder.visit_file(live);
    finder.found.sort_by_key(|pair| pair.first.start);
    finder.found
}

struct Finder<'s> {
    source: &'s Source,
    labelled: &'s Labelled,
    /// Number of functions around the present place.
    depth: usize,
    found: Vec<Pair>,
}

impl Finder<'_> {
    fn within(&mut self, visit: impl FnOnce(&mut Self)) {
        self.depth += 1;
        visit(self);
        self.depth -= 1;
    }

    fn block(&mut self, block: &syn::Block) {
        let statements = statements(block);
        let touching: Vec<(usize, Facts<'_>)> = statements
            .iter()
            .map(|one| Facts::of(self.labelled, one))
            .enumerate()
            .filter(|(_, facts)| facts.touches())
            .map(|(at, facts)| (at, facts.labelled(self.source, &statements[at])))
            .collect();
        for two in touching.windows(2) {
            let [(early, first), (late, second)] = two else { continue };
            let matters =
                (first.is_own() || second.is_own()) && !(first.is_relaxed() && second.is_relaxed());
            let rest = &statements[early + 1..=*late];
            let binds = rest.iter().any(|one| one.uses(&first.binds));
            if matters && !binds && !first.leaves {
                self.found.push(Pair {
                    first: statements[*early].range(),
                    second: statements[*late].range(),
                    is_value: statements[*late].is_value,
                    is_compiled: first.is_compiled() || second.is_compiled(),
                    labels: first.edges.clone(),
                });
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(|finder| visit::visit_item_fn(finder, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(|finder| visit::visit_impl_item_fn(finder, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.within(|finder| visit::visit_trait_item_fn(finder, item));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        if self.depth > 0 {
            self.block(block);
        }
        visit::visit_block(self, block);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        for argument in source::arguments(mac) {
            self.visit_expr(&argument);
        }
    }
}

struct Statement<'b> {
    syntax: &'b Stmt,
    /// Whether the value of the statement may be the value of the block.
    is_value: bool,
}

impl Statement<'_> {
    fn range(&self) -> Range<usize> {
        source::range(self.syntax)
    }

    /// Returns whether the statement contains one of `names`.
    fn uses(&self, names: &[String]) -> bool {
        fn any(tokens: TokenStream, names: &[String]) -> bool {
            tokens.into_iter().any(|token| match token {
                TokenTree::Ident(ident) => names.iter().any(|name| ident == name),
                TokenTree::Group(group) => any(group.stream(), names),
                _ => false,
            })
        }
        !names.is_empty() && any(self.syntax.to_token_stream(), names)
    }
}

/// Returns the statements of `block`, without definitions and without those under an attribute.
fn statements(block: &syn::Block) -> Vec<Statement<'_>> {
    let last = block.stmts.len().saturating_sub(1);
    block
        .stmts
        .iter()
        .enumerate()
        .filter(|(_, syntax)| !matches!(syntax, Stmt::Item(_)))
        .filter(|(_, syntax)| statement_attributes(syntax).is_empty())
        .map(|(at, syntax)| {
            let open = match syntax {
                Stmt::Expr(_, semicolon) => semicolon.is_none(),
                Stmt::Macro(mac) => mac.semi_token.is_none(),
                _ => false,
            };
            Statement { syntax, is_value: open && at == last }
        })
        .collect()
}

/// The calls and names of one statement.
#[derive(Debug)]
struct Facts<'l> {
    known: &'l Labelled,
    /// The names of functions and methods that are called or passed as values.
    calls: Vec<String>,
    /// The labels of the edges whose operations are called.
    edges: Vec<String>,
    /// The names that the statement binds for the statements behind it.
    binds: Vec<String>,
    is_ordered: bool,
    is_compiled: bool,
    is_labelled: bool,
    leaves: bool,
}

impl<'l> Facts<'l> {
    fn of(known: &'l Labelled, statement: &Statement<'_>) -> Self {
        let (calls, edges, binds) = Default::default();
        let (is_ordered, is_compiled, is_labelled, leaves) = Default::default();
        let mut facts =
            Self { known, calls, edges, binds, is_ordered, is_compiled, is_labelled, leaves };
        facts.visit_stmt(statement.syntax);
        if let Stmt::Local(local) = statement.syntax {
            let mut names = Names(Vec::new());
            names.visit_pat(&local.pat);
            facts.binds = names.0;
            // Listing `let` as a bound name prevents an exchange of a `let` with a later one,
            // because the recorded runs made no such exchanges.
            facts.binds.push("let".to_owned());
        }
        facts
    }

    /// Notes whether a comment in the statement, or behind it on its last line, carries a label.
    fn labelled(mut self, source: &Source, statement: &Statement<'_>) -> Self {
        let range = statement.range();
        let rest = source.text[range.end..].find('\n');
        let end = rest.map_or(source.text.len(), |length| range.end + length);
        self.is_labelled = labels_in(&source.comments()[range.start..end]).next().is_some();
        self
    }

    fn touches(&self) -> bool {
        self.accesses() || self.calls.iter().any(|name| self.known.functions.contains(name))
    }

    fn accesses(&self) -> bool {
        !self.edges.is_empty() || self.calls.iter().any(|name| orders(name))
    }

    fn is_own(&self) -> bool {
        self.accesses() || self.is_labelled
    }

    fn is_relaxed(&self) -> bool {
        let orders =
            |name: &String| FENCES.contains(&name.as_str()) || self.known.functions.contains(name);
        let ordered = self.is_ordered || self.is_labelled || !self.edges.is_empty();
        !ordered && !self.calls.iter().any(orders)
    }

    fn is_compiled(&self) -> bool {
        self.is_compiled || self.calls.iter().any(|name| name == "compiler_fence")
    }

    fn call(&mut self, path: &syn::Path) {
        let mut segments = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        self.calls.extend(segments.next());
        if let Some(module) = segments.next().filter(|module| self.known.is_edge(module)) {
            self.edges.push(module.replace('_', "-"));
            let operation = (module, self.calls.last().cloned().unwrap_or_default());
            self.is_compiled |= self.known.compiled.contains(&operation);
        }
    }
}

impl<'ast> Visit<'ast> for Facts<'_> {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            self.call(&function.path);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.calls.push(call.method.to_string());
        for argument in &call.args {
            if let Expr::Path(passed) = argument
                && passed.path.segments.len() > 1
            {
                self.call(&passed.path);
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.is_ordered |= ORDERINGS.iter().any(|name| source::is_named(&path.path, name));
    }

    fn visit_expr_return(&mut self, _: &'ast syn::ExprReturn) {
        self.leaves = true;
    }

    fn visit_expr_break(&mut self, _: &'ast syn::ExprBreak) {
        self.leaves = true;
    }

    fn visit_expr_continue(&mut self, _: &'ast syn::ExprContinue) {
        self.leaves = true;
    }

    fn visit_expr_try(&mut self, inner: &'ast syn::ExprTry) {
        self.leaves = true;
        visit::visit_expr_try(self, inner);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        for argument in source::arguments(mac) {
            self.visit_expr(&argument);
        }
    }
}

/// The names that a pattern binds.
struct Names(Vec<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.push(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

/// Returns whether a call of this name is an access or a fence.
fn orders(name: &str) -> bool {
    ACCESSES.contains(&name) || name.starts_with("fetch_") || FENCES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exchanges in a function with this body.
    fn exchanged(body: &str) -> Vec<String> {
        let edges = "mod slot_seen { fn publish() {} fn look() { compiler_fence(SeqCst) } }";
        let edges = Source::parse(edges).unwrap();
        let text = format!(
            "fn release() {{\n // SYNC[x]\n}}\nfn announce() {{ edge::slot_seen::publish() }}\nfn f() {{ {body}\n}}"
        );
        let source = Source::parse(text).unwrap();
        let files = [(Path::new("edge.rs"), &edges), (Path::new("a.rs"), &source)];
        let labelled = Labelled::of(files.into_iter());
        let found = pairs(&source, &source.live(), &labelled);
        found.iter().map(|pair| pair.exchanged(&source.text)).collect()
    }

    #[test]
    fn two_touching_statements_are_exchanged() {
        assert_eq!(
            exchanged("a.store(1, Relaxed);\nb.fetch_or(2, Release); // SYNC[x]"),
            ["\nb.fetch_or(2, Release);\na.store(1, Relaxed);"]
        );
        assert_eq!(
            exchanged("a.store(1, Relaxed); let n = 1; n += 1; fence(SeqCst);"),
            [" let n = 1; n += 1; fence(SeqCst);\na.store(1, Relaxed);"]
        );
        assert_eq!(
            exchanged("a.store(1, Relaxed); // SYNC[x]\nself.release(1);"),
            [" // SYNC[x]\nself.release(1);\na.store(1, Relaxed);"]
        );
        assert_eq!(
            exchanged("fence(SeqCst); a.load(Relaxed) == 1"),
            [" let exchanged = a.load(Relaxed) == 1;\nfence(SeqCst);\nexchanged"]
        );
        assert_eq!(exchanged("fence(SeqCst);\nall.iter().for_each(Bell::release)").len(), 1);
        let nested =
            "if x { fence(SeqCst); a.load(Relaxed); } else { y() } compiler_fence(SeqCst);";
        assert_eq!(exchanged(nested).len(), 2);
    }

    #[test]
    fn immovable_statements_stay() {
        assert!(
            exchanged("self.release(1); self.release(2);").is_empty(),
            "neither accesses, fences or wears a label"
        );
        assert!(
            exchanged("a.store(1, Relaxed); b.store(2, Relaxed);").is_empty(),
            "nothing orders them"
        );
        assert!(
            exchanged("let seen = a.load(Acquire); // SYNC[x]\nb.store(seen, Release);").is_empty(),
            "the second needs the first"
        );
        assert!(exchanged("if a.load(Acquire) { return; } fence(SeqCst);").is_empty(), "it leaves");
        assert!(exchanged("fence(SeqCst); count += 1;").is_empty(), "the second touches nothing");
        assert!(
            exchanged("match a { B => fence(SeqCst), C => a.load(Relaxed) }").is_empty(),
            "one statement"
        );
        assert!(
            exchanged("let seen = a.load(Acquire); assert!(seen > 1); fence(SeqCst);").is_empty(),
            "a macro needs the first"
        );
    }

    #[test]
    fn operations_of_edges_are_accesses() {
        let body = "edge::slot_seen::publish(a, 1); b.store(2, Relaxed); slot_seen::look(a)";
        assert_eq!(exchanged(body).len(), 2);
        assert_eq!(exchanged("self.announce(); b.store(2, Release);").len(), 1);
        assert!(exchanged("other::publish(a, 1); b.store(2, Relaxed);").is_empty());
        let own = |name| edge_of(Path::new("base/edge/announced.rs"), name);
        assert_eq!(own("fence_task"), ("announced".to_owned(), "fence_task"));
        assert_eq!(own("inner::fence_task"), ("inner".to_owned(), "fence_task"));
    }

    #[test]
    fn statements_end_where_the_parser_says() {
        let of = |text: &str| {
            let text = format!("{{{text}}}");
            let block: syn::Block = syn::parse_str(&text).unwrap();
            let found = statements(&block);
            found.iter().map(|one| text[one.range()].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            of("a(); if b { c; } else { d } let Some(e) = f else { g }; h"),
            ["a();", "if b { c; } else { d }", "let Some(e) = f else { g };", "h"]
        );
        assert_eq!(
            of("match a { b => { c } }.d(); unsafe { e; } fn f() { g; } #[cfg(x)] i(); h();"),
            ["match a { b => { c } }.d();", "unsafe { e; }", "h();"]
        );
        assert_eq!(
            of("twin!(\"x\": { a; } => b); let c = [1; 2];"),
            ["twin!(\"x\": { a; } => b);", "let c = [1; 2];"]
        );
    }
}
