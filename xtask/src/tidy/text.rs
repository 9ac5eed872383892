//! The rules for any text: the length of modules and of lines, forbidden words, the origin of
//! dependencies.

use std::{
    env,
    path::{Component, Path, PathBuf},
};

use super::file::File;
use crate::{findings::Findings, house::crates::Crate};

/// The length past which a module is split, in lines.
const LINES_AT_MOST: usize = 800;
/// The length past which the check warns, in lines.
const LINES_WARNED: usize = 600;

/// Finds modules that are too long.
pub fn lines(file: &File, found: &mut Findings) {
    let tests =
        |part: Component<'_>| matches!(part.as_os_str().to_str(), Some("tests" | "benches"));
    if !file.is_rust() || file.path.components().any(tests) {
        return;
    }
    let (count, path) = (file.text.lines().count(), file.path.display());
    if count > LINES_AT_MOST {
        found.errors.push(format!("{path}: {count} lines; past {LINES_AT_MOST} a module is two"));
    } else if count > LINES_WARNED {
        found
            .warnings
            .push(format!("{path}: {count} lines; a module has {LINES_WARNED} at most, as a rule"));
    }
}

/// Finds modules of a crate that do not begin with their documentation.
pub fn beginnings(krate: &Crate, found: &mut Findings) {
    for (at, source) in krate.house.sources.iter().enumerate() {
        if !source.text.starts_with("//!") {
            let path = krate.path(at);
            found
                .errors
                .push(format!("{path}: a module begins with `//!`: what it holds, and why"));
        }
    }
}

/// Width at which comments and Markdown wrap, in columns. `cargo fmt` wraps code there, but no
/// comments.
const COLUMNS: usize = 100;

