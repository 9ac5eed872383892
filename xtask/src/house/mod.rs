//! The modules of a crate and the names that travel between its files.
//!
//! No library resolves names without a compiler, so this module does it by hand. It follows `mod`,
//! `use` and re-exports. It leaves methods alone, because only a method's type would say where the
//! method is defined.

pub mod arrows;
pub mod circles;
pub mod count;
pub mod crates;
pub mod map;
pub mod models;
pub mod rooms;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, Item,
    visit::{self, Visit},
};

use crate::{
    source::{self, Import, Source},
    workspace,
};

/// The conditions of code that no user compiles.
pub const MODELS: &[&str] = &["test", "slipring_loom", "doctest"];
/// The files in which a crate's modules begin; a crate has one of these files.
pub const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// A crate's modules, without its tests and models.
pub struct House {
    /// The files, relative to the crate's source.
    pub files: Vec<PathBuf>,
    /// The parsed text of each file, with its tests and models.
    pub sources: Vec<Source>,
    /// The text of the pages that documentation may include, by path.
    pub pages: BTreeMap<PathBuf, String>,
    /// The modules; the first is the root.
    pub modules: Vec<Module>,
    /// The modules that define a macro, by the name of the macro.
    macros: BTreeMap<String, Vec<usize>>,
}

/// One module.
pub struct Module {
    /// The name of the module; empty for the root.
    pub name: String,
    /// The index of its file.
    pub file: usize,
    /// The module around it.
    pub parent: Option<usize>,
    /// The reach of its declaration.
    pub reach: Reach,
    /// The attributes of the module's declaration and of its file.
    pub attributes: Vec<Attribute>,
    /// The items, without modules.
    pub items: Vec<Item>,
    /// The inner modules.
    pub children: BTreeMap<String, usize>,
    /// The names that the module defines itself.
    pub defined: BTreeSet<String>,
    /// The imports, with their reach.
    pub imports: Vec<(Import, Reach)>,
}

/// Code beyond a name's module that may use the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None.
    Private,
    /// Some modules of the crate.
    Library,
    /// Users of the crate.
    Public,
}

impl Reach {
    fn of(visibility: &syn::Visibility) -> Self {
        match visibility {
            syn::Visibility::Public(_) => Self::Public,
            syn::Visibility::Inherited => Self::Private,
            _ => Self::Library,
        }
    }
}

/// The meaning of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A module.
    Module(usize),
    /// An item, by its module and its name.
    Item(usize, String),
}

