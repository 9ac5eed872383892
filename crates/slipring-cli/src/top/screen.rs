//! The screen that shows a look, drawn into a buffer of any size.
//!
//! From top to bottom, the screen shows the segment, the fill of the ring, the sentences (the worst
//! first), a row for each place, and the keys. A screen that is too low gives up the keys first,
//! then all sentences but the worst, then the line of the ring. A screen that is too narrow gives
//! up columns.
//!
//! Invariants
//! - I1: drawing succeeds at any size, even if the screen has no cell.
//! - I2: a narrow table loses whole columns, so that no figure is cut. The first column stays.

use std::time::Duration;

use indicatif::HumanCount;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};
use slipring_support::numbers::significant;

use super::lines;

use super::view::{Look, Note, PartyView, PlaceView, Severity, View};

/// Distance between two columns.
const GAP: u16 = 2;

/// The content of the screen, and its scrolling.
pub struct Shown {
    pub look: Look,
    /// The last view, which is shown again when a look fails.
    seen: Option<View>,
    interval: Duration,
    /// Number of rows that are scrolled off the table's top.
    scrolled: usize,
    colors: bool,
}

impl Shown {
    pub fn new(look: Look, interval: Duration) -> Shown {
        let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let seen = look.result.as_ref().ok().cloned();
        Shown { look, seen, interval, scrolled: 0, colors }
    }

    /// Replaces what is shown.
    pub fn look(&mut self, look: Look) {
        if let Ok(view) = &look.result {
            self.seen = Some(view.clone());
        }
        self.look = look;
    }

    /// Turns colors on or off.
    #[cfg(test)]
    pub fn colored(self, colors: bool) -> Shown {
        Shown { colors, ..self }
    }

    /// Moves the table by a number of rows.
    pub fn scroll(&mut self, rows: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(rows);
    }

    fn style(&self, color: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.colors { style.fg(color) } else { style }
    }

    fn of_state(&self, state: &str) -> Style {
        match state {
            "dead" => self.style(Color::Red, Modifier::BOLD),
            "stopped" | "orphan" | "held" => self.style(Color::Yellow, Modifier::BOLD),
            "free" => Style::new().add_modifier(Modifier::DIM),
            _ => Style::new(),
        }
    }

    fn of_severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Error => self.style(Color::Red, Modifier::BOLD),
            Severity::Warning => self.style(Color::Yellow, Modifier::BOLD),
            Severity::Info => Style::new(),
        }
    }
}

/// Draws what is shown.
pub fn draw(frame: &mut Frame<'_>, shown: &mut Shown) {
    let area = frame.area();
    let error = shown
        .look
        .result
        .as_ref()
        .err()
        .map(|error| Note { severity: Severity::Error, text: format!("{error}; looking on") });
    let view = shown.seen.clone();
    let notes: Vec<Note> = match (&error, &view) {
        (Some(error), _) => vec![error.clone()],
        (None, Some(view)) => view.notes.clone(),
        (None, None) => Vec::new(),
    };
    let notes = sentences(&notes, shown, area.width);
    let table = view.as_ref().map(|view| Columns::of(view, shown));
    let rows = table.as_ref().map_or(0, |table| table.rows.len() + 1);
    let heights = heights(area.height, notes.height(), rows);
    let parts = Layout::vertical(heights.map(Constraint::Length)).split(area);
    let &[title, ring, sentences, places, keys] = &parts[..] else { return };

    frame.render_widget(self::title(shown), title);
    if let Some(view) = &view {
        frame.render_widget(self::ring(view, ring.width), ring);
    }
    frame.render_widget(Paragraph::new(notes), sentences);
    if let Some(mut table) = table {
        table.fit(places.width);
        let visible = usize::from(places.height.saturating_sub(1));
        shown.scrolled = shown.scrolled.min(table.rows.len().saturating_sub(visible));
        let old = if error.is_some() { Modifier::DIM } else { Modifier::empty() };
        let drawn = table.widget(shown.scrolled).style(Style::new().add_modifier(old));
        frame.render_widget(drawn, places);
    }
    frame.render_widget(self::keys(shown, keys), keys);
}

