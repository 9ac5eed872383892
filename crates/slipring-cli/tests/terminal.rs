//! `slipring top` on a terminal: what it draws, and that the terminal is restored however the
//! program ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;
#[path = "common/pty.rs"]
mod pty;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use common::{Name, watched};
use pty::Pty;
use rustix::process::Signal;

fn top(name: &Name, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    let interval = if more.contains(&"--interval") { &[][..] } else { &["--interval", "0.05"] };
    command.args(["top", &name.0]).args(interval).args(more).env_remove("NO_COLOR");
    command
}

/// Starts the program in a terminal, and waits until it has drawn.
fn start(name: &Name, more: &[&str]) -> Pty {
    let mut pty = Pty::start(top(name, more), 100, 20);
    pty.until(|screen| screen.alternate_screen() && screen.contents().contains("q quits"));
    pty
}

#[test]
fn a_terminal_gets_a_screen_that_follows_its_size() {
    let _watched = watched();
    let name = Name::new("screen");
    drop(name.make());
    let mut pty = start(&name, &[]);
    pty.until(|screen| screen.hide_cursor() && screen.contents().contains("rates over"));
    let text = pty.text();
    assert!(text.starts_with(&format!("{}  running  ", name.0)), "{text}");
    for shown in ["0 % full: 0 of 4 slots", "place  ", "scale  ", "store  ", "waits for"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!pty.is_restored());
    pty.resize(30, 6);
    pty.until(|screen| {
        let text = screen.contents();
        text.contains("place") && !text.contains("position") && text.lines().count() <= 6
    });
    pty.resize(1, 1);
    pty.resize(80, 24);
    pty.forget_size();
    pty.send(b"\x0c");
    pty.until(|screen| screen.contents().contains("rates over"));
    pty.resize(120, 30);
    pty.until(|screen| screen.contents().contains("rates over"));
    pty.send(b"q");
    assert_eq!(pty.end().code(), Some(0));
    assert_eq!(pty.text(), "", "nothing of the screen stays");
}

#[test]
fn keys_quit() {
    let _watched = watched();
    let name = Name::new("keys");
    drop(name.make());
    for key in [&b"q"[..], b"\x03", b"\x1b", b"xyz\x1b[A\x1b[B \x0cq"] {
        let mut pty = start(&name, &[]);
        pty.send(key);
        assert_eq!(pty.end().code(), Some(0), "{key:?}");
    }
    // The program also ends after the given number of looks. Then the last look determines the exit
    // code.
    let mut pty = start(&name, &["--count", "3"]);
    assert_eq!(pty.end().code(), Some(0));
}

#[test]
fn signals_end_the_program_and_restore_the_terminal() {
    let _watched = watched();
    let name = Name::new("signals");
    drop(name.make());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut pty = start(&name, &[]);
        pty.signal(signal);
        assert_eq!(pty.end().signal(), Some(signal.as_raw()));
    }
}

#[test]
fn a_stopped_program_leaves_the_terminal_and_takes_it_again() {
    let _watched = watched();
    let name = Name::new("stops");
    drop(name.make());
    for by_key in [true, false] {
        let mut pty = start(&name, &[]);
        match by_key {
            true => pty.send(b"\x1a"),
            false => pty.signal(Signal::TSTP),
        }
        pty.until(|screen| !screen.alternate_screen());
        let stat = format!("/proc/{}/stat", pty.child.id());
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
        assert!(pty.is_restored());
        pty.signal(Signal::CONT);
        pty.until(|screen| screen.alternate_screen() && screen.contents().contains("q quits"));
        pty.send(b"q");
        assert_eq!(pty.end().code(), Some(0));
    }
}

/// A closed window ends the program.
#[test]
fn a_terminal_that_goes_away_ends_the_program() {
    let _watched = watched();
    let name = Name::new("hangs-up");
    drop(name.make());
    let mut pty = start(&name, &["--interval", "3600"]);
    pty.hang_up();
    assert_eq!(pty.child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_segment_that_goes_away_is_told_on_the_screen() {
    let _watched = watched();
    let name = Name::new("gone");
    drop(name.make());
    let mut pty = start(&name, &[]);
    fs::remove_file(name.path()).unwrap();
    pty.until(|screen| screen.contents().contains("there is none"));
    drop(name.make());
    pty.until(|screen| !screen.contents().contains("there is none"));
    pty.send(b"q");
    assert_eq!(pty.end().code(), Some(0));
}

#[test]
fn colors_are_off_where_the_user_says_so() {
    let _watched = watched();
    let name = Name::new("colors");
    let me = name.make();
    // SAFETY: only this test opens the segment.
    let me = unsafe { me.attach().unwrap() };
    let mut tx = me.producer().unwrap();
    tx.publish(|slot| *slot = 1).unwrap();
    for (value, colored) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let mut command = top(&name, &[]);
        if let Some(value) = value {
            command.env("NO_COLOR", value);
        }
        let mut pty = Pty::start(command, 100, 20);
        pty.until(|screen| screen.contents().contains("! no process has the place"));
        let screen = pty.screen();
        let cells = (0..20).flat_map(|row| (0..100).map(move |column| (row, column)));
        let any = cells
            .filter_map(|(row, column)| screen.cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default);
        assert_eq!(any, colored, "{value:?}");
        pty.send(b"q");
        assert_eq!(pty.end().code(), Some(0));
    }
}

#[test]
fn lines_and_json_are_printed_also_on_a_terminal() {
    let _watched = watched();
    let name = Name::new("plain");
    drop(name.make());
    for (argument, shown) in [("--plain", "place=store"), ("--json", "\"parties\"")] {
        let mut pty = Pty::start(top(&name, &[argument, "--count", "1"]), 200, 50);
        assert_eq!(pty.end().code(), Some(0));
        assert!(pty.text().contains(shown) && !pty.sent.contains(&b'\x1b'), "{}", pty.text());
    }
}
