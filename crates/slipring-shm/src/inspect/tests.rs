//! Tests of the summaries of segments in use, and of damaged segments.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use slipring::segment::Ending;
use slipring::{Wait, errors::BatchError, handles::StartAt};

use super::*;
use crate::file::location::Location;
use crate::system::limits::FOLDER;
use crate::{Attached, Segment};

struct Name(String);

impl Name {
    fn new(test: &str) -> Name {
        Name(format!("inspect-{test}-{}", std::process::id()))
    }

    fn attach(&self, first: u64) -> Attached<u64> {
        let segment = Segment::create(&self.0).capacity(4).first_seq(first);
        let segment = segment.reader("one").reader("two").after(["one"]);
        let segment = segment.tap("tap", 2).build().unwrap();
        // SAFETY: only this test opens the segment.
        unsafe { segment.attach().unwrap() }
    }

    fn look(&self) -> Summary {
        inspect(&self.0).unwrap()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // The file is removed even if a handle was leaked.
        let _ = fs::remove_file(Path::new(FOLDER).join(format!("{}.slipring", self.0)));
    }
}

#[test]
fn positions_and_places_are_those_of_the_ring() {
    // Positions wrap on the way.
    let first = u64::MAX - 20;
    let name = Name::new("positions");
    let attached = name.attach(first);
    let at = |count: u64| first.wrapping_add(count);
    let new = name.look();
    assert_eq!((new.published, new.stages[0].position, new.stages[0].lag), (first, first, 0));
    assert_eq!(
        (&new.stages[1].after[..], new.producer_seats[0].participant),
        (&["one".into()][..], None)
    );

    let mut tx = attached.producer().unwrap();
    let (mut one, mut two) = (attached.reader("one").unwrap(), attached.reader("two").unwrap());
    for round in 0..10 {
        // No stage has found these events yet, so only their stamps show them.
        (0..3).for_each(|_| _ = tx.publish(|slot| *slot = round).unwrap());
        let summary = name.look();
        let stages = [&summary.stages[0], &summary.stages[1]];
        assert_eq!(summary.published, at(3 * round + 3));
        assert_eq!(stages.map(|stage| stage.position), [at(3 * round); 2]);
        assert_eq!(stages.map(|stage| stage.lag), [3; 2]);
        assert_eq!(stages.map(|stage| stage.seats[0].participant), [Some(1); 2]);

        assert_eq!(one.batch(2).unwrap().len(), 2); // lent, not released
        let stage = &name.look().stages[0];
        assert_eq!((stage.position, stage.held), (at(3 * round), at(3 * round + 2)));
        one.poll(4, |_, _| ()).unwrap();
        let summary = name.look();
        assert_eq!((summary.stages[0].lag, summary.stages[1].lag), (0, 3));
        two.poll(4, |_, _| ()).unwrap();
    }
    // Publishes one run of several slots, and gives up another run.
    tx.claim_n(2).unwrap().publish();
    drop(tx.claim().unwrap());
    assert_eq!(name.look().published, at(32));
}

