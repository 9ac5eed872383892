//! The examples of the library's public functions.
//!
//! A public function has an example if its documentation has a code block that runs, or a line that
//! begins with `Example:` and links to an item or module whose documentation has one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use syn::{Attribute, Expr, ImplItem, Item, Meta, TraitItem, Visibility};

use crate::{
    findings::Findings,
    house::{House, Reach, Target, arrows::segments, crates::Crate, defined},
    source::{self, strip::item_attributes},
};

/// The words of a code block that rustdoc compiles and runs.
const RUNNABLE: [&str; 8] = [
    "",
    "rust",
    "should_panic",
    "edition2018",
    "edition2021",
    "edition2024",
    "standalone",
    "standalone_crate",
];
/// The beginning of a line that links to the example of a family.
const LINK: &str = "Example:";

/// The public functions of a library.
#[derive(Debug, Default)]
struct Examples {
    /// Each function, with whether it has an example.
    functions: BTreeMap<String, bool>,
    /// The functions whose link does not point to an example. The value is the link.
    broken: BTreeMap<String, String>,
}

impl Examples {
    /// Collects the public functions of `house`. Their links may name items of `below`, which the
    /// crate re-exports.
    fn of(house: &House, below: Option<&Docs>) -> Self {
        let docs = Docs::of(house);
        let mut examples = Self::default();
        for name in &docs.public {
            let own = docs.texts.get(name).map(String::as_str).unwrap_or_default();
            let mut has = runs(own);
            if let Some(link) = link(own).filter(|_| !has) {
                let linked = |docs: &Docs| docs.linked(name, &link).is_some_and(runs);
                has = linked(&docs) || below.is_some_and(linked);
                if !has {
                    examples.broken.insert(name.clone(), link);
                }
            }
            examples.functions.insert(name.clone(), has);
        }
        examples
    }

    /// Returns the functions without an example.
    fn without(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().filter(|(_, has)| !**has).map(|(name, _)| name.as_str())
    }
}

/// Finds the public functions of a crate that have no example. `below` documents the library, whose
/// items other crates re-export.
pub fn check(krate: &Crate, below: Option<&Docs>, found: &mut Findings) {
    let examples = Examples::of(&krate.house, below);
    let (all, without) = (examples.functions.len(), examples.without().count());
    let (with, folder) = (all - without, &krate.folder);
    found.notes.push(format!("{folder}: {with} of {all} public functions have an example"));
    for name in examples.without() {
        let message = match examples.broken.get(name) {
            Some(link) => format!("{name}: the link `{link}` leads to no example that runs"),
            None => format!(
                "{name} has no example: give it one, or a line `{LINK} [...]` that links to one"
            ),
        };
        found.breach(folder, "example", message);
    }
}

/// The documentation of a library's items.
#[derive(Default)]
pub struct Docs {
    /// The text of each item, by `function`, `Type`, `Type::method` or `module`.
    texts: BTreeMap<String, String>,
    /// The public functions among them.
    public: BTreeSet<String>,
}

impl Docs {
    /// Collects the documentation of `house`.
    pub fn of(house: &House) -> Self {
        let mut docs = Self::default();
        let public = public(house);
        for (at, module) in house.modules.iter().enumerate() {
            let text = text(house, at, &module.attributes);
            docs.texts.entry(module.name.clone()).or_default().push_str(&text);
            for item in &module.items {
                docs.item(house, at, item, &public);
            }
        }
        docs
    }

    fn add(&mut self, name: String, text: &str, is_public: bool) {
        self.texts.entry(name.clone()).or_default().push_str(text);
        if is_public {
            self.public.insert(name);
        }
    }

