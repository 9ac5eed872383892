//! Tests of a loop's pace: when the loop releases. No test depends on the
//! speed of the machine.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::base::fault::Fault;
use crate::base::panics::Contained;
use crate::consumer::drive::step;
use crate::consumer::handle::{Consumer, Reader, ShardReader};
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::consumer::pace::Pace;
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState, Runs};
use crate::consumer::sequential::StagePosition;
use crate::ring::build::build;
use crate::ring::owner::Owner;
use crate::ring::partition::Partitioner;
use crate::ring::settings::Settings;
use crate::ring::slots::Interleaved;
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::wait::{HandleLearner, Wait};

type Ring = Owner<u64, Interleaved>;

/// A handler that does nothing.
struct Nothing;

impl Handler<u64, Interleaved> for Nothing {
    fn handle(
        &mut self,
        lent: LentEvents<'_, u64, Interleaved>,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        lent.each(progress, |_, _| Ok(()))
    }
}

/// Builds a ring of 64 slots with a first stage and, behind it, the given stages.
fn empty_ring(behind: &[Delivery]) -> Ring {
    let settings = Settings { wait: Contained::new(Wait::BusySpin), ..Settings::new(64) };
    let mut stages = vec![StageSpec::new("first", Access::Read, Delivery::Each, &[])];
    for (number, &delivery) in behind.iter().enumerate() {
        stages.push(StageSpec::new(&format!("behind {number}"), Access::Read, delivery, &[0]));
    }
    build(settings, stages, Vec::new(), &mut || 0).unwrap()
}

/// Like [`empty_ring`], but all slots hold published events.
fn full_ring(behind: &[Delivery]) -> Ring {
    let ring = empty_ring(behind);
    ring.publish(0, 64);
    ring
}

fn reader(ring: &Ring, stage: usize) -> Reader<u64, Interleaved> {
    Reader::every(ring.clone(), stage, HandleLearner::default())
}

/// Runs one round of the first stage's loop, and returns the number of handled events.
fn round(first: &mut Reader<u64, Interleaved>, pace: &mut Pace) -> u64 {
    match step(first.position(), &mut Nothing, pace) {
        Ok(handled) => handled,
        Err(_) => panic!("the stage ended"),
    }
}

#[test]
fn under_a_backlog_a_pass_ends_at_a_quarter_of_the_ring() {
    let ring = full_ring(&[]);
    let mut first = reader(&ring, 0);
    let mut pace = Pace::new(first.state());
    let mut rounds = 0;
    while first.next_seq() != 64 {
        // If the system takes the core away from the test, a round ends earlier.
        let handled = round(&mut first, &mut pace);
        assert!((1..=16).contains(&handled), "{handled}");
        assert_eq!(first.position().first_unreleased(), first.next_seq(), "all is released");
        rounds += 1;
    }
    assert!(rounds >= 4, "{rounds}");
    ring.control.halt();
}

#[test]
fn levels_share_the_ring_where_each_has_a_core() {
    for (behind, oversubscribed, max_held) in
        [(&[][..], false, 16), (&[Delivery::Each][..], false, 8), (&[Delivery::Each][..], true, 16)]
    {
        let ring = full_ring(behind);
        let pace = Pace::on_cores(reader(&ring, 0).state(), oversubscribed);
        assert_eq!(pace.max_held, max_held, "{behind:?}, {oversubscribed}");
        ring.control.halt();
    }
}

#[test]
fn a_starving_follower_gets_an_event_after_a_stride() {
    for delivery in [Delivery::Each, Delivery::pool(2), Delivery::Shards(2)] {
        let ring = full_ring(&[Delivery::Each, delivery]);
        let mut first = reader(&ring, 0);
        let mut pace = Pace::new(first.state());
        // Both followers wait for the first event, so the first stride is released.
        let released = pace.stride();
        assert_eq!(round(&mut first, &mut pace), released, "{delivery:?}");
        // Now no follower waits for an event that the first stage has not released.
        assert!(!first.state().has_starving_follower(released));
        // One of the followers catches up.
        let mut behind = reader(&ring, 1);
        assert_eq!(behind.poll(8, |_, _| ()).unwrap(), released as usize);
        assert!(first.state().has_starving_follower(released), "{delivery:?}");
        let stride = pace.stride();
        assert_eq!(round(&mut first, &mut pace), stride, "{delivery:?}");
        ring.control.halt();
    }
}