/// A tap's position is that of its slowest reader, or of the stages before it. A summary shows the
/// number of a dead reader's unread events.
#[test]
fn a_tap_shows_its_readers() {
    for first in [0, u64::MAX - 2, (1 << 63) - 2] {
        let at = |count: u64| first.wrapping_add(count);
        let name = Name::new("tap");
        let segment = Segment::<u64>::create(&name.0).capacity(4).first_seq(first);
        let segment = segment.tap("now", 2).reader("all").tap("done", 3).after(["all"]);
        let segment = segment.build().unwrap();
        // SAFETY: only this test opens the segment.
        let attached = unsafe { segment.attach().unwrap() };
        let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
        let publish = |tx: &mut crate::Producer<u64>, count| {
            (0..count).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
        };
        publish(&mut tx, 3);
        all.poll(2, |_, _| ()).unwrap();
        let empty = name.look().stages;
        let positions = [0, 1, 2].map(|stage: usize| (empty[stage].position, empty[stage].lag));
        assert_eq!(positions, [(at(3), 0), (at(2), 1), (at(2), 1)]);
        let mut reader = attached.subscribe("now", StartAt::Oldest).unwrap();
        let late = attached.subscribe("now", StartAt::Now).unwrap();
        let done = attached.subscribe("done", StartAt::Now).unwrap();
        assert_eq!(reader.poll(1, |_, _| ()).unwrap(), 1);
        let summary = name.look();
        assert_eq!((summary.published, summary.stages[0].lag), (at(3), 2));
        let seats = |stage: usize| -> Vec<_> {
            let seats = &summary.stages[stage].seats;
            seats.iter().map(|seat| (seat.participant, seat.position)).collect()
        };
        assert_eq!(seats(0), [(Some(1), Some(at(1))), (Some(1), Some(at(3)))]);
        assert_eq!(seats(1), [(Some(1), None)]);
        assert_eq!(seats(2), [(Some(1), Some(at(2))), (None, None), (None, None)]);
        drop((reader, late, done));
        all.poll(1, |_, _| ()).unwrap();
        publish(&mut tx, 4);
        assert_eq!(name.look().published, at(7));
    }
}

/// Inspection reads the counts where `slipring` stores them, even if a party has several lines of
/// times.
#[test]
fn counts_are_those_of_the_report() {
    let name = Name::new("counts");
    let stages: Vec<String> = (0..20).map(|stage| format!("stage-{stage}")).collect();
    let mut builder = Segment::<u64>::create(&name.0).capacity(8);
    for (number, stage) in stages.iter().enumerate() {
        builder = builder.reader(stage).after(&stages[number.saturating_sub(1)..number]);
    }
    // SAFETY: only this test opens the segment.
    let attached = unsafe { builder.build().unwrap().attach().unwrap() };
    let mut tx = attached.producer().unwrap();
    let soon = || Instant::now() + Duration::from_millis(2);
    let mut readers: Vec<_> = stages.iter().map(|stage| attached.reader(stage).unwrap()).collect();
    (0..3).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
    for reader in &mut readers[..3] {
        assert_eq!(reader.poll(8, |_, _| ()).unwrap(), 3);
    }
    // Each reader waits for the stage before it, or for the producer. A reader stores the counts of
    // a wait only at its next wait.
    for reader in &mut readers {
        for _ in 0..5 {
            match reader.batch_by(1, soon()) {
                Ok(batch) => batch.release(),
                Err(error) => assert!(matches!(error, BatchError::TimedOut(_)), "{error}"),
            }
        }
    }
    drop((readers, tx));
    let (summary, report) = (name.look(), attached.report().unwrap());
    let parties: Vec<Party> = summary.parties().collect();
    assert_eq!(parties.len(), report.stages().len());
    for &party in &parties {
        let (counts, named) = (summary.counts(party), summary.name_of(party));
        let own = report.stage(named).unwrap();
        let counted = [counts.events, counts.batches, counts.tombstones, counts.skipped];
        assert_eq!(counted, [own.events, own.batches, own.tombstones, own.skipped], "{named}");
        let counted = [counts.retries, counts.dropped, counts.waits, counts.wakes];
        assert_eq!(counted, [own.retries, own.dropped, own.waits, own.wakes], "{named}");
        for &awaited in &parties {
            let other = summary.name_of(awaited);
            let reported = report.waited(named, other).unwrap();
            assert_eq!(summary.waited(party, awaited), reported, "{named} for {other}");
        }
    }
    // The counts at both ends of the area are not 0, so the comparison has covered them.
    let [first, last] = [Party::Stage(0), Party::Stage(19)];
    assert!(!summary.waited(last, Party::Stage(18)).is_zero());
    assert!(!summary.waited(first, Party::Producers).is_zero());
    assert!(summary.counts(first).events > 0 && summary.counts(Party::Producers).events > 0);
}

