//! `slipring lab report` and `slipring lab compare` as a user runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.arg("lab").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    lab(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns a record that the program has measured.
fn measured() -> Value {
    static RECORD: OnceLock<Value> = OnceLock::new();
    let measure = || {
        let output = run(&["shapes", "--smoke", "--json", "-"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    RECORD.get_or_init(measure).clone()
}

/// A folder with files for one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }
}

fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut record = measured();
    change(&mut record);
    record.to_string()
}

/// Files that are no records of this program, each with a part of the message that refuses it.
fn refused_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let whole = measured().to_string();
    let cut = whole[..whole.len() / 2].to_owned();
    let many = |text: &str| text.repeat(100_000);
    vec![
        ("empty", "".into(), "is empty"),
        ("cut", cut.into(), "damaged"),
        ("words", "no JSON".into(), "damaged"),
        ("nested", many("[").into(), "damaged"),
        ("bytes", vec![0xff, 0xfe, 0], "not text"),
        ("number", "5".into(), "no record"),
        ("list", "[]".into(), "no record"),
        ("object", "{}".into(), "format"),
        ("other", json!({"format": "other", "version": 1}).to_string().into(), "format"),
        ("head", json!({"format": "slipring-lab", "version": 1}).to_string().into(), "damaged"),
        (
            "newer",
            json!({"format": "slipring-lab", "version": 2, "slipring": "9.8.7"}).to_string().into(),
            "version 2 of the format, written by slipring 9.8.7",
        ),
        ("version", changed(|record| record["version"] = "x".into()).into(), "valid version"),
        (
            "none",
            changed(|record| record["experiments"] = json!([])).into(),
            "no finished experiment",
        ),
        (
            "control",
            changed(|record| record["date"] = "\u{1b}[2J".into()).into(),
            "control characters",
        ),
        ("noise", changed(|record| record["noise"]["computing"] = json!(-1)).into(), "noise floor"),
        (
            "large",
            changed(|record| {
                let metrics =
                    record["experiments"][0]["series"][0]["metrics"].as_object_mut().unwrap();
                metrics.values_mut().next().unwrap()["values"][0] = json!(1e200);
            })
            .into(),
            "out of range",
        ),
        (
            "units",
            changed(|record| {
                let series = record["experiments"][0]["series"].as_array_mut().unwrap();
                let mut other = series[0].clone();
                for values in other["metrics"].as_object_mut().unwrap().values_mut() {
                    values["unit"] = "parsec".into();
                }
                series.push(other);
            })
            .into(),
            "two units",
        ),
    ]
}

