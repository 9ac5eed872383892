//! Models of pools between processes: chunks that workers take by cells, and deaths of workers.
//! `left.rs` has the chunks that a worker has left. Each model uses the segment of
//! [`processes`](super::processes).
//!
//! The models have up to three threads and a pool of two or three workers on rings of 1 to 4 slots;
//! most models also have a stage behind the pool. A recovery runs on the thread of the process that
//! died, because the kernel orders a death before the proof of the death.

use loom::thread;

use super::mortal::lives;
use super::processes::{Segment, publish_runs};
use super::*;
use crate::base::sync::Statistic;
use crate::ring::seq_range::SeqRange;
use crate::ring::words::ChunkCell;
use crate::segment::handles_for_tests::{SegmentPoolWriter, SegmentReader};
use crate::segment::{Declaration, OnDeath, SegmentProducer, StageDeclaration, StageDelivery};

mod left;

type Worker = SegmentPoolWriter<u64>;

const LOST: Caught = Caught::Message("events were lost");
const DAMAGED: Caught = Caught::Message("the segment is damaged");

/// Number of marked stores by which a worker takes a chunk: one each for the chunk's begin, its
/// end, the number of events left, the bound, the cell, and the claim word.
const TAKE: usize = 6;

/// The stage behind the pool.
const END: usize = 1;

/// Makes a segment with a pool of `workers`, and with a stage behind the pool if the model wants
/// one. No handle sleeps.
fn segment(capacity: usize, workers: usize, end: bool, producers: usize) -> Arc<Segment> {
    waiting(capacity, workers, end, producers, Wait::BusySpin)
}

/// Like [`segment`], but with handles that wait by the strategy `wait`.
fn waiting(
    capacity: usize,
    workers: usize,
    end: bool,
    producers: usize,
    wait: Wait,
) -> Arc<Segment> {
    let stage = |name: &str, writes, delivery, after: &[usize]| StageDeclaration {
        name: name.into(),
        writes,
        delivery,
        after: after.to_vec(),
        on_death: OnDeath::Wait,
    };
    let mut stages = vec![stage("pool", true, StageDelivery::Pool(workers), &[])];
    if end {
        stages.push(stage("end", false, StageDelivery::Each, &[0]));
    }
    let producer_on_death = OnDeath::Tell;
    let declaration = Declaration { capacity, start: 0, stages, producers, producer_on_death };
    Segment::declared(declaration, wait)
}

impl Segment {
    /// Takes a free seat of the pool, or a seat whose worker left a chunk. Returns `None` if all
    /// seats have owners.
    fn worker(&self, number: u32) -> Option<Worker> {
        let ring = self.attach(number);
        let seats = || ring.seats_of(0);
        let free = seats().find(|&seat| ring.seat(seat).take(number).is_ok());
        let seat = free.or_else(|| seats().find(|&seat| ring.seat(seat).adopt_chunk(number)))?;
        // SAFETY: the seat was taken.
        Some(unsafe { ring.pool_updater(0, seat) })
    }

    fn workers<const N: usize>(&self, numbers: [u32; N]) -> [Worker; N] {
        numbers.map(|number| self.worker(number).expect("a free seat"))
    }

    /// Takes the producer's place for the process 1.
    fn first_producer(&self) -> SegmentProducer<u64> {
        let ring = self.attach(1);
        ring.seat(ring.seats_of(ring.producer_party()).start).take(1).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.producer() }
    }

    fn end(&self, number: u32) -> SegmentReader<u64> {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(END).start).take(number).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.reader(END) }
    }

    /// Settles every seat that the dead process `dead` left.
    fn settle(&self, dead: u32) {
        let ring = self.attach(7);
        (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
    }
}

/// Number of times that each event was handled. The low half of a word counts first deliveries, and
/// the high half counts deliveries that were announced as redelivered.
#[derive(Clone, Default)]
struct Handled(Arc<[Statistic; 8]>);

const ANNOUNCED: u64 = 1 << 32;
/// The number that a worker adds to an event that it handles.
const MARK: u64 = 100;