#[test]
fn threads_that_sleep_are_counted() {
    let name = Name::new("asleep");
    let segment = Segment::<u64>::create(&name.0).capacity(2).reader("one").build().unwrap();
    // SAFETY: only this test opens the segment.
    let attached = unsafe { segment.attach().unwrap() }.wait(Wait::Blocking).unwrap();
    let (mut tx, mut one) = (attached.producer().unwrap(), attached.reader("one").unwrap());
    let until = |done: &dyn Fn(&Summary) -> bool| {
        while !done(&name.look()) {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| one.batch(1).unwrap().release());
        until(&|summary| summary.stages[0].asleep == 1 && summary.producers_asleep == 0);
        tx.publish(|slot| *slot = 1).unwrap();
    });
    until(&|summary| summary.stages[0].asleep == 0);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap()));
        until(&|summary| summary.producers_asleep == 1 && summary.stages[0].asleep == 0);
        assert_eq!(name.look().awaited(Party::Producers), Some(Party::Stage(0)));
        assert_eq!(one.poll(1, |_, _| ()).unwrap(), 1);
    });
}

/// A summary shows the events that each worker has taken. A worker that leaves with events leaves
/// an orphan behind, and not a free place.
#[test]
fn chunks_and_orphans_of_a_pool_are_told() {
    for first in [0, u64::MAX - 1, (1 << 47) - 1] {
        let at = |count: u64| first.wrapping_add(count);
        let name = Name::new("pool");
        let segment = Segment::<u64>::create(&name.0).capacity(8).first_seq(first);
        let segment = segment.pool_reader("pool", 2).build().unwrap();
        // SAFETY: only this test opens the segment.
        let attached = unsafe { segment.attach().unwrap() };
        let mut tx = attached.producer().unwrap();
        let [mut one, two] = [(); 2].map(|()| attached.pool_reader("pool").unwrap());
        (0..6).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
        // A new worker takes one event at first. Its batch is dropped, so the event comes again.
        assert_eq!(one.batch(8).unwrap().len(), 1);
        let seats = |summary: &Summary| summary.stages[0].seats.clone();
        let [chunk, idle] = &seats(&name.look())[..] else { panic!("not two places") };
        assert_eq!((chunk.participant, chunk.orphan), (Some(1), false));
        assert_eq!(chunk.events, Some((first..at(1)).into()));
        assert_eq!((idle.participant, idle.orphan, &idle.events), (Some(1), false, &None));
        one.batch(1).unwrap().release();
        assert_eq!(one.batch(1).unwrap().len(), 1);
        drop(one);
        let summary = name.look();
        let left = &seats(&summary)[0];
        assert_eq!((left.participant, left.orphan), (None, true));
        assert_eq!(left.events.as_ref().map(|left| left.first_seq()), Some(at(1)));
        assert_eq!((summary.stages[0].position, summary.stages[0].lag), (at(1), 5));
        let mut two = two;
        while two.poll(8, |_, _| ()).unwrap() != 0 {}
        assert!(seats(&name.look()).iter().all(|seat| !seat.orphan && seat.events.is_none()));
        assert_eq!(name.look().stages[0].lag, 0);
    }
}

