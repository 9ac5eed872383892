//! Programs that must not compile, with error messages that tell the user what to do.
//!
//! Each program in `must-fail/` has one defect. Its first lines (`//@ says: ...`) state the phrases
//! that the compiler's error must contain. Its twin in `must-pass/` lacks the defect and is
//! otherwise the same, so a program cannot fail for another reason. `cargo test --test must_fail --
//! --nocapture` prints the messages.
#![cfg(not(any(miri, slipring_loom)))]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

#[test]
fn each_wrong_program_fails_with_its_phrases() {
    let Some(errors) = compiled() else { return };
    let mut wrong = String::new();
    for (name, path) in programs("must-fail") {
        let error = errors.get(&format!("fail_{name}")).map_or("", String::as_str);
        println!("---- {name}\n{error}");
        let phrases = phrases(&path);
        assert!(
            !phrases.is_empty(),
            "{name} states no phrase of the compiler's error: begin it with `//@ says: ...`"
        );
        if error.is_empty() {
            _ = writeln!(wrong, "---- {name} compiles, but must not");
        }
        for phrase in phrases.iter().filter(|phrase| !error.is_empty() && !error.contains(*phrase))
        {
            _ = writeln!(wrong, "---- {name} must fail with `{phrase}`, but fails with\n{error}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn each_twin_compiles() {
    let Some(errors) = compiled() else { return };
    let wrong: Vec<_> = errors.iter().filter(|(name, _)| name.starts_with("pass_")).collect();
    assert!(
        wrong.is_empty(),
        "twins must compile, but do not:\n{}",
        wrong.iter().map(|(_, error)| error.as_str()).collect::<String>()
    );
}

#[test]
fn each_wrong_program_has_a_twin() {
    let names = |folder| programs(folder).into_keys().collect::<BTreeSet<_>>();
    assert!(!names("must-fail").is_empty());
    assert_eq!(names("must-fail"), names("must-pass"));
}

/// Returns the programs in a folder beside this file, by name.
fn programs(folder: &str) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(Path::new(HERE).join(folder)).expect("a readable folder");
    let paths = entries
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"));
    paths
        .map(|path| {
            (path.file_stem().expect("a file has a name").to_string_lossy().into_owned(), path)
        })
        .collect()
}

/// Returns the phrases that the compiler's error about a program must contain.
fn phrases(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a readable program");
    text.lines()
        .filter_map(|line| line.strip_prefix("//@ says: "))
        .map(|phrase| phrase.trim().to_owned())
        .collect()
}

/// Compiles all programs. Returns the errors of each program that has some. The key is the
/// program's name, prefixed with `fail_` or `pass_`.
///
/// Returns `None` under a sanitizer, where compiling takes minutes and the result is the same.
fn compiled() -> Option<&'static BTreeMap<String, String>> {
    if env::var("RUSTFLAGS").is_ok_and(|flags| flags.contains("sanitizer")) {
        println!("not run under a sanitizer");
        return None;
    }
    static ERRORS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    Some(ERRORS.get_or_init(|| {
        let package = package();
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_BUILD_TARGET",
            "RUSTC_WORKSPACE_WRAPPER",
        ] {
            cargo.env_remove(name);
        }
        let output = cargo
            .args([
                "check",
                "--quiet",
                "--bins",
                "--keep-going",
                "--offline",
                "--message-format=json",
                "--target-dir",
            ])
            .arg(package.join("target"))
            .current_dir(&package)
            .output()
            .expect("a run of cargo");
        let messages = String::from_utf8_lossy(&output.stdout);
        assert!(
            messages.contains(r#""reason":"build-finished""#),
            "cargo did not start to compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut errors = BTreeMap::<String, String>::new();
        for (program, error) in messages.lines().filter_map(error) {
            errors.entry(program).or_default().push_str(&error);
        }
        if let Some(error) = errors.get("slipring") {
            panic!("the library itself does not compile:\n{error}");
        }
        errors
    }))
}

/// Makes a package of all programs, and returns its folder.
fn package() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("must-fail");
    fs::create_dir_all(&folder).expect("a new folder");
    let library = env!("CARGO_MANIFEST_DIR");
    let mut manifest = format!(
        "[package]\nname = \"must-fail\"\nedition = \"2024\"\nautobins = false\n\n\
         [dependencies]\nslipring = {{ path = {library:?} }}\n\n[workspace]\n"
    );
    for (prefix, from) in [("fail", "must-fail"), ("pass", "must-pass")] {
        for (name, path) in programs(from) {
            _ = write!(
                manifest,
                "\n[[bin]]\nname = \"{prefix}_{name}\"\npath = {:?}\n",
                path.display().to_string()
            );
        }
    }
    fs::write(folder.join("Cargo.toml"), manifest).expect("a written manifest");
    // With the workspace's lock file, cargo needs no network.
    let lock = Path::new(library).join("../../Cargo.lock");
    if lock.exists() {
        fs::copy(lock, folder.join("Cargo.lock")).expect("a copied lock file");
    }
    folder
}

/// Returns the program's name and the error's text, if this line of cargo's messages holds an
/// error.
fn error(line: &str) -> Option<(String, String)> {
    let target = line.split_once(r#""target":{"#)?.1;
    let program = string(target.split_once(r#""name":""#)?.1);
    let text = string(line.split_once(r#""rendered":""#)?.1);
    text.starts_with("error").then_some((program, text))
}

/// Decodes the JSON string whose opening quote stands right before `text`.
fn string(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next().filter(|&c| c != '"') {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('u') => {
                    let code: String = chars.by_ref().take(4).collect();
                    u32::from_str_radix(&code, 16)
                        .ok()
                        .and_then(char::from_u32)
                        .unwrap_or('\u{fffd}')
                }
                Some(other) => other,
                None => break,
            },
            other => other,
        });
    }
    plain
}
