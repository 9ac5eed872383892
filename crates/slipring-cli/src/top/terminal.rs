//! The live screen: keys, signals, and the state of the terminal.
//!
//! Invariants
//! - I1: the terminal is as it was before, whatever ends the program, but for SIGKILL: a key, an
//!   error, a panic, or a signal. A panic restores it before its message is printed.
//! - I2: a signal that would end or stop the program restores the terminal first, and then does
//!   what it does by default, so that a shell sees why the program ended.

use std::io::{self, Stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::{flag, low_level};

use super::screen::{self, Shown};
use super::view::Look;
use super::{Watch, next};

/// Longest time between two looks whether a signal has come.
const SIGNALS: Duration = Duration::from_millis(100);

/// Signals that end the program.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// A terminal that shows the screen, until the value is dropped (I1).
struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    fn begin() -> Result<Screen> {
        let unable = "cannot use the terminal for a screen (`--plain` prints lines)";
        enter().context(unable)?;
        // Dropped, and so left, if the terminal has no size.
        struct Entered;
        impl Drop for Entered {
            fn drop(&mut self) {
                leave();
            }
        }
        let entered = Entered;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).context(unable)?;
        std::mem::forget(entered);
        Ok(Screen(terminal))
    }

    fn draw(&mut self, shown: &mut Shown) -> Result<()> {
        let drawn = self.0.draw(|frame| screen::draw(frame, shown));
        drawn.map(drop).context("cannot draw on the terminal")
    }

    /// Takes the terminal again after another program had it.
    fn resume(&mut self) -> Result<()> {
        enter().and_then(|()| self.0.clear()).context("cannot use the terminal again")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Restores the terminal. Errors are ignored: a terminal that has gone needs no restoring. Repeated
/// calls do no harm.
fn leave() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
    let _ = disable_raw_mode();
}

/// What the signals so far ask for.
struct Signals {
    ending: [(i32, Arc<AtomicBool>); 4],
    stop: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        let ending = ENDING.map(|signal| (signal, Arc::new(AtomicBool::new(false))));
        let signals = Signals { ending, stop: Arc::default(), resumed: Arc::default() };
        for (signal, came) in &signals.ending {
            flag::register(*signal, Arc::clone(came))?;
        }
        flag::register(SIGTSTP, Arc::clone(&signals.stop))?;
        flag::register(SIGCONT, Arc::clone(&signals.resumed))?;
        Ok(signals)
    }

    fn ending(&self) -> Option<i32> {
        let came = self.ending.iter().find(|(_, came)| came.load(Relaxed));
        came.map(|(signal, _)| *signal)
    }
}

/// What a key asks for.
enum Asked {
    Quit,
    Stop,
    Look,
    Redraw,
}

fn pressed(key: KeyEvent, shown: &mut Shown) -> Option<Asked> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c' | 'd'), true) | (KeyCode::Char('q') | KeyCode::Esc, false) => {
            Some(Asked::Quit)
        }
        (KeyCode::Char('z'), true) => Some(Asked::Stop),
        (KeyCode::Char('l'), true) => Some(Asked::Redraw),
        (KeyCode::Char(' '), false) => Some(Asked::Look),
        (code, false) => {
            shown.scroll(match code {
                KeyCode::Up | KeyCode::Char('k') => -1,
                KeyCode::Down | KeyCode::Char('j') => 1,
                KeyCode::PageUp => -10,
                KeyCode::PageDown => 10,
                KeyCode::Home => isize::MIN,
                KeyCode::End => isize::MAX,
                _ => 0,
            });
            None
        }
        _ => None,
    }
}

/// Shows looks until a key, a signal, or the number of looks ends that. Returns the last look.
pub(super) fn run(watch: &mut Watch<'_>, first: Look) -> Result<Look> {
    let signals = Signals::watch().context("cannot watch for signals")?;
    // The message of a panic belongs on the terminal as it was before.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        leave();
        report(info);
    }));
    let mut screen = Screen::begin()?;
    let mut shown = Shown::new(first, watch.args.interval);
    let ended = show(watch, &signals, &mut screen, &mut shown);
    drop(screen);
    if let Some(signal) = ended? {
        low_level::emulate_default_handler(signal).context("cannot end by the signal")?;
    }
    Ok(shown.look)
}

/// Returns the signal that ends the program; `None`: a key, or the number of looks does.
fn show(
    watch: &mut Watch<'_>,
    signals: &Signals,
    screen: &mut Screen,
    shown: &mut Shown,
) -> Result<Option<i32>> {
    let mut due = next(Instant::now(), watch.args.interval);
    loop {
        screen.draw(shown)?;
        if watch.left == 0 {
            return Ok(None);
        }
        // Until the next look, or something to draw.
        loop {
            if let Some(signal) = signals.ending() {
                return Ok(Some(signal));
            }
            let asked = if signals.stop.swap(false, Relaxed) { Some(Asked::Stop) } else { None };
            let left = due.saturating_duration_since(Instant::now());
            let asked = match asked {
                None if event::poll(left.min(SIGNALS)).context("cannot read keys")? => {
                    match event::read().context("cannot read keys")? {
                        Event::Key(key) => match pressed(key, shown) {
                            None => break, // scrolled, perhaps
                            asked => asked,
                        },
                        Event::Resize(..) => break,
                        _ => None,
                    }
                }
                asked => asked,
            };
            let look = match asked {
                Some(Asked::Quit) => return Ok(None),
                Some(Asked::Stop) => {
                    leave();
                    low_level::emulate_default_handler(SIGTSTP).context("cannot stop")?;
                    signals.resumed.store(true, Relaxed);
                    false
                }
                Some(Asked::Redraw) => {
                    screen.resume()?;
                    break;
                }
                Some(Asked::Look) => true,
                None => false,
            };
            if signals.resumed.swap(false, Relaxed) {
                screen.resume()?;
                break;
            }
            if look || Instant::now() >= due {
                due = next(if look { Instant::now() } else { due }, watch.args.interval);
                shown.look(watch.look()?);
                break;
            }
        }
    }
}