/// A loop that has not read the clock for long may have learned strides that are too long.
#[test]
fn after_a_wait_strides_begin_with_one_event_if_a_stage_follows() {
    let (none, one) = (&[][..], &[Delivery::Each][..]);
    for (behind, oversubscribed, first_strides) in
        [(none, false, [7; 5]), (one, false, [1, 2, 4, 7, 7]), (one, true, [7; 5])]
    {
        let ring = full_ring(behind);
        let first = reader(&ring, 0);
        let mut pace = Pace::on_cores(first.state(), oversubscribed);
        pace.learn_stride(7);
        pace.pause();
        let strides = [(); 5].map(|()| {
            let stride = pace.stride();
            assert!(stride == 1 || !pace.is_release_due(stride - 1, || true));
            assert!(pace.is_release_due(1, || true), "a follower starves");
            stride
        });
        assert_eq!(strides, first_strides, "{behind:?}, {oversubscribed}");
        ring.control.halt();
    }
}

/// Events that come at random times come in short groups. A reading of the clock would delay the
/// rest of a group.
#[test]
fn a_group_of_seven_events_reads_no_clock() {
    for behind in [&[][..], &[Delivery::Each][..]] {
        let ring = full_ring(behind);
        let first = reader(&ring, 0);
        let mut pace = Pace::new(first.state());
        for _ in 0..100 {
            (0..7).for_each(|_| _ = pace.is_release_due(1, || false));
            assert!(!pace.has_read_clock(), "{behind:?}");
            pace.pause();
        }
        (0..15).for_each(|_| _ = pace.is_release_due(1, || false));
        assert!(pace.has_read_clock(), "{behind:?}: a backlog is timed");
        ring.control.halt();
    }
}

/// A shard passes over events of other shards, and holds these events too.
#[test]
fn a_shard_holds_at_most_a_quarter_of_the_ring_and_a_run_of_its_own() {
    let settings = Settings { wait: Contained::new(Wait::BusySpin), ..Settings::new(64) };
    let stages = vec![StageSpec::new("shards", Access::Read, Delivery::Shards(2), &[])];
    let odd = Partitioner::<u64>::Of(Box::new(|number| (number % 2) as u32));
    let mut next = 0..;
    let ring: Ring =
        build(settings, stages, vec![(0, Contained::new(odd))], &mut || next.next().unwrap())
            .unwrap();
    let plan = &ring.control.plan;
    ring.partition(&plan.producer_partitions, plan.producer_party(), 0, 64);
    ring.publish(0, 64);
    let mut shard: ShardReader<u64, Interleaved> =
        Consumer::shard(ring.clone(), 0, 0, HandleLearner::default());
    let mut pace = Pace::new(shard.state());
    while shard.next_seq() < 63 {
        let before = shard.next_seq();
        assert!(step(shard.position(), &mut Nothing, &mut pace).is_ok());
        assert!(shard.next_seq() - before <= 17, "{before} to {}", shard.next_seq());
    }
    ring.control.halt();
}

/// A handler that publishes the next event while it handles an event, up to position 7.
struct Successive(Ring);

impl Handler<u64, Interleaved> for Successive {
    fn handle(
        &mut self,
        lent: LentEvents<'_, u64, Interleaved>,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        lent.each(progress, |_, at| {
            if at.seq < 7 {
                self.0.publish(at.seq + 1, 1);
            }
            Ok(())
        })
    }
}

/// Where events come sparsely, the loop handles an event before it loads the next stamp.
#[test]
fn sparse_events_are_handled_before_the_next_stamp_is_loaded() {
    for (is_sparse, found) in [(true, 8), (false, 1)] {
        let ring = empty_ring(&[]);
        let mut first = reader(&ring, 0);
        let mut pace = Pace::new(first.state());
        pace.is_sparse = is_sparse;
        ring.publish(0, 1);
        let handled = step(first.position(), &mut Successive(ring.clone()), &mut pace);
        assert_eq!(handled.ok(), Some(found), "is_sparse: {is_sparse}");
        ring.control.halt();
    }
}

/// A release that wakes a sleeper takes long. After such a release, the loop holds its events for
/// fifty times as long, within bounds. It measures again at the next release that is due by time.
#[test]
fn a_loop_releases_the_more_rarely_the_longer_a_release_takes() {
    let micros = Duration::from_micros;
    let ring = full_ring(&[]);
    let first = reader(&ring, 0);
    let mut pace = Pace::new(first.state());
    for (took, release_after) in [(11, 550), (0, 32), (1, 50), (100_000, 1_000), (0, 32)] {
        let now = Cell::new(Instant::now());
        pace.release_timed(|| now.get(), || now.set(now.get() + micros(took)));
        assert_eq!(pace.release_after(), micros(release_after), "after {took} µs");
    }
    ring.control.halt();
}

/// A handler of batches that notes their lengths.
#[derive(Default)]
struct Lens(Vec<u64>);

impl Handler<u64, Interleaved> for Lens {
    const GATHERS: bool = true;

