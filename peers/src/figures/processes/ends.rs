//! The writer's and the reader's end of each kind of run, over any link.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use slipring_machine::{bind, pin, process_cpu};

use super::mapping::Control;
use super::task::{Role, RoleResult, Task, Work, now};
use crate::contenders::{StreamSpec, produce};
use crate::measure::Values;
use crate::work::{Check, Event, Words};

/// Time for which the reader has nothing to do before each event of [`Work::Wake`]. After this
/// time, all strategies that block are asleep.
const ASLEEP: Duration = Duration::from_micros(300);

/// An event of 1 KiB.
pub type Kilobyte = Words<128>;
/// An event of 1 MiB.
pub type Megabyte = Words<131_072>;

/// A way from one process to another, for events of `E`.
pub trait Link<E: Event> {
    type Tx;
    type Rx;
    /// Whether the writer's end is dropped after the last event, which ends the reader's stream.
    const CLOSES: bool = false;
    /// Makes the ring `name` of a run. The measuring process calls it.
    fn make(task: &Task, name: &str) -> RoleResult<()>;
    /// Makes the ring `name` of a run whose roles are threads of this process, unless
    /// [`Link::make`] has made it.
    fn prepare(_task: &Task, _name: &str) -> RoleResult<()> {
        Ok(())
    }
    /// Opens the writer's end. May wait for the reader's end.
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx>;
    /// Opens the reader's end. May wait for the writer's end.
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx>;
    /// Completes the reader's end, once both ends are open.
    fn connect(_rx: &mut Self::Rx) {}
    /// Sends the event `number`.
    fn send(tx: &mut Self::Tx, number: u64);
    /// Sends `len` events from `first` on, in one publication if the link supports that.
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        (first..first + len).for_each(|number| Self::send(tx, number));
    }
    /// Receives a stream of `events` events.
    fn stream(rx: &mut Self::Rx, events: u64, check: &mut Check);
    /// Waits for one event and returns its number.
    fn receive(rx: &mut Self::Rx) -> u64;
    /// Receives this number of events, and calls `answer` with the number of each.
    fn each(rx: &mut Self::Rx, events: usize, mut answer: impl FnMut(u64)) {
        (0..events).for_each(|_| answer(Self::receive(rx)));
    }
}

/// The functions of one link for one type of event.
#[derive(Clone, Copy)]
pub struct Ends {
    /// The measuring process calls this function to make the rings of a run.
    pub make: fn(&Task) -> RoleResult<()>,
    /// Completes the setup for roles that are threads of this process.
    pub prepare: fn(&Task) -> RoleResult<()>,
    /// Plays a role.
    pub play: fn(&Task) -> RoleResult<Values>,
}

impl Ends {
    pub fn of<E: Event, L: Link<E>>() -> Ends {
        Ends { make: make::<E, L>, prepare: prepare::<E, L>, play: play::<E, L> }
    }
}

fn make<E: Event, L: Link<E>>(task: &Task) -> RoleResult<()> {
    L::make(task, "there")?;
    if matches!(task.work, Work::RoundTrip { .. }) { L::make(task, "back") } else { Ok(()) }
}

fn prepare<E: Event, L: Link<E>>(task: &Task) -> RoleResult<()> {
    L::prepare(task, "there")?;
    if matches!(task.work, Work::RoundTrip { .. }) { L::prepare(task, "back") } else { Ok(()) }
}

