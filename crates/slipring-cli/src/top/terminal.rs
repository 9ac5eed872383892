//! The live screen: keys, signals, and the state of the terminal.
//!
//! Invariants
//! - I1: the terminal is restored whatever ends the program: a key, an error, a panic, or a signal
//!   other than SIGKILL. A panic restores it before its message is printed.
//! - I2: a signal that would end or stop the program restores the terminal first, and then has its
//!   default effect, so that a shell sees why the program ended.
//! - I3: the program sleeps in one place, [`Screen::wait`]. Each key, each signal and the end of
//!   the terminal wakes it there. If its terminal is gone, the program ends.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Stdout, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use ratatui::backend::TermionBackend;
use ratatui::layout::Rect;
use ratatui::termion::cursor::Show;
use ratatui::termion::screen::{ToAlternateScreen, ToMainScreen};
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::{flag, low_level};

use super::keys::{Key, Keys};
use super::screen::{self, Shown};
use super::view::Look;
use super::watch::{Watch, next};

/// Assumed size of a terminal that does not know its own.
const USUAL: Rect = Rect::new(0, 0, 80, 24);

/// Signals that end the program.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// The terminal's keys, and its state before this program.
struct Keyboard {
    terminal: OwnedFd,
    before: Termios,
}

impl Keyboard {
    /// Opens the keyboard: standard input, or the terminal that controls this process. Returns
    /// `None` if there is no keyboard; then only signals end the program.
    fn open() -> Option<Keyboard> {
        let stdin = io::stdin();
        let terminal = match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned().ok()?,
            false => File::open("/dev/tty").ok()?.into(),
        };
        let before = tcgetattr(&terminal).ok()?;
        Some(Keyboard { terminal, before })
    }
}

/// A terminal that can be restored from anywhere, even by a panic hook.
#[derive(Clone)]
pub(super) struct Restore(Arc<Option<Keyboard>>);

impl Restore {
    fn enter(&self) -> io::Result<()> {
        if let Some(Keyboard { terminal, before }) = &*self.0 {
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(terminal, OptionalActions::Now, &raw)?;
        }
        let mut out = io::stdout().lock();
        write!(out, "{ToAlternateScreen}").and_then(|()| out.flush())
    }

    /// Restores the terminal. Errors are ignored, because a terminal that is gone need not be
    /// restored. Repeated calls do no harm.
    fn leave(&self) {
        let mut out = io::stdout().lock();
        let _ = write!(out, "{ToMainScreen}{Show}").and_then(|()| out.flush());
        if let Some(Keyboard { terminal, before }) = &*self.0 {
            let _ = tcsetattr(terminal, OptionalActions::Now, before);
        }
    }
}

/// A terminal that shows the screen, until the value is dropped (I1).
pub(super) struct Screen {
    /// The value is never dropped, because its drop would print an error to a terminal that is
    /// gone.
    drawn: ManuallyDrop<Terminal<TermionBackend<Stdout>>>,
    /// Size for which the cells were drawn.
    area: Rect,
    restore: Restore,
    keys: Keys,
}

impl Screen {
    /// Takes the terminal. From here on, a panic restores it before it prints its message.
    pub(super) fn begin() -> Result<Screen> {
        let unable = "cannot draw on the terminal (`--plain` prints lines)";
        // `draw` sets the size.
        let viewport = Viewport::Fixed(Rect::ZERO);
        let backend = TermionBackend::new(io::stdout());
        let drawn = Terminal::with_options(backend, TerminalOptions { viewport });
        let drawn = drawn.context(unable)?;
        let restore = Restore(Arc::new(Keyboard::open()));
        let report = panic::take_hook();
        let hook = restore.clone();
        panic::set_hook(Box::new(move |info| {
            hook.leave();
            report(info);
        }));
        let drawn = ManuallyDrop::new(drawn);
        let screen = Screen { drawn, area: Rect::ZERO, restore, keys: Keys::default() };
        screen.restore.enter().context(unable)?;
        Ok(screen)
    }

    fn draw(&mut self, shown: &mut Shown) -> Result<()> {
        let mut draw = || {
            let (columns, rows) = ratatui::termion::terminal_size()?;
            let area = match (columns, rows) {
                (0, _) | (_, 0) => USUAL, // a terminal that does not know its size
                _ => Rect::new(0, 0, columns, rows),
            };
            if area != self.area {
                // All cells are drawn anew. `Terminal::clear` would ask the terminal for its
                // cursor, and wait for the answer.
                self.drawn.resize(area)?;
                self.area = area;
            }
            self.drawn.draw(|frame| screen::draw(frame, shown)).map(drop)
        };
        draw().context("cannot draw on the terminal")
    }

    /// Takes the terminal again after another program had it. All cells are drawn anew.
    fn resume(&mut self) -> Result<()> {
        self.area = Rect::ZERO;
        self.restore.enter().context("cannot draw on the terminal")
    }

