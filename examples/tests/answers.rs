//! What the program says to odd input, odd output and odd arguments.

mod common;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Parser as _;
use common::{HEADER, slice};
use flate2::Compression;
use flate2::write::GzEncoder;
use slipring_examples::readings::{self, Args};

const MODES: [&str; 3] = ["sequential", "executor", "slipring"];

/// Runs the program: what it writes as results and as remarks, or the error.
fn run(arguments: &[&str]) -> Result<(String, String), String> {
    let args =
        Args::try_parse_from([&["readings"], arguments].concat()).map_err(|e| e.to_string())?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    match readings::run(&args, &mut out, &mut err, false) {
        Ok(()) => Ok((String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// A file with some text in it.
fn file(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Journal, results and remarks of a file with these rows, one mode after the other; all must
/// agree.
fn journal_of(rows: impl AsRef<[u8]>) -> (String, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let input = file(folder.path(), "rows.csv", [HEADER.as_bytes(), rows.as_ref()].concat());
    let journal = folder.path().join("journal");
    let all = MODES.map(|mode| {
        let (out, err) =
            run(&[&input, "--mode", mode, "--output", journal.to_str().unwrap()]).unwrap();
        let remarks: Vec<&str> = err.lines().filter(|line| line.contains("malformed")).collect();
        (fs::read_to_string(&journal).unwrap(), out, remarks.join("\n"))
    });
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
    all[0].clone()
}

#[test]
fn missing_values_are_no_readings() {
    let (journal, summary, remarks) = journal_of(
        "A,2020,5,1,0,1.50,NA,-3,NA,NA,NA,0,NA,10,2020-05-01T00:00:00Z\n\
         A,2020,5,1,1,NA,NA,NA,NA,NA,NA,NA,NA,NA,2020-05-01T01:00:00Z\n",
    );
    let lines = ["temp,1.5", "humid,-3", "precip,0", "visib,10"]
        .map(|end| format!("2020-05-01T00:00:00Z,A,{end}\n"));
    assert_eq!(journal, lines.concat());
    assert!(summary.ends_with("2 rows, 4 readings, 0 alarms, 0 malformed rows\n"), "{summary}");
    assert_eq!(remarks, "");
}

/// `format!` panics at a width beyond 2^16 - 1.
#[test]
fn a_station_may_have_a_name_of_any_length() {
    let name = "A".repeat(70_000);
    let (journal, summary, _) = journal_of(format!(
        "{name},2020,5,1,0,1.50,NA,NA,NA,NA,NA,NA,NA,NA,2020-05-01T00:00:00Z\n"
    ));
    assert_eq!(journal, format!("2020-05-01T00:00:00Z,{name},temp,1.5\n"));
    assert!(
        summary.contains(&name)
            && summary.ends_with("1 rows, 1 readings, 0 alarms, 0 malformed rows\n")
    );
}

#[test]
fn malformed_rows_are_told_and_counted_and_harm_nobody() {
    let good = "A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n";
    let bad: [&[u8]; 9] = [
        b"A,2020,5,1,0,warm,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n",
        b"A,2020,5,1,0,1,2,3\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z,extra\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-32T00:00:00Z\n",
        b",2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,,9,2020-05-01T00:00:00Z\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,inf,9,2020-05-01T00:00:00Z\n",
        b"Z\xfcrich,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n",
        b"\"\n",
    ];
    let (journal, summary, remarks) =
        journal_of([good.as_bytes(), &bad.concat(), good.as_bytes()].concat());
    assert_eq!(journal.lines().count(), 18);
    assert!(summary.ends_with("11 rows, 18 readings, 0 alarms, 9 malformed rows\n"), "{summary}");
    // In the order in which rows enter: station by station, a row without a time or a station
    // behind the one before it.
    let expected = "malformed row, line 7: the station has no name, or one that is not UTF-8\n\
                    malformed row, line 3: temp is not a number: 'warm'\n\
                    malformed row, line 4: 8 columns instead of 15\n\
                    malformed row, line 5: 16 columns instead of 15\n\
                    malformed row, line 6: not a time: '2020-05-32T00:00:00Z'\n\
                    9 malformed rows in all";
    assert_eq!(remarks, expected);
}

#[test]
fn without_rows_there_is_nothing_to_do_and_that_is_no_error() {
    let (journal, summary, _) = journal_of("");
    assert_eq!(journal, "");
    assert!(summary.ends_with("0 rows, 0 readings, 0 alarms, 0 malformed rows\n"), "{summary}");
    let folder = tempfile::tempdir().unwrap();
    let input = file(folder.path(), "header.csv", HEADER);
    assert_eq!(run(&[&input]).unwrap().0, "no rows: nothing to compare\n");
}

#[cfg(unix)] // the reasons are the system's own words
#[test]
fn a_file_that_cannot_be_used_is_named_and_so_is_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut packed = gzip(&slice(&["2013-09-01"]));
    packed.truncate(packed.len() / 2);
    for (name, content, reason) in [
        ("empty.csv", Some(&b""[..]), "the file is empty"),
        ("other.csv", Some(b"a,b\n1,2\n"), "the header has no column 'temp'"),
        ("cut.csv.gz", Some(&packed), "cannot unpack"),
        ("none.csv", None, "No such file or directory"),
        ("", None, "Is a directory"),
    ] {
        let input =
            content.map_or(format!("{path}/{name}"), |content| file(folder.path(), name, content));
        for mode in MODES.iter().chain(&["all"]) {
            let error = run(&[&input, "--mode", mode]).unwrap_err();
            assert!(error.contains(&input) && error.contains(reason), "{error}");
        }
    }
}

#[cfg(unix)] // the reasons are the system's own words
#[test]
fn an_output_that_cannot_be_written_ends_every_mode_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none/journal");
    for mode in MODES.iter().chain(&["all"]) {
        let error = run(&["--mode", mode, "--output", nowhere.to_str().unwrap()]).unwrap_err();
        assert!(
            error.contains(nowhere.to_str().unwrap()) && error.contains("No such file"),
            "{error}"
        );
    }
    if Path::new("/dev/full").exists() {
        for mode in MODES.iter().chain(&["all"]) {
            let error = run(&["--mode", mode, "--output", "/dev/full"]).unwrap_err();
            assert!(error.contains("No space left"), "{error}");
            assert_eq!(error.matches("/dev/full").count(), 1, "{error}");
        }
    }
}

#[test]
fn the_input_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let text = slice(&["2013-09-01"]);
    let input = file(folder.path(), "rows.csv", &text);
    let error = run(&[&input, "--output", &input]).unwrap_err();
    assert!(error.contains("overwrite"), "{error}");
    assert_eq!(fs::read_to_string(&input).unwrap(), text);
}

/// Output that takes nothing.
struct Refused(io::ErrorKind);

impl Write for Refused {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    let args = Args::try_parse_from(["readings", "--mode", "sequential"]).unwrap();
    let error =
        readings::run(&args, &mut Refused(io::ErrorKind::StorageFull), &mut io::sink(), false)
            .unwrap_err();
    assert!(format!("{error:#}").starts_with("cannot write the summary: "), "{error:#}");
    // Unless somebody stopped reading it.
    readings::run(&args, &mut Refused(io::ErrorKind::BrokenPipe), &mut io::sink(), false).unwrap();
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[test]
fn packed_or_not_is_the_same_whatever_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = slice(&["2013-09-0"]);
    let plain = file(folder.path(), "plain.csv", &text);
    let packed = file(folder.path(), "packed.csv.gz", gzip(&text));
    // Members one behind the other are one file, as they are for `gzip`.
    let (half, rest) = text.split_at(text.len() / 2);
    let members = file(folder.path(), "members", [gzip(half), gzip(rest)].concat());
    let marked =
        file(folder.path(), "marked.csv", format!("\u{feff}{}", text.replace('\n', "\r\n")));
    let journal = folder.path().join("journal");
    let all = [plain, packed, members, marked].map(|input| {
        let (summary, _) =
            run(&[&input, "--mode", "slipring", "--output", journal.to_str().unwrap()]).unwrap();
        (fs::read_to_string(&journal).unwrap(), summary)
    });
    assert!(all[0].0.lines().count() > 1_000);
    assert!(all.iter().all(|one| *one == all[0]));
}

#[test]
fn a_comparison_has_a_line_for_each_mode_and_they_agree() {
    let (table, _) = run(&["--smoke"]).unwrap();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let modes: Vec<_> = MODES
        .iter()
        .filter_map(|mode| lines.iter().find(|line| line.first() == Some(mode)))
        .collect();
    assert_eq!(modes.len(), 3, "{table}");
    for mode in modes {
        assert_eq!(mode[mode.len() - 2..], ["f510d6cf", "30c984de"], "{table}");
    }
    assert!(table.contains("cores:"), "{table}");
}

#[test]
fn arguments_out_of_range_are_refused() {
    for arguments in [
        ["--workers", "0"],
        ["--workers", "65"],
        ["--repeat", "0"],
        ["--mode", "fast"],
        ["--wait", "patiently"],
        ["--parcel", "0"],
    ] {
        let error = run(&arguments).unwrap_err();
        assert!(error.contains("invalid value"), "{error}");
    }
    assert!(run(&["--wait", "x"]).unwrap_err().contains("busy-spin, yielding, sleeping, blocking"));
    let error = run(&["--repeat", "99999999", "--mode", "sequential"]).unwrap_err();
    assert!(error.contains("before the year 9999 ends"), "{error}");
}

#[test]
fn repetitions_beyond_any_count_are_refused_in_every_mode() {
    for mode in MODES.iter().chain(&["all"]) {
        for bar in [false, true] {
            let args = Args::try_parse_from([
                "readings",
                "--repeat",
                &u64::MAX.to_string(),
                "--mode",
                mode,
            ])
            .unwrap();
            let error = readings::run(&args, &mut io::sink(), &mut io::sink(), bar).unwrap_err();
            assert!(format!("{error:#}").contains("before the year 9999 ends"), "{error:#}");
        }
    }
}
