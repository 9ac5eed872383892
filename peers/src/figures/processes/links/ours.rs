//! slipring through a segment, and through a ring on the heap of a process that plays all roles.
//!
//! Invariants
//! - I1: only the processes of a run can open its folder. They follow the protocol, resize nothing,
//!   leave no write to a slot pending in the kernel or a device, and do not fork.

use std::any::Any;
use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use slipring::{Graph, Producer, SharedProducer, Wait};
use slipring_shm::{Attached, Builder, Event as SharedEvent, OnDeath, Reader, Segment};

use crate::figures::processes::ends::{Kilobyte, Link, Megabyte};
use crate::figures::processes::task::{RoleResult, Task, Work};
use crate::work::{Check, Event};

impl SharedEvent for Kilobyte {
    const NAME: &'static str = "peers/Kilobyte";
    const VERSION: u32 = 1;
}

impl SharedEvent for Megabyte {
    const NAME: &'static str = "peers/Megabyte";
    const VERSION: u32 = 1;
}

/// Name of the stage that reads.
pub const STAGE: &str = "reader";

/// Name of the tap, if a ring has one.
pub const TAP: &str = "tap";

fn path(task: &Task, name: &str) -> PathBuf {
    task.folder.join(format!("{name}.slipring"))
}

/// Returns the wait strategy of ends that spin. Ends that share cores yield instead.
fn eager(task: &Task) -> Wait {
    if let Work::FanIn(_) = task.work { Wait::YIELDING } else { Wait::BusySpin }
}

/// Declares the segment of a run.
fn declare<E: SharedEvent>(task: &Task, name: &str) -> Builder<E> {
    let ring = task.work.ring() as u64;
    let notice = Duration::from_millis(task.notice_ms);
    Segment::create_at(path(task, name)).capacity(ring).notice(notice).reader(STAGE)
}

/// Makes the segment of a run in which the reader is killed.
pub fn make_mortal(task: &Task) -> RoleResult<()> {
    let Work::Death { successor } = task.work else { return Err("no death".into()) };
    let on_death = if successor { OnDeath::Wait } else { OnDeath::Tell };
    declare::<u64>(task, "there").on_death(on_death).build()?;
    Ok(())
}

/// Makes the segment of a run in which a tap's reader leaves or is killed.
pub fn make_tapped(task: &Task) -> RoleResult<()> {
    declare::<u64>(task, "there").tap(TAP, 1).build()?;
    Ok(())
}

/// Attaches to the segment of a run.
pub fn attach<E: SharedEvent>(task: &Task, name: &str, wait: Wait) -> RoleResult<Attached<E>> {
    let segment = Segment::open_at(path(task, name))?;
    // SAFETY: only processes of this run attach, and they follow the protocol (I1).
    Ok(unsafe { segment.attach()? }.wait(wait)?)
}

/// Implements sending, in the same way for all ends.
macro_rules! sending {
    () => {
        const CLOSES: bool = true;
        #[inline(always)]
        fn send(tx: &mut Self::Tx, number: u64) {
            tx.publish(|slot| slot.fill(number)).expect("the ring is open");
        }
        #[inline(always)]
        fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
            let mut slots = tx.claim_n(len as usize).expect("the ring is open");
            let mut number = first;
            slots.iter_mut().for_each(|slot| {
                slot.fill(number);
                number += 1;
            });
            slots.publish();
        }
        fn stream(rx: &mut Self::Rx, _events: u64, check: &mut Check) {
            rx.for_each(|event, _| check.see(event)).expect("the stream ended with a failure");
        }
    };
}

/// Implements sending and receiving for ends that spin, with a spin hint after each poll that found
/// nothing.
macro_rules! spinning {
    () => {
        sending!();
        #[inline(always)]
        fn receive(rx: &mut Self::Rx) -> u64 {
            let mut number = 0;
            while rx.poll(1, |event, _| number = event.number()).expect("the ring is open") == 0 {
                spin_loop();
            }
            number
        }
        fn each(rx: &mut Self::Rx, events: usize, mut answer: impl FnMut(u64)) {
            let mut left = events;
            rx.for_each(|event, _| {
                answer(event.number());
                left -= 1;
            })
            .expect("the stream ended with a failure");
            assert_eq!(left, 0, "events lost or doubled");
        }
    };
}

/// Ends that spin.
pub struct Spinning;

impl<E: Event + SharedEvent> Link<E> for Spinning {
    type Tx = slipring_shm::Producer<E>;
    type Rx = Reader<E>;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        declare::<E>(task, name).build()?;
        Ok(())
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        Ok(attach::<E>(task, name, Wait::BusySpin)?.producer()?)
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        Ok(attach::<E>(task, name, Wait::BusySpin)?.reader(STAGE)?)
    }
    spinning!();
}

/// Ends that spin or yield. The writers' ends are handles for several producers.
pub struct Several;

impl Link<u64> for Several {
    type Tx = slipring_shm::SharedProducer<u64>;
    type Rx = Reader<u64>;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        declare::<u64>(task, name).producers(2).build()?;
        Ok(())
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        Ok(attach::<u64>(task, name, eager(task))?.shared_producer()?)
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        Ok(attach::<u64>(task, name, eager(task))?.reader(STAGE)?)
    }
    spinning!();
}

