//! The files that a measurement saves: the record and the picture.

use std::path::Path;

use anyhow::{Context as _, Error, Result};
use serde::Serialize;
use slipring_support::streams::stdout_width;

use crate::base::console::{self, StdoutClosed};
use crate::base::destination::Destination;
use crate::base::exit;

/// The help's paragraphs on files and exit codes. The text is wrapped by hand at 80 columns,
/// because clap wraps only with its feature `wrap_help`, which brings a terminal library.
pub const ABOUT_FILES: &str = "\
Files:
  Each FILE is checked before the measurement and saved before the tables are
  printed. A regular file is replaced as a whole, so that a failure leaves the
  old one. A file that has a second name or another owner is overwritten
  instead. Pipes and devices are written directly. If FILE is standard output
  (/dev/stdout), the tables go to standard error. Without a FILE, each table is
  printed as soon as it is measured.

  If a measurement fails, all results before the failure are saved and printed,
  and the record gives the reason. Content that cannot be saved is kept in the
  folder for temporary files.

Exit code:
  0  everything was measured and saved. This includes a reader of the tables
     that closes its pipe early (`| head`); without a FILE, the measurement then
     stops.
  1  something failed
  2  wrong arguments, or output that cannot be written";

/// The results of a measurement.
pub trait Results: Serialize {
    /// Returns the whole report for a terminal of this width, or for a pipe or file.
    fn tables(&self, width: Option<usize>) -> String;
    /// Draws the picture as SVG.
    fn picture(&self) -> Result<String>;
}

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

    /// Returns whether the user named no file, so that the printed tables are the only results.
    pub fn is_empty(&self) -> bool {
        self.json.is_none() && self.picture.is_none()
    }

    /// Saves the record to each file, then prints its tables. A failed step does not stop the later
    /// ones, and the error names every failed step.
    pub fn save_and_print(self, record: &impl Results) -> Result<()> {
        let to_stdout = |destination: &Option<Destination>| {
            destination.as_ref().is_some_and(Destination::is_stdout)
        };
        let stdout_taken = to_stdout(&self.json) || to_stdout(&self.picture);
        let names: Vec<String> =
            [&self.json, &self.picture].into_iter().flatten().map(Destination::to_string).collect();
        let json = self
            .json
            .map_or(Ok(()), |json| json.save(&(serde_json::to_string_pretty(record)? + "\n")));
        let picture = self.picture.map_or(Ok(()), |picture| picture.save(&record.picture()?));
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

/// Joins the errors of several results. A closed standard output is not a failure, so it counts
/// only if there is no other error.
pub fn all_errors<const N: usize>(results: [Result<()>; N]) -> Result<()> {
    let (closed, failed): (Vec<Error>, Vec<Error>) =
        results.into_iter().filter_map(Result::err).partition(|error| error.is::<StdoutClosed>());
    exit::join(failed)?;
    closed.into_iter().next().map_or(Ok(()), Err)
}
