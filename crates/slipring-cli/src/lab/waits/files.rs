//! The files of a measurement: the record and the picture.

use std::path::Path;

use anyhow::{Context as _, Error, Result, anyhow};

use super::picture;
use super::report::Record;
use crate::console::{self, ReaderGone};
use crate::destination::Destination;

/// Where the results of a measurement are saved.
#[derive(Debug)]
pub struct Files {
    json: Option<Destination>,
    picture: Option<Destination>,
}

impl Files {
    /// Opens the files that are named, before anything is measured.
    pub fn open(json: Option<&Path>, picture: Option<&Path>) -> Result<Self> {
        let json = json.map(|path| Destination::open("--json", path)).transpose()?;
        let picture = picture.map(|path| Destination::open("--picture", path)).transpose()?;
        if let (Some(json), Some(picture)) = (&json, &picture) {
            json.refuse_same(picture)?;
        }
        Ok(Self { json, picture })
    }

    /// Whether no file is named, so that the printed tables are all there is of the results.
    pub fn is_empty(&self) -> bool {
        self.json.is_none() && self.picture.is_none()
    }

    /// Saves the record in each file, then prints it. Each step is done whatever became of those
    /// before it, and the error names every step that failed.
    pub fn save_and_print(self, record: &Record) -> Result<()> {
        let to_stdout = |destination: &Option<Destination>| {
            destination.as_ref().is_some_and(Destination::is_stdout)
        };
        let taken = to_stdout(&self.json) || to_stdout(&self.picture);
        let names: Vec<String> =
            [&self.json, &self.picture].into_iter().flatten().map(Destination::to_string).collect();
        let json = self
            .json
            .map_or(Ok(()), |json| json.save(&(serde_json::to_string_pretty(record)? + "\n")));
        let picture = self.picture.map_or(Ok(()), |picture| picture.save(&picture::draw(record)?));
        let saved = all([json, picture]);
        let printed = if taken {
            console::print_error(&record.tables());
            Ok(())
        } else {
            console::print(&record.tables())
        };
        let printed = match &saved {
            Ok(()) => {
                printed.with_context(|| format!("the results are in {}", names.join(" and ")))
            }
            Err(_) => printed,
        };
        all([saved, printed])
    }
}

/// One error of several results. A reader that has gone is no failure, so any other error comes
/// before it.
pub fn all<const N: usize>(results: [Result<()>; N]) -> Result<()> {
    let (gone, failed): (Vec<Error>, Vec<Error>) =
        results.into_iter().filter_map(Result::err).partition(|error| error.is::<ReaderGone>());
    if failed.len() <= 1 {
        return failed.into_iter().chain(gone).next().map_or(Ok(()), Err);
    }
    let failed: Vec<String> = failed.iter().map(|error| format!("{error:#}")).collect();
    Err(anyhow!("{}", failed.join("\nslipring: ")))
}
