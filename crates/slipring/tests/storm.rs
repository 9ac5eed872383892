//! Random graphs with a random ending: each graph ends; every stage sees each event once and in
//! order, after all writers before that stage; the report's counts agree. A seed determines a graph
//! (a *storm*); `STORMS=from..to` selects the seeds.

mod common;

use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use common::{Oops, PURPOSE, ends};
use slipring::{Chain, Error, PRODUCER, SharedProducer, Wait, WaitError};

/// xorshift64*
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

#[derive(Clone, Copy, Default)]
struct Ev {
    seq: u64,
    writes: u64,
}

/// The events that one stage has seen, over all of its workers.
struct Seen {
    name: String,
    /// Number of writers before the stage.
    writers: u64,
    /// Whether the stage has a single handle, which sees events in order.
    one: bool,
    /// Offset of the last event, counted from 1.
    last: AtomicU64,
    count: AtomicU64,
    sum: AtomicU64,
}

/// The ending of a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Well,
    Panic,
    Error,
    Halt,
    ProducerError,
    CloseAll,
}

struct Storm {
    seed: u64,
    end: End,
    /// The stage that fails, if `end` is `Panic` or `Error`.
    victim: usize,
    /// Offset of the event after which the victim fails.
    at: u64,
    /// First position of the ring.
    start: u64,
    seen: Vec<Seen>,
    /// Whether the victim has failed.
    struck: AtomicBool,
}

impl Storm {
    fn see(&self, stage: usize, ev: &Ev, seq: u64) -> Result<(), Oops> {
        let seen = &self.seen[stage];
        assert_eq!((ev.seq, ev.writes), (seq, seen.writers), "stage {} at {seq}", seen.name);
        let offset = seq.wrapping_sub(self.start) + 1;
        let last = seen.last.swap(offset, SeqCst);
        assert!(!seen.one || last < offset, "stage {} saw {offset} after {last}", seen.name);
        if stage == self.victim
            && offset > self.at
            && matches!(self.end, End::Panic | End::Error)
            && !self.struck.swap(true, SeqCst)
        {
            if self.end == End::Panic {
                panic!("struck {PURPOSE}");
            }
            return Err(Oops(seq));
        }
        seen.count.fetch_add(1, SeqCst);
        seen.sum.fetch_add(offset, SeqCst);
        Ok(())
    }
}

/// The kind of a stage. All kinds are chosen before the chain is made, because the handlers need
/// them.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Write,
    WritePool(usize),
    WriteBatch,
    Fan,
    Read,
    ReadPool(usize),
    ReadBatch,
}

fn chain(
    plans: &[(Plan, bool)],
    storm: &Arc<Storm>,
    capacity: usize,
    wait: Wait,
) -> Chain<'static, Ev> {
    let mut stage = 0;
    let mut next = || {
        stage += 1;
        (stage - 1, storm.seen[stage - 1].name.clone(), storm.clone())
    };
    let mut chain = slipring::ring(capacity, Ev::default).wait(wait).first_seq(storm.start);
    for &(plan, together) in plans {
        let mut single = true;
        chain = match plan {
            Plan::Write => {
                let (i, name, s) = next();
                chain.write(&name, move |ev, at| s.see(i, ev, at.seq).map(|()| ev.writes += 1))
            }
            Plan::WriteBatch => {
                let (i, name, s) = next();
                chain.write_batch(&name, move |events, first| {
                    for (ev, seq) in
                        events.iter_mut().zip((0..).map(|offset| first.wrapping_add(offset)))
                    {
                        s.see(i, ev, seq)?;
                        ev.writes += 1;
                    }
                    Ok::<(), Oops>(())
                })
            }
            Plan::WritePool(workers) => {
                single = false;
                let (i, name, s) = next();
                chain.write_pool(&name, workers, move |_| {
                    let s = s.clone();
                    move |ev, at| s.see(i, ev, at.seq).map(|()| ev.writes += 1)
                })
            }
            Plan::Read => {
                let (i, name, s) = next();
                chain.read(&name, move |ev, at| s.see(i, ev, at.seq))
            }
            Plan::ReadBatch => {
                let (i, name, s) = next();
                chain.read_batch(&name, move |events, first| {
                    (0..events.len()).try_for_each(|offset| {
                        s.see(i, &events[offset], first.wrapping_add(offset as u64))
                    })
                })
            }
            Plan::ReadPool(workers) => {
                single = false;
                let (i, name, s) = next();
                chain.read_pool(&name, workers, move |_| {
                    let s = s.clone();
                    move |ev, at| s.see(i, ev, at.seq)
                })
            }
            Plan::Fan => {
                single = false;
                let ((a, a_name, sa), (b, b_name, sb), (c, c_name, sc), (d, d_name, sd)) =
                    (next(), next(), next(), next());
                chain.fan_out(|side| {
                    let side = side.read(&a_name, move |ev, at| sa.see(a, ev, at.seq));
                    let side = if together { side.on("together") } else { side };
                    side.read_pool(&b_name, 1, move |_| {
                        let sb = sb.clone();
                        move |ev, at| sb.see(b, ev, at.seq)
                    })
                    .branch(|line| {
                        line.read(&c_name, move |ev, at| sc.see(c, ev, at.seq))
                            .read(&d_name, move |ev, at| sd.see(d, ev, at.seq))
                    })
                })
            }
        };
        if together && single {
            chain = chain.on("together");
        }
    }
    chain
}

