//! Round trips of a number between two threads, each bound to its CPU.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Builder};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use slipring::{Graph, Producer, Reader, Wait};
use slipring_machine::{Clock, allowed_cpus, pin};

/// Number of trips before the measured ones. During the first trips, the threads start and the
/// caches fill.
const WARM_UP: u64 = 100;
/// Number of polls between two checks whether the other thread has ended.
const POLLS: u32 = 1024;
/// Slots of each ring.
const CAPACITY: usize = 8;

/// The CPUs of the two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// CPU of the thread that sends first and times the trips.
    pub from: usize,
    /// CPU of the thread that answers.
    pub to: usize,
}

impl Pair {
    /// Returns whether the threads share a CPU, so that a thread that waits must yield.
    fn is_shared(self) -> bool {
        self.from == self.to
    }
}

/// The two ends that a thread holds: it sends numbers through one direction, and receives numbers
/// through the other.
trait Ends: Send {
    fn send(&mut self, number: u64) -> Result<()>;
    /// Waits for the next number. It is an error if the other thread has ended.
    fn receive(&mut self) -> Result<u64>;
}

/// Measures round trips through two words, each on cache lines of its own. Returns the time of each
/// trip, in nanoseconds.
pub fn by_atomics(pair: Pair, trips: u64) -> Result<Vec<u64>> {
    let [there, back] = [(); 2].map(|()| Way::default());
    let yields = pair.is_shared();
    let near = Words { sends: &there, receives: &back, last: 0, yields };
    let far = Words { sends: &back, receives: &there, last: 0, yields };
    between(pair, trips, near, far)
}

/// Measures round trips through two rings.
pub fn by_rings(pair: Pair, trips: u64) -> Result<Vec<u64>> {
    // The rings are built before the threads are bound, because the library counts the CPUs that it
    // may use. A thread that shares its CPU yields after each poll, as in `by_atomics`.
    let wait = if pair.is_shared() { Wait::Yielding { spins: 0 } } else { Wait::BusySpin };
    let ((to_far, at_far), (to_near, at_near)) = (ring(&wait)?, ring(&wait)?);
    between(pair, trips, Rings(to_far, at_near), Rings(to_near, at_far))
}

fn ring(wait: &Wait) -> Result<(Producer<u64>, Reader<u64>)> {
    let graph = Graph::new(CAPACITY, || 0).wait(wait.clone());
    let key = graph.reader("reader");
    let ring = graph.build()?;
    Ok((ring.producer(), ring.reader(key)))
}

/// Runs both threads. A thread that returns drops its ends of the link, so the other thread does
/// not wait for it any longer.
fn between(pair: Pair, trips: u64, near: impl Ends, far: impl Ends) -> Result<Vec<u64>> {
    thread::scope(|scope| {
        let refused = "cannot start a thread";
        let answering = move || answer(pair.to, trips + WARM_UP, far);
        let answering = Builder::new().spawn_scoped(scope, answering).context(refused)?;
        let asking = move || ask(pair.from, trips + WARM_UP, near);
        // If this thread does not start, its ends are dropped, and the wait of the other thread
        // ends.
        let asking = Builder::new().spawn_scoped(scope, asking).context(refused)?;
        let asked = asking.join().map_err(|_| anyhow!("the sender's thread panicked"));
        let answered = answering.join().map_err(|_| anyhow!("the answering thread panicked"));
        match (asked.and_then(|asked| asked), answered.and_then(|answered| answered)) {
            (Ok(times), Ok(())) => Ok(times),
            // The thread that failed first has ended the other one, so only the first error says
            // why.
            (Err(error), Err(_)) if !error.is::<Ended>() => Err(error),
            (_, Err(error)) | (Err(error), _) => Err(error),
        }
    })
}

/// Sends the numbers one after the other, each when the previous one has come back.
fn ask(cpu: usize, trips: u64, mut ends: impl Ends) -> Result<Vec<u64>> {
    bind(cpu)?;
    let clock = Clock::start();
    let mut times = Vec::with_capacity(trips as usize);
    let mut before = clock.ns();
    for number in 1..=trips {
        ends.send(number)?;
        let back = ends.receive()?;
        // The clock is read once for each trip: the end of a trip is the start of the next.
        let now = clock.ns();
        times.push(now - before);
        before = now;
        ensure!(back == answer_to(number), "{back} came back for {number}");
    }
    times.drain(..WARM_UP as usize);
    Ok(times)
}