#[test]
fn a_measured_record_becomes_a_page() {
    let folder = Folder::new();
    let (record, page) =
        (folder.write("a.json", measured().to_string()), folder.write("page.html", "old"));
    let output = run(&["report", &record, "-o", &page]);
    assert_eq!(
        (output.status.code(), text(&output.stderr), text(&output.stdout)),
        (Some(0), "", "")
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>"), "{html}");
    assert!(html.contains("figures mean nothing") && !html.contains("<script"), "{html}");
    let record = measured();
    for series in record["experiments"][0]["series"].as_array().unwrap() {
        assert!(html.contains(series["contender"].as_str().unwrap()), "{series}");
    }
}

#[test]
fn several_records_become_one_page_and_a_file_named_twice_is_shown_once() {
    let folder = Folder::new();
    let one = folder.write("a.json", measured().to_string());
    let other =
        folder.write("b.json", changed(|record| record["machine"]["cpu"] = "Other <b>".into()));
    let page = folder.path("page.html");
    let output = run(&["report", &one, &other, &one, "-o", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("Other &lt;b&gt;") && html.contains("2 records"), "{html}");
}

#[test]
fn files_that_are_no_records_are_refused_in_one_line_and_no_file_changes() {
    let folder = Folder::new();
    let (good, page) =
        (folder.write("a.json", measured().to_string()), folder.write("page.html", "old"));
    let check = |args: &[&str], named: &str| {
        let output = run(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(
            message.contains(named) && output.stdout.is_empty(),
            "{args:?}: {named}: {message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(fs::read_to_string(&page).unwrap(), "old", "{args:?}");
    };
    for (name, content, expected) in refused_files() {
        let file = folder.write(name, content);
        for named in [expected, &file] {
            check(&["report", &good, &file, "-o", &page], named);
            check(&["compare", &good, &file], named);
            check(&["compare", &file, &good], named);
        }
    }
    let unknown = changed(|record| record["experiments"][0]["experiment"] = "future".into());
    let unknown = folder.write("unknown.json", unknown);
    check(&["report", &unknown, "-o", &page], "no experiment `future`");
    let missing = folder.path("missing.json");
    check(&["report", missing.to_str().unwrap(), "-o", &page], "cannot be read");
    check(&["compare", missing.to_str().unwrap(), &good], "cannot be read");
    check(&["report", folder.0.path().to_str().unwrap(), "-o", &page], "cannot be read");
}

#[test]
fn a_page_that_cannot_be_written_is_refused_and_no_record_is_overwritten() {
    let folder = Folder::new();
    let record = folder.write("a.json", measured().to_string());
    let missing = folder.path("missing").join("page.html");
    let mut outputs = vec![missing.to_str().unwrap(), folder.0.path().to_str().unwrap(), &record];
    if Path::new("/dev/full").exists() {
        outputs.push("/dev/full");
    }
    for output in outputs {
        let output = run(&["report", &record, "-o", output]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty() && message.lines().count() == 1, "{message}");
    }
    assert_eq!(fs::read_to_string(&record).unwrap(), measured().to_string());
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1, "nothing is left behind");
    for (args, named) in
        [(&["report", "-o", "page.html"][..], "<FILE.json>"), (&["report", &record], "--output")]
    {
        let output = run(args);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(named) && message.contains("lab report --help"), "{message}");
    }
}

#[test]
fn a_page_goes_to_standard_output_and_elsewhere_if_its_reader_leaves() {
    let folder = Folder::new();
    let record = folder.write("a.json", measured().to_string());
    let mut names = vec!["-"];
    if cfg!(unix) {
        names.push("/dev/stdout");
    }
    for name in names {
        let output = run(&["report", &record, "-o", name]);
        assert!(output.status.success() && text(&output.stdout).ends_with("</html>"), "{name}");
        let kept = folder.path("kept");
        fs::create_dir_all(&kept).unwrap();
        let mut child = lab(&["report", &record, "-o", name])
            .env("TMPDIR", &kept)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains("closed") && message.contains("the content is in"), "{message}");
    }
}

/// Repeated values near `centre`.
fn values(centre: f64) -> Value {
    (0..8).map(|i| json!(centre * (1.0 + 0.001 * f64::from(i)))).collect()
}

/// Gives all metrics of a measured record the same values, with hardly any noise.
fn level() -> Value {
    let mut record = measured();
    record["size"] = "quick".into();
    record["others"] = json!(0.0);
    record["build"] = "rustc 1.90.0, optimised".into();
    record["noise"] = json!({"computing": 0.01, "handover": 0.02, "repetitions": 5});
    for metric in metrics(&mut record) {
        metric["values"] = values(100.0);
    }
    record
}

fn metrics(record: &mut Value) -> impl Iterator<Item = &mut Value> {
    let series = record["experiments"][0]["series"].as_array_mut().unwrap().iter_mut();
    series.flat_map(|series| series["metrics"].as_object_mut().unwrap().values_mut())
}

fn compare(folder: &Folder, old: &Value, new: &Value, more: &[&str]) -> (i32, String, String) {
    let (old, new) =
        (folder.write("old.json", old.to_string()), folder.write("new.json", new.to_string()));
    let output = run(&[&["compare", &old, &new], more].concat());
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| text(bytes).to_owned());
    (output.status.code().unwrap(), out, err)
}

#[test]
fn equal_records_have_no_change() {
    let (code, out, err) = compare(&Folder::new(), &level(), &level(), &["--fail-on-worse"]);
    let count = metrics(&mut level()).count();
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains(&format!("Compared {count} value")), "{out}");
    assert!(out.contains(&format!(": {count} within the noise")), "{out}");
    assert!(!out.contains('!') && !out.contains('|'), "{out}");
}

