//! Common parts of the tests: the data, runs whose journal and summary can be compared, and the
//! programs themselves.

#![allow(dead_code, reason = "each test file uses only some items")]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use indicatif::ProgressBar;
use slipring_examples::readings::input::Input;
use slipring_examples::readings::measure::{Job, Mode, once};
use slipring_examples::readings::ring::Wait;

/// Header of a file with all needed columns.
pub const HEADER: &str = "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";

/// Returns the path of the project's data.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/weather-2013.csv.gz")
}

/// Returns the data as text.
pub fn text() -> String {
    let mut text = String::new();
    let packed = fs::File::open(bundled()).expect("cannot open the data");
    GzDecoder::new(packed).read_to_string(&mut text).expect("cannot unpack the data");
    text
}

/// Returns the header and some of the rows, in the order of the file: those whose time begins with
/// one of the texts in `of`.
pub fn slice(of: &[&str]) -> String {
    let text = text();
    let (header, rows) = text.split_once('\n').expect("the data has no header");
    let chosen = rows.lines().filter(|row| {
        let time = row.rsplit(',').next().unwrap_or_default();
        of.iter().any(|begin| time.starts_with(begin))
    });
    chosen.fold(format!("{header}\n"), |text, row| text + row + "\n")
}

/// Returns a job of few rows in flight, so that the ring wraps often.
pub fn job(workers: usize) -> Job {
    Job { repeat: 1, workers, capacity: 64, batch: 1, wait: Wait::Blocking, output: None }
}

/// Runs a job and returns its journal and its summary.
pub fn written(mode: Mode, input: &Input, job: &Job) -> (String, String) {
    let folder = tempfile::tempdir().expect("cannot make a temporary folder");
    let output = folder.path().join("journal");
    let job = Job { output: Some(output.clone()), ..job.clone() };
    let outcome = once(mode, input, &job, &ProgressBar::hidden()).expect("the run failed");
    let journal = fs::read_to_string(&output).expect("cannot read the journal");
    assert_eq!(
        crc32fast::hash(journal.as_bytes()),
        outcome.journal,
        "the checksum differs from that of the file"
    );
    assert_eq!(outcome.latency.len(), outcome.summary.rows(), "a row's latency is missing");
    (journal, outcome.text)
}

/// Returns the path of an example. The first call builds all examples, because cargo does not build
/// them for a single test.
pub fn program(name: &str) -> PathBuf {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "--package",
            "slipring-examples",
            "--examples",
            "--target-dir",
        ]);
        build.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "cannot build the examples");
        profile.join("examples")
    });
    FOLDER.join(name)
}
