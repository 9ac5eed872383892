//! The parts of the project that `cargo xtask test NAME...` runs.
//!
//! The index is read from the files, so a name that matches no part is refused before anything is
//! built.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use syn::{
    Item,
    visit::{self, Visit},
};

use crate::{
    checks,
    command::Call,
    layout,
    source::{Source, TESTS, is_gated},
    steps::{CheckRun, Step, Trouble},
    tidy::examples::runs,
    workspace,
};

/// The condition of the models.
const MODEL: &[&str] = &["slipring_loom"];
/// The folder whose checks are one part.
const PEERS: &str = "peers";

/// A target that cargo builds tests for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The unit tests of a library.
    Library,
    /// The unit tests of a program.
    Program,
    /// A file of integration tests.
    Tests(String),
}

/// A file with the tests in it.
#[derive(Debug)]
struct File {
    package: String,
    target: Target,
    /// The path of the module within its target; empty for the root.
    module: String,
    /// The paths of the tests within the target.
    tests: Vec<String>,
    is_model: bool,
    /// Whether a macro may define further tests.
    has_macros: bool,
    has_examples: bool,
}

/// A part to run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Crate(String),
    Tests { package: String, target: Target, filter: Option<String> },
    Examples { package: String, filter: String },
    Models { name: String, filters: BTreeSet<String> },
    Peers,
    Program(String),
}

/// The names that can be tested.
#[derive(Debug, Default)]
pub struct Index {
    /// The packages, by the name of their folder.
    packages: BTreeMap<String, String>,
    files: Vec<File>,
    programs: Vec<String>,
    has_peers: bool,
}

impl Index {
    /// Reads the names of the workspace at `root`.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut index = Self {
            programs: workspace::examples(root),
            has_peers: root.join(PEERS).is_dir(),
            ..Self::default()
        };
        let files = workspace::files(root)?;
        for member in workspace::members(root) {
            let Some(package) = workspace::package(&root.join(&member)) else { continue };
            for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
                let Ok(own) = file.strip_prefix(&member) else { continue };
                let exists = |path: &Path| root.join(&member).join(path).is_file();
                let Some((target, module)) = place(own, &exists) else { continue };
                let text = fs::read_to_string(root.join(file))?;
                let source = Source::parse(text)
                    .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
                index.files.push(File::of(&package, target, module, &source));
            }
            let folder = Path::new(&member).file_name().unwrap_or_default();
            index.packages.insert(folder.to_string_lossy().into_owned(), package);
        }
        Ok(index)
    }

    /// Returns the parts that `name` fits.
    fn parts(&self, name: &str) -> BTreeSet<Part> {
        let mut found = BTreeSet::new();
        if name == PEERS && self.has_peers {
            found.insert(Part::Peers);
        }
        for (folder, package) in &self.packages {
            if name == folder || name == package {
                found.insert(Part::Crate(package.clone()));
            }
        }
        if !found.is_empty() {
            return found;
        }
        let name = module_name(name);
        if self.programs.contains(&name) {
            found.insert(Part::Program(name.clone()));
        }
        let mut filters = BTreeSet::new();
        for file in &self.files {
            file.parts(&name, &mut found, &mut filters);
        }
        if !filters.is_empty() {
            found.insert(Part::Models { name, filters });
        }
        found
    }

    /// Returns all names that can be tested, by kind.
    fn names(&self) -> String {
        let mut kinds: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for file in &self.files {
            let kind = match &file.target {
                Target::Tests(stem) => {
                    kinds.entry("tests".to_owned()).or_default().insert(stem);
                    continue;
                }
                _ if file.is_model => "models".to_owned(),
                _ => format!("source files of {}", file.package),
            };
            let has_any = !file.tests.is_empty() || file.has_macros || file.has_examples;
            if has_any && !file.module.is_empty() {
                kinds.entry(kind).or_default().insert(&file.module);
            }
        }
        let crates = kinds.entry("crates".to_owned()).or_default();
        crates.extend(self.packages.values().map(String::as_str));
        crates.extend(self.has_peers.then_some(PEERS));
        kinds.insert("programs".to_owned(), self.programs.iter().map(String::as_str).collect());
        kinds.iter().fold(String::new(), |mut text, (kind, names)| {
            let names: Vec<&str> = names.iter().copied().collect();
            let _ = write!(text, "\n{kind}: {}", names.join(", "));
            text
        })
    }

    /// Adds a step to `run` for each part that one of `names` fits. Returns `Err` if a name fits no
    /// part.
    pub fn run(&self, run: &mut CheckRun, names: &[String]) -> Result<(), String> {
        let mut parts = BTreeSet::new();
        for name in names {
            let own = self.parts(name);
            if own.is_empty() {
                return Err(format!("nothing to test is named `{name}`\n{}", self.names()));
            }
            parts.extend(own);
        }
        for part in parts {
            run.step(part.title(), |step| part.run(step));
        }
        Ok(())
    }
}