    fn item(&mut self, house: &House, at: usize, item: &Item, public: &BTreeSet<Target>) {
        let is_public = |name: &str| public.contains(&Target::Item(at, name.to_owned()));
        let own = text(house, at, item_attributes(item));
        if let Some(name) = defined(item) {
            let is_function = matches!(item, Item::Fn(_)) && is_public(&name);
            self.add(name, &own, is_function);
        }
        match item {
            Item::Trait(item) => {
                let name = item.ident.to_string();
                let is_public = is_public(&name);
                for inner in &item.items {
                    let TraitItem::Fn(method) = inner else { continue };
                    let counts = is_public && !is_hidden(&method.attrs);
                    let method_name = format!("{name}::{}", method.sig.ident);
                    self.add(method_name, &text(house, at, &method.attrs), counts);
                }
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let syn::Type::Path(path) = &*item.self_ty else { return };
                let targets = house.resolve(at, &segments(&path.path));
                let is_shown =
                    !is_hidden(&item.attrs) && targets.iter().any(|t| public.contains(t));
                let Some(Target::Item(_, name)) = targets.into_iter().next() else { return };
                for inner in &item.items {
                    let ImplItem::Fn(method) = inner else { continue };
                    let counts = is_shown
                        && matches!(method.vis, Visibility::Public(_))
                        && !is_hidden(&method.attrs);
                    let method_name = format!("{name}::{}", method.sig.ident);
                    self.add(method_name, &text(house, at, &method.attrs), counts);
                }
            }
            _ => {}
        }
    }

    /// Returns the documentation of the item to which the `link` in the documentation of `name`
    /// refers.
    fn linked(&self, name: &str, link: &str) -> Option<&str> {
        let owner = name.split_once("::").map(|(owner, _)| owner);
        let path: Vec<&str> = link
            .split("::")
            .map(|segment| if segment == "Self" { owner.unwrap_or(segment) } else { segment })
            .collect();
        let two = path[path.len().saturating_sub(2)..].join("::");
        // The root module has no name.
        let last = path.last().map(|&last| if last == "crate" { "" } else { last })?;
        let found = self.texts.get(&two).or_else(|| self.texts.get(last));
        found.map(String::as_str)
    }
}

/// Returns the items that users reach from the root of `house`.
fn public(house: &House) -> BTreeSet<Target> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        let module = &house.modules[at];
        for item in module.items.iter().filter(|item| is_public(item)) {
            found.extend(defined(item).map(|name| Target::Item(at, name)));
        }
        let children = module.children.values().copied();
        open.extend(children.filter(|&child| {
            let module = &house.modules[child];
            module.reach == Reach::Public && !is_hidden(&module.attributes)
        }));
        for (import, _) in module.imports.iter().filter(|(_, reach)| *reach == Reach::Public) {
            for target in house.resolve(at, &import.path) {
                match target {
                    Target::Module(module) => open.push(module),
                    item @ Target::Item(..) => drop(found.insert(item)),
                }
            }
        }
    }
    found
}

/// Returns whether the item is `pub`, and shown in the documentation.
pub fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_)) && !is_hidden(item_attributes(item))
}

/// Returns whether the attributes keep an item out of the documentation.
pub fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            list.path.is_ident("doc") && list.tokens.to_string().split(", ").any(|w| w == "hidden")
        }
        _ => false,
    })
}

/// Returns the documentation of an item, as the item's `attributes` contain it. `at` is the item's
/// module.
fn text(house: &House, at: usize, attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        if !pair.path.is_ident("doc") {
            continue;
        }
        let line = match &pair.value {
            Expr::Macro(included) if source::is_named(&included.mac.path, "include_str") => {
                let path = included.mac.parse_body::<syn::LitStr>().map(|path| path.value());
                let own = &house.files[house.modules[at].file];
                let folder = own.parent().unwrap_or(Path::new(""));
                path.ok().and_then(|path| house.pages.get(&folder.join(path)).cloned())
            }
            value => source::string(value),
        };
        text.push_str(&line.unwrap_or_default());
        text.push('\n');
    }
    text
}

/// Returns whether documentation has a code block that runs.
pub fn runs(text: &str) -> bool {
    // The backticks of the open block, whether it runs, and whether it has a line of code.
    let mut open: Option<(usize, bool, bool)> = None;
    for line in text.lines().map(str::trim) {
        let ticks = line.bytes().take_while(|&byte| byte == b'`').count();
        match &mut open {
            None if ticks >= 3 => {
                let words = line[ticks..].split([',', ' ', '{', '}']);
                open = Some((ticks, words.map(str::trim).all(|w| RUNNABLE.contains(&w)), false));
            }
            None => {}
            Some((end, is_run, has_code)) if ticks >= *end && line.len() == ticks => {
                if *is_run && *has_code {
                    return true;
                }
                open = None;
            }
            Some((_, _, has_code)) => *has_code |= !line.is_empty(),
        }
    }
    false
}