/// A ring with several producers is reported as closing until a stage has found its end, and then
/// as closed.
#[test]
fn claims_and_the_end_of_several_producers_are_told() {
    let name = Name::new("producers");
    let segment = Segment::<u64>::create(&name.0).capacity(8).producers(3);
    // SAFETY: only this test opens the segment.
    let attached = unsafe { segment.reader("one").build().unwrap().attach().unwrap() };
    let [mut a, mut b] = [(); 2].map(|()| attached.shared_producer().unwrap());
    let mut one = attached.reader("one").unwrap();
    a.publish(|slot| *slot = 1).unwrap();
    let claim = b.claim_n(3).unwrap();
    a.publish(|slot| *slot = 1).unwrap();
    let summary = name.look();
    let claims: Vec<_> = summary.producer_seats.iter().map(|seat| seat.events.clone()).collect();
    assert_eq!(claims, [None, Some((1..4).into()), None]);
    assert_eq!((summary.published, summary.free, summary.stages[0].lag), (1, 7, 1));
    claim.publish();
    let summary = name.look();
    assert_eq!((summary.published, summary.free), (5, 3));
    assert!(summary.producer_seats.iter().all(|seat| seat.events.is_none()));
    assert_eq!((summary.ending, summary.last), (Ending::Running, None));
    drop((a, b));
    let summary = name.look();
    assert_eq!((summary.ending, summary.last), (Ending::Closing, None));
    while one.poll(8, |_, _| ()).is_ok() {}
    let summary = name.look();
    assert_eq!((summary.ending, summary.last), (Ending::Closed, Some(5)));
    assert_eq!(summary.parties().find_map(|party| summary.awaited(party)), None);
}

/// Inspection finds all published events, no matter how far the furthest stage lags behind.
#[test]
fn a_long_backlog_is_counted_to_its_end() {
    for (capacity, first) in [(1 << 17, 0), (1 << 17, u64::MAX - 77)] {
        let name = Name::new("backlog");
        let segment = Segment::<u64>::create(&name.0).capacity(capacity).first_seq(first);
        // SAFETY: only this test opens the segment.
        let attached = unsafe { segment.reader("one").build().unwrap().attach().unwrap() };
        let mut tx = attached.producer().unwrap();
        let mut published = 0;
        for (run, more) in [(1, 70_000), (3, 9_999), (1000, 50_000), (1, capacity)] {
            while published < more.min(capacity) && published + run <= capacity {
                tx.claim_n(run as usize).unwrap().publish();
                published += run;
            }
            let summary = name.look();
            assert_eq!(summary.published, first.wrapping_add(published));
            assert_eq!((summary.free, summary.stages[0].lag), (capacity - published, published));
        }
        assert_eq!(published, capacity);
        assert_eq!(name.look().awaited(Party::Producers), Some(Party::Stage(0)));
    }
}

/// The chain of waiting parties ends at the slow party, even if stages and taps that only wait lie
/// in between.
#[test]
fn parties_that_wait_name_the_one_that_holds_them_up() {
    for first in [0, u64::MAX - 2] {
        let name = Name::new("waits");
        let segment = Segment::<u64>::create(&name.0).capacity(4).first_seq(first);
        let segment = segment.reader("parse").tap("viewers", 2).after(["parse"]);
        let segment = segment.reader("store").after(["viewers"]).reader("side").build().unwrap();
        // SAFETY: only this test opens the segment.
        let attached = unsafe { segment.attach().unwrap() };
        let mut tx = attached.producer().unwrap();
        let reader = |stage: &str| attached.reader(stage).unwrap();
        let (mut parse, mut store, mut side) = (reader("parse"), reader("store"), reader("side"));
        let waits = |party: &str| {
            let summary = name.look();
            let party = summary.parties().find(|&it| summary.name_of(it) == party).unwrap();
            let chain = summary.awaited_in_turn(party);
            assert_eq!(summary.awaited(party), chain.first().copied());
            chain.iter().map(|&it| summary.name_of(it).to_owned()).collect::<Vec<_>>().join(" ")
        };
        let all = || ["producer", "parse", "viewers", "store", "side"].map(waits);
        assert_eq!(all(), ["", "producer", "", "parse producer", "producer"]);
        (0..4).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
        // `store` waits for `parse`, which has released nothing. `side` gates the producer as well.
        // It is not named, because `store` is just as slow and comes first.
        assert_eq!(all(), ["store parse", "", "", "parse", ""]);
        parse.poll(4, |_, _| ()).unwrap();
        assert_eq!(all(), ["store", "producer store", "", "", ""]);
        let viewer = attached.subscribe("viewers", StartAt::Oldest).unwrap();
        assert_eq!(all(), ["store viewers", "producer store viewers", "", "viewers", ""]);
        drop(viewer);
        store.poll(4, |_, _| ()).unwrap();
        assert_eq!(all()[0], "side");
        side.poll(4, |_, _| ()).unwrap();
        assert_eq!(all(), ["", "producer", "", "parse producer", "producer"]);
        tx.publish(|slot| *slot = 1).unwrap();
        tx.halt();
        assert_eq!((all(), name.look().ending), ([""; 5].map(String::from), Ending::Halted));
    }
}

