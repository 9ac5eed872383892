//! Lists the twins in the library's sources, so that a name that is none can be refused, and says
//! which of them weaken nothing but an ordering.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let sources = Path::new("../slipring/src");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut names = BTreeSet::new();
    find(sources, &mut names)?;
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("twins.txt"), list.join("\n"))
}

/// Adds the names in the files of a folder. Models' own twins are not in the library.
fn find(folder: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("loom_models") {
                find(&path, names)?;
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            for twin in fs::read_to_string(&path)?.split("twin!(").skip(1) {
                names.extend(read(twin));
            }
        }
    }
    Ok(())
}

/// Returns the line for a twin: its name, and a mark if it weakens an ordering.
fn read(twin: &str) -> Option<String> {
    let (name, rest) = twin.trim_start().strip_prefix('"')?.split_once('"')?;
    let (right, wrong) = rest.strip_prefix(':')?.split_once("=>")?;
    let wrong = wrong.trim_start().split(|c: char| !c.is_alphanumeric()).next()?;
    let orderings = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
    let right = right.trim();
    let weakens = right == "order" || orderings.contains(&right);
    let mark = if weakens && orderings.contains(&wrong) { " ordering" } else { "" };
    // The documentation of the macro has an example.
    (name != "name").then(|| format!("{name}{mark}"))
}