impl Handled {
    /// Handles one batch of at most `max` events. Releases the first event alone, and then the
    /// rest.
    fn work(&self, worker: &mut Worker, max: usize) -> usize {
        let Some(mut batch) = available(worker.try_batch(max)) else { return 0 };
        let (first, again, len) = (batch.first_seq(), batch.redelivered(), batch.len());
        self.mark(&mut batch[0], first, &again);
        if len > 1 {
            batch.release_front(1);
            let rest = batch.iter_mut().zip(first + 1..);
            rest.for_each(|(event, seq)| self.mark(event, seq, &again));
        }
        batch.release();
        len
    }

    fn mark(&self, event: &mut u64, seq: u64, again: &SeqRange) {
        assert_eq!(*event % MARK, seq, "an event of another position");
        *event += MARK;
        let is_announced = again.contains(seq);
        let count = if is_announced { ANNOUNCED } else { 1 };
        let before = self.0[seq as usize].fetch_add(count, Ordering::Relaxed);
        assert!(is_announced || before == 0, "{seq} is handled again, and not announced");
    }

    /// Handles all available events.
    fn work_off(&self, worker: &mut Worker) {
        while self.work(worker, 4) != 0 {}
    }

    fn assert_all(&self, events: Range<u64>) {
        for seq in events {
            let handled = self.0[seq as usize].load(Ordering::Relaxed);
            assert!(handled != 0, "events were lost: {seq} was never handled");
        }
    }
}

/// Reads all available events, in order. Returns their number.
fn read_marked(reader: &mut SegmentReader<u64>) -> usize {
    available(reader.try_batch(4)).map_or(0, |batch| {
        for (event, seq) in batch.iter().zip(batch.first_seq()..) {
            assert!(*event >= MARK + seq, "{seq} was released, and not handled");
        }
        let len = batch.len();
        batch.release();
        len
    })
}

fn read_all(reader: &mut SegmentReader<u64>, events: u64) {
    while read_marked(reader) != 0 {}
    assert_eq!(reader.next_seq(), events, "handled events are not released");
}

/// One worker dies after `stores` stores, while another works and the stage behind reads.
fn a_worker_dies(stores: usize, capacity: usize, runs: &'static [usize], least: usize) {
    explore_unfenced(least, Some(2), move || {
        let segment = segment(capacity, 2, true, 1);
        // A model's threads have small stacks.
        let mut tx = Box::new(segment.first_producer());
        let [mut one, mut two] = segment.workers([2, 3]).map(Box::new);
        let mut end = Box::new(segment.end(4));
        let handled = Handled::default();
        let events = publish_runs(&mut tx, 0, runs, runs.len()) as u64;
        let of_one = (segment.clone(), handled.clone());
        let dying = thread::spawn(move || {
            let (segment, handled) = of_one;
            lives(stores, || {
                handled.work(&mut one, 4);
                handled.work(&mut one, 4);
            });
            segment.settle(2);
            one
        });
        let reading = thread::spawn(move || {
            read_marked(&mut end);
            end
        });
        handled.work(&mut two, 4);
        let (one, mut end) = (dying.join().unwrap(), reading.join().unwrap());
        handled.work_off(&mut two);
        handled.assert_all(0..events);
        read_all(&mut end, events);
        (tx, one, two, end)
    });
}

#[test]
fn loom_a_worker_dies_while_it_takes_a_chunk() {
    (0..TAKE).for_each(|stores| a_worker_dies(stores, 4, &[3], 500));
}

#[test]
fn loom_a_worker_dies_with_a_chunk() {
    a_worker_dies(TAKE, 2, &[2], 4_000);
}

#[test]
fn loom_a_worker_dies_with_a_part_of_a_chunk() {
    a_worker_dies(TAKE + 1, 2, &[2], 4_500);
}

/// The only worker of a pool dies, with or without a chunk. The next worker takes the seat, and the
/// chunk if there is one.
#[test]
fn loom_a_worker_dies_in_the_smallest_ring() {
    for stores in 0..TAKE + 2 {
        explore_unfenced(if stores < TAKE { 1 } else { 5 }, None, move || {
            let segment = segment(1, 1, true, 1);
            let (mut tx, [mut one]) = (segment.first_producer(), segment.workers([2]));
            let (mut end, handled) = (segment.end(4), Handled::default());
            let mut published = publish_runs(&mut tx, 0, &[1], 1) as u64;
            let of_one = (segment.clone(), handled.clone());
            let dying = thread::spawn(move || {
                let (segment, handled) = of_one;
                lives(stores, || _ = handled.work(&mut one, 4));
                segment.settle(2);
                let mut two = segment.worker(3).expect("a seat, or a chunk");
                handled.work_off(&mut two);
                (one, two)
            });
            read_marked(&mut end);
            published += publish_runs(&mut tx, 0, &[1], 1) as u64;
            let (one, mut two) = dying.join().unwrap();
            handled.work_off(&mut two);
            handled.assert_all(0..published);
            read_all(&mut end, published);
            (tx, one, two, end)
        });
    }
}

