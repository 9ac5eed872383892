//! Tests of the screen, which is drawn into buffers of many sizes, and of the figures, which are
//! computed for moments that the tests choose.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use slipring_shm::{Attached, Segment, summaries::Summary};

use super::history::{History, Moment};
use super::screen::{Shown, draw};
use super::view::Look;

/// A segment of the calling process, whose file is removed when the value is dropped.
struct Ring {
    name: String,
    me: Attached<u64>,
}

impl Ring {
    /// Makes a ring of eight slots: `parse`, a pool `upper` of three, a tap `viewers`, and `store`.
    fn new(test: &str, first: u64) -> Ring {
        let name = format!("test-screen-{test}-{}", std::process::id());
        let segment = Segment::<u64>::create(&name).capacity(8).first_seq(first).reader("parse");
        let segment = segment.pool_reader("upper", 3).after(["parse"]).tap("viewers", 2);
        let segment = segment.reader("store").after(["upper"]).build().unwrap();
        // SAFETY: only this test opens the segment.
        Ring { name, me: unsafe { segment.attach_as("maker").unwrap() } }
    }

    fn summary(&self) -> Result<Summary, String> {
        slipring_shm::inspect(&self.name).map_err(|error| error.to_string())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("/dev/shm/{}.slipring", self.name));
    }
}

/// Makes looks at moments that a test chooses.
struct Clock {
    began: Instant,
    history: History,
}

impl Clock {
    fn new() -> Clock {
        Clock { began: Instant::now(), history: History::default() }
    }

    fn look(&mut self, seconds: f64, summary: Result<Summary, String>) -> Look {
        let at = self.began + Duration::from_secs_f64(seconds);
        let time = Timestamp::from_second(1_800_000_000).unwrap();
        self.history.look("field", Moment { at, time }, summary)
    }
}

