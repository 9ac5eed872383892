//! A reader is killed while the writer waits for it. The figure is the time from the signal until
//! the writer's call returns, either with an error or because a successor has made room.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use slipring::{Wait, errors::WaitError};
use slipring_machine::pin;

use super::ends::{Link, meet};
use super::links::{iceoryx, kernel, ours};
use super::mapping::Control;
use super::run::{Folder, Roles};
use super::task::{Role, RoleResult, Task, Work, now};
use crate::measure::Values;

/// Time limit for the wait of iceoryx2's publisher, which has no limit of its own.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts of a successor to take the dead reader's place.
const RETRY: Duration = Duration::from_micros(100);
/// Shortest time for which the writer's call waits before the reader is killed.
const WAITING: Duration = Duration::from_millis(5);
/// Range of the time that is added to [`WAITING`], so that the kills are spread over the whole time
/// between two checks for deaths.
const PHASES: Duration = Duration::from_millis(20);

/// Runs the roles, kills the reader, and returns the time until the writer's call returned.
pub fn run(task: &Task, folder: &Folder) -> Result<Values, String> {
    let Work::Death { successor } = task.work else { return Err("no death".into()) };
    let said = |error: Box<dyn std::error::Error>| error.to_string();
    let control = Control::open(folder.path()).map_err(|error| said(error.into()))?;
    if task.link == "slipring" {
        ours::make_mortal(task).map_err(said)?;
    } else if task.link == "pipe" {
        <kernel::Pipe as Link<u64>>::make(task, "there").map_err(said)?;
    }
    let all = [Role::Writer, Role::Reader, Role::Successor];
    let mut roles = Roles::start(task, &all[..if successor { 3 } else { 2 }])?;
    roles.until("the ring was full", || control.full().load(Acquire) == 1)?;
    thread::sleep(WAITING + Duration::from_nanos(now() % PHASES.as_nanos() as u64));
    let killed = roles.kill(Role::Reader).map_err(|error| error.to_string())?;
    roles.finish(&[Role::Reader])?;
    let took = control.returned().load(Acquire).checked_sub(killed);
    let took = took.ok_or("the writer's call returned before the reader was killed")?;
    Ok(vec![("ns", took as f64)])
}

/// Plays a role.
pub fn play(task: &Task) -> RoleResult<Values> {
    let Work::Death { successor } = task.work else { return Err("no death".into()) };
    let control = &Control::open(&task.folder)?;
    pin(usize::from(task.role != Role::Writer));
    match (&*task.link, task.role) {
        ("slipring", Role::Writer) => write_ours(task, successor, control)?,
        ("slipring", Role::Reader) => {
            let _reader =
                ours::attach::<u64>(task, "there", Wait::Blocking)?.reader(ours::STAGE)?;
            meet(control, parties(successor));
            hang()?;
        }
        ("slipring", Role::Successor) => succeed(task, control)?,
        ("iceoryx2", Role::Writer) => write_iceoryx(task, control)?,
        ("iceoryx2", Role::Reader) => {
            let mut reader = <iceoryx::Samples as Link<u64>>::rx(task, "there")?;
            meet(control, 2);
            <iceoryx::Samples as Link<u64>>::connect(&mut reader);
            meet(control, 4);
            hang()?;
        }
        ("pipe", role) => play_bytes::<kernel::Pipe>(role, task, control)?,
        ("socket", role) => play_bytes::<kernel::Socket>(role, task, control)?,
        (link, role) => return Err(format!("{link} has no {role:?}").into()),
    }
    Ok(Values::new())
}

/// Returns how many roles of the run open an end of the ring.
fn parties(successor: bool) -> u64 {
    if successor { 3 } else { 2 }
}

/// Waits to be killed.
fn hang() -> RoleResult<()> {
    loop {
        thread::park();
    }
}

/// Makes the call in which the writer waits for room, and records the time at which the call
/// returned.
fn time<T>(control: &Control, call: impl FnOnce() -> T) -> T {
    control.full().store(1, Release);
    let returned = call();
    control.returned().store(now(), Release);
    returned
}

fn write_ours(task: &Task, successor: bool, control: &Control) -> RoleResult<()> {
    let mut tx = ours::attach::<u64>(task, "there", Wait::Blocking)?.producer()?;
    meet(control, parties(successor));
    for number in 0..task.work.ring() as u64 {
        tx.publish(|slot| *slot = number)?;
    }
    match time(control, || tx.publish(|slot| *slot = 1)) {
        Ok(_) if successor => Ok(()),
        Err(WaitError::PeerDead(_)) if !successor => Ok(()),
        Ok(_) => Err("an event without room for it".into()),
        Err(error) => Err(error.into()),
    }
}

/// Takes the place of the dead reader, and continues to read.
fn succeed(task: &Task, control: &Control) -> RoleResult<()> {
    let attached = ours::attach::<u64>(task, "there", Wait::Blocking)?;
    meet(control, parties(true));
    while control.full().load(Acquire) == 0 {
        thread::sleep(RETRY);
    }
    let mut reader = loop {
        match attached.reader(ours::STAGE) {
            Ok(reader) => break reader,
            Err(error)
                if matches!(error.problem(), slipring_shm::errors::Problem::Taken { .. }) =>
            {
                thread::sleep(RETRY);
            }
            Err(error) => return Err(error.into()),
        }
    };
    assert_eq!(reader.next_seq(), 0, "the successor begins where the dead reader was");
    loop {
        match reader.batch(1) {
            Ok(batch) => batch.release(),
            // The writer has finished its measurement and left.
            Err(WaitError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
    }
}

fn write_iceoryx(task: &Task, control: &Control) -> RoleResult<()> {
    let tx = iceoryx::impatient(task, PATIENCE)?;
    meet(control, 2);
    meet(control, 4);
    for number in 0..task.work.ring() as u64 {
        if !tx.try_send(number) {
            return Err("the buffer is full too early".into());
        }
    }
    if time(control, || tx.try_send(1)) {
        return Err("an event without room for it".into());
    }
    Ok(())
}

fn play_bytes<B>(role: Role, task: &Task, control: &Control) -> RoleResult<()>
where
    B: kernel::Bytes,
    OwnedFd: From<B::Tx>,
{
    let path = kernel::path(task, "there");
    if role != Role::Writer {
        let _reader = B::rx(&path)?;
        meet(control, 2);
        return hang();
    }
    // Files and sockets write alike.
    let mut tx = File::from(OwnedFd::from(B::tx(&path)?));
    meet(control, 2);
    let flags = fcntl_getfl(&tx)?;
    fcntl_setfl(tx.as_fd(), flags | OFlags::NONBLOCK)?;
    let filled = loop {
        if let Err(error) = tx.write(&[0; 8]) {
            break error;
        }
    };
    if filled.kind() != ErrorKind::WouldBlock {
        return Err(filled.into());
    }
    fcntl_setfl(tx.as_fd(), flags)?;
    match time(control, || tx.write(&[0; 8])) {
        Err(error)
            if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) =>
        {
            Ok(())
        }
        other => Err(format!("writing to a dead reader: {other:?}").into()),
    }
}