/// Answers each number, after a check that it is the next one.
fn answer(cpu: usize, trips: u64, mut ends: impl Ends) -> Result<()> {
    bind(cpu)?;
    for expected in 1..=trips {
        let number = ends.receive()?;
        ends.send(answer_to(number))?;
        ensure!(number == expected, "{number} arrived instead of {expected}");
    }
    Ok(())
}

/// Returns the answer to a number. From the answer, the sender sees that the other thread has read
/// the number.
fn answer_to(number: u64) -> u64 {
    !number
}

/// Binds the calling thread to a CPU.
pub fn bind(cpu: usize) -> Result<()> {
    pin(cpu);
    if allowed_cpus() != [cpu] {
        bail!("the system does not let a thread be bound to CPU {cpu}");
    }
    Ok(())
}

/// The error of a wait for a thread that has ended.
#[derive(Debug)]
struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other thread ended too early")
    }
}

impl std::error::Error for Ended {}

/// A word on cache lines of its own: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Way {
    word: AtomicU64,
    ended: Line,
}

/// A flag, on cache lines of its own, that says whether the sender has ended.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicBool);

/// One thread's side of two words: it sends through one and receives through the other.
struct Words<'a> {
    sends: &'a Way,
    receives: &'a Way,
    /// Number that was received last.
    last: u64,
    yields: bool,
}

impl Ends for Words<'_> {
    fn send(&mut self, number: u64) -> Result<()> {
        self.sends.word.store(number, Ordering::Release);
        Ok(())
    }

    fn receive(&mut self) -> Result<u64> {
        loop {
            // The flag is read before the polls, so that they still find a number that was sent
            // before the end.
            let ended = self.receives.ended.0.load(Ordering::Acquire);
            for _ in 0..POLLS {
                let number = self.receives.word.load(Ordering::Acquire);
                if number != self.last {
                    self.last = number;
                    return Ok(number);
                }
                if self.yields { thread::yield_now() } else { hint::spin_loop() }
            }
            if ended {
                return Err(Ended.into());
            }
        }
    }
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        self.sends.ended.0.store(true, Ordering::Release);
    }
}

/// One thread's side of two rings: it sends through one and receives through the other.
struct Rings(Producer<u64>, Reader<u64>);

impl Ends for Rings {
    fn send(&mut self, number: u64) -> Result<()> {
        self.0.publish(|slot| *slot = number).map_err(|_| Ended)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<u64> {
        let batch = self.1.batch(1).map_err(|_| Ended)?;
        let number = batch[0];
        batch.release();
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first CPU and the last one, which may be the same.
    fn pairs() -> Vec<Pair> {
        let cpus = allowed_cpus();
        let Some((&first, &last)) = cpus.first().zip(cpus.last()) else { return Vec::new() };
        vec![Pair { from: first, to: last }, Pair { from: first, to: first }]
    }

    #[test]
    fn each_trip_is_timed_between_two_cpus_and_on_one() {
        for pair in pairs() {
            assert_eq!(by_atomics(pair, 50).unwrap().len(), 50);
            assert_eq!(by_rings(pair, 50).unwrap().len(), 50);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_cpu_that_does_not_exist_is_named_and_ends_both_threads() {
        let (cpu, missing) = (pairs()[0].from, 1023);
        for pair in [Pair { from: cpu, to: missing }, Pair { from: missing, to: cpu }] {
            for run in [by_atomics, by_rings] {
                let message = run(pair, 50).unwrap_err().to_string();
                assert!(message.contains("CPU 1023"), "{message}");
            }
        }
    }

    /// Ends that lose, repeat or change the tenth number.
    struct Faulty<E> {
        good: E,
        fault: fn(u64) -> u64,
    }

    impl<E: Ends> Ends for Faulty<E> {
        fn send(&mut self, number: u64) -> Result<()> {
            let number = if number == answer_to(10) { (self.fault)(number) } else { number };
            self.good.send(number)
        }

        fn receive(&mut self) -> Result<u64> {
            self.good.receive()
        }
    }

    #[test]
    fn a_wrong_answer_is_an_error() {
        let Some(&pair) = pairs().first() else { return };
        for fault in [|number| number - 1, |number: u64| number + 2] {
            let (to_far, at_far) = ring(&Wait::YIELDING).unwrap();
            let (to_near, at_near) = ring(&Wait::YIELDING).unwrap();
            let far = Faulty { good: Rings(to_near, at_far), fault };
            let message = between(pair, 50, Rings(to_far, at_near), far).unwrap_err().to_string();
            assert!(message.contains("came back for 10"), "{message}");
        }
    }
}