/// Divides `height` among the title, the line of the ring, the sentences, the table, and the keys.
fn heights(height: u16, notes: usize, rows: usize) -> [u16; 5] {
    let mut left = height;
    let mut take = |wanted: usize| {
        let taken = u16::try_from(wanted).unwrap_or(u16::MAX).min(left);
        left -= taken;
        taken
    };
    // The parts get lines in the order of importance: the worst sentence, the title, a few rows.
    let mut sentences = take(notes.min(1));
    let title = take(1);
    let mut table = take(rows.min(3));
    let ring = take(1);
    sentences += take(notes.saturating_sub(1).min(2));
    table += take(rows.saturating_sub(table.into()));
    let keys = take(1);
    sentences += take(notes.saturating_sub(sentences.into()));
    [title, ring, sentences, table, keys]
}

fn title(shown: &Shown) -> Line<'static> {
    let Look { segment, time, .. } = &shown.look;
    let mut spans = vec![Span::styled(segment.clone(), Style::new().add_modifier(Modifier::BOLD))];
    if let Some(view) = &shown.seen {
        let severity = match view.state {
            "running" => Severity::Info,
            "closing" | "closed" => Severity::Warning,
            _ => Severity::Error,
        };
        spans.push(Span::styled(format!("  {}", view.state), shown.of_severity(severity)));
    }
    spans.push(Span::raw(format!("  {}", lines::time(*time))));
    if let Some(view) = &shown.seen {
        spans.push(Span::raw(format!("  {}", view.events)));
    }
    Line::from(spans)
}

/// Returns the line that says how full the ring is.
fn ring(view: &View, width: u16) -> Line<'static> {
    let View { capacity, free, published, .. } = view;
    let used = capacity.saturating_sub(*free);
    let share = used as f64 / (*capacity).max(1) as f64;
    let text = format!(
        " {:.0} % full: {} of {} slots, published {published}",
        share * 100.0,
        HumanCount(used),
        HumanCount(*capacity)
    );
    let room = usize::from(width).saturating_sub(text.len() + 2).min(24);
    if room < 4 {
        return Line::from(text.trim_start().to_owned());
    }
    // A ring that holds an event is never drawn empty, and a ring with a free slot never full.
    let filled = (share * room as f64).round() as usize;
    let filled = filled.clamp(usize::from(used > 0), room - usize::from(*free > 0));
    Line::from(format!("[{}{}]{text}", "#".repeat(filled), ".".repeat(room - filled)))
}

/// Breaks sentences into lines of the screen's width.
fn sentences(notes: &[Note], shown: &Shown, width: u16) -> Text<'static> {
    let mut text = Text::default();
    for Note { severity, text: sentence } in notes {
        let style = shown.of_severity(*severity);
        let mark = match severity {
            Severity::Error => "! ",
            Severity::Warning => "* ",
            Severity::Info => "",
        };
        let mut line = mark.to_owned();
        let room = usize::from(width).max(1);
        for word in sentence.split_inclusive(' ') {
            let fits = Span::raw(format!("{line}{}", word.trim_end())).width() <= room;
            if !fits && !line.trim_end().is_empty() {
                text.push_line(Line::styled(line.trim_end().to_owned(), style));
                line = "  ".to_owned();
            }
            line += word;
        }
        text.push_line(Line::styled(line.trim_end().to_owned(), style));
    }
    text
}

fn keys(shown: &Shown, area: Rect) -> Paragraph<'static> {
    let text = format!(
        "q quits, space looks now, arrows scroll; every {:?}, {}",
        shown.interval,
        match shown.seen.as_ref().and_then(|view| view.seconds) {
            Some(seconds) => format!("rates over {seconds:.2} s"),
            None => "no rates yet".to_owned(),
        }
    );
    let text = if Span::raw(&text).width() <= area.width.into() { text } else { "q quits".into() };
    Paragraph::new(Line::styled(text, Style::new().add_modifier(Modifier::DIM)))
        .wrap(Wrap { trim: true })
}

/// A column: its header, its alignment, and its rank; the smallest rank matters most.
struct Column {
    header: &'static str,
    right: bool,
    rank: u8,
}

const fn column(header: &'static str, right: bool, rank: u8) -> Column {
    Column { header, right, rank }
}

/// The columns from left to right.
const COLUMNS: [Column; 10] = [
    column("place", false, 0),
    column("position", true, 5),
    column("lag", true, 1),
    column("ring", true, 7),
    column("events/s", true, 3),
    column("waiting", true, 6),
    column("asleep", true, 9),
    column("state", false, 2),
    column("process", false, 8),
    column("waits for", false, 4),
];

