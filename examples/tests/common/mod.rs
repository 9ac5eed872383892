//! What several tests need: the data, and runs whose journal and summary can be compared.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use indicatif::ProgressBar;
use slipring_examples::readings::input::Input;
use slipring_examples::readings::measure::{Job, Mode, once};
use slipring_examples::readings::ring::Wait;

/// A file's header with all columns that are needed.
pub const HEADER: &str = "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";

/// Where the data lies.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/weather-2013.csv.gz")
}

/// The data as text.
pub fn text() -> String {
    let mut text = String::new();
    let packed = fs::File::open(bundled()).expect("the data is there");
    GzDecoder::new(packed).read_to_string(&mut text).expect("it is text");
    text
}

/// The rows of the data whose time begins so, with the header, as they stand in the file.
pub fn slice(of: &[&str]) -> String {
    let text = text();
    let (header, rows) = text.split_once('\n').expect("there is a header");
    let chosen = rows.lines().filter(|row| {
        let time = row.rsplit(',').next().unwrap_or_default();
        of.iter().any(|begin| time.starts_with(begin))
    });
    chosen.fold(format!("{header}\n"), |text, row| text + row + "\n")
}

/// A job for small runs: few rows under way, so that the ring goes round many times.
pub fn job(workers: usize) -> Job {
    Job { repeat: 1, workers, capacity: 64, parcel: 1, wait: Wait::Blocking, output: None }
}

/// What a run writes: journal and summary.
pub fn written(mode: Mode, input: &Input, job: &Job) -> (String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("journal");
    let job = Job { output: Some(output.clone()), ..job.clone() };
    let outcome = once(mode, input, &job, &ProgressBar::hidden()).expect("the run succeeds");
    let journal = fs::read_to_string(&output).expect("there is a journal");
    assert_eq!(
        crc32fast::hash(journal.as_bytes()),
        outcome.journal,
        "the checksum is that of the file"
    );
    assert_eq!(outcome.latency.len(), outcome.summary.rows(), "each row's latency is counted");
    (journal, outcome.text)
}