impl File {
    fn of(package: &str, target: Target, module: String, source: &Source) -> Self {
        let is_test = target != Target::Library || layout::is_test_file(Path::new(&module));
        let mut finder = Finder {
            path: vec![module.clone()],
            tests: Vec::new(),
            is_test: is_test || source.is_test(),
            has_macros: false,
            is_model: is_gated(&source.syntax.attrs, MODEL),
        };
        finder.visit_file(&source.syntax);
        let documentation = source.text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
        });
        Self {
            package: package.to_owned(),
            has_examples: target == Target::Library
                && runs(&documentation.collect::<Vec<_>>().join("\n")),
            is_model: finder.is_model || module.starts_with(checks::MODELS),
            target,
            module,
            tests: finder.tests,
            has_macros: finder.has_macros,
        }
    }

    /// Finds the parts that `name` fits, and adds them to `found`. Models run together, so their
    /// filters are added to `models` instead.
    fn parts(&self, name: &str, found: &mut BTreeSet<Part>, models: &mut BTreeSet<String>) {
        let package = self.package.clone();
        let fits = self.module.contains(name);
        let fitting: Vec<&String> = self.tests.iter().filter(|test| test.contains(name)).collect();
        let has_tests = !fitting.is_empty() || (fits && self.has_macros);
        match &self.target {
            Target::Tests(stem) if stem.contains(name) => {
                let target = self.target.clone();
                found.insert(Part::Tests { package, target, filter: None });
            }
            _ if self.is_model && fits && has_tests => {
                models.insert(self.module.clone());
            }
            _ if self.is_model => models.extend(fitting.into_iter().cloned()),
            target if has_tests => {
                let (target, filter) = (target.clone(), Some(name.to_owned()));
                found.insert(Part::Tests { package, target, filter });
            }
            _ => {}
        }
        if self.has_examples && fits {
            let (package, filter) = (self.package.clone(), name.to_owned());
            found.insert(Part::Examples { package, filter });
        }
    }
}

/// Collects the tests of a file.
struct Finder {
    path: Vec<String>,
    tests: Vec<String>,
    /// Whether only tests compile the present place.
    is_test: bool,
    /// Whether a macro in a place for tests defines items.
    has_macros: bool,
    is_model: bool,
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.content.is_some() {
            let outside = self.is_test;
            self.is_test |= is_gated(&module.attrs, TESTS);
            self.path.push(module.ident.to_string());
            visit::visit_item_mod(self, module);
            self.path.pop();
            self.is_test = outside;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if item.attrs.iter().any(|attribute| attribute.path().is_ident("test")) {
            let path: Vec<&str> =
                self.path.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
            let name = item.sig.ident.to_string();
            self.tests.push([path.as_slice(), &[name.as_str()]].concat().join("::"));
        }
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let makes = matches!(item, Item::Macro(mac) if mac.ident.is_none());
        self.has_macros |= makes && self.is_test;
        visit::visit_item(self, item);
    }
}

/// Returns the target and the module of a file of a package; none for a file that no test runs.
fn place(own: &Path, exists: &dyn Fn(&Path) -> bool) -> Option<(Target, String)> {
    let mut parts = own.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let folder = parts.next()?;
    let mut module: Vec<String> = parts.collect();
    let last = module.pop()?;
    let stem = last.trim_end_matches(".rs");
    if !matches!(stem, "mod" | "lib" | "main") {
        module.push(stem.to_owned());
    }
    match folder.as_str() {
        "src" if exists(Path::new("src/lib.rs")) => Some((Target::Library, module.join("::"))),
        "src" => Some((Target::Program, module.join("::"))),
        "tests" if !module.is_empty() => {
            let target = module.remove(0);
            let is_target = exists(&PathBuf::from(format!("tests/{target}.rs")));
            is_target.then(|| (Target::Tests(target), module.join("::")))
        }
        _ => None,
    }
}

/// Returns the name as a module path: `crates/slipring/src/chain/mod.rs` is `chain`.
fn module_name(name: &str) -> String {
    let path = ["src/", "tests/"]
        .iter()
        .find_map(|folder| name.rsplit_once(folder).map(|(_, path)| path))
        .unwrap_or(name);
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches('/');
    path.replace('/', "::")
}

impl Part {
    /// Returns the part in the summary.
    fn title(&self) -> String {
        match self {
            Self::Crate(name) => format!("crate {name}"),
            Self::Tests { package, target: Target::Tests(stem), filter } => match filter {
                None => format!("{package}/tests/{stem}"),
                Some(filter) => format!("{package}/tests/{stem} {filter}"),
            },
            Self::Tests { package, filter, .. } => {
                format!("{package} unit {}", filter.as_deref().unwrap_or("tests"))
            }
            Self::Examples { package, filter } => format!("{package} doc {filter}"),
            Self::Models { name, .. } => format!("models {name}"),
            Self::Peers => PEERS.to_owned(),
            Self::Program(name) => format!("example {name}"),
        }
    }

