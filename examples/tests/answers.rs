//! Tests `readings` with unusual input, output and arguments.

mod common;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Parser as _;
use common::{HEADER, slice};
use flate2::Compression;
use flate2::write::GzEncoder;
use slipring_examples::readings::{self, Args};

const MODES: [&str; 5] =
    ["sequential", "executor", "slipring", "slipring-shared", "slipring-graph"];

/// Runs the program and returns its results and its remarks, or its error.
fn run(arguments: &[&str]) -> Result<(String, String), String> {
    let args =
        Args::try_parse_from([&["readings"], arguments].concat()).map_err(|e| e.to_string())?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    match readings::run(&args, &mut out, &mut err, false, None) {
        Ok(()) => Ok((String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Writes a file and returns its path.
fn file(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs every mode on a file of these rows, as [`results_of`] does.
fn journal_of(rows: impl AsRef<[u8]>) -> (String, String, String) {
    results_of([HEADER.as_bytes(), rows.as_ref()].concat(), &[])
}

/// Runs every mode on a file with this content, and returns journal, results and remarks. Fails
/// unless all modes agree.
fn results_of(content: impl AsRef<[u8]>, arguments: &[&str]) -> (String, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let input = file(folder.path(), "rows.csv", content);
    let journal = folder.path().join("journal");
    let all = MODES.map(|mode| {
        let own = [&input, "--mode", mode, "--output", journal.to_str().unwrap()];
        let (out, err) = run(&[&own, arguments].concat()).unwrap();
        let faults = ["malformed", "bad reading"];
        let remarks: Vec<&str> =
            err.lines().filter(|line| faults.iter().any(|fault| line.contains(fault))).collect();
        (fs::read_to_string(&journal).unwrap(), out, remarks.join("\n"))
    });
    assert!(all.iter().all(|other| *other == all[0]), "{all:?}");
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

/// Table libraries and `format!` are limited to widths of 2^16 - 1.
#[test]
fn a_long_station_name_is_cut_in_the_summary_and_complete_in_the_journal() {
    let name = "A".repeat(70_000);
    let (journal, summary, _) = journal_of(format!(
        "{name},2020,5,1,0,1.50,NA,NA,NA,NA,NA,NA,NA,NA,2020-05-01T00:00:00Z\n"
    ));
    assert_eq!(journal, format!("2020-05-01T00:00:00Z,{name},temp,1.5\n"));
    assert!(summary.contains(&format!("{}…", &name[..60])), "{summary}");
    assert!(summary.ends_with("1 rows, 1 readings, 0 alarms, 0 malformed rows\n"), "{summary}");
}

#[test]
fn malformed_rows_are_described_and_counted_and_change_no_other_row() {
    let good = "A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n";
    let bad: [&[u8]; 8] = [
        b"A,2020,5,1,0,1,2,3\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z,extra\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-32T00:00:00Z\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,8,9,\n",
        b"A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01 00:00\n",
        b",2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n",
        b"Z\xfcrich,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n",
        b"A,\"2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n",
    ];
    let (journal, summary, remarks) =
        journal_of([good.repeat(4).as_bytes(), &bad.concat(), good.repeat(4).as_bytes()].concat());
    assert_eq!(journal.lines().count(), 8 * 9);
    assert!(summary.ends_with("16 rows, 72 readings, 0 alarms, 8 malformed rows\n"), "{summary}");
    // The remarks appear in the order in which the rows enter the ring: by station. A row that has
    // no time or no station enters right after its predecessor in the file.
    let expected = "malformed row, line 11: the station has no name\n\
                    malformed row, line 6: 8 columns instead of 15\n\
                    malformed row, line 7: 16 columns instead of 15\n\
                    malformed row, line 8: not a time: '2020-05-32T00:00:00Z'\n\
                    malformed row, line 9: not a time: ''\n\
                    8 malformed rows in total";
    assert_eq!(remarks, expected);
}

#[test]
fn a_bad_field_spoils_its_reading_only() {
    let (journal, summary, remarks) = journal_of(
        "A,2020,5,1,0,warm,2,3,4,5,6,inf,8,9,2020-05-01T00:00:00Z\n\
         A,2020,5,1,0,1,,3,4,5,6,7,8,\"9\n\x1b[2J\",2020-05-01T01:00:00Z\n\
         A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T02:00:00Z\n\
         B,x,x,x,x,1,2,3,4,5,6,7,8,9 ft,2020-05-01T02:00:00Z\n",
    );
    assert_eq!(journal.lines().count(), 7 + 7 + 9 + 8);
    assert!(
        summary.ends_with("4 rows, 31 readings, 0 alarms, 0 malformed rows, 4 bad readings\n"),
        "{summary}"
    );
    assert_eq!(
        remarks,
        "bad reading, line 2: temp is not a number: 'warm', and 1 more of the row\n\
         bad reading, line 3: visib is not a number: '9\\n\\u{1b}[2J'\n\
         bad reading, line 6: visib is not a number: '9 ft'\n\
         4 bad readings in total"
    );
}

/// The same rows give one journal in every form in which R, pandas and spreadsheets of several
/// countries write them.
#[test]
fn dialects_of_csv_give_the_same_journal() {
    let header = HEADER.trim_end();
    let rows = "EWR,2013,1,1,1,39.02,26.06,NA,270,10.5,NA,0,1012,10,2013-07-01T06:00:00Z\n\
                JFK,2013,1,1,1,39.5,-26.06,59.37,270,NA,NA,0,1012.3,10,2013-07-01T07:30:00Z";
    let plain = format!("{header}\n{rows}\n");
    let (expected, summary, remarks) = results_of(&plain, &[]);
    assert_eq!((expected.lines().count(), remarks.as_str()), (14, ""));

    let quoted = |text: &str| {
        let quote = |line: &str| format!("\"{}\"\n", line.replace(',', "\",\""));
        text.lines().map(quote).collect::<String>()
    };
    let local = plain.replace('T', " ").replace("06:00:00Z", "08:00").replace("07:30:00Z", "09:30");
    for (content, arguments) in [
        (quoted(&plain), &[][..]),
        (quoted(&plain).replace('\n', "\r\n"), &[]),
        (plain.replace('\n', "\r"), &[]),
        (format!("\u{feff}{}", quoted(&plain)), &[]),
        (format!("\n\n{}\n", plain.replace('\n', "\n\n")), &[]),
        (plain.replace(header, &header.to_uppercase()), &[]),
        (plain.clone() + &",".repeat(14) + "\n", &[]),
        (plain.replace(',', ", ").replace("JFK, ", "JFK,").replace("EWR, ", "EWR,"), &[]),
        (plain.replace("NA", ""), &[]),
        (plain.replace("NA", "\"NA\""), &[]),
        (plain.replace("NA", "NaN"), &[]),
        (plain.replace("NA", "null"), &[]),
        (plain.replace("NA", "n/a"), &[]),
        (plain.replace("NA", "-999"), &["--missing", "-999"]),
        (plain.replace("59.37,270,NA", "59.37,270,none").replace("NA", "-"), &["--missing=-,none"]),
        (plain.replace(',', ";"), &[]),
        (plain.replace(',', "\t"), &[]),
        (plain.replace(',', ";").replace('.', ","), &[]),
        (plain.replace(',', "|"), &["--delimiter", "|"]),
        (plain.replace(',', ";"), &["--delimiter", ";"]),
        (plain.replace(',', "\t"), &["--delimiter", "tab"]),
        (plain.replace(',', "\t"), &["--delimiter", "\\t"]),
        (plain.replace('T', " "), &[]),
        (plain.replace(":00Z", ":00.25+00:00"), &[]),
        (local.clone(), &["--zone", "Europe/Berlin"]),
        (local.clone(), &["--zone", "+02:00"]),
        (local.replace("08:00", "01:00").replace("09:30", "02:30"), &["--zone", "-05:00"]),
        (plain.replace("00Z", "00"), &["--zone", "UTC"]),
    ] {
        let (journal, table, remarks) = results_of(&content, arguments);
        assert_eq!(journal, expected, "{arguments:?}: {content}");
        assert_eq!((table, remarks), (summary.clone(), String::new()), "{arguments:?}: {content}");
    }
}

#[test]
fn names_with_delimiters_quotes_and_line_ends_come_back_from_the_journal() {
    let names = ["Newark, NJ", "John \"F.\" Kennedy", "La\nGuardia\r\n", "\u{1b}]0;x\u{7}", " "];
    let mut writer = csv::Writer::from_writer(HEADER.as_bytes().to_vec());
    for name in names {
        let rest = "2020,5,1,0,1.5,NA,NA,NA,NA,NA,NA,NA,NA,2020-05-01T00:00:00Z".split(',');
        writer.write_record([name].into_iter().chain(rest)).unwrap();
    }
    let (journal, summary, remarks) = results_of(writer.into_inner().unwrap(), &[]);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(journal.as_bytes());
    let mut found: Vec<String> =
        reader.records().map(|record| record.unwrap()[1].to_owned()).collect();
    found.sort();
    let mut expected = names[..4].to_vec();
    expected.sort();
    assert_eq!(found, expected);
    // The line number counts lines of the file. The names above contain two line ends, which it
    // counts, too.
    assert_eq!(
        remarks,
        "malformed row, line 8: the station has no name\n1 malformed rows in total"
    );
    assert_eq!(summary.lines().count(), 2 + 4 * 9, "{summary}");
    assert!(summary.contains("\\u{1b}]0;x\\u{7}") && !summary.contains('\u{1b}'), "{summary}");
}

#[test]
fn more_malformed_rows_than_good_ones_are_an_error_with_the_commonest_fault() {
    let good = "A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00Z\n";
    let local = "A,2020,5,1,0,1,2,3,4,5,6,7,8,9,2020-05-01T00:00:00\n";
    let folder = tempfile::tempdir().unwrap();
    let error = |rows: String, mode: &str| {
        let input = file(folder.path(), "rows.csv", HEADER.to_owned() + &rows);
        let args = Args::try_parse_from(["readings", &input, "--smoke", "--mode", mode]).unwrap();
        let mut out = Vec::new();
        let error = readings::run(&args, &mut out, &mut io::sink(), false, None).err();
        assert!(!out.is_empty(), "the results are missing");
        error.map(|error| format!("{error:#}"))
    };
    for mode in MODES.iter().chain(&["all"]) {
        assert_eq!(error(good.repeat(3) + &local.repeat(2) + "x\n", mode), None);
        let found = error(good.repeat(3) + "x\n" + &local.repeat(3), mode).unwrap();
        assert!(
            found.ends_with(
                "rows.csv: 4 of 7 rows are malformed; the commonest fault, in 3 of them, is first \
                 in line 6: the time '2020-05-01T00:00:00' has no zone; say one with --zone"
            ),
            "{found}"
        );
        let found = error("\x1b[31m\n".to_owned(), mode).unwrap();
        assert!(
            found.ends_with(
                "1 of 1 rows are malformed; the commonest fault, in 1 of them, is \
            first in line 2: 1 columns instead of 15"
            ),
            "{found}"
        );
        let warm = good.replace("1,2,3,4,5", "1 C,2 C,3 C,4 C,5 C");
        let found = error(warm, mode).unwrap();
        assert!(
            found.ends_with(
                "5 of 9 readings are not numbers; the first is in line 2: temp is not a number: \
                 '1 C', and 4 more of the row"
            ),
            "{found}"
        );
    }
}

#[test]
fn a_file_that_is_no_csv_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let utf16: Vec<u8> =
        format!("\u{feff}{HEADER}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (content, expected) in [
        (utf16.clone(), "this is UTF-16 text (little-endian); save it as UTF-8"),
        (gzip_bytes(&utf16), "this is UTF-16 text (little-endian); save it as UTF-8"),
        (
            b"PK\x03\x04\x14\0\x06\0\x08\0".to_vec(),
            "this is a zip archive (an .xlsx spreadsheet is",
        ),
        (b"\xfd7zXZ\0\0\x04".to_vec(), "this is xz data; unpack it first"),
        (b"PAR1\x15\x04\x15".to_vec(), "this is a Parquet file"),
        ([gzip(HEADER), b"more".to_vec()].concat(), "trailing garbage after gzip"),
    ] {
        let input = file(folder.path(), "rows.csv", content);
        let error = run(&[&input]).unwrap_err();
        assert!(error.contains("rows.csv: ") && error.contains(expected), "{error}");
    }
    // A header whose first name begins with the letters of a picture's signature is still read as a
    // header.
    let text = HEADER.replace("origin,year", "BM,origin,year");
    let input = file(folder.path(), "rows.csv", text);
    assert_eq!(run(&[&input]).unwrap().0, "no rows: nothing to compare\n");
}

#[test]
fn bytes_of_a_file_and_its_name_are_escaped_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let input = file(folder.path(), "header.csv", "\x1b[31mtemp,\u{202e}b\n1,2\n");
    let error = run(&[&input]).unwrap_err();
    assert!(
        error.ends_with(
            "the header has no column 'temp'; its columns are '\\u{1b}[31mtemp', '\\u{202e}b'"
        ),
        "{error}"
    );
    let error = run(&["no\x1b[31m\nfile.csv"]).unwrap_err();
    assert!(error.starts_with("cannot read no\\u{1b}[31m\\nfile.csv: "), "{error}");
}

#[test]
fn a_file_without_rows_is_no_error() {
    let (journal, summary, _) = journal_of("");
    assert_eq!(journal, "");
    assert!(summary.ends_with("0 rows, 0 readings, 0 alarms, 0 malformed rows\n"), "{summary}");
    let folder = tempfile::tempdir().unwrap();
    let input = file(folder.path(), "header.csv", HEADER);
    assert_eq!(run(&[&input]).unwrap().0, "no rows: nothing to compare\n");
}

#[cfg(unix)] // the reasons are messages of the system
#[test]
fn an_error_names_the_file_that_cannot_be_used_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut packed = gzip(&slice(&["2013-09-01"]));
    packed.truncate(packed.len() / 2);
    for (name, content, reason) in [
        ("empty.csv", Some(&b""[..]), "the file is empty"),
        ("other.csv", Some(b"a,b\n1,2\n"), "the header has no column 'temp'"),
        ("cut.csv.gz", Some(&packed), "the gzip data is cut off"),
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

#[cfg(unix)] // the reasons are messages of the system
#[test]
fn every_mode_fails_and_names_an_output_that_cannot_be_written() {
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

/// An output that refuses every write.
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
    let run = |kind| readings::run(&args, &mut Refused(kind), &mut io::sink(), false, None);
    let error = run(io::ErrorKind::StorageFull).unwrap_err();
    assert!(format!("{error:#}").starts_with("cannot write the summary: "), "{error:#}");
    run(io::ErrorKind::BrokenPipe).expect("a closed pipe is no error");
}

fn gzip(text: &str) -> Vec<u8> {
    gzip_bytes(text.as_bytes())
}

fn gzip_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn packed_and_plain_files_give_the_same_under_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = slice(&["2013-09-0"]);
    let plain = file(folder.path(), "plain.csv", &text);
    let packed = file(folder.path(), "packed.csv.gz", gzip(&text));
    // As in `gzip`, concatenated members are one file, and zeros may follow them.
    let (half, rest) = text.split_at(text.len() / 2);
    let members = file(folder.path(), "members", [gzip(half), gzip(rest), vec![0; 512]].concat());
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
fn a_comparison_has_a_row_for_each_mode_with_equal_checksums() {
    let (table, _) = run(&["--smoke"]).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for mode in MODES {
        let row = rows.iter().find(|row| row[0] == mode).expect("a row for each mode");
        assert_eq!(row[row.len() - 2..], ["f510d6cf", "117ad118"], "{table}");
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
        ["--batch", "0"],
        ["--delimiter", "\""],
        ["--delimiter", "\n"],
        ["--delimiter", ""],
        ["--delimiter", ",;"],
        ["--delimiter", "§"],
        ["--zone", "Mars/Olympus"],
        ["--zone", "2 hours"],
    ] {
        let error = run(&arguments).unwrap_err();
        assert!(error.contains("invalid value"), "{error}");
    }
    assert!(run(&["--wait", "x"]).unwrap_err().contains("busy-spin, yielding, sleeping, blocking"));
    let error = run(&["--repeat", "99999999", "--mode", "sequential"]).unwrap_err();
    assert!(error.contains("before the year 9999 ends"), "{error}");
}

#[test]
fn the_largest_number_of_repetitions_is_refused_in_every_mode() {
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
            let error =
                readings::run(&args, &mut io::sink(), &mut io::sink(), bar, None).unwrap_err();
            assert!(format!("{error:#}").contains("before the year 9999 ends"), "{error:#}");
        }
    }
}