    fn handle(
        &mut self,
        lent: LentEvents<'_, u64, Interleaved>,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        let len = lent.read().len() as u64;
        (progress.handled, progress.found) = (len, len);
        self.0.push(len);
        Ok(())
    }
}

/// Builds a ring of 64 slots with one stage, which gathers `max` events, whatever time passes.
fn gathering_ring(delivery: Delivery, max: usize, key: fn(&u64) -> u32) -> Ring {
    let settings = Settings { wait: Contained::new(Wait::BusySpin), ..Settings::new(64) };
    let mut stage = StageSpec::new("gathers", Access::Read, delivery, &[]);
    stage.policy.gather(max, Duration::MAX);
    let keys = match delivery {
        Delivery::Shards(_) => vec![(0, Contained::new(Partitioner::Of(Box::new(key))))],
        _ => Vec::new(),
    };
    let mut next = 0..;
    build(settings, vec![stage], keys, &mut || next.next().unwrap()).unwrap()
}

/// The position of a stage, behind which the producer publishes an event as soon as a search for a
/// batch has found none.
struct Overtaken(StagePosition<u64, Interleaved>, u64);

impl ConsumerPosition<u64, Interleaved> for Overtaken {
    fn state(&self) -> &ConsumerState<u64, Interleaved> {
        self.0.state()
    }
    fn state_mut(&mut self) -> &mut ConsumerState<u64, Interleaved> {
        self.0.state_mut()
    }
    fn line(&self) -> usize {
        self.0.line()
    }
    fn next(&self) -> u64 {
        self.0.next()
    }
    fn handled(&self) -> u64 {
        self.0.handled()
    }
    fn advance(&mut self, len: u64, found: u64) {
        self.0.advance(len, found);
    }
    fn release(&mut self) {
        self.0.release();
    }
    fn rewind(&mut self) {
        self.0.rewind();
    }
    fn released(&self) -> u64 {
        self.0.released()
    }
    fn first_unreleased(&self) -> u64 {
        self.0.first_unreleased()
    }
    fn has_unreleased(&self) -> bool {
        self.0.has_unreleased()
    }
}

impl Availability<u64, Interleaved> for Overtaken {
    const MAY_PAUSE: bool = true;

    fn runs(&self) -> Runs {
        self.0.runs()
    }
    fn poll(&mut self, max: u64) -> u64 {
        self.0.poll(max)
    }
    fn gather(&mut self, least: u64, max: u64) -> u64 {
        self.0.gather(least, max)
    }
    fn grow(&mut self, len: u64) -> u64 {
        let found = self.0.grow(len);
        if found == 0 {
            self.state().core.publish(self.1, 1);
            self.1 += 1;
        }
        found
    }
    fn is_gathered(&self, len: u64, end: &mut u64) -> bool {
        self.0.is_gathered(len, end)
    }
    fn is_exhausted(&mut self, short: bool) -> bool {
        self.0.is_exhausted(short)
    }
    fn has_available(&self) -> bool {
        self.0.has_available()
    }
    fn waits_for(&self) -> usize {
        self.0.waits_for()
    }
}

/// An event that comes after the search for a batch begins a batch, and is none by itself.
#[test]
fn an_event_behind_an_empty_batch_waits_for_more() {
    let ring = gathering_ring(Delivery::Each, 3, |_| 0);
    let position = StagePosition::new(ring.clone(), 0, HandleLearner::default());
    let (mut position, mut lens) = (Overtaken(position, 0), Lens::default());
    let mut pace = Pace::new(position.state());
    let mut round = || step(&mut position, &mut lens, &mut pace).ok().unwrap();
    assert_eq!((round(), round()), (0, 0), "one event");
    ring.publish(1, 2);
    assert_eq!((round(), round()), (3, 0));
    assert_eq!(lens.0, [3]);
    ring.control.halt();
}

/// A batch of a shard ends before an event of another shard. The events behind that begin a batch
/// of their own.
#[test]
fn a_shard_gathers_again_behind_an_event_of_another_shard() {
    let ring = gathering_ring(Delivery::Shards(2), 4, |&event| u32::from(event == 2));
    let plan = &ring.control.plan;
    ring.partition(&plan.producer_partitions, plan.producer_party(), 0, 64);
    ring.publish(0, 4);
    let mut shard: ShardReader<u64, Interleaved> =
        Consumer::shard(ring.clone(), 0, 0, HandleLearner::default());
    let (mut pace, mut lens) = (Pace::new(shard.state()), Lens::default());
    let mut round = || step(shard.position(), &mut lens, &mut pace).ok().unwrap();
    assert_eq!((round(), round()), (2, 0), "two events before the event of another shard");
    ring.publish(4, 3);
    assert_eq!((round(), round()), (4, 0));
    assert_eq!(lens.0, [2, 4]);
    ring.control.halt();
}
