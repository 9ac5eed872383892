//! What must not compile does not, and says why in words a person can act on.
//!
//! Every program in `must-fail/` is wrong in one way, and names in its first lines (`//@ says:
//! ...`) what the compiler must say about it. Its twin in `must-pass/` is right and otherwise the
//! same, so that a case cannot fail for a reason that is not its own. To read what a user would
//! read: `cargo test --test must_fail -- --nocapture`.
#![cfg(not(any(miri, slipring_loom)))]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

#[test]
fn what_must_not_compile_says_why() {
    let Some(said) = compiled() else { return };
    let mut wrong = String::new();
    for (name, path) in programs("must-fail") {
        let said = said.get(&format!("fail_{name}")).map_or("", String::as_str);
        println!("---- {name}\n{said}");
        let phrases = phrases(&path);
        assert!(
            !phrases.is_empty(),
            "{name} does not name what the compiler must say: `//@ says: ...`"
        );
        if said.is_empty() {
            _ = writeln!(wrong, "---- {name} compiles, but must not");
        }
        for phrase in phrases.iter().filter(|phrase| !said.is_empty() && !said.contains(*phrase)) {
            _ = writeln!(wrong, "---- {name} is to say `{phrase}`, but says\n{said}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn their_twins_compile() {
    let Some(said) = compiled() else { return };
    let wrong: Vec<_> = said.iter().filter(|(name, _)| name.starts_with("pass_")).collect();
    assert!(
        wrong.is_empty(),
        "these must compile, but do not:\n{}",
        wrong.iter().map(|(_, said)| said.as_str()).collect::<String>()
    );
}

#[test]
fn every_case_has_a_twin() {
    let names = |folder| programs(folder).into_keys().collect::<BTreeSet<_>>();
    assert!(!names("must-fail").is_empty());
    assert_eq!(names("must-fail"), names("must-pass"));
}

/// The programs in a folder beside this file, by name.
fn programs(folder: &str) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(Path::new(HERE).join(folder)).expect("the folder is there");
    let paths = entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"));
    paths
        .map(|path| {
            (path.file_stem().expect("a file has a name").to_string_lossy().into_owned(), path)
        })
        .collect()
}

/// What the compiler must say about a program.
fn phrases(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("it can be read");
    text.lines()
        .filter_map(|line| line.strip_prefix("//@ says: "))
        .map(|phrase| phrase.trim().to_owned())
        .collect()
}

/// The errors of every program that does not compile, by `fail_` or `pass_` and its name.
///
/// `None` where the compiler's verdict would say nothing new, but take minutes: under a sanitizer.
fn compiled() -> Option<&'static BTreeMap<String, String>> {
    if env::var("RUSTFLAGS").is_ok_and(|flags| flags.contains("sanitizer")) {
        println!("not run under a sanitizer");
        return None;
    }
    static SAID: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    Some(SAID.get_or_init(|| {
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
            .expect("cargo can be started");
        let messages = String::from_utf8_lossy(&output.stdout);
        assert!(
            messages.contains(r#""reason":"build-finished""#),
            "cargo did not come as far as compiling:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut said = BTreeMap::<String, String>::new();
        for (program, error) in messages.lines().filter_map(error) {
            said.entry(program).or_default().push_str(&error);
        }
        if let Some(error) = said.get("slipring") {
            panic!("the library itself does not compile:\n{error}");
        }
        said
    }))
}

/// A package of all the programs, in a folder of its own.
fn package() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("must-fail");
    fs::create_dir_all(&folder).expect("a folder can be made");
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
    fs::write(folder.join("Cargo.toml"), manifest).expect("a file can be written");
    // With the workspace's versions nothing needs to be looked up.
    let lock = Path::new(library).join("../../Cargo.lock");
    if lock.exists() {
        fs::copy(lock, folder.join("Cargo.lock")).expect("a file can be copied");
    }
    folder
}

/// The program and the text of an error, if that is what a line of cargo's messages is about.
fn error(line: &str) -> Option<(String, String)> {
    let target = line.split_once(r#""target":{"#)?.1;
    let program = string(target.split_once(r#""name":""#)?.1);
    let text = string(line.split_once(r#""rendered":""#)?.1);
    text.starts_with("error").then_some((program, text))
}

/// The JSON string whose opening quote lies right before `text`.
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
