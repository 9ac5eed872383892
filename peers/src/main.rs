//! The same work through slipring, through what else one would pick, and through hand-made limits that protect nothing.
//!
//! Contenders of a figure run one after another within each repetition, in rotating order; each checks order and sum of what it handed
//! over before its time counts. Figures are medians; the raw values go to a file. Only ratios within one run mean anything.

mod contenders;
mod figures;
mod limits;
mod machine;
mod measure;
mod report;
mod work;

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write as _};
use std::path::PathBuf;

use clap::Parser;
use measure::{Size, measure};

/// Measures slipring beside its peers and beside hand-made limits.
#[derive(Parser)]
struct Args {
    /// The figures wanted, by part of their names; all of them without any.
    figures: Vec<String>,
    /// Only contenders whose name contains one of these (comma-separated).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Small amounts, once: checks that everything works, and says nothing about speed.
    #[arg(long, conflicts_with = "full")]
    smoke: bool,
    /// What records are made with.
    #[arg(long)]
    full: bool,
    /// Repetitions [default: 1 with --smoke, 9, 30 with --full].
    #[arg(long)]
    reps: Option<usize>,
    /// Writes every value there, one JSON line a series.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Lists the figures and their contenders, and measures nothing.
    #[arg(long)]
    list: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let size = if args.smoke {
        Size::Smoke
    } else if args.full {
        Size::Full
    } else {
        Size::Quick
    };
    let reps = args.reps.unwrap_or(size.pick(1, 9, 30)).max(1);
    let mut figures = figures::all(size);
    figures.retain(|figure| args.figures.is_empty() || args.figures.iter().any(|part| figure.table.contains(part.as_str())));
    for figure in &mut figures {
        figure.contenders.retain(|contender| args.only.is_empty() || args.only.iter().any(|part| contender.name.contains(part.as_str())));
    }
    figures.retain(|figure| !figure.contenders.is_empty());
    if figures.is_empty() {
        return Err("no figure and contender of these names; `--list` names them all".into());
    }
    if args.list {
        for figure in &figures {
            let names: Vec<_> = figure.contenders.iter().map(|contender| contender.name.as_str()).collect();
            println!("{}, {}: {}", figure.table, figure.column, names.join("; "));
        }
        return Ok(());
    }
    // Before anything is measured, so that a bad name costs nobody an hour.
    let json = args.json.as_ref().map(File::create).transpose().map_err(|error| format!("--json: {error}"))?;
    let talks = std::io::stderr().is_terminal();
    let series = measure(&figures, reps, |rep, figure, contender| {
        if talks {
            eprint!("\r\x1b[K{}/{reps}: {}, {}: {}", rep + 1, figure.table, figure.column, contender.name);
        }
    });
    if talks {
        eprint!("\r\x1b[K");
    }
    println!("{} cores, {reps} repetitions{}\n", machine::cores(), if args.smoke { ", smoke run: these are no figures" } else { "" });
    print!("{}", report::tables(&series));
    if let Some(json) = json {
        let mut json = BufWriter::new(json);
        report::json(&series, &mut json)?;
        json.flush()?;
    }
    Ok(())
}