    /// Sleeps until keys or signals come, at most until `due`. Returns the keys.
    fn wait(&mut self, signals: &mut Signals, due: Instant) -> Result<Vec<Key>> {
        let left = due.saturating_duration_since(Instant::now());
        // A time that is too long for the system counts as no limit.
        let limit = Timespec::try_from(left).ok();
        let keyboard = self.restore.0.as_ref().as_ref().map(|keyboard| &keyboard.terminal);
        let mut fds = vec![PollFd::new(&signals.woken, PollFlags::IN)];
        fds.extend(keyboard.map(|terminal| PollFd::new(terminal, PollFlags::IN)));
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for keys"),
        }
        let came = fds.get(1).map_or(PollFlags::empty(), PollFd::revents);
        drop(fds);
        signals.drain();
        let Some(terminal) = keyboard.filter(|_| !came.is_empty()) else { return Ok(Vec::new()) };
        let mut bytes = [0; 256];
        // Once the terminal has gone, a read returns nothing or an error.
        match rustix::io::read(terminal, &mut bytes) {
            Ok(0) | Err(Errno::IO) => Ok(vec![Key::Gone]),
            Ok(length) => Ok(self.keys.read(&bytes[..length])),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Vec::new()),
            Err(error) => Err(error).context("cannot read keys"),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore.leave();
    }
}

/// The signals that have come and have not been taken yet.
struct Signals {
    ending: [(i32, Arc<AtomicBool>); 4],
    stop: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
    /// Readable after each signal (I3).
    woken: UnixStream,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        let (woken, wakes) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let ending = ENDING.map(|signal| (signal, Arc::new(AtomicBool::new(false))));
        let signals = Signals { ending, stop: Arc::default(), resumed: Arc::default(), woken };
        for (signal, came) in &signals.ending {
            flag::register(*signal, Arc::clone(came))?;
        }
        flag::register(SIGTSTP, Arc::clone(&signals.stop))?;
        flag::register(SIGCONT, Arc::clone(&signals.resumed))?;
        // The pipes are registered after the flags, so that the flag is set by the time the program
        // wakes.
        for signal in ENDING.into_iter().chain([SIGTSTP, SIGCONT, SIGWINCH]) {
            low_level::pipe::register(signal, wakes.try_clone()?)?;
        }
        Ok(signals)
    }

    fn ending(&self) -> Option<i32> {
        let came = self.ending.iter().find(|(_, came)| came.load(Relaxed));
        came.map(|(signal, _)| *signal)
    }

    /// Reads and discards the bytes that woke the program.
    fn drain(&mut self) {
        let mut bytes = [0; 64];
        loop {
            match self.woken.read(&mut bytes) {
                Ok(length) if length == bytes.len() => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
    }
}

/// Shows looks until a key, a signal, or the number of looks ends the program. Returns the last
/// look.
pub(super) fn run(watch: &mut Watch<'_>, first: Look) -> Result<Look> {
    let mut signals = Signals::watch().context("cannot watch for signals")?;
    let mut screen = Screen::begin()?;
    let mut shown = Shown::new(first, watch.interval);
    let ended = show(watch, &mut signals, &mut screen, &mut shown);
    drop(screen);
    if let Some(signal) = ended? {
        low_level::emulate_default_handler(signal).context("cannot end by the signal")?;
    }
    Ok(shown.look)
}

/// Returns the signal that ends the program, or `None` if a key or the number of looks ends it.
fn show(
    watch: &mut Watch<'_>,
    signals: &mut Signals,
    screen: &mut Screen,
    shown: &mut Shown,
) -> Result<Option<i32>> {
    let mut due = next(Instant::now(), watch.interval);
    loop {
        // A signal is checked first: a terminal that goes away sends one, and its error would hide
        // the signal.
        if let Some(signal) = signals.ending() {
            return Ok(Some(signal));
        }
        screen.draw(shown)?;
        if watch.left == 0 {
            return Ok(None);
        }
        let keys = screen.wait(signals, due)?;
        let mut now = false;
        for key in keys {
            match key {
                Key::Quit => return Ok(None),
                Key::Stop => signals.stop.store(true, Relaxed),
                Key::Look => now = true,
                Key::Redraw => signals.resumed.store(true, Relaxed),
                Key::Scroll(rows) => shown.scroll(rows),
                Key::Gone if signals.ending().is_some() => {}
                Key::Gone => bail!("the terminal has gone"),
            }
        }
        if signals.stop.swap(false, Relaxed) {
            screen.restore.leave();
            low_level::emulate_default_handler(SIGTSTP).context("cannot stop")?;
            signals.resumed.store(true, Relaxed);
        }
        if signals.resumed.swap(false, Relaxed) {
            screen.resume()?;
        }
        if now || Instant::now() >= due {
            due = next(if now { Instant::now() } else { due }, watch.interval);
            shown.look(watch.look()?);
        }
    }
}
