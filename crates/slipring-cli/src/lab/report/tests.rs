//! Pages of generated records.

use std::collections::HashSet;
use std::path::PathBuf;

use fastrand::Rng;

use super::generated::{self, ALL, INJECTION, LONG};
use super::page::page;
use crate::lab::experiment::Experiment;
use crate::lab::metric::Better;
use crate::lab::reading::{Loaded, parse};
use crate::lab::record::Record;

fn write(records: Vec<(&str, Record)>) -> String {
    let loaded = |(path, record)| Loaded { path: PathBuf::from(path), record };
    let records: Vec<Loaded> = records.into_iter().map(loaded).collect();
    let catalogue: Vec<&dyn Experiment> = ALL.iter().map(|of| of as &dyn Experiment).collect();
    page(&records, &catalogue).into_string()
}

/// Parses and checks each drawing of a page. Returns the number of drawings.
fn check_drawings(page: &str) -> usize {
    let mut drawings = 0;
    for part in page.split("<svg ").skip(1) {
        let end = part.find("</svg>").expect("a drawing has an end");
        let svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {}</svg>", &part[..end]);
        // HTML needs no namespace for a drawing, but the XML parser needs one.
        let parsed =
            roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
        for node in parsed.descendants() {
            for attribute in node.attributes() {
                let value = attribute.value();
                assert!(!value.contains("NaN") && !value.contains("inf"), "{value}: {svg}");
            }
        }
        if part.starts_with("role=\"img\"") {
            drawings += 1;
            let root = parsed.root_element();
            for (child, reference) in [("title", "aria-labelledby"), ("desc", "aria-describedby")] {
                let text = root
                    .children()
                    .find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", child)));
                let text = text.expect("a drawing has texts");
                assert_eq!(text.attribute("id"), root.attribute(reference));
                assert!(text.text().is_some_and(|text| text.len() > 5), "{svg}");
            }
        }
    }
    drawings
}

/// Checks what holds for every page.
fn check(page: &str) {
    assert!(!page.contains("<script") && !page.contains("<img"), "markup of a record is escaped");
    let ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let distinct: HashSet<&&str> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "ids are unique");
    for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.contains(&link), "{link}");
    }
    let mut level = 0;
    for head in page.split("<h").skip(1).filter(|rest| rest.as_bytes()[0].is_ascii_digit()) {
        let next = u32::from(head.as_bytes()[0] - b'0');
        assert!(next <= level + 1, "a heading of level {next} follows one of level {level}");
        level = next;
    }
    // Each of these elements needs an end tag in HTML.
    for name in ["section", "div", "table", "details", "svg", "figure", "ul", "dl", "text", "pre"] {
        let begins =
            page.matches(&format!("<{name} ")).count() + page.matches(&format!("<{name}>")).count();
        assert_eq!(begins, page.matches(&format!("</{name}>")).count(), "{name}");
    }
}