#[test]
fn loom_twin_cell_before_bound() {
    caught("chunks::loom_a_worker_dies_while_it_takes_a_chunk", "cell-before-bound", Caught::Race);
}

#[test]
fn loom_twin_frontier_word_last_of_cells() {
    caught("chunks::loom_a_worker_dies_while_it_takes_a_chunk", "frontier-word-last", Caught::Race);
}

#[test]
fn loom_twin_orphan_made_idle() {
    caught("chunks::loom_a_worker_dies_while_it_takes_a_chunk", "orphan-made-idle", DAMAGED);
}

#[test]
fn loom_twin_chunk_forgotten() {
    caught("chunks::loom_a_worker_dies_while_it_takes_a_chunk", "chunk-forgotten", LOST);
}

#[test]
fn loom_twin_cell_ignored() {
    caught("chunks::loom_a_worker_dies_after_a_lost_race", "cell-ignored", Caught::Race);
}

#[test]
fn loom_twin_cell_relaxed() {
    caught("chunks::loom_a_worker_dies_while_it_takes_a_chunk", "cell-relaxed", LOST);
}

#[test]
fn loom_twin_cell_unreleased() {
    caught("chunks::loom_a_worker_dies_while_it_takes_a_chunk", "cell-unreleased", LOST);
}

/// A worker dies after it has released the first event of its chunk. Before the dead worker is
/// recovered, another worker takes a chunk of the next lap, which begins at the same slot.
#[test]
fn loom_a_worker_dies_when_its_chunks_head_is_lapped() {
    explore_unfenced(1, None, || {
        let segment = segment(2, 2, false, 1);
        let (mut tx, [mut one, mut two]) = (segment.first_producer(), segment.workers([2, 3]));
        let handled = Handled::default();
        publish_runs(&mut tx, 0, &[2], 1);
        let mut batch = one.try_batch(2).unwrap();
        handled.mark(&mut batch[0], 0, &(0..0).into());
        batch.release_front(1);
        drop(batch);
        assert_eq!(publish_runs(&mut tx, 0, &[1], 1), 1);
        handled.work_off(&mut two);
        segment.settle(2);
        handled.work_off(&mut two);
        handled.assert_all(0..3);
        (tx, one, two)
    });
}

#[test]
fn loom_twin_cell_alone() {
    caught("chunks::loom_a_worker_dies_when_its_chunks_head_is_lapped", "cell-alone", LOST);
}

/// Two workers race for two events. The winner takes only the first event, and the loser dies
/// before or while it takes the second. Another worker then takes the loser's place.
#[test]
fn loom_a_worker_dies_after_a_lost_race() {
    // The worker dies at one of three places: before it swaps the cell, before it stores the idle
    // bound, or between its stores of the begin and the end of its next chunk.
    for stores in [4, 5, 8] {
        explore_unfenced(100, Some(1), move || {
            let segment = segment(2, 2, false, 1);
            // A model's threads have small stacks.
            let mut tx = Box::new(segment.first_producer());
            let [mut one, mut two] = segment.workers([2, 3]).map(Box::new);
            let handled = Handled::default();
            let events = publish_runs(&mut tx, 0, &[2], 1) as u64;
            let of_one = (segment.clone(), handled.clone());
            let dying = thread::spawn(move || {
                let (segment, handled) = of_one;
                lives(stores, || _ = handled.work(&mut one, 4));
                segment.settle(2);
                // The other worker may have adopted the chunk by now.
                let mut three = segment.worker(5).map(Box::new);
                three.iter_mut().for_each(|three| _ = handled.work(three, 4));
                (one, three)
            });
            handled.work(&mut two, 1);
            handled.work(&mut two, 1);
            let (one, mut three) = dying.join().unwrap();
            handled.work_off(&mut two);
            three.iter_mut().for_each(|three| handled.work_off(three));
            handled.assert_all(0..events);
            (tx, one, two, three)
        });
    }
}

