//! How long a producer takes that learns after each event, or after each 100 events, that the last
//! stage has handled them: by `flush`, by `wait_for`, by a request per answer, and by the user's
//! own counter and condition variable in the last stage. The ways take turns in each round.
//!
//! Arguments: the number of rounds. Prints one line per round and case: nanoseconds per answer, and
//! the processor time of all threads per answer.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use slipring::{Producer, Promise, Wait};

#[derive(Default)]
struct Event {
    value: u64,
    answer: Option<Promise<()>>,
}

/// The way to learn that the last stage has handled an event.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Flush,
    WaitFor,
    Ask,
    Own,
}

/// The user's own way: a counter, and a condition variable for a waiter that sleeps.
#[derive(Default)]
struct Own {
    done: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Own {
    fn done(&self) {
        self.done.fetch_add(1, SeqCst);
        drop(self.lock.lock().unwrap());
        self.changed.notify_one();
    }
    fn wait(&self, count: u64) {
        for _ in 0..200 {
            if self.done.load(Acquire) >= count {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap();
        while self.done.load(SeqCst) < count {
            guard = self.changed.wait(guard).unwrap();
        }
    }
}

/// The processor time of this process, in nanoseconds.
fn cpu() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to the given place.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn run(way: Way, wait: &Wait, each: u64, answers: u64) -> (u64, u64) {
    let own = Own::default();
    let publish = |tx: &mut Producer<Event>, value| {
        let fill = |slot: &mut Event| slot.value = value;
        tx.publish(fill).unwrap()
    };
    let done = slipring::ring(1024, Event::default)
        .wait(wait.clone())
        .update("write", |event, _| {
            std::hint::black_box(event.value);
            if let Some(answer) = event.answer.take() {
                let _ = answer.fulfil(());
            }
            if way == Way::Own {
                own.done();
            }
        })
        .run(|tx| {
            let (began, spent) = (Instant::now(), cpu());
            for answer in 0..answers {
                for i in 1..each {
                    publish(tx, i);
                }
                match way {
                    Way::Flush => {
                        publish(tx, 0);
                        tx.flush()?;
                    }
                    Way::WaitFor => {
                        let seq = publish(tx, 0);
                        tx.wait_for("write", seq)?;
                    }
                    Way::Ask => {
                        let asked = tx.ask(|slot, answer| {
                            *slot = Event { value: 0, answer: Some(answer) };
                        });
                        asked?.wait()?;
                    }
                    Way::Own => {
                        publish(tx, 0);
                        own.wait((answer + 1) * each);
                    }
                }
            }
            let took = began.elapsed().as_nanos() as u64;
            Ok((took / answers, (cpu() - spent) / answers))
        });
    done.unwrap().value
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(9, |rounds| rounds.parse().unwrap());
    println!("round strategy each flush wait_for ask own");
    for round in 0..rounds {
        for wait in [Wait::Blocking, Wait::YIELDING] {
            for (each, answers) in [(1, 4_000), (100, 1_000)] {
                let ways = [Way::Flush, Way::WaitFor, Way::Ask, Way::Own];
                let took = ways.map(|way| run(way, &wait, each, answers));
                let took = took.map(|(nanos, cpu)| format!("{nanos}/{cpu}")).join(" ");
                println!("{round} {wait} {each} {took}");
            }
        }
    }
}