/// Runs one producer, which makes claims of 1 to 3 slots, some of them dropped or forgotten.
/// Returns the number of published events, and the sum of their offsets.
fn produce(
    tx: &mut SharedProducer<Ev>,
    mut dice: Dice,
    claims: u64,
    start: u64,
) -> Result<(u64, u64), WaitError> {
    let (mut count, mut sum) = (0, 0);
    let capacity = tx.capacity() as u64;
    for _ in 0..claims {
        let len = 1 + dice.roll(capacity.min(3));
        let mut slots = match tx.claim_n(len as usize) {
            Ok(slots) => slots,
            Err(slipring::ClaimError::Wait(closed)) => return Err(closed),
            Err(other) => panic!("{other}"),
        };
        match dice.roll(8) {
            0 => drop(slots),
            1 => forget(slots),
            _ => {
                let first = slots.first_seq();
                for (offset, slot) in (0..).zip(slots.iter_mut()) {
                    let seq = first.wrapping_add(offset);
                    *slot = Ev { seq, writes: 0 };
                    sum += seq.wrapping_sub(start) + 1;
                }
                count += len;
                slots.publish();
            }
        }
        if dice.roll(20) == 0 {
            thread::sleep(Duration::from_micros(dice.roll(200)));
        }
    }
    Ok((count, sum))
}

fn storm(seed: u64) {
    let mut dice = Dice::new(seed);
    let capacity = 1usize << dice.roll(5);
    let workers = |dice: &mut Dice| 1 + dice.roll(capacity.min(3) as u64) as usize;
    let mut plans = Vec::new();
    for _ in 0..dice.roll(4) {
        let plan = match dice.roll(7) {
            0 => Plan::Write,
            1 => Plan::WriteBatch,
            2 => Plan::WritePool(workers(&mut dice)),
            3 => Plan::Fan,
            4 => Plan::Read,
            5 => Plan::ReadBatch,
            _ => Plan::ReadPool(workers(&mut dice)),
        };
        plans.push((plan, dice.roll(4) == 0));
    }
    let mut seen = Vec::new();
    let mut writers = 0;
    let mut stage = |one, writers| {
        let name = format!("stage-{}", seen.len());
        seen.push(Seen {
            name,
            writers,
            one,
            last: AtomicU64::new(0),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        });
    };
    for (plan, _) in &plans {
        match plan {
            Plan::Fan => [true, false, true, true].into_iter().for_each(|one| stage(one, writers)),
            plan => stage(!matches!(plan, Plan::WritePool(_) | Plan::ReadPool(_)), writers),
        }
        writers += u64::from(matches!(plan, Plan::Write | Plan::WritePool(_) | Plan::WriteBatch));
    }
    let end = [
        End::Well,
        End::Well,
        End::Panic,
        End::Error,
        End::Halt,
        End::ProducerError,
        End::CloseAll,
    ][dice.roll(7) as usize];
    let wait = match dice.roll(10) {
        // Spinning threads that outnumber the cores take very long.
        0 if plans.len() < 2 => Wait::BusySpin,
        1 | 2 => Wait::YIELDING,
        3 => Wait::SLEEPING,
        _ => Wait::Blocking,
    };
    let start = [0, 0, u64::MAX - dice.roll(50), (1 << 48) - dice.roll(50)][dice.roll(4) as usize];
    let (victim, at) = (dice.roll(seen.len().max(1) as u64) as usize, dice.roll(40));
    let storm =
        Arc::new(Storm { seed, end, victim, at, start, seen, struck: AtomicBool::new(false) });
    let producers = 1 + dice.roll(3);
    let claims = dice.roll(40);
    let name = format!(
        "storm {seed}: {plans:?}, {capacity} slots, {wait}, {producers} producers, {claims} claims each, {end:?}"
    );
    ends(&name, move || {
        let chain = chain(&plans, &storm, capacity, wait);
        let mut published = (0, 0);
        let outcome = chain.run_shared(|p| {
            let parts = thread::scope(|scope| {
                let parts: Vec<_> = (0..producers)
                    .map(|i| {
                        let (mut tx, dice) = (p.clone(), Dice::new(seed ^ (i + 1) << 32));
                        scope.spawn(move || produce(&mut tx, dice, claims, start))
                    })
                    .collect();
                thread::sleep(Duration::from_micros(dice.roll(500)));
                match end {
                    End::Halt => p.halt(),
                    End::CloseAll => p.clone().close_all(),
                    _ => {}
                }
                parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<_>>()
            });
            if end == End::ProducerError {
                Err(Oops(99))?;
            }
            for part in parts {
                let (count, sum) = part?;
                published = (published.0 + count, published.1 + sum);
            }
            Ok(())
        });
        check(&storm, outcome.map(|done| done.report), published);
    });
}