impl House {
    /// Reads the crate whose source lies in `folder`.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let (mut texts, mut pages) = (BTreeMap::new(), BTreeMap::new());
        for file in workspace::files(folder)? {
            let kind = match file.extension().and_then(|extension| extension.to_str()) {
                Some("rs") => &mut texts,
                Some("md") => &mut pages,
                _ => continue,
            };
            kind.insert(file.clone(), fs::read_to_string(folder.join(file))?);
        }
        let mut house = Self::of(&texts).map_err(io::Error::other)?;
        house.pages = pages;
        Ok(house)
    }

    /// Builds the house of `texts`, by path.
    pub fn of(texts: &BTreeMap<PathBuf, String>) -> Result<Self, String> {
        let (files, sources, pages, modules, macros) = Default::default();
        let mut house = Self { files, sources, pages, modules, macros };
        let root = ROOTS.iter().map(Path::new).find(|root| texts.contains_key(*root));
        house.file(texts, root.ok_or("there is neither lib.rs nor main.rs")?, Module::root())?;
        Ok(house)
    }

    /// Adds the file of `module` and the modules below it; returns its index.
    fn file(
        &mut self,
        texts: &BTreeMap<PathBuf, String>,
        path: &Path,
        mut module: Module,
    ) -> Result<usize, String> {
        let text = texts.get(path).ok_or_else(|| format!("there is no {}", path.display()))?;
        let source = Source::parse(&**text).map_err(|e| format!("{}: {e}", path.display()))?;
        let live = source::stripped(&source.syntax, MODELS);
        let stem = path.file_stem().unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_root = ROOTS.iter().any(|root| path == Path::new(root));
        let below = if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
        module.file = self.files.len();
        module.attributes.extend(live.attrs);
        self.files.push(path.to_owned());
        self.sources.push(source);
        self.module(texts, module, live.items, &below)
    }

    /// Adds a module and those below it, whose files lie in `folder`.
    fn module(
        &mut self,
        texts: &BTreeMap<PathBuf, String>,
        mut module: Module,
        items: Vec<Item>,
        folder: &Path,
    ) -> Result<usize, String> {
        let (inner, items): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| matches!(item, Item::Mod(_)));
        for item in &items {
            module.add(item);
        }
        module.items = items;
        let (at, file) = (self.modules.len(), module.file);
        for name in module.items.iter().filter_map(macro_name) {
            self.macros.entry(name).or_default().push(at);
        }
        self.modules.push(module);
        for item in inner {
            let Item::Mod(item) = item else { continue };
            let name = item.ident.to_string();
            let inner = Module {
                name: name.clone(),
                file,
                parent: Some(at),
                reach: Reach::of(&item.vis),
                attributes: item.attrs,
                ..Module::root()
            };
            let child = if let Some((_, items)) = item.content {
                self.module(texts, inner, items, &folder.join(&name))?
            } else {
                let own = self.files[file].parent().unwrap_or(Path::new(""));
                let path = match source::path_of(&inner.attributes) {
                    Some(path) => own.join(path),
                    None => [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")]
                        .into_iter()
                        .find(|path| texts.contains_key(path))
                        .ok_or_else(|| format!("there is no file of the module {name}"))?,
                };
                self.file(texts, &path, inner)?
            };
            self.modules[at].children.insert(name, child);
        }
        Ok(at)
    }

    /// Returns the meanings of `path` in the module `from`; none for a name of another crate.
    pub fn resolve(&self, from: usize, path: &[String]) -> BTreeSet<Target> {
        self.follow(from, path, &mut BTreeSet::new())
    }

    fn follow(
        &self,
        from: usize,
        path: &[String],
        seen: &mut BTreeSet<(usize, String)>,
    ) -> BTreeSet<Target> {
        let Some((first, rest)) = path.split_first() else { return BTreeSet::new() };
        let mut targets = match first.as_str() {
            "crate" => BTreeSet::from([Target::Module(0)]),
            "self" => BTreeSet::from([Target::Module(from)]),
            "super" => self.parent(from),
            name => self.lookup(from, name, seen),
        };
        for segment in rest {
            // Types and modules share a namespace. So an item beside a module of the same name is a
            // function or a constant, which contains nothing.
            if targets.iter().any(|target| matches!(target, Target::Module(_))) {
                targets.retain(|target| matches!(target, Target::Module(_)));
            }
            let step = |target| match target {
                Target::Module(module) if segment == "super" => self.parent(module),
                Target::Module(module) => self.lookup(module, segment, seen),
                // The segment names a variant or an associated item. The item that contains it
                // counts.
                item @ Target::Item(..) => BTreeSet::from([item]),
            };
            targets = targets.into_iter().flat_map(step).collect();
        }
        targets
    }

    fn parent(&self, module: usize) -> BTreeSet<Target> {
        self.modules[module].parent.map(Target::Module).into_iter().collect()
    }

    /// Returns the meanings of one name in a module. `seen` ends circles of imports.
    fn lookup(
        &self,
        at: usize,
        name: &str,
        seen: &mut BTreeSet<(usize, String)>,
    ) -> BTreeSet<Target> {
        if !seen.insert((at, name.to_owned())) {
            return BTreeSet::new();
        }
        let module = &self.modules[at];
        let mut found: BTreeSet<Target> =
            module.children.get(name).map(|&child| Target::Module(child)).into_iter().collect();
        if module.defined.contains(name) {
            found.insert(Target::Item(at, name.to_owned()));
        }
        for (import, _) in &module.imports {
            if import.name.as_deref() == Some(name) {
                found.extend(self.follow(at, &import.path, seen));
            }
        }
        if found.is_empty() {
            for (import, _) in module.imports.iter().filter(|(import, _)| import.name.is_none()) {
                for target in self.follow(at, &import.path, &mut seen.clone()) {
                    if let Target::Module(glob) = target {
                        found.extend(self.lookup(glob, name, seen));
                    }
                }
            }
        }
        seen.remove(&(at, name.to_owned()));
        found
    }

    /// Returns the items that a macro's path may mean. Unlike other items, a macro is also in scope
    /// below its definition.
    pub fn resolve_macro(&self, from: usize, path: &[String]) -> BTreeSet<Target> {
        let found = self.resolve(from, path);
        let (Some(name), true) = (path.last(), found.is_empty()) else { return found };
        let is_textual = path.len() == 1 || path[0] == "crate";
        let modules = self.macros.get(name).filter(|_| is_textual);
        modules.into_iter().flatten().map(|&module| Target::Item(module, name.clone())).collect()
    }

    /// Returns the name of the module that begins in a file.
    pub fn stem(&self, file: usize) -> &str {
        let path = &self.files[file];
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        if stem == "mod" { folder.unwrap_or(stem) } else { stem }
    }

    /// Returns whether `module` lies in `outer`, or is it.
    pub fn is_within(&self, module: usize, outer: usize) -> bool {
        module == outer
            || self.modules[module].parent.is_some_and(|parent| self.is_within(parent, outer))
    }
}