    fn run(&self, step: &mut Step) -> Result<(), Trouble> {
        let call = match self {
            Self::Crate(name) => test(name),
            Self::Tests { package, target, filter } => {
                let call = match target {
                    Target::Library => test(package).args(["--lib"]),
                    Target::Program => test(package).args(["--bins"]),
                    Target::Tests(stem) => test(package).args(["--test", stem]),
                };
                call.args(filter.clone())
            }
            Self::Examples { package, filter } => test(package).args(["--doc", filter]),
            Self::Models { filters, .. } => {
                return checks::loom(step, &filters.iter().cloned().collect::<Vec<_>>());
            }
            Self::Peers => return checks::peers_smoke(step),
            Self::Program(name) => return checks::example(step, name),
        };
        step.run(&call)?;
        step.some_tests()
    }
}

fn test(package: &str) -> Call {
    Call::cargo("test --all-features -p").args([package])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(package: &str, path: &str, text: &str) -> File {
        let exists =
            |path: &Path| [Path::new("src/lib.rs"), Path::new("tests/rings.rs")].contains(&path);
        let (target, module) = place(Path::new(path), &exists).unwrap();
        File::of(package, target, module, &Source::parse(text).unwrap())
    }

    fn index() -> Index {
        let tests = "#[cfg(test)] mod tests { #[test] fn laps() {} }";
        let model = "#[test] fn loom_two_producers() {}";
        Index {
            packages: [("ring", "ring"), ("examples", "ring-examples")]
                .map(|(folder, name)| (folder.to_owned(), name.to_owned()))
                .into(),
            files: vec![
                file("ring", "src/lib.rs", ""),
                file("ring", "src/producer/mod.rs", "/// ```\n/// f();\n/// ```\npub fn f() {}"),
                file("ring", "src/producer/claim.rs", tests),
                file("ring", "src/loom_models/publish.rs", model),
                file("ring", "src/loom_models/made.rs", "models! { a b }"),
                file("ring", "tests/rings.rs", "mod shapes; #[test] fn wraps() {}"),
                file("ring", "tests/rings/shapes.rs", "#[test] fn branches() {}"),
            ],
            programs: vec!["fizzbuzz".to_owned()],
            has_peers: true,
        }
    }

    fn titles(name: &str) -> Vec<String> {
        index().parts(name).iter().map(Part::title).collect()
    }

    #[test]
    fn a_name_runs_the_parts_that_it_fits() {
        assert_eq!(
            titles("producer"),
            ["ring unit producer", "ring doc producer", "models producer"]
        );
        let claim = ["ring unit producer::claim"];
        assert_eq!(titles("producer::claim"), claim);
        assert_eq!(titles("crates/ring/src/producer/claim.rs"), claim);
        assert_eq!(titles("laps"), ["ring unit laps"]);
        assert_eq!(titles("publish"), ["models publish"]);
        let filters = |name: &str| match index().parts(name).pop_last() {
            Some(Part::Models { filters, .. }) => filters.into_iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(filters("publish"), ["loom_models::publish"]);
        assert_eq!(filters("producer"), ["loom_models::publish::loom_two_producers"]);
        assert_eq!(titles("made"), ["models made"], "a macro defines the models");
        assert_eq!(titles("rings"), ["ring/tests/rings"]);
        assert_eq!(titles("crates/ring/tests/rings.rs"), ["ring/tests/rings"]);
        assert_eq!(titles("branches"), ["ring/tests/rings branches"]);
        assert_eq!(titles("shapes"), ["ring/tests/rings shapes"]);
        assert_eq!(titles("fizzbuzz"), ["example fizzbuzz"]);
        assert_eq!(titles("ring"), ["crate ring"]);
        assert_eq!(titles("examples"), ["crate ring-examples"]);
        assert_eq!(titles("peers"), ["peers"]);
    }

    #[test]
    fn a_name_that_fits_nothing_lists_the_names() {
        assert!(titles("producer::mod").is_empty());
        let mut run = CheckRun::new(crate::steps::Policy::default());
        let error = index().run(&mut run, &["nothing".to_owned()]).unwrap_err();
        for line in [
            "named `nothing`",
            "crates: peers, ring, ring-examples",
            "models: loom_models::made, loom_models::publish",
            "programs: fizzbuzz",
            "source files of ring: producer, producer::claim",
            "tests: rings",
        ] {
            assert!(error.contains(line), "{error}");
        }
    }

    #[test]
    fn the_workspace_has_names_of_every_kind() {
        let index = Index::read(&workspace::root()).unwrap();
        for name in
            ["xtask", "corners", "loom_models", "parts", "fizzbuzz", "peers", "slipring-cli"]
        {
            assert!(!index.parts(name).is_empty(), "{name}");
        }
        assert!(index.parts("no-such-name").is_empty());
    }
}