fn drawn(shown: &mut Shown, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, shown)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y: u16| (0..area.width).map(move |x| buffer[(x, y)].symbol()).collect::<String>();
    (0..area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn shown(look: Look) -> Shown {
    Shown::new(look, Duration::from_secs(1)).colored(true)
}

/// Makes a ring in which a reader of the tap is slow, and a worker of the pool has taken a chunk.
fn busy(test: &str) -> (Ring, Look) {
    let ring = Ring::new(test, 0);
    let mut tx = ring.me.producer().unwrap();
    let viewer = ring.me.subscribe("viewers", slipring::handles::StartAt::Now).unwrap();
    (0..8).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let mut parse = ring.me.reader("parse").unwrap();
    parse.poll(6, |_, _| ()).unwrap();
    let mut worker = ring.me.pool_reader("upper").unwrap();
    assert_eq!(worker.batch(1).unwrap().len(), 1);
    let mut clock = Clock::new();
    clock.look(0.0, ring.summary());
    parse.poll(1, |_, _| ()).unwrap();
    let look = clock.look(2.0, ring.summary());
    std::mem::forget((tx, viewer, parse, worker));
    (ring, look)
}

#[test]
fn a_wide_screen_shows_every_column_and_place() {
    let (_ring, look) = busy("wide");
    let screen = lines(&drawn(&mut shown(look), 120, 20));
    assert!(screen[0].starts_with("field  running  2027-01-15T08:00:00.000Z"), "{screen:#?}");
    assert_eq!(screen[1], "[########################] 100 % full: 8 of 8 slots, published 8");
    let table = screen.iter().position(|line| line.starts_with("place ")).unwrap();
    let header: Vec<&str> = screen[table].split_whitespace().collect();
    let all = "place position lag ring events/s waiting asleep state process waits for";
    assert_eq!(header.join(" "), all);
    let rows: Vec<Vec<&str>> = screen[table + 1..]
        .iter()
        .take_while(|line| !line.starts_with("q quits"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let pid = format!("({})", std::process::id());
    assert_eq!(rows[0][..3], ["producer", "8", "0"]);
    // The stage handled one event in two seconds.
    assert_eq!(rows[1][..5], ["parse", "7", "1", "12", "%"]);
    assert_eq!(rows[1][5], "0.5", "{rows:?}");
    assert_eq!(rows[2][..3], ["upper", "0", "8"]);
    assert!(rows[2].join(" ").ends_with("1 of 3"), "{rows:?}");
    assert_eq!(rows[3], ["1", "alive,", "has", "1", "maker", &pid]);
    assert_eq!(rows[4][..3], ["viewers", "0", "8"]);
    assert_eq!(rows[5][..3], ["1", "0", "8"]);
    assert_eq!(rows[6][..3], ["store", "0", "8"]);
    assert!(rows[6].join(" ").ends_with("free upper"), "{rows:?}");
    assert!(screen.last().unwrap().starts_with("q quits") || screen.contains(&String::new()));
    let notes = screen[2..table].join(" ");
    assert!(notes.contains("! no process has the place `store`, 8 behind"), "{notes}");
    assert!(notes.contains("* ring full: producer waits for `"), "{notes}");
}

/// Every size is drawn, and shows the most important parts that have room.
#[test]
fn every_size_is_drawn() {
    let (_ring, look) = busy("sizes");
    let mut shown = shown(look);
    for width in [0, 1, 2, 3, 5, 8, 13, 20, 40, 79, 80, 200] {
        for height in [0, 1, 2, 3, 4, 5, 6, 8, 12, 24, 60] {
            let buffer = drawn(&mut shown, width, height);
            let screen = lines(&buffer);
            assert_eq!(screen.len(), usize::from(height));
            if width < 20 || height == 0 {
                continue;
            }
            let said = |text: &str| screen.iter().any(|line| line.contains(text));
            assert!(said("! no process"), "{width}x{height}: {screen:#?}");
            assert_eq!(said("field"), height >= 2, "{width}x{height}: {screen:#?}");
            let row = screen.iter().any(|line| line.starts_with("producer"));
            assert_eq!(row, height >= 4, "{width}x{height}: {screen:#?}");
            assert!(height < 24 || said("q quits"), "{width}x{height}: {screen:#?}");
            // Columns are shown whole: a header has all of its letters, or is missing.
            let header = screen.iter().find(|line| line.starts_with("place"));
            for word in header.map_or("", String::as_str).split_whitespace() {
                let known =
                    "place position lag ring events/s waiting asleep state process waits for";
                assert!(known.split(' ').any(|known| known == word), "{word}: {screen:#?}");
            }
        }
    }
}

#[test]
fn a_low_screen_scrolls() {
    let (_ring, look) = busy("scroll");
    let mut shown = shown(look);
    let first = |shown: &mut Shown| {
        let screen = lines(&drawn(shown, 100, 8));
        let header = screen.iter().position(|line| line.starts_with("place")).unwrap();
        screen[header + 1].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(first(&mut shown), "producer");
    shown.scroll(1);
    assert_eq!(first(&mut shown), "parse");
    // The last row stays on the screen, however far a key scrolls.
    shown.scroll(isize::MAX);
    let last = first(&mut shown);
    assert!(last != "producer" && last != "parse", "{last}");
    shown.scroll(isize::MIN);
    assert_eq!(first(&mut shown), "producer");
}

#[test]
fn colors_mark_what_is_wrong_unless_they_are_off() {
    let (_ring, look) = busy("colors");
    let mut shown = shown(look);
    let style = |shown: &mut Shown| {
        let buffer = drawn(shown, 120, 20);
        let y = lines(&buffer).iter().position(|line| line.starts_with("! ")).unwrap();
        (buffer[(0, u16::try_from(y).unwrap())].style(), buffer)
    };
    let (error, _) = style(&mut shown);
    assert_eq!(error.fg, Some(Color::Red));
    let mut plain = shown.colored(false);
    let (error, buffer) = style(&mut plain);
    assert!(error.add_modifier.contains(Modifier::BOLD));
    let colors = |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
    assert!(buffer.content().iter().all(colors));
}

#[test]
fn a_look_that_fails_keeps_the_last_figures_and_says_so() {
    let (ring, look) = busy("fails");
    let mut shown = shown(look);
    let mut clock = Clock::new();
    clock.look(0.0, ring.summary());
    shown.look(clock.look(1.0, Err("segment x: there is none".into())));
    let buffer = drawn(&mut shown, 100, 14);
    let screen = lines(&buffer);
    assert!(screen.contains(&"! segment x: there is none; looking on".to_owned()), "{screen:#?}");
    let row = screen.iter().position(|line| line.starts_with("parse")).unwrap();
    let cell = &buffer[(0, u16::try_from(row).unwrap())];
    assert!(cell.modifier.contains(Modifier::DIM));
    // Without any view, the screen shows only the message.
    let nothing = Clock::new().look(0.0, Err("gone".into()));
    let screen = lines(&drawn(&mut Shown::new(nothing, Duration::from_secs(1)), 30, 5));
    assert!(screen.contains(&"! gone; looking on".to_owned()), "{screen:#?}");
}

#[test]
fn wide_characters_and_long_words_are_cut_at_the_edge() {
    let name = format!("test-screen-names-{}", std::process::id());
    let stage = "漢字".repeat(4);
    let segment = Segment::<u64>::create(&name).capacity(2).reader(&stage).build().unwrap();
    // SAFETY: only this test opens the segment.
    let ring = Ring { name, me: unsafe { segment.attach_as(&"ü".repeat(20)).unwrap() } };
    let _tx = ring.me.producer().unwrap();
    let look = Clock::new().look(0.0, ring.summary());
    let mut shown = shown(look);
    for width in 0..60 {
        for height in [1, 4, 9] {
            drawn(&mut shown, width, height);
        }
    }
    let screen = lines(&drawn(&mut shown, 100, 9)).join("\n");
    assert!(screen.replace(' ', "").contains(&stage), "{screen}");
}

/// Rates are computed from positions, even across a wrap. Waits are computed from counts, and from
/// the time for which a party does not move.
#[test]
fn rates_and_shares_are_those_of_the_time_between_looks() {
    for first in [0, u64::MAX - 3] {
        let ring = Ring::new("rates", first);
        let mut clock = Clock::new();
        let (mut tx, mut parse) = (ring.me.producer().unwrap(), ring.me.reader("parse").unwrap());
        let mut look = |seconds| clock.look(seconds, ring.summary()).result.unwrap();
        let view = look(0.0);
        assert_eq!(
            (view.seconds, view.parties[0].rate, view.parties[1].wait_share),
            (None, None, None)
        );
        (0..6).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
        parse.poll(4, |_, _| ()).unwrap();
        let view = look(0.5);
        assert_eq!((view.seconds, view.parties[0].rate), (Some(0.5), Some(12.0)));
        assert_eq!((view.parties[1].rate, view.parties[1].lag_share), (Some(8.0), 0.25));
        assert_eq!(view.parties[1].wait_share, Some(0.0), "it has events to handle");
        parse.poll(4, |_, _| ()).unwrap();
        assert_eq!(look(2.5).parties[1].rate, Some(1.0));
        // From here on the stage has nothing to do.
        for seconds in [3.5, 4.0] {
            let party = &look(seconds).parties[1];
            assert_eq!((party.rate, party.wait_share), (Some(0.0), Some(1.0)));
            assert_eq!(party.waits_for, ["producer"]);
        }
        assert_eq!(look(4.0).parties[1].rate, None, "no time has passed");
        // An event has ended the stage's wait, but the stage has not added that wait to its counts
        // yet. Previous looks have already shown the time of this wait.
        tx.publish(|slot| *slot = 1).unwrap();
        let party = &look(5.0).parties[1];
        assert_eq!((party.wait_share, party.unmoved_seconds), (Some(0.0), 2.5));
        let unmoved = &look(7.0);
        let told = |text: &str| unmoved.notes.iter().any(|note| note.text.contains(text));
        assert!(
            told("`parse` has not moved for 4 s, 1 behind: maker (pid "),
            "{:#?}",
            unmoved.notes
        );
    }
}
