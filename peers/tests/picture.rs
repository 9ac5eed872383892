//! The picture of a scaling study, drawn from a run and from saved values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn peers(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(args).stdin(Stdio::null());
    command
}

fn file(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path
}

/// Returns the only line of standard error of a run that fails and prints nothing else.
fn refused(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(errors.lines().count() == 1 && !errors.contains("panicked"), "{errors}");
    errors
}

/// Returns each text of a picture with the number of its occurrences. Fails unless the picture is
/// well-formed.
fn texts(path: &Path) -> BTreeMap<String, usize> {
    let svg = fs::read_to_string(path).unwrap();
    let document = roxmltree::Document::parse(&svg).expect("well-formed SVG");
    let mut found = BTreeMap::new();
    for node in document.descendants().filter(|node| node.has_tag_name("text")) {
        *found.entry(node.text().unwrap_or_default().trim().to_owned()).or_default() += 1;
    }
    found
}

/// Returns the contenders of each table in saved values.
fn tables(json: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut tables = BTreeMap::<_, BTreeSet<_>>::new();
    for line in fs::read_to_string(json).unwrap().lines() {
        let series: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| series[key].as_str().unwrap().to_owned();
        tables.entry(text("table")).or_default().insert(text("contender"));
    }
    tables
}

#[test]
fn a_picture_has_a_panel_per_table_and_names_each_contender() {
    let (json, picture) = (file("drawn.json"), file("drawn.svg"));
    let mut command = peers(&["--smoke", "scaling: p", "scaling: st", "scaling: me", "--json"]);
    let output = command.arg(&json).arg("--picture").arg(&picture).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (texts, tables) = (texts(&picture), tables(&json));
    assert_eq!(tables.len(), 4, "{tables:?}");
    let mut legends = BTreeMap::<_, usize>::new();
    for (table, contenders) in &tables {
        assert_eq!(texts.get(table), Some(&1), "{texts:?}");
        contenders.iter().for_each(|name| *legends.entry(name.clone()).or_default() += 1);
    }
    for (name, count) in legends {
        assert_eq!(texts.get(&name), Some(&count), "{name}: {texts:?}");
    }
    for unit in ["stages", "producers", "members"] {
        assert!(texts.contains_key(unit), "{unit}: {texts:?}");
    }

    // The saved values give the same panels.
    let again = file("again.svg");
    let mut command = peers(&["producers", "--draw"]);
    let output = command.arg(&json).arg("--picture").arg(&again).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let texts = self::texts(&again);
    assert!(texts.contains_key("scaling: producers"), "{texts:?}");
    assert!(!texts.contains_key("scaling: stages in a row"), "{texts:?}");
}

#[test]
fn a_run_without_such_tables_says_which_figures_can_be_drawn() {
    let picture = file("nothing.svg");
    let output = peers(&["--smoke", "round trip", "--picture"]).arg(&picture).output().unwrap();
    let error = refused(&output);
    assert!(error.contains("`scaling`") && error.contains("`layouts`"), "{error}");
    assert!(!picture.exists(), "a refused run makes no file");
}

#[test]
fn one_file_for_values_and_picture_is_refused() {
    let both = file("values-and-picture");
    let mut command = peers(&["--smoke", "scaling: slots", "--json"]);
    let error = refused(&command.arg(&both).arg("--picture").arg(&both).output().unwrap());
    assert!(error.contains("--json") && error.contains("--picture"), "{error}");

    let line = r#"{"table":"t","column":"C stages","contender":"c","kind":"ours","metric":"ns","values":[1]}"#;
    let lines = ["1", "2"].map(|count| line.replace('C', count));
    fs::write(&both, lines.join("\n")).unwrap();
    let mut command = peers(&["--draw"]);
    let error = refused(&command.arg(&both).arg("--picture").arg(&both).output().unwrap());
    assert!(error.contains("--draw") && error.contains("--picture"), "{error}");
    assert_eq!(tables(&both).len(), 1, "the values are still there");
}

#[test]
fn values_that_cannot_be_read_are_an_error_that_names_the_line() {
    let (json, picture) = (file("damaged.json"), file("damaged.svg"));
    fs::write(&json, "{}\n").unwrap();
    let mut command = peers(&["--draw"]);
    let error = refused(&command.arg(&json).arg("--picture").arg(&picture).output().unwrap());
    assert!(error.contains("line 1"), "{error}");
    assert!(!picture.exists());
}