#[test]
fn loom_twin_bound_before_intent() {
    caught("chunks::loom_a_worker_dies_after_a_lost_race", "bound-before-intent", Caught::Race);
}

/// A worker that was held up between two loads meets the cells of the next lap.
#[test]
fn loom_a_worker_is_lapped_while_it_takes_a_chunk() {
    explore_unfenced(20, Some(1), || {
        let segment = segment(2, 2, false, 1);
        let (mut tx, [mut one, mut two]) = (segment.first_producer(), segment.workers([2, 3]));
        let handled = Handled::default();
        publish_runs(&mut tx, 0, &[2], 1);
        handled.work(&mut two, 1);
        let of_one = handled.clone();
        let slow = thread::spawn(move || {
            of_one.work(&mut one, 1);
            one
        });
        handled.work(&mut two, 1);
        let events = 2 + publish_runs(&mut tx, 0, &[1, 1], 2) as u64;
        handled.work(&mut two, 1);
        handled.work(&mut two, 1);
        let mut one = slow.join().unwrap();
        handled.work_off(&mut two);
        handled.work_off(&mut one);
        handled.assert_all(0..events);
        (tx, one, two)
    });
}

#[test]
fn loom_twin_cell_of_any_lap() {
    caught(
        "chunks::loom_a_worker_is_lapped_while_it_takes_a_chunk",
        "cell-of-any-lap",
        Caught::Race,
    );
}

#[test]
fn loom_twin_chunk_unreleased() {
    caught(
        "chunks::loom_a_worker_is_lapped_while_it_takes_a_chunk",
        "chunk-unreleased",
        Caught::Race,
    );
}

#[test]
fn loom_twin_chunk_relaxed() {
    caught("chunks::loom_a_worker_is_lapped_while_it_takes_a_chunk", "chunk-relaxed", Caught::Race);
}

/// A worker dies after `stores` stores, while it takes a tombstone. Another worker passes over the
/// tombstone's positions, and handles the event behind them.
#[test]
fn loom_a_worker_dies_with_a_tombstone() {
    for stores in 0..TAKE + 2 {
        explore_unfenced(1, None, move || {
            let segment = segment(4, 2, true, 2);
            let ring = segment.attach(1);
            let seat = ring.seats_of(ring.producer_party()).start;
            ring.seat(seat).take(1).expect("a free seat");
            // SAFETY: the seat was taken.
            let mut tx = unsafe { ring.shared_producer(seat) };
            let [mut one, mut two] = segment.workers([2, 3]);
            let (mut end, handled) = (segment.end(4), Handled::default());
            drop(tx.claim_n(2).unwrap());
            tx.publish(|event| *event = 2).unwrap();
            lives(stores, || _ = handled.work(&mut one, 4));
            segment.settle(2);
            handled.work_off(&mut two);
            handled.assert_all(2..3);
            let tombstone = handled.0[..2].iter().all(|count| count.load(Ordering::Relaxed) == 0);
            assert!(tombstone, "a tombstone is handled");
            assert_eq!((read_marked(&mut end), end.next_seq()), (1, 3));
            (tx, one, two, end)
        });
    }
}

#[test]
fn loom_twin_adopted_tombstone_unseen() {
    let how = Caught::Message("an event of another position");
    caught("chunks::loom_a_worker_dies_with_a_tombstone", "adopted-tombstone-unseen", how);
}

/// A cell names a lap and a seat; a new cell names neither.
#[test]
fn a_cell_names_lap_and_seat() {
    for shift in [0, 2, 10] {
        for seq in [0, 5, 1 << 40, u64::MAX] {
            assert_eq!(ChunkCell(0).seat(seq, shift), None);
            for seat in [0, 1, 1022] {
                let cell = ChunkCell::taken(seq, shift, seat);
                assert_eq!(cell.seat(seq, shift), Some(seat));
                assert_eq!(cell.seat(seq.wrapping_add(1 << shift), shift), None);
                assert_eq!(cell.seat(seq.wrapping_sub(1 << shift), shift), None);
            }
        }
    }
}
