//! A panic while the screen is shown.

use std::process::Command;

use ratatui::termion::screen::{ToAlternateScreen, ToMainScreen};

use super::terminal::Screen;

#[path = "../../tests/common/pty.rs"]
mod pty;

const ROLE: &str = "SLIPRING_CLI_TEST_PANICS";

/// Does nothing, unless the test below started it.
#[test]
fn panics_while_it_shows_the_screen() {
    if std::env::var_os(ROLE).is_some() {
        let _screen = Screen::begin().unwrap();
        panic!("a fault of this program");
    }
}

#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let role = "top::terminal_tests::panics_while_it_shows_the_screen";
    command.args([role, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, "1");
    let mut pty = pty::Pty::start(command, 100, 30);
    assert_eq!(pty.end().code(), Some(101));
    let sent = String::from_utf8_lossy(&pty.sent).into_owned();
    let [taken, restored] =
        [ToAlternateScreen.to_string(), ToMainScreen.to_string()].map(|it| sent.find(&it));
    let message = sent.find("a fault of this program");
    assert!(taken.is_some() && taken < restored && restored < message, "{sent:?}");
    assert!(pty.text().contains("a fault of this program"), "{}", pty.text());
}