fn play<E: Event, L: Link<E>>(task: &Task) -> RoleResult<Values> {
    let control = &Control::open(&task.folder)?;
    let writes = task.role == Role::Writer;
    if let Work::FanIn(_) = task.work {
        bind([0, 1]);
    } else {
        pin(usize::from(!writes));
    }
    match task.work {
        Work::FanIn(spec) if task.role == Role::Reader => {
            receive_shares::<E, L>(spec, L::rx(task, "there")?, control)
        }
        Work::FanIn(spec) => send_share::<E, L>(task.role, spec, L::tx(task, "there")?, control),
        Work::Stream(spec) if writes => send_stream::<E, L>(spec, L::tx(task, "there")?, control),
        Work::Stream(spec) => receive_stream::<E, L>(spec, L::rx(task, "there")?, control),
        Work::RoundTrip { rounds } if writes => {
            let (tx, rx) = (L::tx(task, "there")?, L::rx(task, "back")?);
            ping::<E, L>(rounds, tx, rx, control)
        }
        Work::RoundTrip { rounds } => {
            let (rx, tx) = (L::rx(task, "there")?, L::tx(task, "back")?);
            echo::<E, L>(rounds, rx, tx, control)
        }
        Work::Wake { rounds } if writes => wake::<E, L>(rounds, L::tx(task, "there")?, control),
        Work::Wake { rounds } => sleep::<E, L>(rounds, L::rx(task, "there")?, control),
        Work::Idle { time } if writes => rouse::<E, L>(time, L::tx(task, "there")?, control),
        Work::Idle { .. } => idle::<E, L>(L::rx(task, "there")?, control),
        Work::Death { .. } | Work::Sleeper { .. } => Err("deaths have roles of their own".into()),
    }
}

/// Waits until both processes have opened their ends and completed their readers' ends.
fn open<E: Event, L: Link<E>>(control: &Control, rx: Option<&mut L::Rx>) {
    meet(control, 2);
    if let Some(rx) = rx {
        L::connect(rx);
    }
    meet(control, 4);
}

/// Waits until the processes of the run, including the caller, have called this function `count`
/// times in all.
pub fn meet(control: &Control, count: u64) {
    control.arrived().fetch_add(1, AcqRel);
    while control.arrived().load(Acquire) < count {
        thread::yield_now();
    }
}

/// Drops the writer's end if that ends the reader's stream. Otherwise returns the end, which the
/// caller keeps until the reader has finished.
fn close<E: Event, L: Link<E>>(tx: L::Tx) -> Option<L::Tx> {
    (!L::CLOSES).then_some(tx)
}

/// Spins until the reader has finished `events` events.
fn await_done(control: &Control, events: u64) {
    while control.done().load(Acquire) < events {
        spin_loop();
    }
}

fn send_stream<E: Event, L: Link<E>>(
    spec: StreamSpec,
    mut tx: L::Tx,
    control: &Control,
) -> RoleResult<Values> {
    open::<E, L>(control, None);
    let begin = if spec.batch == 1 {
        produce(spec, |number, _| L::send(&mut tx, number))
    } else {
        produce(spec, |first, len| L::send_batch(&mut tx, first, len))
    };
    let kept = close::<E, L>(tx);
    await_done(control, spec.all());
    let took = begin.elapsed();
    drop(kept);
    Ok(vec![("ns", took.as_nanos() as f64 / spec.events as f64)])
}

fn receive_stream<E: Event, L: Link<E>>(
    spec: StreamSpec,
    mut rx: L::Rx,
    control: &Control,
) -> RoleResult<Values> {
    let mut check = Check::default();
    open::<E, L>(control, Some(&mut rx));
    L::stream(&mut rx, spec.all(), &mut check);
    control.done().store(spec.all(), Release);
    check.finish(spec.all());
    Ok(Values::new())
}

/// Sends half of the events of a fan-in. The first writer returns the time per event of both
/// halves.
fn send_share<E: Event, L: Link<E>>(
    role: Role,
    spec: StreamSpec,
    mut tx: L::Tx,
    control: &Control,
) -> RoleResult<Values> {
    let second = u64::from(role == Role::SecondWriter);
    meet(control, 3);
    let begin = produce(spec, |number, _| L::send(&mut tx, 2 * number + second));
    let kept = close::<E, L>(tx);
    while control.done().load(Acquire) == 0 {
        thread::yield_now();
    }
    let took = begin.elapsed();
    drop(kept);
    let time = ("ns", took.as_nanos() as f64 / (2 * spec.events) as f64);
    Ok(if second == 0 { vec![time] } else { Values::new() })
}