/// Asserts that the outcome fits the storm's ending, and that the counts fit the published events.
fn check(storm: &Storm, outcome: Result<slipring::Report, Error>, published: (u64, u64)) {
    let seed = storm.seed;
    let all = |report: &slipring::Report| {
        for seen in &storm.seen {
            let reported = report.stage(&seen.name).unwrap();
            assert_eq!(
                (seen.count.load(SeqCst), seen.sum.load(SeqCst)),
                published,
                "seed {seed}, {}",
                seen.name
            );
            assert_eq!(
                (reported.events, reported.tombstones),
                (published.0, report.producer().tombstones),
                "seed {seed}\n{report}"
            );
        }
        assert_eq!(report.producer().events, published.0);
    };
    match (storm.end, outcome) {
        (End::Well, Ok(report)) => all(&report),
        (End::Panic | End::Error, Ok(report)) => {
            assert!(!storm.struck.load(SeqCst), "seed {seed}: a stage failed without an error");
            all(&report);
        }
        (End::Panic, Err(error)) => {
            assert_eq!(
                error.stage(),
                Some(&*storm.seen[storm.victim].name),
                "seed {seed}: {error}"
            );
            assert!(error.to_string().contains("struck"), "seed {seed}: {error}");
        }
        (End::Error, Err(error)) => {
            assert_eq!(
                error.stage(),
                Some(&*storm.seen[storm.victim].name),
                "seed {seed}: {error}"
            );
            let Oops(seq) = error.downcast_ref().unwrap();
            // A batch handler's error names the first position of its batch.
            assert!(seq.wrapping_sub(error.seq().unwrap()) < 16, "seed {seed}: {error}");
        }
        (End::Halt, Ok(report)) => assert!(report.halted()),
        // The closure returned the error that its producers got: `Closed` or `Halted`.
        (End::Halt | End::CloseAll, Err(error)) => {
            assert_eq!(error.stage(), Some(PRODUCER), "seed {seed}: {error}")
        }
        (End::CloseAll, Ok(report)) => all(&report),
        (End::ProducerError, Err(error)) => {
            assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(99)), "seed {seed}: {error}")
        }
        (end, Ok(_)) => panic!("seed {seed}: {end:?} ended without an error"),
        (end, Err(error)) => panic!("seed {seed}: {end:?} ended with {error}"),
    }
}

#[test]
fn random_graphs_end_with_consistent_counts() {
    let _watched = crate::common::watched();
    let asked = std::env::var("STORMS").ok();
    let (from, to) = match asked.as_deref().and_then(|range| range.split_once("..")) {
        Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
        None => (0, if cfg!(miri) { 8 } else { 100 }),
    };
    (from..to).for_each(storm);
}
