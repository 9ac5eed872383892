//! The queue contenders: a bounded queue for each edge of the graph.
//!
//! A queue has one receiver. So in a pool, the producer deals the slices to the workers' queues in
//! turn, and the reducer takes the results from the workers in the same order. In this way, the
//! reducer gets all slices in order.
//!
//! No thread waits for a thread that is gone: a thread that ends drops its ends of the queues,
//! which ends the waits at the other ends.

use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};

use super::setup::{Computed, Setup, Shape};
use super::slices::{Job, Journal, Reduction};
use crate::lab::contenders::queue::{Disconnected, Queue, Receive, Sender};

/// Capacity of each queue: as many slices as the ring has slots.
const CAPACITY: usize = 1 << 14;

/// A result: the slice's number, and its sum.
type Sum = (u64, f64);

/// Computes all slices with threads, and a queue for each edge.
pub fn compute<Q: Queue>(setup: &Setup) -> Result<Computed> {
    let Setup { shape, workers, job, .. } = *setup;
    thread::scope(|scope| {
        let (mut to_workers, mut sums, mut computing) = (Vec::new(), Vec::new(), Vec::new());
        for own in 0..workers as u64 {
            let (to_worker, slices) = Q::bounded(CAPACITY);
            let (sum, from_worker) = Q::bounded(CAPACITY);
            let share = match shape {
                Shape::Broadcast => Some((own, workers as u64)),
                Shape::Pool | Shape::PoolInFanOut => None,
            };
            computing.push(start(scope, move || work(job, share, &slices, &sum))?);
            to_workers.push(to_worker);
            sums.push(from_worker);
        }
        let (mut to_journal, mut entered, mut journalling) = (None, None, None);
        if shape.has_journal() {
            let (to, slices) = Q::bounded(CAPACITY);
            let (entry, from) = Q::bounded(CAPACITY);
            journalling = Some(start(scope, move || keep_journal(&slices, &entry))?);
            (to_journal, entered) = (Some(to), Some(from));
        }
        let reducing = start(scope, move || reduce(job, &sums, entered.as_ref()))?;
        let began = Instant::now();
        let produced = produce(setup, &to_workers, to_journal.as_ref());
        // Once these ends are dropped, no more slices come, and all other threads end.
        drop((to_workers, to_journal));
        let computed = computing.into_iter().map(join).sum::<Result<u64>>();
        let journal = journalling.map(join).transpose();
        let reduction = join(reducing);
        produced?;
        Ok(Computed { began, reduction: reduction?, computed: computed?, journal: journal? })
    })
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    task: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new().spawn_scoped(scope, task).context("cannot start a thread")
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread of the queues panicked"))
}

/// Sends each slice to all workers, or to the next one in turn, and to the journal.
fn produce(
    setup: &Setup,
    to_workers: &[impl Sender<u64>],
    to_journal: Option<&impl Sender<u64>>,
) -> Result<()> {
    let gone = |_: Disconnected| anyhow!("a thread ended too early");
    let mut turns = (0..to_workers.len()).cycle();
    for number in 0..setup.job.slices {
        match setup.shape {
            Shape::Broadcast => {
                for to_worker in to_workers {
                    to_worker.send(number).map_err(gone)?;
                }
            }
            Shape::Pool | Shape::PoolInFanOut => {
                let turn = turns.next().context("there is no worker")?;
                to_workers[turn].send(number).map_err(gone)?;
            }
        }
        if let Some(to_journal) = to_journal {
            to_journal.send(number).map_err(gone)?;
        }
    }
    Ok(())
}

/// Runs a worker, which computes every slice that it gets, or only its share `(own, workers)`: the
/// slices whose number modulo `workers` is `own`. Returns the number of computed slices.
fn work(
    job: Job,
    share: Option<(u64, u64)>,
    slices: &impl Receive<u64>,
    sums: &impl Sender<Sum>,
) -> u64 {
    let mut computed = 0;
    while let Some(number) = slices.receive() {
        if share.is_none_or(|(own, workers)| number % workers == own) {
            computed += 1;
            if sums.send((number, job.slice(number))).is_err() {
                break;
            }
        }
    }
    computed
}

/// Runs the journal, which reports each entry to the reducer.
fn keep_journal(slices: &impl Receive<u64>, entered: &impl Sender<u64>) -> Journal {
    let mut journal = Journal::default();
    while let Some(number) = slices.receive() {
        journal.enter(number);
        if entered.send(number).is_err() {
            break;
        }
    }
    journal
}

/// Runs the reducer. It takes the slices from the workers in turn, and each slice only after its
/// entry in the journal.
fn reduce(job: Job, sums: &[impl Receive<Sum>], entered: Option<&impl Receive<u64>>) -> Reduction {
    let mut reduction = Reduction::new(job);
    // Without workers the loop ends at once, and the check then finds no slice.
    for turn in sums.iter().cycle() {
        if entered.is_some_and(|entered| entered.receive().is_none()) {
            break;
        }
        let Some((number, sum)) = turn.receive() else { break };
        reduction.add(number, sum);
    }
    reduction
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    const JOB: Job = Job { slices: 1_000, terms: 10 };

    /// Runs two workers of a broadcast, each with the given share.
    fn shares(shares: [(u64, u64); 2]) -> String {
        let mut computed = 0;
        let (sums, receivers): (Vec<_>, Vec<_>) =
            shares.iter().map(|_| sync_channel(JOB.slices as usize)).unzip();
        for (share, sum) in shares.into_iter().zip(sums) {
            let (to_worker, slices) = sync_channel(JOB.slices as usize);
            (0..JOB.slices).for_each(|number| to_worker.send(number).unwrap());
            drop(to_worker);
            computed += work(JOB, Some(share), &slices, &sum);
        }
        let checked = reduce(JOB, &receivers, None::<&Receiver<u64>>).check(computed);
        checked.map_or_else(|error| error.to_string(), |_| "right".to_owned())
    }

    #[test]
    fn a_slice_of_no_worker_or_of_two_workers_is_detected() {
        assert_eq!(shares([(0, 2), (1, 2)]), "right");
        assert!(shares([(0, 2), (3, 4)]).contains("750 slices were computed"));
        assert!(shares([(0, 2), (0, 1)]).contains("1500 slices were computed"));
        assert!(shares([(1, 2), (0, 2)]).contains("out of order"));
    }

    #[test]
    fn a_reducer_that_is_gone_ends_the_workers() {
        let (to_worker, slices) = sync_channel(4);
        let (sum, sums) = sync_channel(1);
        drop(sums);
        (0..4).for_each(|number| to_worker.send(number).unwrap());
        assert_eq!(work(JOB, None, &slices, &sum), 1);
    }
}
