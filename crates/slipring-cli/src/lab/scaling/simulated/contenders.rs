//! The ways to divide the work among consumers, on virtual cores.
//!
//! The programs are those of `scaling/contenders.rs`: the ring's are the library itself, compiled
//! for the simulator, and the queue is built on the simulator's lock and conditions. Each run is
//! *warm* before its measured part begins: all threads run, and have handled events.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use slipring_coherence::sync::{Builder, scope, virtual_nanos};
use slipring_coherence::{Machine, Placement, Report, Simulation, begin_measuring, work};

use super::super::contenders::{PARTITIONED, POOL, QUEUE};
use super::super::work::{Job, Tally};
use super::queue::LockedQueue;

/// Virtual time of one sort: about that of a real one on the machines of `records/`.
pub const SORT: Duration = Duration::from_nanos(60);

/// Number of real sorts for each event. The others take virtual time only.
const REAL_SORTS: u32 = 1;

/// Capacity of the ring and of the queue, in events. It is small, so that a run is many laps long
/// and the producer feels the consumers' pace for most of it.
pub const CAPACITY: usize = 128;

/// Number of events that each consumer handles before the measured part begins.
const WARM_UP: u64 = 4;

/// A way to divide the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    Queue,
    Partitioned,
    Pool,
}

impl Contender {
    pub const ALL: [Contender; 3] = [Contender::Queue, Contender::Partitioned, Contender::Pool];

    /// Returns the name of the same program on real cores.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Queue => QUEUE,
            Contender::Partitioned => PARTITIONED,
            Contender::Pool => POOL,
        }
    }
}

/// A run: who divides the work, and among how many.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub contender: Contender,
    pub consumers: usize,
    /// Number of measured events.
    pub events: u64,
    /// Number of sorts for each event.
    pub sorts: u32,
}

/// The outcome of a run.
pub struct Simulated {
    pub report: Report,
    /// Virtual time from the first measured publication to the end of the last event's work.
    pub took: Duration,
}

impl Run {
    /// Runs the program on a machine, and checks the work.
    pub fn simulate(&self, machine: &Machine, placement: Placement) -> Result<Simulated> {
        let warm_up = WARM_UP * self.consumers as u64;
        let job = Job { first: 0, events: warm_up + self.events, sorts: REAL_SORTS };
        let stage = Stage {
            sorts: self.sorts,
            warm_up,
            tallies: (0..self.consumers).map(|_| Tally::default()).collect(),
            handled: AtomicU64::new(0),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        };
        let mut outcome = Ok(());
        let body = || outcome = self.produce(job, &stage);
        let report = Simulation::new(machine).place(placement).thread("producer", body).run()?;
        outcome?;
        job.check(&stage.tallies)?;
        let took = stage.ended.load(Relaxed).checked_sub(stage.began.load(Relaxed));
        let took = Duration::from_nanos(took.unwrap_or(0));
        ensure!(!took.is_zero(), "the measured part took no virtual time");
        Ok(Simulated { report, took })
    }

    /// Runs on the producer's core.
    fn produce(&self, job: Job, stage: &Stage) -> Result<()> {
        match self.contender {
            Contender::Queue => queue(job, stage),
            Contender::Partitioned => partitioned(job, stage),
            Contender::Pool => pool(job, stage),
        }
    }
}

/// The consumers' work, and the virtual times of its begin and end. These words are bookkeeping of
/// the experiment: they are no words of the simulator, so they move no virtual lines.
struct Stage {
    sorts: u32,
    warm_up: u64,
    tallies: Vec<Tally>,
    /// Number of events whose work is done.
    handled: AtomicU64,
    /// Virtual nanoseconds at which the measured part began.
    began: AtomicU64,
    /// Virtual nanoseconds at which the last work ended so far.
    ended: AtomicU64,
}

impl Stage {
    /// Does a consumer's work on an event in virtual time, and a part of it for real, so that it
    /// can be checked.
    fn handle(&self, consumer: usize, event: u64) {
        self.tallies[consumer].work(event, REAL_SORTS);
        work(SORT * self.sorts);
        self.handled.fetch_add(1, Relaxed);
        self.ended.fetch_max(virtual_nanos().unwrap_or(0), Relaxed);
    }

    /// Called before each publication. Before the first measured one, waits until the consumers
    /// have handled all earlier events, and forgets the counts so far.
    fn before(&self, event: u64) {
        if event == self.warm_up {
            while self.handled.load(Relaxed) < self.warm_up {
                work(Duration::from_nanos(500));
            }
            begin_measuring();
            self.began.store(virtual_nanos().unwrap_or(0), Relaxed);
        }
    }
}

/// Passes all events through one queue, from which all consumers take.
fn queue(job: Job, stage: &Stage) -> Result<()> {
    let queue = LockedQueue::new(CAPACITY);
    let queue = &*queue;
    scope(|scope| {
        for consumer in 0..stage.tallies.len() {
            let consume = move || {
                while let Some(event) = queue.take() {
                    stage.handle(consumer, event);
                }
            };
            Builder::new().name(format!("sort-{consumer}")).spawn_scoped(scope, consume)?;
        }
        for event in job.numbers() {
            stage.before(event);
            ensure!(queue.put(event), "the queue is closed");
        }
        queue.close();
        Ok(())
    })
}

/// Passes all events through a ring with a handler for each consumer: every handler sees every
/// event, and handles the events whose position modulo the number of handlers is its own.
fn partitioned(job: Job, stage: &Stage) -> Result<()> {
    let handlers = stage.tallies.len();
    slipring_simulated::ring(CAPACITY, || 0_u64)
        .fan_out(|side| {
            (0..handlers).fold(side, |side, own| {
                side.read(&format!("sort-{own}"), move |event, at| {
                    if at.seq % handlers as u64 == own as u64 {
                        stage.handle(own, *event);
                    }
                })
            })
        })
        .run(|producer| {
            for event in job.numbers() {
                stage.before(event);
                producer.publish(|slot| *slot = event)?;
            }
            Ok(())
        })?;
    Ok(())
}

/// Passes all events through a ring with a pool that has a worker for each consumer.
fn pool(job: Job, stage: &Stage) -> Result<()> {
    slipring_simulated::ring(CAPACITY, || 0_u64)
        .read_pool("sort", stage.tallies.len(), |worker| {
            move |event, _| stage.handle(worker, *event)
        })
        .run(|producer| {
            for event in job.numbers() {
                stage.before(event);
                producer.publish(|slot| *slot = event)?;
            }
            Ok(())
        })?;
    Ok(())
}
