//! The section of an experiment: its question, the findings of its source, and the results of each
//! record.

use maud::{Markup, html};

use super::figures::figure;
use super::source::comparisons;
use crate::lab::experiment::{About, Experiment, Finding, Source};
use crate::lab::reading::Loaded;
use crate::lab::record::Results;
use crate::lab::wording::date;

/// Results of the section's experiment in a record.
pub struct Part<'a> {
    /// Number of the record in the page's list.
    pub number: usize,
    pub loaded: &'a Loaded,
    pub results: &'a Results,
}

/// Writes the section. If `is_only` is `true`, the page has a single record, so the results need no
/// name.
pub fn section(experiment: &dyn Experiment, parts: &[Part<'_>], is_only: bool) -> Markup {
    let about = experiment.about();
    let id = anchor(about.name);
    html! {
        section.experiment id=(id) aria-labelledby=(format!("{id}-name")) {
            h2 id=(format!("{id}-name")) { (about.title) }
            @if is_only {
                @for part in parts { (headline(experiment, part)) }
            }
            (paragraphs(about.paragraph))
            (drawing(about))
            (source(&about.source))
            @for part in parts {
                @let id = format!("{id}-{}", part.number);
                @if is_only {
                    h3 { "Results" }
                } @else {
                    h3 { "Results of record " (part.number) ": " (part.loaded.path.display()) }
                    p.small { (machine_line(part)) }
                    (headline(experiment, part))
                }
                (facts(part))
                @for (at, of) in about.figures.iter().enumerate() {
                    (figure(of, part.results, 4, &format!("{id}-{at}")))
                }
                (comparisons(about, part.results, 4, &id))
                (findings(&experiment.findings(part.results)))
                (notes(part))
            }
        }
    }
}

/// Returns the id of an experiment's section.
pub fn anchor(name: &str) -> String {
    format!("experiment-{name}")
}

fn headline(experiment: &dyn Experiment, part: &Part<'_>) -> Markup {
    let text = experiment.headline(part.results, &part.loaded.record.noise);
    html! { p.headline { (prose(&text)) } }
}

fn machine_line(part: &Part<'_>) -> String {
    let record = &part.loaded.record;
    let cpu = record.machine.cpu.as_deref().unwrap_or("unknown processor");
    format!("{}, {cpu}, {} CPUs, {}", date(record), record.machine.cores, record.size)
}

fn facts(part: &Part<'_>) -> Markup {
    let Results { rounds, seconds, series, .. } = part.results;
    html! {
        p.small {
            (series.len()) " series, "
            (rounds) @if *rounds == 1 { " repetition" } @else { " repetitions" }
            " each, in " (format!("{seconds:.0}")) " s."
        }
    }
}

fn drawing(about: &About) -> Markup {
    let name = format!("Drawing: {}", about.title);
    let text =
        format!("The graph of {}, drawn in characters. The text above describes it.", about.title);
    html! {
        @if !about.drawing.trim().is_empty() {
            figure.drawing {
                div.scroll tabindex="0" role="group" aria-label=(name) {
                    pre role="img" aria-label=(text) {
                        (about.drawing.trim_matches('\n'))
                    }
                }
            }
        }
    }
}

fn source(source: &Source) -> Markup {
    html! {
        @if !source.citation.is_empty() {
            h3 { "Source" }
            dl.source {
                dt { "Publication" }
                dd {
                    (source.citation)
                    @if let Some(address) = source.address {
                        " " a href=(address) rel="noreferrer" { (address) }
                    }
                }
                @for (name, text) in [("Its machine", source.machine), ("Its finding", source.finding)] {
                    @if !text.is_empty() { dt { (name) } dd { (prose(text)) } }
                }
            }
        }
    }
}

/// Lists the statements of the source, and whether the results agree with them.
fn findings(all: &[Finding]) -> Markup {
    html! {
        @if !all.is_empty() {
            h4 { "Does the shape of the source's curves appear?" }
            div.scroll tabindex="0" role="group" aria-label="Statements of the source" {
                table.findings {
                    thead {
                        tr {
                            th scope="col" { "The source says" }
                            th scope="col" { "appears" }
                            th scope="col" { "figures" }
                        }
                    }
                    tbody {
                        @for Finding { says, appears, numbers } in all {
                            tr {
                                th scope="row" { (prose(says)) }
                                td { (appears) }
                                td { (prose(numbers)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn notes(part: &Part<'_>) -> Markup {
    html! {
        @if !part.results.notes.is_empty() {
            h4 { "Not reproduced, and other remarks" }
            ul { @for note in &part.results.notes { li { (prose(note)) } } }
        }
    }
}

/// Returns the paragraphs of a text, which empty lines separate.
fn paragraphs(text: &str) -> Markup {
    html! {
        @for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            p { (prose(paragraph)) }
        }
    }
}

/// Returns a text as markup, in which names in backticks are code.
pub fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // An odd number of backticks is no markup.
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
