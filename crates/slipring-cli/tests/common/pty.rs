//! A terminal for a program that a test starts: the kernel's pseudo terminal, and an emulation that
//! draws the output.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// A program, and the terminal that serves as its three standard streams.
pub struct Pty {
    /// The other end of the terminal; `None` once the terminal is closed.
    terminal: Option<File>,
    /// The program's end of the terminal, which this process keeps open to check the terminal's
    /// modes.
    ours: Option<OwnedFd>,
    before: Termios,
    pub child: Child,
    drawn: vt100::Parser,
    /// All bytes that the program has sent.
    pub sent: Vec<u8>,
}

impl Pty {
    /// Starts a program in a terminal with this number of columns and rows.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Pty {
        // Without this flag, a child of another test would keep the terminal open.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let ours = ioctl_tiocgptpeer(&terminal, flags).unwrap();
        tcsetwinsize(&ours, size(columns, rows)).unwrap();
        let before = tcgetattr(&ours).unwrap();
        let end = || ours.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        let child = command.spawn().unwrap();
        drop(command); // its copies of the program's end
        let drawn = vt100::Parser::new(cells(rows), cells(columns), 0);
        let (terminal, ours) = (Some(File::from(terminal)), Some(ours));
        Pty { terminal, ours, before, child, drawn, sent: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.terminal.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.drawn.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(self.terminal.as_ref().unwrap(), size(columns, rows)).unwrap();
        // The kernel sends the signal only to programs that the terminal controls.
        self.signal(Signal::WINCH);
    }

    /// Makes the kernel forget the size, as if the terminal had no window.
    pub fn forget_size(&mut self) {
        tcsetwinsize(self.terminal.as_ref().unwrap(), size(0, 0)).unwrap();
    }

    /// Waits until `is` returns `true` for the terminal's screen.
    pub fn until(&mut self, is: impl Fn(&vt100::Screen) -> bool) {
        while !is(self.drawn.screen()) {
            let ended = self.child.try_wait().unwrap();
            assert!(self.take() || ended.is_none(), "the program ended: {}", self.text());
        }
    }

    /// Draws the program's output, including output that comes soon. Returns whether there was any.
    fn take(&mut self) -> bool {
        let terminal = self.terminal.as_mut().unwrap();
        let soon = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let mut fds = [PollFd::new(&*terminal, PollFlags::IN)];
        if poll(&mut fds, Some(&soon)) != Ok(1) || !fds[0].revents().contains(PollFlags::IN) {
            return false;
        }
        let mut bytes = [0; 4096];
        let length = terminal.read(&mut bytes).unwrap();
        self.drawn.process(&bytes[..length]);
        self.sent.extend(&bytes[..length]);
        length != 0
    }

    /// Returns whether the terminal has its previous modes again, echoes input, and shows its main
    /// screen and the cursor.
    pub fn is_restored(&self) -> bool {
        let now = tcgetattr(self.ours.as_ref().unwrap()).unwrap();
        let screen = self.drawn.screen();
        let same = (now.local_modes, now.input_modes, now.output_modes)
            == (self.before.local_modes, self.before.input_modes, self.before.output_modes);
        same && now.local_modes.contains(LocalModes::ECHO)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }

    /// Waits until the program ends, and draws everything that the program sends. The terminal must
    /// be restored at the end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let status = loop {
            let ended = self.child.try_wait().unwrap();
            if let (false, Some(status)) = (self.take(), ended) {
                break status;
            }
        };
        assert!(self.is_restored(), "{}", self.text());
        status
    }

    /// Closes the terminal, as the closing of a window does.
    pub fn hang_up(&mut self) {
        self.ours = None;
        self.terminal = None;
    }

    pub fn text(&self) -> String {
        self.drawn.screen().contents()
    }

    pub fn screen(&self) -> &vt100::Screen {
        self.drawn.screen()
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