/// Finds comments and Markdown that are too wide. Blocks of code, tables, drawings and words that
/// cannot be broken may be wider.
pub fn columns(file: &File, found: &mut Findings) {
    let is_markdown = file.path.extension().is_some_and(|extension| extension == "md");
    if !is_markdown && !file.is_rust() {
        return;
    }
    let mut in_code = false;
    for (number, line) in file.text.lines().enumerate() {
        let comment = || Some(line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']));
        let Some(text) = (if is_markdown { Some(line) } else { comment() }) else {
            in_code = false;
            continue;
        };
        let words = text.trim_start();
        in_code ^= words.starts_with("```");
        let is_drawn = in_code || words.starts_with(['|', '<']);
        if line.chars().count() > COLUMNS && !is_drawn && words.contains(' ') {
            found.errors.push(format!(
                "{}:{}: {} columns; comments and Markdown wrap at {COLUMNS}",
                file.path.display(),
                number + 1,
                line.chars().count()
            ));
        }
    }
}

/// The words that no file may contain, each with the reason.
pub struct Strays(Vec<(String, &'static str)>);

impl Strays {
    /// Returns the words that are wrong in any copy, and two paths that belong only to this one:
    /// the root and the home directory.
    pub fn of_this_machine(root: &Path) -> Self {
        let mut strays = Self::always();
        let here = "a file of the project names no place of one copy";
        if root.components().count() > 2 {
            strays.0.push((root.display().to_string(), here));
        }
        if let Some(home) =
            env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1)
        {
            strays.0.push((format!("{}/", home.display()), here));
        }
        strays
    }

    fn always() -> Self {
        // The text is written in halves, or the check would find it in this file.
        let private = "a path of one machine";
        let halves = [
            ("/ho", "me/", private),
            ("/Us", "ers/", private),
            ("/ro", "ot/", private),
            ("<<<<", "<<< ", "an unfinished merge"),
            (">>>>", ">>> ", "an unfinished merge"),
            ("FIX", "ME", "a known fault is mended before it goes in"),
            ("TO", "DO", "open work belongs to an issue"),
            ("XX", "X:", "open work belongs to an issue"),
            ("dbg", "!(", "a leftover of debugging"),
            ("todo", "!(", "unfinished"),
        ];
        Self(halves.map(|(front, back, why)| (format!("{front}{back}"), why)).into())
    }

    /// Reports each of the words that `file` contains. The lock file may contain any of them.
    pub fn check(&self, file: &File, found: &mut Findings) {
        let lock = file.path.file_name().is_some_and(|name| name == "Cargo.lock");
        for (number, line) in file.text.lines().enumerate().filter(|_| !lock) {
            for (stray, why) in self.0.iter().filter(|(stray, _)| line.contains(stray.as_str())) {
                found.errors.push(format!(
                    "{}:{}: `{stray}`: {why}",
                    file.path.display(),
                    number + 1
                ));
            }
        }
    }
}

/// Finds dependencies that do not come from crates.io, and settings that redirect to another
/// source.
pub fn registries(file: &File, found: &mut Findings) {
    const REGISTRY: &str = r#"source = "registry+https://github.com/rust-lang/crates.io-index""#;
    let name = file.path.file_name().and_then(|name| name.to_str());
    for (number, line) in file.text.lines().enumerate() {
        let wrong = match name {
            Some("Cargo.lock") => line.starts_with("source = ") && line != REGISTRY,
            Some("config.toml") => line.starts_with("[source") || line.starts_with("[registries"),
            _ => false,
        };
        if wrong {
            found.errors.push(format!(
                "{}:{}: not crates.io: {line}",
                file.path.display(),
                number + 1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{arrows::Arrows, tests::house};
    use crate::tidy::file::tests::{errors, file};

    #[test]
    fn long_modules_are_found() {
        let mut found = Findings::default();
        for (path, count) in [
            ("a/src/a.rs", 600),
            ("a/src/b.rs", 601),
            ("a/src/c.rs", 801),
            ("a/tests/d.rs", 900),
            ("a.md", 900),
        ] {
            lines(&file(path, "x\n".repeat(count)), &mut found);
        }
        assert_eq!((found.errors.len(), found.warnings.len()), (1, 1));
        assert!(found.errors[0].starts_with("a/src/c.rs: 801 lines"));
    }

    #[test]
    fn modules_without_documentation_are_found() {
        let house = house(&[("lib.rs", "//! Root.\nmod a;"), ("a.rs", "\nfn f() {}\n// Late.")]);
        let (folder, arrows) = ("crates/x".to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        beginnings(&Crate { folder, house, arrows }, &mut found);
        assert_eq!(found.errors.len(), 1);
        assert!(found.errors[0].starts_with("crates/x/src/a.rs: "));
    }

    #[test]
    fn wide_comments_and_markdown_are_found() {
        let wide = "a ".repeat(50);
        let code = format!("let a = \"{wide}\";\n");
        for (path, text, count) in [
            ("a.rs", format!("// {wide}\n    /// {wide}\n{code}//! {wide}\n"), 3),
            ("a.rs", format!("//! ```\n//! {wide}\n//! ```\n//! | {wide}|\n"), 0),
            ("a.rs", format!("//! ```\n{code}// {wide}\n// {}\n", "a".repeat(100)), 1),
            ("a.rs", format!("// {}µ\n", "a ".repeat(48)), 0),
            ("a.md", format!("{wide}a\n{}\n```\n{wide}a\n```\n| {wide}|", wide.trim()), 1),
            ("a.toml", wide.repeat(2), 0),
        ] {
            assert_eq!(errors(columns, &file(path, text)), count, "{path}");
        }
    }

    #[test]
    fn forbidden_words_are_found() {
        let strays = Strays::always();
        let check = |file: &File, found: &mut Findings| strays.check(file, found);
        assert_eq!(errors(check, &file("a.md", "no such word")), 0);
        assert_eq!(
            errors(
                check,
                &file("a.md", format!("see /{}/anna and {}", "home", "TO".to_owned() + "DO"))
            ),
            2
        );
        let own = Strays::of_this_machine(Path::new("/some/where/else"));
        assert_eq!(
            errors(|file, found| own.check(file, found), &file("a.md", "in /some/where/else/a")),
            1
        );
    }

    #[test]
    fn other_registries_are_found() {
        let good = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        let bad = "source = \"registry+https://example.org/index\"";
        assert_eq!(errors(registries, &file("Cargo.lock", format!("{good}\n{bad}"))), 1);
        assert_eq!(errors(registries, &file(".cargo/config.toml", "[source.crates-io]\n")), 1);
    }
}
