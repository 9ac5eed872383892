//! `slipring lab report`: one page of HTML from records.
//!
//! The page needs no script and no other file. `maud` escapes everything that comes from a record,
//! and in addition the page's policy forbids scripts and loads.

mod chart;
mod figures;
mod heat_map;
mod page;
mod percentiles;
mod scale;
mod scatter;
mod section;
mod source;
mod svg;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;
use slipring_support::streams::same_file;

use super::catalogue;
use super::reading::Loaded;
use crate::base::destination::Destination;
use crate::base::exit;

/// Writes a page of HTML from records: plots, tables, and what the sources found
///
/// The page is one file without scripts, and can be read offline. Results of the
/// same experiment stand one below the other, each with its file, date and
/// machine.
#[derive(Debug, Parser)]
#[command(after_long_help = EXIT_CODES, verbatim_doc_comment)]
pub struct Args {
    /// Records that `slipring lab NAME --json FILE` has written
    #[arg(required = true, value_name = "FILE.json")]
    records: Vec<PathBuf>,
    /// Write the page to FILE; `-` is standard output
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
}

const EXIT_CODES: &str = "\
Exit code:
  0  the page was written
  2  wrong arguments: a record cannot be opened, a file is no record, or a record
     is newer than this program; or the page cannot be written, and the old file
     is unchanged";

/// Writes the page.
pub fn run(args: &Args) -> Result<()> {
    let mut records: Vec<Loaded> = Vec::new();
    let is_stdout = args.output.as_os_str() == "-";
    let output = if is_stdout { Path::new("/dev/stdout") } else { &args.output };
    for path in &args.records {
        if same_file(path, output) {
            let shown = path.display();
            return Err(exit::usage(format!(
                "{shown} is a record: give the page a file of its own by -o"
            )));
        }
        // A file that is named twice is shown once.
        if !records.iter().any(|loaded| same_file(&loaded.path, path)) {
            records.push(Loaded::read(path)?);
        }
    }
    for loaded in &records {
        for results in &loaded.record.experiments {
            if catalogue::find(&results.experiment).is_none() {
                return Err(exit::usage(format!(
                    "{}: this program, slipring {}, knows no experiment `{}`: take the program that \
                     wrote the record, slipring {}, or a newer one",
                    loaded.path.display(),
                    env!("CARGO_PKG_VERSION"),
                    results.experiment,
                    loaded.record.slipring,
                )));
            }
        }
    }
    let output = Destination::open("-o", &args.output)?;
    let page = page::page(&records, &catalogue::recorded());
    output.save(&page.into_string())
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
