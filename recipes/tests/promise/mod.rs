//! The lines that the head of a recipe promises, for the tests of recipes and of their incumbents.

use std::fs;
use std::path::Path;

/// Returns the lines that the head of a recipe promises. `recipes` is the recipes' package.
pub fn promised(recipes: &Path, recipe: &str) -> String {
    let path = recipes.join(format!("src/bin/{recipe}.rs"));
    let source =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (_, promise) = source.split_once("//! It prints:\n//!\n//! ```text\n").expect("no promise");
    let (lines, _) = promise.split_once("//! ```\n").expect("the promise has no end");
    lines.lines().map(|line| format!("{}\n", line.trim_start_matches("//! "))).collect()
}
