//! slipring, through a segment.

use std::hint::spin_loop;
use std::path::PathBuf;
use std::time::Duration;

use slipring::{Producer, Wait};
use slipring_shm::{Attached, Builder, Event as Shared, OnDeath, Reader, Segment};

use super::{Kilobyte, Megabyte};
use crate::figures::processes::ends::Link;
use crate::figures::processes::run::{Outcome, Task, Work};
use crate::work::{Check, Event};

impl Shared for Kilobyte {
    const NAME: &'static str = "peers/Kilobyte";
    const VERSION: u32 = 1;
}

impl Shared for Megabyte {
    const NAME: &'static str = "peers/Megabyte";
    const VERSION: u32 = 1;
}

/// Name of the stage that reads.
pub const STAGE: &str = "reader";

fn path(task: &Task, name: &str) -> PathBuf {
    task.folder.join(format!("{name}.slipring"))
}

/// Declares the segment of a run.
fn declare<E: Shared>(task: &Task, name: &str) -> Builder<E> {
    let ring = task.work.ring() as u64;
    let notice = Duration::from_millis(task.notice_ms);
    Segment::create_at(path(task, name)).capacity(ring).notice(notice).reader(STAGE)
}

/// Makes the segment of a run whose reader is killed.
pub fn make_mortal(task: &Task) -> Outcome<()> {
    let Work::Death { successor } = task.work else { return Err("no death".into()) };
    let on_death = if successor { OnDeath::Wait } else { OnDeath::Tell };
    declare::<u64>(task, "there").on_death(on_death).build()?;
    Ok(())
}

/// Attaches to the segment of a run.
pub fn attach<E: Shared>(task: &Task, name: &str, wait: Wait) -> Outcome<Attached<E>> {
    let segment = Segment::open_at(path(task, name))?;
    // SAFETY: only the processes of this run can open the folder. They follow the protocol, resize
    // nothing, leave no writes to the kernel or to devices, and do not fork.
    Ok(unsafe { segment.attach()? }.wait(wait)?)
}

/// Ends that spin.
pub struct Spinning;

impl<E: Event + Shared> Link<E> for Spinning {
    type Tx = Producer<E>;
    type Rx = Reader<E>;
    const CLOSES: bool = true;
    fn make(task: &Task, name: &str) -> Outcome<()> {
        declare::<E>(task, name).build()?;
        Ok(())
    }
    fn tx(task: &Task, name: &str) -> Outcome<Producer<E>> {
        Ok(attach(task, name, Wait::BusySpin)?.producer()?)
    }
    fn rx(task: &Task, name: &str) -> Outcome<Reader<E>> {
        Ok(attach(task, name, Wait::BusySpin)?.reader(STAGE)?)
    }
    #[inline(always)]
    fn send(tx: &mut Producer<E>, number: u64) {
        tx.publish(|slot| slot.fill(number)).expect("the ring is open");
    }
    #[inline(always)]
    fn send_batch(tx: &mut Producer<E>, first: u64, len: u64) {
        let mut slots = tx.claim_n(len as usize).expect("the ring is open");
        for (slot, number) in slots.iter_mut().zip(first..) {
            slot.fill(number);
        }
        slots.publish();
    }
    fn stream(rx: &mut Reader<E>, _events: u64, check: &mut Check) {
        rx.for_each(|event, _| check.see(event)).expect("the stream ended with a failure");
    }
    #[inline(always)]
    fn receive(rx: &mut Reader<E>) -> u64 {
        let mut number = 0;
        while rx.poll(1, |event, _| number = event.number()).expect("the ring is open") == 0 {
            spin_loop();
        }
        number
    }
    fn each(rx: &mut Reader<E>, events: usize, mut answer: impl FnMut(u64)) {
        let mut left = events;
        rx.for_each(|event, _| {
            answer(event.number());
            left -= 1;
        })
        .expect("the stream ended with a failure");
        assert_eq!(left, 0, "events lost or doubled");
    }
}

/// Ends that sleep.
pub struct Blocking;

impl Link<u64> for Blocking {
    type Tx = Producer<u64>;
    type Rx = Reader<u64>;
    const CLOSES: bool = true;
    fn make(task: &Task, name: &str) -> Outcome<()> {
        <Spinning as Link<u64>>::make(task, name)
    }
    fn tx(task: &Task, name: &str) -> Outcome<Producer<u64>> {
        Ok(attach(task, name, Wait::Blocking)?.producer()?)
    }
    fn rx(task: &Task, name: &str) -> Outcome<Reader<u64>> {
        Ok(attach(task, name, Wait::Blocking)?.reader(STAGE)?)
    }
    fn send(tx: &mut Producer<u64>, number: u64) {
        tx.publish(|slot| *slot = number).expect("the ring is open");
    }
    fn stream(rx: &mut Reader<u64>, _events: u64, check: &mut Check) {
        rx.for_each(|event, _| check.see(event)).expect("the stream ended with a failure");
    }
    fn receive(rx: &mut Reader<u64>) -> u64 {
        let batch = rx.batch(1).expect("the ring is open");
        let number = batch[0];
        batch.release();
        number
    }
}