/// The ends of a ring on the heap, without those that threads have already taken.
struct Untaken<T, R> {
    tx: Vec<T>,
    rx: Option<R>,
}

/// The rings on the heap of this process, by name.
static RINGS: Mutex<BTreeMap<String, Box<dyn Any + Send>>> = Mutex::new(BTreeMap::new());

/// Keeps the ends of a ring until threads take them.
fn keep<T: Send + 'static, R: Send + 'static>(name: &str, ring: Untaken<T, R>) -> RoleResult<()> {
    RINGS.lock().map_err(|_| "another role failed")?.insert(name.to_owned(), Box::new(ring));
    Ok(())
}

/// Takes an end of the ring `name` on the heap.
fn take<T: 'static, R: 'static, X>(
    name: &str,
    take: impl FnOnce(&mut Untaken<T, R>) -> Option<X>,
) -> RoleResult<X> {
    let mut rings = RINGS.lock().map_err(|_| "another role failed")?;
    let ring = rings.get_mut(name).and_then(|ring| ring.downcast_mut());
    Ok(ring.and_then(take).ok_or("no such end")?)
}

/// Ends of a ring on the heap, which spin.
pub struct Heap;

impl<E: Event> Link<E> for Heap {
    type Tx = Producer<E>;
    type Rx = slipring::Reader<E>;
    fn make(_task: &Task, _name: &str) -> RoleResult<()> {
        Ok(())
    }
    fn prepare(task: &Task, name: &str) -> RoleResult<()> {
        let graph = Graph::new(task.work.ring(), E::default).wait(Wait::BusySpin);
        let reader = graph.reader(STAGE);
        let ring = graph.build()?;
        keep(name, Untaken { tx: vec![ring.producer()], rx: Some(ring.reader(reader)) })
    }
    fn tx(_task: &Task, name: &str) -> RoleResult<Self::Tx> {
        take(name, |ring: &mut Untaken<_, Self::Rx>| ring.tx.pop())
    }
    fn rx(_task: &Task, name: &str) -> RoleResult<Self::Rx> {
        take(name, |ring: &mut Untaken<Self::Tx, _>| ring.rx.take())
    }
    spinning!();
}

/// Ends of a ring on the heap, which spin or yield. The writers' ends are handles for several
/// producers.
pub struct SeveralOnHeap;

impl Link<u64> for SeveralOnHeap {
    type Tx = SharedProducer<u64>;
    type Rx = slipring::Reader<u64>;
    fn make(_task: &Task, _name: &str) -> RoleResult<()> {
        Ok(())
    }
    fn prepare(task: &Task, name: &str) -> RoleResult<()> {
        let graph = Graph::new(task.work.ring(), || 0_u64).wait(eager(task)).shared();
        let reader = graph.reader(STAGE);
        let ring = graph.build()?;
        let tx = (0..task.work.writers()).map(|_| ring.producer()).collect();
        keep(name, Untaken { tx, rx: Some(ring.reader(reader)) })
    }
    fn tx(_task: &Task, name: &str) -> RoleResult<Self::Tx> {
        take(name, |ring: &mut Untaken<_, Self::Rx>| ring.tx.pop())
    }
    fn rx(_task: &Task, name: &str) -> RoleResult<Self::Rx> {
        take(name, |ring: &mut Untaken<Self::Tx, _>| ring.rx.take())
    }
    spinning!();
}

/// Implements the link for ends that poll without a pause, so that they see each event as soon as
/// it arrives.
macro_rules! polling {
    ($spinning:ty) => {
        sending!();
        fn make(task: &Task, name: &str) -> RoleResult<()> {
            <$spinning as Link<u64>>::make(task, name)
        }
        fn prepare(task: &Task, name: &str) -> RoleResult<()> {
            <$spinning as Link<u64>>::prepare(task, name)
        }
        fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
            <$spinning as Link<u64>>::tx(task, name)
        }
        fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
            <$spinning as Link<u64>>::rx(task, name)
        }
        #[inline(always)]
        fn receive(rx: &mut Self::Rx) -> u64 {
            let mut number = 0;
            while rx.poll(1, |event, _| number = event.number()).expect("the ring is open") == 0 {}
            number
        }
    };
}

/// Ends that poll without a pause.
pub struct Polling;

impl Link<u64> for Polling {
    type Tx = slipring_shm::Producer<u64>;
    type Rx = Reader<u64>;
    polling!(Spinning);
}

/// Ends of a ring on the heap, which poll without a pause.
pub struct PollingOnHeap;

impl Link<u64> for PollingOnHeap {
    type Tx = Producer<u64>;
    type Rx = slipring::Reader<u64>;
    polling!(Heap);
}

/// Ends that sleep.
pub struct Blocking;

impl Link<u64> for Blocking {
    type Tx = slipring_shm::Producer<u64>;
    type Rx = Reader<u64>;
    const CLOSES: bool = true;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        <Spinning as Link<u64>>::make(task, name)
    }
    fn tx(task: &Task, name: &str) -> RoleResult<slipring_shm::Producer<u64>> {
        Ok(attach::<u64>(task, name, Wait::Blocking)?.producer()?)
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Reader<u64>> {
        Ok(attach::<u64>(task, name, Wait::Blocking)?.reader(STAGE)?)
    }
    fn send(tx: &mut slipring_shm::Producer<u64>, number: u64) {
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