#[test]
fn whatever_the_words_say_there_is_a_summary() {
    let name = Name::new("words");
    let segment = Segment::<u64>::create(&name.0).capacity(4).producers(2);
    let segment = segment.pool_reader("pool", 3).reader("two").after(["pool"]);
    let segment = segment.tap("tap", 2).reader("last").after(["tap"]).build().unwrap();
    // SAFETY: only this test opens the segment.
    let attached = unsafe { segment.attach().unwrap() };
    let checked = attached.participation().checked().clone();
    let mut tx = attached.shared_producer().unwrap();
    tx.publish(|slot| *slot = 1).unwrap();
    std::mem::forget(tx); // its drop would close a ring that is damaged by then
    let path = Location::named(&name.0).unwrap();
    let file = OpenOptions::new().write(true).open(path.path().unwrap()).unwrap();
    let look = || {
        let summary = name.look();
        assert_eq!((summary.stages.len(), summary.capacity), (4, 4));
        assert!(summary.free <= 4 && summary.stages.iter().all(|stage| stage.lag <= 4));
        let seats = summary.parties().flat_map(|party| summary.seats(party).to_vec());
        let events = seats.filter_map(|seat| seat.events);
        assert!(events.into_iter().all(|it| (1..=4).contains(&it.len())));
        for party in summary.parties() {
            assert!(summary.awaited_in_turn(party).len() <= 4);
            let _ = summary.waited(party, Party::Producers);
        }
        summary
    };
    let areas = checked.areas.list().map(|(_, area)| area);
    let mut random = fastrand::Rng::with_seed(1);
    for area in areas {
        let length = area.length().unwrap() as usize;
        for byte in [0xFF, 0x80, 0x01, 0x55, 0] {
            file.write_all_at(&vec![byte; length], area.at).unwrap();
            look();
        }
        for _ in 0..20 {
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            file.write_all_at(&bytes, area.at).unwrap();
            look();
        }
    }
    // Records a failure, with a text that would clear a terminal.
    let status = |word: u64, value: u64| {
        file.write_all_at(&value.to_ne_bytes(), checked.areas.status.at + 8 * word).unwrap();
    };
    (0..64).for_each(|word| status(word, 0));
    for (bits, ending) in [
        (0_u32, Ending::Running),
        (1, Ending::Closed),
        (8, Ending::Closing),
        (9, Ending::Closed),
        (2, Ending::Halted),
        (6, Ending::Failed),
        (16, Ending::Damaged),
        (17, Ending::Damaged),
    ] {
        file.write_all_at(&bits.to_ne_bytes(), checked.areas.status.at).unwrap();
        assert_eq!(look().ending, ending, "{bits}");
    }
    assert_eq!(look().failure, None);
    for (party, stage) in [(2, "two"), (5, "producer"), (0, "producer"), (u64::MAX, "producer")] {
        for (word, value) in [(16, 2), (17, party), (18, 8), (19, u64::MAX)] {
            status(word, value);
        }
        file.write_all_at(b"\x1b[2Jgone\0", checked.areas.status.at + 160).unwrap();
        let failure = look().failure.unwrap();
        assert_eq!((failure.stage.as_str(), failure.seq), (stage, Some(7)));
        assert!(failure.text.ends_with("[2Jgone") && !failure.text.contains('\x1b'));
    }
}

