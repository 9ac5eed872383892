//! Reads records from files that may have been written or damaged by any program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;

use super::record::{FORMAT, Record, VERSION};
use crate::base::exit;

/// Size limit of a file, in bytes. Because of the limit, an endless device is refused with a
/// message, and not read for ever.
const BYTES_AT_MOST: u64 = 256 << 20;

/// A record and the file that it came from.
#[derive(Debug)]
pub struct Loaded {
    pub path: PathBuf,
    pub record: Record,
}

impl Loaded {
    /// Reads a record. The error names the file, the mistake and the remedy in one line, and has
    /// the exit code for wrong arguments.
    pub fn read(path: &Path) -> Result<Self> {
        let record = text(path).and_then(|text| parse(&text));
        let record =
            record.map_err(|error| exit::usage(format!("{}: {error:#}", path.display())))?;
        Ok(Self { path: path.to_owned(), record })
    }
}

fn text(path: &Path) -> Result<String> {
    let file = File::open(path).context("cannot be read")?;
    let mut bytes = Vec::new();
    file.take(BYTES_AT_MOST + 1).read_to_end(&mut bytes).context("cannot be read")?;
    ensure!(bytes.len() as u64 <= BYTES_AT_MOST, "is too large for a record of the lab");
    ensure!(!bytes.is_empty(), "is empty: write a record by `slipring lab NAME --json FILE`");
    String::from_utf8(bytes).map_err(|_| anyhow!("is no record of the lab: it is not text"))
}

/// The fields that all versions of the format have.
#[derive(Deserialize)]
struct Head {
    format: Option<serde_json::Value>,
    version: Option<serde_json::Value>,
    slipring: Option<String>,
}

/// Parses the text of a record.
pub fn parse(text: &str) -> Result<Record> {
    let value: serde_json::Value = serde_json::from_str(text)
        .context("is damaged, or no JSON: measure again, or take a copy of the file")?;
    ensure!(is_printable(&value), "is damaged: a text has control characters");
    let head = Head::deserialize(value).map_err(|_| {
        anyhow!("is no record of the lab: `slipring lab NAME --json FILE` writes one")
    })?;
    let format = head.format.as_ref().and_then(|format| format.as_str());
    ensure!(
        format == Some(FORMAT),
        "is no record that `slipring lab` can show: it lacks \"format\": \"{FORMAT}\" (`lab waits` \
         and `lab exchange` draw theirs by --picture)"
    );
    let version = head.version.as_ref().and_then(serde_json::Value::as_u64);
    match version {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) if version > u64::from(VERSION) => bail!(
            "has version {version} of the format, written by slipring {}; this is slipring {}, which \
             reads version {VERSION}: take a program at least as new as the record",
            head.slipring.as_deref().unwrap_or("unknown"),
            env!("CARGO_PKG_VERSION"),
        ),
        _ => bail!("is damaged: it has no valid version; measure again"),
    }
    // The record is parsed from the text, not from the value, so that the error names the line.
    let record: Record = serde_json::from_str(text).context("is damaged: measure again")?;
    check(&record)?;
    Ok(record)
}

/// Returns whether all texts are free of control characters, which a terminal would obey instead of
/// showing. Tabs and line breaks do no harm.
fn is_printable(value: &serde_json::Value) -> bool {
    let text = |text: &str| text.chars().all(|c| !c.is_control() || "\n\t".contains(c));
    match value {
        serde_json::Value::String(value) => text(value),
        serde_json::Value::Array(items) => items.iter().all(is_printable),
        serde_json::Value::Object(fields) => {
            fields.iter().all(|(name, value)| text(name) && is_printable(value))
        }
        _ => true,
    }
}

/// Checks the rules that the types do not express.
fn check(record: &Record) -> Result<()> {
    ensure!(!record.experiments.is_empty(), "has no finished experiment: measure again");
    let noise = [record.noise.computing, record.noise.handover];
    ensure!(noise.iter().all(|share| (0.0..1e6).contains(share)), "is damaged: wrong noise floor");
    for results in &record.experiments {
        let name = &results.experiment;
        let mut units: BTreeMap<&str, (&str, _)> = BTreeMap::new();
        let mut curves: BTreeMap<&str, &str> = BTreeMap::new();
        for series in &results.series {
            for (metric, of) in &series.metrics {
                let known = *units.entry(metric).or_insert((&of.unit, of.better));
                ensure!(
                    known == (&of.unit, of.better),
                    "is damaged: `{name}` has two units of `{metric}`"
                );
                // 1e100 is so far below the largest number that no sum and no scale of a plot
                // overflows.
                let all = of.values.iter();
                ensure!(
                    all.clone().all(|value| value.abs() < 1e100),
                    "is damaged: `{name}` has a value out of range"
                );
            }
            for (metric, of) in &series.curves {
                let known = *curves.entry(metric).or_insert(&of.unit);
                ensure!(known == of.unit, "is damaged: `{name}` has two units of `{metric}`");
                for round in &of.rounds {
                    let valid = round.iter().all(|(quantile, value)| {
                        (0.0..=1.0).contains(quantile) && value.abs() < 1e100
                    });
                    let sorted = round.is_sorted_by(|one, other| one.0 <= other.0);
                    ensure!(valid && sorted, "is damaged: `{name}` has a wrong percentile curve");
                }
            }
        }
    }
    Ok(())
}