/// The cells of a row, and the style of its state.
struct Cells {
    texts: [String; COLUMNS.len()],
    style: Style,
}

/// The table of places.
struct Columns {
    rows: Vec<Cells>,
    /// Indices of the columns that are shown.
    shown: Vec<usize>,
}

impl Columns {
    fn of(view: &View, shown: &Shown) -> Columns {
        let mut rows = Vec::new();
        for party in &view.parties {
            rows.push(party_row(party, shown));
            if party.sole().is_none() {
                rows.extend(party.places.iter().map(|place| place_row(place, shown)));
            }
        }
        Columns { rows, shown: (0..COLUMNS.len()).collect() }
    }

    fn width(&self, column: usize) -> u16 {
        let texts = self.rows.iter().map(|row| Span::raw(&row.texts[column]).width());
        let widest = texts.chain([COLUMNS[column].header.len()]).max().unwrap_or(0);
        u16::try_from(widest).unwrap_or(u16::MAX)
    }

    /// Leaves out the columns that matter least, until the others fit (I2).
    fn fit(&mut self, width: u16) {
        let widths: Vec<u16> = (0..COLUMNS.len()).map(|column| self.width(column)).collect();
        let total = |shown: &[usize]| {
            let sum: u32 = shown.iter().map(|&column| u32::from(widths[column] + GAP)).sum();
            sum.saturating_sub(GAP.into())
        };
        while total(&self.shown) > width.into() && self.shown.len() > 1 {
            let least = self.shown.iter().copied().max_by_key(|&column| COLUMNS[column].rank);
            self.shown.retain(|&column| Some(column) != least);
        }
    }

    fn widget(&self, scrolled: usize) -> Table<'static> {
        let cell = |column: usize, text: &str| {
            let right = COLUMNS[column].right;
            let alignment = if right { Alignment::Right } else { Alignment::Left };
            Cell::from(Line::from(text.to_owned()).alignment(alignment))
        };
        let header = self.shown.iter().map(|&column| cell(column, COLUMNS[column].header));
        let header = Row::new(header).style(Style::new().add_modifier(Modifier::UNDERLINED));
        let rows = self.rows.iter().skip(scrolled).map(|row| {
            let cells = self.shown.iter().map(|&column| cell(column, &row.texts[column]));
            Row::new(cells).style(row.style)
        });
        let widths = self.shown.iter().map(|&column| Constraint::Length(self.width(column)));
        Table::new(rows, widths).header(header).column_spacing(GAP)
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), significant)
}

fn process(place: &PlaceView) -> String {
    match (&place.process, place.pid) {
        (Some(process), Some(pid)) => format!("{process} ({pid})"),
        _ => String::new(),
    }
}

fn party_row(party: &PartyView, shown: &Shown) -> Cells {
    let sole = party.sole();
    let state = match sole {
        Some(place) => place.state.to_owned(),
        None => format!("{} of {}", party.taken, party.room),
    };
    let producer = party.kind == "producer";
    let texts = [
        party.name.clone(),
        party.position.to_string(),
        if producer { String::new() } else { HumanCount(party.lag).to_string() },
        if producer { String::new() } else { percent(Some(party.lag_share)) },
        rate(party.rate),
        party.wait_share.map_or_else(|| "-".into(), |share| percent(Some(share))),
        party.asleep.to_string(),
        state,
        sole.map_or_else(String::new, process),
        party.waits_for.join(" > "),
    ];
    let style = sole.map_or(Style::new(), |place| shown.of_state(place.state));
    Cells { texts, style }
}

fn place_row(place: &PlaceView, shown: &Shown) -> Cells {
    let events = place
        .events
        .as_ref()
        .map(|events| format!("has {}", HumanCount(events.end.wrapping_sub(events.start))));
    let unread = (place.unread != 0).then(|| format!("{} unread", HumanCount(place.unread)));
    let state = [Some(place.state.to_owned()), events, unread];
    let texts = [
        format!("  {}", place.number),
        place.position.map_or_else(String::new, |position| position.to_string()),
        place.lag.map_or_else(String::new, |lag| HumanCount(lag).to_string()),
        String::new(),
        if place.position.is_some() { rate(place.rate) } else { String::new() },
        String::new(),
        String::new(),
        state.into_iter().flatten().collect::<Vec<_>>().join(", "),
        process(place),
        String::new(),
    ];
    Cells { texts, style: shown.of_state(place.state) }
}
