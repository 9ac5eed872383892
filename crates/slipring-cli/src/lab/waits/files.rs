//! The files that a measurement saves: the record and the picture.

use std::path::Path;

use anyhow::{Context as _, Error, Result, anyhow};
use slipring_support::streams::stdout_width;

use super::picture;
use super::report::Record;
use crate::console::{self, StdoutClosed};
use crate::destination::Destination;

/// The destinations of a measurement's results.
#[derive(Debug)]
pub struct Files {
    json: Option<Destination>,
    picture: Option<Destination>,
}

impl Files {
    /// Opens the files that the user named, before the measurement.
    pub fn open(json: Option<&Path>, picture: Option<&Path>) -> Result<Self> {
        let json = json.map(|path| Destination::open("--json", path)).transpose()?;
        let picture = picture.map(|path| Destination::open("--picture", path)).transpose()?;
        if let (Some(json), Some(picture)) = (&json, &picture) {
            json.refuse_same(picture)?;
        }
        Ok(Self { json, picture })
    }

    /// Whether the user named no file, so that the printed tables are the only results.
    pub fn is_empty(&self) -> bool {
        self.json.is_none() && self.picture.is_none()
    }

    /// Saves the record to each file, then prints its tables. A failed step does not stop the later
    /// ones, and the error names every failed step.
    pub fn save_and_print(self, record: &Record) -> Result<()> {
        let to_stdout = |destination: &Option<Destination>| {
            destination.as_ref().is_some_and(Destination::is_stdout)
        };
        let stdout_taken = to_stdout(&self.json) || to_stdout(&self.picture);
        let names: Vec<String> =
            [&self.json, &self.picture].into_iter().flatten().map(Destination::to_string).collect();
        let json = self
            .json
            .map_or(Ok(()), |json| json.save(&(serde_json::to_string_pretty(record)? + "\n")));
        let picture = self.picture.map_or(Ok(()), |picture| picture.save(&picture::draw(record)?));
        let saved = all_errors([json, picture]);
        let printed = if stdout_taken {
            console::print_error(&record.tables(None));
            Ok(())
        } else {
            console::print(&record.tables(stdout_width()))
        };
        let printed = match &saved {
            Ok(()) => {
                printed.with_context(|| format!("the results are in {}", names.join(" and ")))
            }
            Err(_) => printed,
        };
        all_errors([saved, printed])
    }
}

/// Joins the errors of several results. A closed standard output is no failure, so it counts only
/// if there is no other error.
pub fn all_errors<const N: usize>(results: [Result<()>; N]) -> Result<()> {
    let (closed, failed): (Vec<Error>, Vec<Error>) =
        results.into_iter().filter_map(Result::err).partition(|error| error.is::<StdoutClosed>());
    if failed.len() <= 1 {
        return failed.into_iter().chain(closed).next().map_or(Ok(()), Err);
    }
    let failed: Vec<String> = failed.iter().map(|error| format!("{error:#}")).collect();
    Err(anyhow!("{}", failed.join("\nslipring: ")))
}
