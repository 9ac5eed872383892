//! Looks as text: a block of plain lines, or one JSON object.
//!
//! Invariants
//! - I1: each line names its time, its segment and its place, so that `grep` loses nothing. A value
//!   with spaces or quotes is quoted, so no value breaks a line or looks like a key.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Serialize;

use super::view::{Look, PartyView, PlaceView, View};

/// Returns a time to the millisecond, in UTC.
pub fn time(time: Timestamp) -> String {
    time.strftime("%FT%T%.3fZ").to_string()
}

/// Returns a rate, with one decimal if it is small, or `-` if there is none.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate < 1000.0 => format!("{rate:.1}/s"),
        Some(rate) => format!("{rate:.0}/s"),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.0}%", share * 100.0))
}

/// Quotes a value that is not a single plain word.
fn value(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=' | '\'');
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("{text:?}"),
    }
}

/// Formats a look as a block of lines that ends with an empty line.
pub fn block(look: &Look) -> String {
    let start = format!("{} {}", time(look.time), value(&look.segment));
    let mut text = String::new();
    match &look.result {
        // The error takes one line, even if the system's message has more.
        Err(error) => _ = writeln!(text, "{start} error={:?}", error.replace('\n', " ")),
        Ok(view) => {
            let _ = writeln!(text, "{start} {}", ring(view));
            for party in &view.parties {
                let _ = writeln!(text, "{start} {}", party_line(party));
                if party.sole().is_none() {
                    for place in &party.places {
                        let _ = writeln!(text, "{start} {}", place_line(party, place));
                    }
                }
            }
            for note in &view.notes {
                let _ = writeln!(text, "{start} note: {}", note.text);
            }
        }
    }
    text + "\n"
}

fn ring(view: &View) -> String {
    let View { state, capacity, free, published, last, stale, .. } = view;
    let mut text = format!(
        "ring state={state} capacity={capacity} free={free} published={published} events={}",
        value(&view.events)
    );
    if let Some(last) = last {
        let _ = write!(text, " last={last}");
    }
    if *stale {
        text += " stale";
    }
    text
}

fn party_line(party: &PartyView) -> String {
    let PartyView { position, lag, asleep, .. } = party;
    let mut text = format!(
        "place={} position={position} lag={lag} ring={} rate={} wait={} asleep={asleep}",
        value(&party.name),
        percent(Some(party.lag_share)),
        rate(party.rate),
        percent(party.wait_share),
    );
    if let Some(rates) = party.rates {
        let [batches, waits, sleeps] =
            [rates.batches, rates.waits, rates.sleeps].map(|it| rate(Some(it)));
        let _ = write!(text, " batches={batches} waits={waits} sleeps={sleeps}");
    }
    match party.sole() {
        Some(place) => text += &occupant(place),
        None => _ = write!(text, " taken={}/{}", party.taken, party.room),
    }
    if let Some(awaited) = party.waits_for.first() {
        let _ = write!(text, " waits_for={}", value(awaited));
    }
    text
}

fn place_line(party: &PartyView, place: &PlaceView) -> String {
    let mut text = format!("place={} seat={}", value(&party.name), place.number);
    if let (Some(position), Some(lag)) = (place.position, place.lag) {
        let _ = write!(text, " position={position} lag={lag} rate={}", rate(place.rate));
    }
    if let Some(events) = &place.events {
        let _ = write!(text, " events={}..{}", events.start, events.end);
    }
    if place.unread != 0 {
        let _ = write!(text, " unread={}", place.unread);
    }
    text + &occupant(place)
}

fn occupant(place: &PlaceView) -> String {
    let mut text = format!(" state={} deaths={}", place.state, place.deaths);
    if let (Some(process), Some(pid)) = (&place.process, place.pid) {
        let _ = write!(text, " pid={pid} process={}", value(process));
    }
    text
}

/// A look as a JSON object.
#[derive(Serialize)]
struct Object<'l> {
    segment: &'l str,
    time: String,
    look: u64,
    #[serde(flatten)]
    view: Option<&'l View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'l str>,
}

/// Describes a look in one line of JSON.
pub fn json(look: &Look) -> Result<String> {
    let object = Object {
        segment: &look.segment,
        time: time(look.time),
        look: look.number,
        view: look.result.as_ref().ok(),
        error: look.result.as_ref().err().map(String::as_str),
    };
    let text = serde_json::to_string(&object).context("cannot write JSON")?;
    Ok(text + "\n")
}
