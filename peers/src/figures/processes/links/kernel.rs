//! Pipes and sockets.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use zerocopy::IntoBytes;

use crate::figures::processes::ends::Link;
use crate::figures::processes::task::{RoleResult, Task};
use crate::work::{Check, Event};

/// Largest size of a read, in bytes, unless an event is larger.
const READ: usize = 65_536;

/// A stream of bytes from one process to another.
pub trait Bytes {
    type Tx: Write;
    type Rx: Read;
    fn make(path: &Path) -> RoleResult<()>;
    fn tx(path: &Path) -> RoleResult<Self::Tx>;
    fn rx(path: &Path) -> RoleResult<Self::Rx>;
}

/// A named pipe.
pub struct Pipe;

impl Bytes for Pipe {
    type Tx = File;
    type Rx = File;
    fn make(path: &Path) -> RoleResult<()> {
        Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
    }
    /// Waits until the reader's end is open.
    fn tx(path: &Path) -> RoleResult<File> {
        Ok(OpenOptions::new().write(true).open(path)?)
    }
    /// Waits until the writer's end is open.
    fn rx(path: &Path) -> RoleResult<File> {
        Ok(File::open(path)?)
    }
}

/// A Unix socket that carries a stream.
pub struct Socket;

impl Bytes for Socket {
    type Tx = UnixStream;
    type Rx = UnixStream;
    fn make(_path: &Path) -> RoleResult<()> {
        Ok(())
    }
    fn tx(path: &Path) -> RoleResult<UnixStream> {
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Ok(stream),
                // The reader does not listen yet, so the writer tries again. If the reader has
                // died, the run ends.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::ConnectionRefused
                    ) =>
                {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    fn rx(path: &Path) -> RoleResult<UnixStream> {
        Ok(UnixListener::bind(path)?.accept()?.0)
    }
}

/// Returns the path of a stream of bytes.
pub fn path(task: &Task, name: &str) -> PathBuf {
    task.folder.join(format!("{name}.bytes"))
}

/// The writer's end, with the events of one write.
pub struct Sender<E, W> {
    to: W,
    events: Vec<E>,
}

/// The reader's end, with the events of one read.
pub struct Receiver<E, R> {
    from: R,
    events: Vec<E>,
}

impl<E: Event, B: Bytes> Link<E> for B {
    type Tx = Sender<E, B::Tx>;
    type Rx = Receiver<E, B::Rx>;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        B::make(&path(task, name))
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        let to = B::tx(&path(task, name))?;
        Ok(Sender { to, events: vec![E::default(); task.work.batch()] })
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        let from = B::rx(&path(task, name))?;
        Ok(Receiver { from, events: vec![E::default(); (READ / size_of::<E>()).max(1)] })
    }
    fn send(tx: &mut Self::Tx, number: u64) {
        <B as Link<E>>::send_batch(tx, number, 1);
    }
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        let events = &mut tx.events[..len as usize];
        events.iter_mut().zip(first..).for_each(|(event, number)| event.fill(number));
        tx.to.write_all(events.as_bytes()).expect("the other end is open");
    }
    fn stream(rx: &mut Self::Rx, events: u64, check: &mut Check) {
        // The bytes of an incomplete event stay at the front of the buffer.
        let mut have = 0;
        while check.seen() < events {
            let got = rx.from.read(&mut rx.events.as_mut_bytes()[have..]);
            let got = got.expect("the other end is open");
            assert_ne!(got, 0, "the stream ended early");
            have += got;
            let whole = have / size_of::<E>();
            rx.events[..whole].iter().for_each(|event| check.see(event));
            let used = whole * size_of::<E>();
            rx.events.as_mut_bytes().copy_within(used..have, 0);
            have -= used;
        }
    }
    fn receive(rx: &mut Self::Rx) -> u64 {
        let bytes = rx.events[..1].as_mut_bytes();
        rx.from.read_exact(bytes).expect("the other end is open");
        rx.events[0].number()
    }
}