/// If a segment's file was shortened or removed, inspecting the segment is an error.
#[test]
fn a_segment_that_is_shortened_or_removed_is_an_error() {
    let name = Name::new("shortened");
    drop(name.attach(0));
    let path = Path::new(FOLDER).join(format!("{}.slipring", name.0));
    let length = fs::metadata(&path).unwrap().len();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for bytes in [length - 1, 70_000, 100, 0] {
        file.set_len(bytes).unwrap();
        let error = inspect(&name.0).unwrap_err();
        assert!(matches!(error.problem(), Problem::File(_)), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let error = inspect(&name.0).unwrap_err();
    assert!(matches!(error.problem(), Problem::Missing), "{error}");
}

/// A ring that is never more than half full is never reported as full, no matter how fast it runs.
/// The reason is that the positions that decide this are copied last.
#[test]
fn a_ring_that_is_half_full_is_never_said_to_be_full() {
    for first in [0, u64::MAX - 5_000] {
        let name = Name::new("half");
        let capacity = 64;
        let segment = Segment::<u64>::create(&name.0).capacity(capacity).first_seq(first);
        let segment = segment.reader("one").reader("two").after(["one"]).build().unwrap();
        // SAFETY: only this test opens the segment.
        let attached = unsafe { segment.attach().unwrap() };
        let mut tx = attached.producer().unwrap();
        let (mut one, mut two) = (attached.reader("one").unwrap(), attached.reader("two").unwrap());
        let (released, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for published in 0_u64.. {
                    while published - released.load(SeqCst) >= capacity / 2 {
                        if ends.load(SeqCst) {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    tx.publish(|slot| *slot = published).unwrap();
                }
            });
            scope.spawn(|| {
                while !ends.load(SeqCst) {
                    one.poll(7, |_, _| ()).unwrap();
                    let handled = two.poll(5, |_, _| ()).unwrap() as u64;
                    released.fetch_add(handled, SeqCst);
                }
            });
            for _ in 0..2_000 {
                let summary = inspect(&name.0).unwrap();
                let told = (summary.free, summary.stages[1].lag, summary.awaited(Party::Producers));
                let right = summary.free >= capacity / 2 && summary.stages[1].lag <= capacity;
                if !right || told.2.is_some_and(|_| summary.free == 0) {
                    ends.store(true, SeqCst);
                    panic!("{told:?}");
                }
            }
            ends.store(true, SeqCst);
        });
        assert!(released.load(SeqCst) > 0);
    }
}

/// Another process stores random words during an inspection, and shortens the file.
#[test]
fn words_that_change_during_a_look_are_an_error_at_most() {
    let name = Name::new("scribbled");
    let segment = Segment::<u64>::create(&name.0).capacity(64).producers(2);
    let segment = segment.pool_reader("pool", 3).reader("two").after(["pool"]).tap("tap", 2);
    drop(segment.build().unwrap());
    let path = Path::new(FOLDER).join(format!("{}.slipring", name.0));
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    let mut head = vec![0; 65_536];
    file.read_exact_at(&mut head, 0).unwrap();
    let ends = AtomicBool::new(false);
    let (mut summaries, mut errors) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(2);
            while !ends.load(SeqCst) {
                if random.u8(..) < 4 {
                    file.set_len(random.u64(..length)).unwrap();
                    file.set_len(length).unwrap();
                    file.write_all_at(&head, 0).unwrap();
                }
                let bytes: Vec<u8> = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
                let at = random.u64(65_536..length - 300);
                file.write_all_at(&bytes, at).unwrap();
            }
        });
        let least = |summaries, errors| summaries >= 1_000 && errors >= 1;
        while !least(summaries, errors) {
            match inspect(&name.0) {
                Ok(summary) => {
                    summaries += 1;
                    if summary.stages.iter().any(|stage| stage.lag > 64) || summary.free > 64 {
                        ends.store(true, SeqCst);
                        panic!("{summary:?}");
                    }
                    for party in summary.parties() {
                        let _ = summary.awaited_in_turn(party);
                    }
                }
                Err(_) => errors += 1,
            }
        }
        ends.store(true, SeqCst);
    });
}