/// Receives the events of a fan-in. The events of each writer come in order.
fn receive_shares<E: Event, L: Link<E>>(
    spec: StreamSpec,
    mut rx: L::Rx,
    control: &Control,
) -> RoleResult<Values> {
    let mut checks = [Check::default(), Check::default()];
    meet(control, 3);
    L::each(&mut rx, 2 * spec.all() as usize, |number| {
        checks[(number % 2) as usize].see(&(number / 2));
    });
    control.done().store(1, Release);
    checks.iter().for_each(|check| check.finish(spec.all()));
    Ok(Values::new())
}

fn ping<E: Event, L: Link<E>>(
    rounds: usize,
    mut tx: L::Tx,
    mut rx: L::Rx,
    control: &Control,
) -> RoleResult<Values> {
    open::<E, L>(control, Some(&mut rx));
    let mut times: Vec<u64> = Vec::with_capacity(rounds);
    for number in 1..=rounds as u64 {
        let begin = Instant::now();
        L::send(&mut tx, number);
        let answer = L::receive(&mut rx);
        times.push(begin.elapsed().as_nanos() as u64);
        assert_eq!(answer, number, "a wrong answer");
    }
    let kept = close::<E, L>(tx);
    await_done(control, 1);
    drop(kept);
    Ok(percentiles(times))
}

fn echo<E: Event, L: Link<E>>(
    rounds: usize,
    mut rx: L::Rx,
    mut tx: L::Tx,
    control: &Control,
) -> RoleResult<Values> {
    open::<E, L>(control, Some(&mut rx));
    let mut check = Check::default();
    L::each(&mut rx, rounds, |number| {
        check.see(&number);
        L::send(&mut tx, number);
    });
    check.finish(rounds as u64);
    control.done().store(1, Release);
    Ok(Values::new())
}

/// Sends each event to a sleeping reader. An event's number is the time at which it was sent.
fn wake<E: Event, L: Link<E>>(
    rounds: usize,
    mut tx: L::Tx,
    control: &Control,
) -> RoleResult<Values> {
    open::<E, L>(control, None);
    for round in 0..rounds as u64 {
        await_done(control, round);
        let begin = Instant::now();
        while begin.elapsed() < ASLEEP {
            spin_loop();
        }
        let time = now();
        control.sent().store(time, Release);
        L::send(&mut tx, time);
    }
    await_done(control, rounds as u64);
    Ok(Values::new())
}

fn sleep<E: Event, L: Link<E>>(
    rounds: usize,
    mut rx: L::Rx,
    control: &Control,
) -> RoleResult<Values> {
    open::<E, L>(control, Some(&mut rx));
    let mut times = Vec::with_capacity(rounds);
    for round in 1..=rounds as u64 {
        let sent = L::receive(&mut rx);
        times.push(now().saturating_sub(sent));
        assert_eq!(sent, control.sent().load(Acquire), "a wrong event");
        control.done().store(round, Release);
    }
    Ok(percentiles(times))
}

/// Sends one event after `time`.
fn rouse<E: Event, L: Link<E>>(
    time: Duration,
    mut tx: L::Tx,
    control: &Control,
) -> RoleResult<Values> {
    open::<E, L>(control, None);
    thread::sleep(time);
    L::send(&mut tx, 1);
    await_done(control, 1);
    Ok(Values::new())
}

/// Returns the processor time that waiting for the event took, in nanoseconds per second.
fn idle<E: Event, L: Link<E>>(mut rx: L::Rx, control: &Control) -> RoleResult<Values> {
    open::<E, L>(control, Some(&mut rx));
    let used = || process_cpu().ok_or("no processor time");
    let (begin, before) = (Instant::now(), used()?);
    let number = L::receive(&mut rx);
    let (after, waited) = (used()?, begin.elapsed());
    assert_eq!(number, 1, "a wrong event");
    control.done().store(1, Release);
    let used = after.saturating_sub(before);
    Ok(vec![("ns", used.as_nanos() as f64 / waited.as_secs_f64())])
}

/// Returns the percentiles of a run.
pub fn percentiles(mut times: Vec<u64>) -> Values {
    times.sort_unstable();
    let value = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64;
    vec![("p50", value(0.5)), ("p99", value(0.99))]
}