/// Returns the path that the first `Example:` line links to.
fn link(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| line.starts_with(LINK))?;
    let (_, rest) = line.split_once('[')?;
    let (label, rest) = rest.split_once(']')?;
    let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let path = target.map_or(label, |(target, _)| target).trim_matches('`');
    let path = path.split('#').next().unwrap_or(path).trim_end_matches("()").trim_end_matches('!');
    Some(path.rsplit('@').next().unwrap_or(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        house::{arrows::Arrows, tests::house},
        layout,
    };

    const RUNS: &str = "/// ```\n/// f();\n/// ```\n";

    #[test]
    fn blocks_that_run_are_told_from_others() {
        for text in [
            "```\nf();\n```",
            "a\n```rust,should_panic\n# f();\n```\nb",
            "```text\na\n```\n\n````edition2024\nf();\n````",
        ] {
            assert!(runs(text), "{text}");
        }
        for text in [
            "no block",
            "```text\nf();\n```",
            "```rust,ignore\nf();\n```",
            "```no_run\nf();\n```",
            "```compile_fail\nf();\n```",
            "```\n\n```",
            "```\nf();",
            "`f()`",
        ] {
            assert!(!runs(text), "{text}");
        }
    }

    #[test]
    fn links_are_read() {
        for (line, path) in [
            ("Example: [`Chain::new`].", Some("Chain::new")),
            ("Example: [building](crate::Chain::new).", Some("crate::Chain::new")),
            ("Example: see [`Self::go()`]", Some("Self::go")),
            ("Example: [`method@crate::a::B::c#one`]", Some("crate::a::B::c")),
            ("Example: none", None),
            ("See [`Chain`].", None),
        ] {
            assert_eq!(link(line).as_deref(), path, "{line}");
        }
    }

    fn library() -> House {
        let inner = format!(
            "{RUNS}pub fn shown() {{}} pub fn bare() {{}} fn private() {{}} pub(crate) fn own() {{}}
             #[doc(hidden)] pub fn hidden() {{}}
             pub struct Ring; struct Lost; impl Lost {{ pub fn method(&self) {{}} }}
             impl Ring {{
                 {RUNS} pub fn new() -> Self {{ Ring }}
                 /// Example: [`Self::new`].\n pub fn linked() {{}}
                 /// Example: [`Ring::bare`].\n pub fn astray() {{}}
                 /// Example: [waiting](crate::guide::waiting).\n pub fn guided() {{}}
                 pub fn bare() {{}} fn private() {{}} #[doc(hidden)] pub fn hidden() {{}}
             }}
             impl Drop for Ring {{ fn drop(&mut self) {{}} }}
             pub trait Handle {{ {RUNS} fn event(); fn end(); }}"
        );
        let files = [
            (
                "lib.rs",
                "mod inner; pub use inner::*; mod other; pub use other::Other; pub mod guide;",
            ),
            ("inner.rs", &inner),
            ("guide.rs", "#[doc = include_str!(\"guide/waiting.md\")] pub mod waiting {}"),
            (
                "other.rs",
                "pub struct Other; pub struct Unseen; impl Unseen { pub fn x() {} }
                          impl Other { pub fn y() {} } impl crate::Ring { pub fn more() {} }",
            ),
        ];
        let mut house = house(&files);
        house.pages.insert("guide/waiting.md".into(), "# Waiting\n```\nf();\n```\n".to_owned());
        house
    }

    #[test]
    fn public_functions_are_counted() {
        let examples = Examples::of(&library(), None);
        let has: Vec<&str> =
            examples.functions.iter().filter(|(_, has)| **has).map(|(name, _)| &**name).collect();
        assert_eq!(has, ["Handle::event", "Ring::guided", "Ring::linked", "Ring::new", "shown"]);
        let without: Vec<&str> = examples.without().collect();
        assert_eq!(
            without,
            ["Handle::end", "Other::y", "Ring::astray", "Ring::bare", "Ring::more", "bare"]
        );
    }

    #[test]
    fn functions_without_an_example_are_found() {
        let house = library();
        let (folder, arrows) = (layout::LIBRARY.to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&Crate { folder, house, arrows }, None, &mut found);
        assert_eq!(found.notes, ["crates/slipring: 5 of 11 public functions have an example"]);
        let messages: Vec<&str> = found.breaches.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(messages.len(), 6);
        assert!(messages.iter().any(|one| one.starts_with("Other::y has no example")));
        let broken = "Ring::astray: the link `Ring::bare` leads to no example that runs";
        assert!(messages.contains(&broken), "{messages:?}");
    }
}
