//! Makes the first change that `CONTRIBUTING.md` describes, exactly as the page says.
//!
//! The blocks of the page are applied to a copy of the project in the page's order, with a check
//! after each of three blocks:
//!
//! - Once the test is added, the copy must not compile.
//! - Once the function is added, the rules of the project must hold and the test must pass.
//! - Once the line is broken, the test must fail.
//!
//! A block is a `diff` whose first line names the file. `@@ at the end` or `@@ before LINE` says
//! where its lines are added; a block without a place replaces a line.

use std::{fs, path::Path};

use crate::{
    command::Call,
    say::say,
    steps::{Step, Trouble},
    tidy, workspace,
};

/// The page.
const PAGE: &str = "CONTRIBUTING.md";
/// The target of the test, and a part of the test's name that no other test has.
const TEST: &str = "test -p slipring --all-features --test counters mean_batch";
/// The call that builds the test and runs nothing.
const BUILD: &str = "test -p slipring --all-features --test counters --no-run";

/// The place of a block's lines.
#[derive(Debug, PartialEq, Eq)]
enum CodePlace {
    /// Behind the last line.
    End,
    /// In front of this line.
    Before(String),
    /// Instead of this line.
    InsteadOf(String),
}

/// One block of the page.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    file: String,
    place: CodePlace,
    lines: String,
}

/// Makes the first change in a copy of the project.
pub fn check(step: &mut Step) -> Result<(), Trouble> {
    let blocks = blocks(&fs::read_to_string(step.root.join(PAGE))?)?;
    let [test, function, broken] = blocks.as_slice() else {
        return Err(format!("{PAGE}: {} blocks, and not 3", blocks.len()).into());
    };
    let copy = step.scratch("contributing");
    workspace::copy(&step.root, &copy)?;
    let call = |arguments| Call::cargo(arguments).target_dir(&step.target);
    let (build, run) = (call(BUILD), call(TEST));

    apply(&copy, test)?;
    say!("the test alone must not compile");
    if build.succeeds(&copy) {
        return Err(format!("{PAGE}: the test compiles without its function").into());
    }
    apply(&copy, function)?;
    let found = tidy::check(&copy)?;
    if !found.errors.is_empty() {
        return Err(found.errors.join("\n").into());
    }
    let mut inner = Step { root: copy.clone(), ..step.clone() };
    inner.run(&Call::cargo("fmt -p slipring --check"))?;
    inner.run(&run)?;
    inner.some_tests()?;
    step.tally.add(inner.tally);

    apply(&copy, broken)?;
    say!("the broken line must compile, and fail the test");
    if !build.succeeds(&copy) {
        return Err(format!("{PAGE}: the broken line does not compile").into());
    }
    if run.succeeds(&copy) {
        return Err(format!("{PAGE}: the test passes with the broken line").into());
    }
    Ok(())
}

/// Returns the blocks of a page.
fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(fence) = lines.next() {
        if fence.trim() != "```diff" {
            continue;
        }
        let indent = fence.len() - fence.trim_start().len();
        let inner = lines.by_ref().take_while(|line| line.trim() != "```");
        let inner: Vec<&str> = inner.map(|line| line.get(indent..).unwrap_or_default()).collect();
        found.push(block(&inner).ok_or_else(|| format!("{PAGE}: no block: {inner:?}"))?);
    }
    Ok(found)
}

/// Reads the lines of one block.
fn block(lines: &[&str]) -> Option<Block> {
    let (first, rest) = lines.split_first()?;
    let (place, rest) = rest.split_first()?;
    let place = if *place == "@@ at the end" {
        CodePlace::End
    } else if let Some(line) = place.strip_prefix("@@ before ") {
        CodePlace::Before(line.to_owned())
    } else {
        CodePlace::InsteadOf(place.strip_prefix('-')?.to_owned())
    };
    let added = rest.iter().map(|line| Some(format!("{}\n", line.strip_prefix('+')?)));
    let file = first.strip_prefix("+++ ")?.to_owned();
    Some(Block { file, place, lines: added.collect::<Option<String>>()? })
}

/// Applies a block to the project in `folder`.
fn apply(folder: &Path, block: &Block) -> Result<(), Trouble> {
    let path = folder.join(&block.file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", block.file))?;
    fs::write(path, changed(&text, block)?)?;
    Ok(())
}

/// Returns the text of a file with a block applied.
fn changed(text: &str, Block { file, place, lines }: &Block) -> Result<String, String> {
    let (CodePlace::Before(line) | CodePlace::InsteadOf(line)) = place else {
        return Ok(format!("{text}{lines}"));
    };
    let whole = format!("\n{line}\n");
    let [before, behind] = text.split(&whole).collect::<Vec<_>>()[..] else {
        let count = text.matches(&whole).count();
        return Err(format!("{PAGE}: {file} has the line `{line}` {count} times, and not once"));
    };
    let kept = if matches!(place, CodePlace::Before(_)) { &whole[1..] } else { "" };
    Ok(format!("{before}\n{lines}{kept}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn a() {\n    one();\n}\n";

    fn first(page: &str) -> Block {
        blocks(page).unwrap().remove(0)
    }

    #[test]
    fn blocks_are_applied() {
        let end = first(
            "1. text\n\n   ```diff\n   +++ a.rs\n   @@ at the end\n   +\n   +fn b() {}\n   ```\n",
        );
        assert_eq!(end.file, "a.rs");
        assert_eq!(changed(TEXT, &end).unwrap(), format!("{TEXT}\nfn b() {{}}\n"));
        let before = first("```diff\n+++ a.rs\n@@ before }\n+    two();\n```\n");
        assert_eq!(changed(TEXT, &before).unwrap(), "fn a() {\n    one();\n    two();\n}\n");
        let instead = first("```diff\n+++ a.rs\n-    one();\n+    two();\n```\n");
        assert_eq!(changed(TEXT, &instead).unwrap(), "fn a() {\n    two();\n}\n");
        assert!(changed("fn a() {}\n", &instead).unwrap_err().contains("0 times"));
        assert!(blocks("```diff\nnonsense\n```").is_err());
    }

    #[test]
    fn the_page_fits_the_project() {
        let root = workspace::root();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let blocks = blocks(&page).unwrap();
        assert_eq!(blocks.len(), 3);
        for block in &blocks[..2] {
            let text = fs::read_to_string(root.join(&block.file)).unwrap();
            changed(&text, block).unwrap();
        }
        assert_eq!(blocks[1].file, blocks[2].file);
        let CodePlace::InsteadOf(line) = &blocks[2].place else { panic!("no line is broken") };
        assert!(blocks[1].lines.contains(&format!("{line}\n")));
    }
}