impl Module {
    /// Returns the empty root.
    fn root() -> Self {
        let (name, attributes, items, children, defined, imports) = Default::default();
        let (file, parent, reach) = (0, None, Reach::Public);
        Self { name, file, parent, reach, attributes, items, children, defined, imports }
    }

    /// Adds the names that `item` defines or imports.
    fn add(&mut self, item: &Item) {
        self.defined.extend(defined(item));
        struct Uses<'m>(&'m mut Vec<(Import, Reach)>);
        impl<'ast> Visit<'ast> for Uses<'_> {
            fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
                let reach = Reach::of(&item.vis);
                self.0.extend(source::imports(item).into_iter().map(|import| (import, reach)));
            }
        }
        let mut uses = Uses(&mut self.imports);
        visit::visit_item(&mut uses, item);
    }
}

/// Returns the name that an item defines.
pub fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

fn macro_name(item: &Item) -> Option<String> {
    match item {
        Item::Macro(item) => item.ident.as_ref().map(ToString::to_string),
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the house of these files.
    pub fn house(files: &[(&str, &str)]) -> House {
        let texts = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
        House::of(&texts.collect()).unwrap()
    }

    /// Returns the file that defines `path`, as the file `from` sees it.
    fn home(house: &House, from: &str, path: &str) -> Vec<String> {
        let module = house
            .modules
            .iter()
            .position(|module| house.files[module.file] == Path::new(from))
            .unwrap();
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        let file = |target| match target {
            Target::Module(module) => format!("module {}", house.modules[module].name),
            Target::Item(module, name) => {
                format!("{} {name}", house.files[house.modules[module].file].display())
            }
        };
        house.resolve(module, &path).into_iter().map(file).collect()
    }

    #[test]
    fn names_resolve_to_the_file_that_defines_them() {
        let house = house(&[
            (
                "lib.rs",
                "mod base; mod ring; pub use ring::*; pub use base::ring; #[cfg(test)] mod gone;",
            ),
            (
                "base/mod.rs",
                "pub fn ring() {} mod sync; pub(crate) use sync::{Fence as Barrier, twin};",
            ),
            (
                "base/sync.rs",
                "pub struct Fence; macro_rules! twin { () => {} } pub(crate) use twin;",
            ),
            ("ring.rs", "use crate::base::{self, *}; pub mod slots; pub use self::slots::Slots;"),
            ("ring/slots.rs", "pub struct Slots; use super::*; pub enum Layout { A }"),
        ]);
        assert_eq!(home(&house, "ring.rs", "base::Barrier"), ["base/sync.rs Fence"]);
        assert_eq!(home(&house, "ring.rs", "Barrier"), ["base/sync.rs Fence"]);
        assert_eq!(home(&house, "base/mod.rs", "crate::Slots"), ["ring/slots.rs Slots"]);
        assert_eq!(home(&house, "ring/slots.rs", "Barrier"), ["base/sync.rs Fence"]);
        assert_eq!(
            home(&house, "ring/slots.rs", "super::super::base::twin"),
            ["base/sync.rs twin"]
        );
        assert_eq!(home(&house, "lib.rs", "ring::slots::Layout::A"), ["ring/slots.rs Layout"]);
        assert_eq!(home(&house, "lib.rs", "ring::slots"), ["module slots"]);
        assert!(home(&house, "ring.rs", "std::sync::Arc").is_empty());
    }

    #[test]
    fn circles_of_imports_end() {
        let house = house(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::*; pub use crate::b::Lost;"),
            ("b.rs", "pub use crate::a::*; pub use crate::a::Lost; pub struct Found;"),
        ]);
        assert!(home(&house, "a.rs", "Lost").is_empty());
        assert_eq!(home(&house, "a.rs", "Found"), ["b.rs Found"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let texts = BTreeMap::from([(PathBuf::from("lib.rs"), "mod lost;".to_owned())]);
        assert!(House::of(&texts).err().unwrap().contains("lost"));
    }
}
