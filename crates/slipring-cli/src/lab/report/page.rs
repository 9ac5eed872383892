//! The page around the experiments: the origin of the figures, warnings, and a table of contents.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::section::{Part, anchor, prose, section};
use crate::lab::experiment::Experiment;
use crate::lab::machine::{MeasuredMachine, Model};
use crate::lab::reading::Loaded;
use crate::lab::record::Record;
use crate::lab::wording::{date, marks, noise};

const STYLE: &str = include_str!("style.css");
/// Forbids scripts and loads of any kind.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Advice for reading the figures.
const METHOD: &str = "Lines and markers show the median of the repetitions; bands and whiskers \
    show their quartiles, or the extremes of fewer than four. Figures of single shots show means \
    and their 95 % intervals. Two series are called different if \
    their medians differ by more than the noise floor, and a rank test at 5 % tells their \
    repetitions apart. Fewer than four repetitions count as different only if all of one lie above \
    all of the other, by a factor of more than two. Of many comparisons of equal series, one in \
    twenty may still be called different.";

/// Width of the machine's drawing, in characters.
const DRAWING: usize = 72;

/// Writes the page. `catalogue` has all experiments, in the order of the page.
pub fn page(records: &[Loaded], catalogue: &[&dyn Experiment]) -> Markup {
    let sections: Vec<(&dyn Experiment, Vec<Part<'_>>)> = catalogue
        .iter()
        .map(|experiment| (*experiment, parts(records, experiment.about().name)))
        .filter(|(_, parts)| !parts.is_empty())
        .collect();
    let title = title(records);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#results" { "Skip to the results" }
                header {
                    h1 { (title) }
                    p.lead {
                        "Published experiments, rerun by "
                        code { "slipring lab" }
                        ". The figures are of the machines below; other machines have others."
                    }
                }
                nav aria-label="Contents" {
                    h2 { "Contents" }
                    ul {
                        li { a href="#records" { "Machine and measurement" } }
                        @for (experiment, _) in &sections {
                            @let about = experiment.about();
                            li { a href=(format!("#{}", anchor(about.name))) { (about.title) } }
                        }
                    }
                }
                main id="results" tabindex="-1" {
                    section id="records" aria-labelledby="records-name" {
                        h2 id="records-name" { "Machine and measurement" }
                        @for (at, loaded) in records.iter().enumerate() {
                            @if records.len() > 1 {
                                h3 { "Record " (at + 1) ": " (loaded.path.display()) }
                            }
                            (about(&loaded.record))
                        }
                    }
                    @for (experiment, parts) in &sections {
                        (section(*experiment, parts, records.len() == 1))
                    }
                }
                footer {
                    p {
                        "Written by slipring " (env!("CARGO_PKG_VERSION")) ". " (METHOD)
                    }
                }
            }
        }
    }
}

/// Returns the results of an experiment in all records.
fn parts<'a>(records: &'a [Loaded], experiment: &str) -> Vec<Part<'a>> {
    let of = |(at, loaded): (usize, &'a Loaded)| {
        let all = loaded.record.experiments.iter();
        let own = all.filter(|results| results.experiment == experiment);
        own.map(|results| Part { number: at + 1, loaded, results }).collect::<Vec<_>>()
    };
    records.iter().enumerate().flat_map(of).collect()
}

fn title(records: &[Loaded]) -> String {
    match records {
        [one] => format!("Slipring lab, {}", day(&one.record)),
        _ => format!("Slipring lab, {} records", records.len()),
    }
}

fn day(record: &Record) -> &str {
    record.date.split('T').next().unwrap_or_default()
}

/// States where a record's figures come from, and the warnings that a reader needs.
fn about(record: &Record) -> Markup {
    let marks = marks(record);
    html! {
        @if !marks.is_empty() {
            div.marks role="note" {
                p { strong { "Mind before reading" } }
                ul { @for mark in &marks { li { (prose(mark)) } } }
            }
        }
        dl {
            dt { "Date" } dd { (date(record)) }
            @if let Some(model) = &record.simulated {
                (simulated(model))
            } @else {
                (machine(&record.machine))
            }
            dt { "Program" } dd { "slipring " (record.slipring) ", " (record.build) }
            dt { "Command" } dd { code { (command(&record.command)) } }
            dt { "Amount" } dd { (record.size) ", seed " (record.seed) }
            @if record.simulated.is_none() {
                dt { "Noise floor" } dd { (noise(&record.noise)) }
            }
        }
    }
}

/// Describes a machine, as terms and descriptions of a list.
fn machine(machine: &MeasuredMachine) -> Markup {
    html! {
        dt { "Processor" }
        dd {
            (machine.cpu.as_deref().unwrap_or("unknown")) ", "
            (machine.cores) @if machine.cores == 1 { " CPU" } @else { " CPUs" }
        }
        @if let Some(kernel) = &machine.kernel { dt { "System" } dd { (kernel) } }
        dt { "Reading the clock" } dd { (format!("{:.0} ns", machine.clock_ns)) }
        @if let Some(described) = &machine.description {
            dt { "Cores and caches" }
            dd.drawing {
                div.scroll tabindex="0" role="group" aria-label="Cores and caches" {
                    pre { (described.drawing(DRAWING)) }
                }
            }
        }
    }
}

/// Describes a simulated machine with the model's parameters, as terms and descriptions of a list.
fn simulated(model: &Model) -> Markup {
    let parameters = model.parameters.iter().map(|(name, value)| format!("{name} {value}"));
    html! {
        dt { "Simulated machine" } dd { (model.name) ", " (model.cores) " virtual cores" }
        dt { "Model" } dd { (parameters.collect::<Vec<_>>().join(", ")) }
    }
}

/// Returns the command without the program's folder, which means nothing to readers.
fn command(arguments: &[String]) -> String {
    let Some((program, rest)) = arguments.split_first() else { return String::new() };
    let program = program.rsplit(['/', '\\']).next().unwrap_or(program);
    std::iter::once(program).chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}