#[test]
fn changes_beyond_the_noise_are_better_or_worse_by_the_metric() {
    let count = metrics(&mut level()).count();
    for (better, factor, shown, code) in [
        ("less", 2.0, "1 worse", 1),
        ("less", 0.5, "1 better", 0),
        ("more", 0.5, "1 worse", 1),
        ("more", 2.0, "1 better", 0),
        ("neither", 2.0, "1 changed", 0),
    ] {
        let (mut old, mut new) = (level(), level());
        // All series have the same direction, so that the record is consistent.
        metrics(&mut old).for_each(|metric| metric["better"] = better.into());
        metrics(&mut new).for_each(|metric| metric["better"] = better.into());
        metrics(&mut new).next().unwrap()["values"] = values(100.0 * factor);
        let (found, out, err) = compare(&Folder::new(), &old, &new, &["--fail-on-worse"]);
        assert_eq!(found, code, "{better} {factor}: {out}{err}");
        assert_eq!(err.contains("1 value is worse"), code == 1, "{err}");
        assert!(out.contains(&format!("{shown}, {} within the noise", count - 1)), "{out}");
        assert!(out.contains(&format!(" {} | ", if factor > 1.0 { "2" } else { "0.5" })), "{out}");
        let (found, ..) = compare(&Folder::new(), &old, &new, &[]);
        assert_eq!(found, 0, "a change is no failure");
    }
    // A difference of 1.5 % is below the floor of 2 %.
    let mut new = level();
    metrics(&mut new).for_each(|metric| metric["values"] = values(101.5));
    let (_, out, _) = compare(&Folder::new(), &level(), &new, &[]);
    assert!(out.contains(&format!(": {count} within the noise")), "{out}");
}

#[test]
fn differences_of_machine_size_and_build_are_told_first() {
    let mut new = level();
    new["machine"]["cpu"] = "Another Processor".into();
    new["others"] = json!(1.5);
    new["size"] = "full".into();
    new["build"] = "rustc 1.91.0, optimised".into();
    let (code, out, _) = compare(&Folder::new(), &level(), &new, &[]);
    assert_eq!(code, 0);
    for told in [
        "machines differ",
        "Another Processor",
        "amounts of measurement differ: quick; full",
        "builds differ",
        "In the new record: Other processes used 1.5 of",
        "may come from that",
    ] {
        assert!(out.contains(told), "{told}: {out}");
    }
    let (_, out, _) = compare(&Folder::new(), &measured(), &measured(), &[]);
    assert!(out.contains("smoke run") && out.contains("fewer than 5 repetitions"), "{out}");
}

#[test]
fn what_one_record_lacks_is_listed_and_nothing_in_common_fails_a_check() {
    let mut new = level();
    let series = &mut new["experiments"][0]["series"];
    let last = series.as_array().unwrap().len() - 1;
    series[last]["contender"] = "newcomer".into();
    let (code, out, _) = compare(&Folder::new(), &level(), &new, &["--fail-on-worse"]);
    assert_eq!(code, 0);
    let (old, new_only) = out.split_once("Only in the new record:").unwrap();
    assert!(old.contains("Only in the old record:") && new_only.contains("newcomer"), "{out}");

    new["experiments"][0]["experiment"] = "other".into();
    let (code, out, _) = compare(&Folder::new(), &level(), &new, &[]);
    assert_eq!(code, 0);
    assert!(out.contains("Compared 0 values of 0 series"), "{out}");
    let (code, _, err) = compare(&Folder::new(), &level(), &new, &["--fail-on-worse"]);
    assert_eq!(code, 2);
    assert!(err.contains("nothing was compared"), "{err}");
}

#[test]
fn zeros_and_other_units_are_not_compared() {
    let (mut new, mut unit) = (level(), level());
    metrics(&mut new).for_each(|metric| metric["values"] = json!([0, 0, 0, 0]));
    metrics(&mut unit).for_each(|metric| metric["unit"] = "parsec".into());
    for new in [new, unit] {
        let (code, out, _) = compare(&Folder::new(), &level(), &new, &[]);
        assert_eq!(code, 0);
        assert!(out.contains("Not compared:"), "{out}");
    }
}