#[test]
fn all_kinds_of_plots_are_drawn_with_their_tables() {
    let page = write(vec![("a.json", generated::record(1))]);
    check(&page);
    // The page has two figures with lines in two panels each, one with dots, five scatter panels,
    // two panels of percentiles, and two heat maps. The source adds two pairs of plots and a single
    // one.
    assert_eq!(check_drawings(&page), 2 + 2 + 1 + 5 + 2 + 2 + 2 + 2 + 1);
    for text in [
        "Workers that share one stage",
        "href=\"#experiment-hops\"",
        "Generated Processor 9000",
        "up to 5.1 %",
        "rel=\"noreferrer\"",
        "Beside the source: Time of an event",
        "both sides have one axis",
        "only the form can be compared. The source's rates are shown as times",
        "In the source: Power",
        "Nothing was measured for this figure",
        "The source used 24 cores",
        "values of 0 or less",
        "not measured",
        "* more threads than CPUs",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(
        page.contains("<th scope=\"row\">ring</th>") && page.contains("<th scope=\"col\">16</th>")
    );
    assert!(page.contains(LONG), "the legend and the table have the whole name");
    assert!(!page.contains("Other processes"), "0.02 CPUs disturb nothing");
    assert!(!page.contains("smoke run"), "{}", &page[..page.find("</dl>").unwrap()]);
}

#[test]
fn texts_of_a_record_are_escaped_wherever_they_are_shown() {
    let mut record = generated::record(2);
    let texts = [
        &mut record.slipring,
        &mut record.build,
        &mut record.date,
        &mut record.size,
        &mut record.command[1],
    ];
    texts.into_iter().for_each(|text| *text = INJECTION.to_owned());
    record.stopped = Some(INJECTION.to_owned());
    record.machine.cpu = Some(INJECTION.to_owned());
    record.machine.kernel = Some(INJECTION.to_owned());
    for results in &mut record.experiments {
        results.notes.push(INJECTION.to_owned());
        for series in &mut results.series {
            for values in series.metrics.values_mut() {
                values.unit = INJECTION.to_owned();
            }
            for curves in series.curves.values_mut() {
                curves.unit = INJECTION.to_owned();
            }
        }
    }
    let page = write(vec![(INJECTION, record.clone()), ("b.json", record)]);
    check(&page);
    check_drawings(&page);
    assert!(page.matches("&lt;script&gt;").count() > 30);
}

#[test]
fn marks_stand_before_the_figures_they_are_about() {
    let mut record = generated::record(3);
    record.size = "smoke".to_owned();
    record.build = "rustc 1.90.0, not optimised".to_owned();
    record.stopped = Some("interrupted during `hops`".to_owned());
    record.others = Some(1.25);
    let page = write(vec![("a.json", record)]);
    check(&page);
    let results = page.find("experiment-workers-name").unwrap();
    for text in [
        "figures mean nothing",
        "without optimisation",
        "Other processes used 1.2 of 4 CPUs",
        "interrupted during <code>hops",
    ] {
        assert!(page.find(text).is_some_and(|at| at < results), "{text}");
    }
}

#[test]
fn records_of_one_experiment_stand_below_each_other() {
    let mut other = generated::record(5);
    other.machine.cpu = Some("Another Processor".to_owned());
    other.experiments.truncate(1);
    let page = write(vec![("a.json", generated::record(4)), ("b.json", other)]);
    check(&page);
    assert_eq!(page.matches("Workers that share one stage</h2>").count(), 1);
    for text in
        ["Results of record 1: a.json", "Results of record 2: b.json", "Another Processor, 4 CPUs"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("2 records"));
}

/// Series, values and curves are removed, emptied, set to 0, or made large, at random.
#[test]
fn any_gaps_and_sizes_of_values_are_drawn() {
    let mut random = Rng::with_seed(6);
    for seed in 0..40 {
        let mut record = generated::record(seed);
        for results in &mut record.experiments {
            let kept = random.u8(1..=10);
            results.series.retain(|_| random.u8(..10) < kept);
            let factor = [0.0, 1e-90, 1e-6, 1.0, -1.0, 1e12, 1e90][random.usize(..7)];
            for values in results.series.iter_mut().flat_map(|of| of.metrics.values_mut()) {
                let factor = if random.bool() { factor } else { 1.0 };
                values.values.iter_mut().for_each(|value| *value *= factor);
                values.values.truncate(random.usize(..10));
                values.better = Better::More;
            }
            for curves in results.series.iter_mut().flat_map(|of| of.curves.values_mut()) {
                let (rounds, points) = (random.usize(..6), random.usize(..11));
                curves.rounds.truncate(rounds);
                curves.rounds.iter_mut().for_each(|round| round.truncate(points));
            }
        }
        let page = write(vec![("a.json", record)]);
        check(&page);
        check_drawings(&page);
    }
}

/// Bytes, numbers and whole fields of a record's text are changed at random. Each text is refused,
/// or becomes a page.
#[test]
fn a_damaged_record_is_refused_or_drawn() {
    let mut random = Rng::with_seed(9);
    let mut record = generated::record(9);
    // The record is small, so that each of its parts is damaged in some of the texts.
    record.experiments.iter_mut().for_each(|results| results.series.truncate(6));
    let text = serde_json::to_string(&record).unwrap();
    let (mut refused, mut drawn) = (0, 0);
    for _ in 0..600 {
        let mut damaged = text.clone().into_bytes();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..damaged.len());
            match random.u8(..4) {
                0 => damaged[at] = random.u8(b' '..=b'~'),
                1 => drop(damaged.drain(at..(at + random.usize(..40)).min(damaged.len()))),
                2 => damaged.splice(at..at, b"-9e99".iter().copied()).for_each(drop),
                _ => {
                    let digits: Vec<usize> =
                        (0..damaged.len()).filter(|at| damaged[*at].is_ascii_digit()).collect();
                    damaged[digits[random.usize(..digits.len())]] = random.u8(b'0'..=b'9');
                }
            }
        }
        match parse(&String::from_utf8_lossy(&damaged)) {
            Ok(record) => {
                let page = write(vec![("a.json", record)]);
                check(&page);
                check_drawings(&page);
                drawn += 1;
            }
            Err(error) => {
                assert!(!format!("{error:#}").contains('\n'), "{error:#}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50 && drawn > 50, "{refused} {drawn}");
}

/// Returns the relative luminance by the accessibility guidelines (WCAG 2).
fn luminance(colour: &str) -> f64 {
    let digits = colour.trim().trim_start_matches('#');
    let digits: String = match digits.len() {
        3 => digits.chars().flat_map(|digit| [digit, digit]).collect(),
        _ => digits.to_owned(),
    };
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn texts_and_markers_have_contrast_in_all_modes() {
    let style = include_str!("style.css");
    let modes: Vec<&str> =
        style.split(":root {").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    assert_eq!(modes.len(), 3, "light, dark and print");
    for (mode, inside) in modes.into_iter().zip(["#fff", "#101316", "#fff"]) {
        let colour = |name: &str| {
            let found = mode.split(&format!("--{name}:")).nth(1);
            found
                .unwrap_or_else(|| panic!("{name}: {mode}"))
                .split(';')
                .next()
                .unwrap()
                .trim()
                .to_owned()
        };
        for surface in ["page", "surface"].map(colour) {
            let texts = ["ink", "soft", "link"].map(colour).into_iter();
            for text in texts.chain((0..8).map(|at| colour(&format!("c{at}")))) {
                assert!(contrast(&text, &surface) >= 4.5, "{text} on {surface}");
            }
        }
        for text in ["ink", "link"].map(colour) {
            assert!(
                contrast(&text, &colour("code")) >= 4.5 && contrast(&text, &colour("warn")) >= 4.5,
                "{text}"
            );
        }
        for step in 0..9 {
            let field = colour(&format!("h{step}"));
            let text = if step < 5 { colour("ink") } else { inside.to_owned() };
            assert!(contrast(&text, &field) >= 4.5, "{text} on {field}");
        }
    }
}

/// Writes a page that you can open in a browser: `SLIPRING_PAGE=page.html cargo test -- --ignored
/// writes_a_page`.
#[test]
#[ignore = "writes a page for a look at it in a browser"]
fn writes_a_page() {
    let path = std::env::var("SLIPRING_PAGE").expect("SLIPRING_PAGE names the file");
    let mut smoke = generated::record(8);
    smoke.size = "smoke".to_owned();
    let page = match std::env::var("SLIPRING_RECORDS").as_deref() {
        Ok("2") => write(vec![("a.json", generated::record(7)), ("b.json", smoke)]),
        _ => write(vec![("a.json", generated::record(7))]),
    };
    std::fs::write(path, page).unwrap();
}
