//! Programs that must not compile, with error messages that tell the user what to do.
//!
//! Each program in `must-fail/` has one defect. Its first lines (`//@ says: ...`) state the phrases
//! that the compiler's error must contain; a program that compiles with a warning states the
//! warning's phrases (`//@ warns: ...`). Its twin in `must-pass/` lacks the defect and is otherwise
//! the same, so a program cannot fail for another reason. `cargo test --test must_fail --
//! --nocapture` prints the messages.
//!
//! Programs that new users write also state the misuse in words (`//@ writes: ...`) and the
//! remedy: `//@ do: ...` if the message names it, `//@ page: ...` if only the guide does. Their
//! rows must be on the guide's page of misuses.
#![cfg(not(any(miri, slipring_loom)))]

#[path = "common/page.rs"]
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// Whether `slipring-shm` works on this system.
const HAS_SEGMENTS: bool = cfg!(all(target_os = "linux", target_pointer_width = "64"));

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

#[test]
fn each_wrong_program_fails_with_its_phrases() {
    let Some(told) = compiled() else { return };
    let mut wrong = String::new();
    for (name, path) in programs("must-fail") {
        let Messages { error, warning } = &told[&format!("fail_{name}")];
        println!("---- {name}\n{error}{warning}");
        let (says, warns) = (stated(&path, "says"), stated(&path, "warns"));
        assert!(
            says.is_empty() != warns.is_empty(),
            "{name} must state phrases of the compiler's error or of its warning: begin it with \
             `//@ says: ...` or `//@ warns: ...`"
        );
        if says.is_empty() != error.is_empty() {
            _ = writeln!(wrong, "---- {name} states phrases of an error iff it compiles\n{error}");
        }
        for (phrases, message) in [(says, error), (warns, warning)] {
            for phrase in phrases.iter().filter(|phrase| !message.contains(*phrase)) {
                _ = writeln!(wrong, "---- {name} must say `{phrase}`, but says\n{message}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn each_twin_compiles() {
    let Some(told) = compiled() else { return };
    let mut wrong = String::new();
    for (name, path) in programs("must-fail") {
        let Messages { error, warning } = &told[&format!("pass_{name}")];
        if !error.is_empty() || stated(&path, "warns").iter().any(|phrase| warning.contains(phrase))
        {
            _ = writeln!(wrong, "---- {name}\n{error}{warning}");
        }
    }
    assert!(wrong.is_empty(), "twins must compile without the warning, but do not:\n{wrong}");
}

#[test]
fn the_guide_has_a_row_for_each_misuse() {
    let mut tables = BTreeMap::<_, Vec<_>>::new();
    for (name, path) in programs("must-fail") {
        let [says, warns, writes, does, pages] =
            ["says", "warns", "writes", "do", "page"].map(|key| stated(&path, key));
        let heading = match (&writes[..], &does[..], &pages[..]) {
            ([], [], []) => continue,
            ([_], [_], []) if warns.is_empty() => "The compiler refuses",
            ([_], [_], []) => "The compiler warns",
            ([_], [], [_]) => "The compiler refuses, and does not know the remedy",
            _ => panic!("{name} must state one `writes`, and one `do` or `page`"),
        };
        let (writes, remedy) = (writes.concat(), [does, pages].concat().concat());
        let says = [says, warns].concat();
        tables.entry(heading).or_default().push(page::Row { writes, says, remedy });
    }
    assert_eq!(tables.len(), 3);
    tables.iter().for_each(|(heading, rows)| page::assert_has(heading, rows));
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
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .filter(|path| HAS_SEGMENTS || !path.ends_with("32_pointers_in_a_segment.rs"));
    paths
        .map(|path| {
            (path.file_stem().expect("a file has a name").to_string_lossy().into_owned(), path)
        })
        .collect()
}

/// Returns what a program states by its lines `//@ key: ...`. A line with more space behind `//@`
/// continues the line before it.
fn stated(path: &Path, key: &str) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a readable program");
    text.replace("\n//@     ", " ")
        .lines()
        .filter_map(|line| line.strip_prefix("//@ ")?.strip_prefix(key)?.strip_prefix(": "))
        .map(|phrase| phrase.trim().to_owned())
        .collect()
}

/// The compiler's messages about a program.
#[derive(Default)]
struct Messages {
    error: String,
    warning: String,
}

/// Compiles all programs, and returns the messages about each. The key is the program's name,
/// prefixed with `fail_` or `pass_`.
///
/// Returns `None` under a sanitizer, where compiling takes minutes and the result is the same.
fn compiled() -> Option<&'static BTreeMap<String, Messages>> {
    if env::var("RUSTFLAGS").is_ok_and(|flags| flags.contains("sanitizer")) {
        println!("not run under a sanitizer");
        return None;
    }
    static MESSAGES: OnceLock<BTreeMap<String, Messages>> = OnceLock::new();
    Some(MESSAGES.get_or_init(|| {
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
        let names = |folder, prefix: &'static str| {
            programs(folder)
                .into_keys()
                .map(move |name| (format!("{prefix}_{name}"), Messages::default()))
        };
        let mut told: BTreeMap<_, _> =
            names("must-fail", "fail").chain(names("must-pass", "pass")).collect();
        for (crate_name, text) in messages.lines().filter_map(message) {
            let is_error = text.starts_with("error");
            match told.get_mut(&crate_name) {
                Some(Messages { error, .. }) if is_error => error.push_str(&text),
                Some(Messages { warning, .. }) => warning.push_str(&text),
                None => assert!(!is_error, "the library itself does not compile:\n{text}"),
            }
        }
        told
    }))
}

/// Makes a package of all programs, and returns its folder.
fn package() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("must-fail");
    fs::create_dir_all(&folder).expect("a new folder");
    let library = env!("CARGO_MANIFEST_DIR");
    let mut manifest = format!(
        "[package]\nname = \"must-fail\"\nedition = \"2024\"\nautobins = false\n\n\
         [dependencies]\nslipring = {{ path = {library:?} }}\n"
    );
    if HAS_SEGMENTS {
        let segments = Path::new(library).with_file_name("slipring-shm");
        _ = writeln!(manifest, "slipring-shm = {{ path = {:?} }}", segments.display().to_string());
    }
    manifest.push_str("\n[workspace]\n");
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

/// Returns the program's name and the text, if this line of cargo's messages holds an error or a
/// warning.
fn message(line: &str) -> Option<(String, String)> {
    let target = line.split_once(r#""target":{"#)?.1;
    let program = string(target.split_once(r#""name":""#)?.1);
    let text = string(line.split_once(r#""rendered":""#)?.1);
    Some((program, text))
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
