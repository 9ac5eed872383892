//! Models of chunks that workers have left, because they died or dropped their handles. Processes
//! recover such chunks, workers adopt them, and some of these processes and workers die, too.

use super::*;

/// A worker dies with a chunk. Its recoverer dies after `stores` stores, and the next recoverer
/// begins again. Two workers look for the chunk; one of them has joined since the death.
#[test]
fn loom_a_recoverer_dies() {
    for stores in [0, 1, 2] {
        for takes in [3, TAKE - 1, TAKE + 1] {
            explore_unfenced(5, Some(3), move || {
                let segment = segment(2, 2, true, 1);
                let mut tx = Box::new(segment.first_producer());
                let [mut one, mut two] = segment.workers([2, 3]).map(Box::new);
                let (mut end, handled) = (segment.end(4), Handled::default());
                let events = publish_runs(&mut tx, 0, &[2], 1) as u64;
                lives(takes, || _ = handled.work(&mut one, 4));
                let of_two = handled.clone();
                let working = thread::spawn(move || {
                    of_two.work(&mut two, 4);
                    two
                });
                lives(stores, || segment.settle(2));
                segment.settle(2);
                let three = segment.worker(5).map(Box::new); // a model's threads have small stacks
                segment.settle(2);
                let mut two = working.join().unwrap();
                let again = || segment.worker(5).map(Box::new);
                let mut three = three.or_else(again).expect("a seat, or a chunk");
                handled.work_off(&mut three);
                handled.work_off(&mut two);
                handled.assert_all(0..events);
                read_all(&mut end, events);
                let deaths = segment.attach(6).seat(0).deaths();
                assert_eq!(deaths, 1, "a death is counted once");
                (tx, one, two, three, end)
            });
        }
    }
}

/// A process repeats the recovery of a dead worker whose seat has a new owner by now, while the new
/// owner takes a chunk.
#[test]
fn loom_a_recovery_is_repeated_late() {
    explore_unfenced(10, Some(3), || {
        let segment = segment(2, 2, true, 1);
        let mut tx = Box::new(segment.first_producer()); // a model's threads have small stacks
        let [one, mut two] = segment.workers([2, 3]).map(Box::new);
        let (mut end, handled) = (segment.end(4), Handled::default());
        let events = publish_runs(&mut tx, 0, &[2], 1) as u64;
        segment.settle(2);
        let mut three = Box::new(segment.worker(5).expect("a free seat"));
        let of_three = handled.clone();
        let working = thread::spawn(move || {
            of_three.work(&mut three, 4);
            three
        });
        segment.settle(2);
        read_marked(&mut end);
        let mut three = working.join().unwrap();
        handled.work_off(&mut three);
        handled.work_off(&mut two);
        handled.assert_all(0..events);
        read_all(&mut end, events);
        (tx, one, two, three, end)
    });
}

/// A late recovery runs after each store of the seat's new owner. At one of these moments, the new
/// owner has stored its bound, but has not swapped the cell yet.
#[test]
fn loom_a_late_recovery_leaves_the_new_owner_alone() {
    for stores in 0..TAKE + 2 {
        explore_unfenced(1, None, move || {
            let segment = segment(2, 2, false, 1);
            let (mut tx, [one, two]) = (segment.first_producer(), segment.workers([2, 3]));
            let handled = Handled::default();
            publish_runs(&mut tx, 0, &[2], 1);
            segment.settle(2);
            let mut three = segment.worker(5).expect("a free seat");
            lives(stores, || _ = handled.work(&mut three, 4));
            let ring = segment.attach(6);
            let line = ring.control().plan.stages[0].bound_line(0);
            let look = || {
                (ring.control().positions.line(line).load(Ordering::Relaxed), ring.seat(0).owner())
            };
            let before = look();
            segment.settle(2);
            assert_eq!(look(), before, "the seat of another owner is settled");
            (tx, one, two, three, ring)
        });
    }
}

#[test]
fn loom_twin_worker_assumed() {
    let how = Caught::Message("the seat of another owner is settled");
    caught("chunks::left::loom_a_late_recovery_leaves_the_new_owner_alone", "worker-assumed", how);
}

/// A worker adopts the chunk of a dead one, and dies, too, after `stores` stores.
#[test]
fn loom_an_adopter_dies() {
    for stores in 0..6 {
        explore_unfenced(5, Some(2), move || {
            let segment = segment(4, 3, true, 1);
            // On the heap, because a model's threads have small stacks.
            let mut tx = Box::new(segment.first_producer());
            let [mut one, mut two, mut three] = segment.workers([2, 3, 5]).map(Box::new);
            let (mut end, handled) = (segment.end(4), Handled::default());
            let events = publish_runs(&mut tx, 0, &[2], 1) as u64;
            let of_two = (segment.clone(), handled.clone());
            let dying = thread::spawn(move || {
                let (segment, handled) = of_two;
                lives(TAKE, || _ = handled.work(&mut one, 4));
                segment.settle(2);
                lives(stores, || {
                    handled.work(&mut two, 4);
                    handled.work(&mut two, 4);
                });
                segment.settle(3);
                (one, two)
            });
            handled.work(&mut three, 4);
            read_marked(&mut end);
            let (one, two) = dying.join().unwrap();
            handled.work_off(&mut three);
            handled.assert_all(0..events);
            read_all(&mut end, events);
            (tx, one, two, three, end)
        });
    }
}

#[test]
fn loom_twin_orphan_unacquired_of_cells() {
    caught("chunks::left::loom_an_adopter_dies", "orphan-unacquired", Caught::Race);
}

#[test]
fn loom_twin_orphan_unreleased_of_cells() {
    caught("chunks::left::loom_a_worker_leaves_its_chunk", "orphan-unreleased", Caught::Race);
}

/// A worker leaves in the middle of a chunk, and dies at each step of leaving.
#[test]
fn loom_a_worker_leaves_its_chunk() {
    for stores in [0, 1, 2, usize::MAX] {
        explore_unfenced(5, Some(3), move || {
            let segment = segment(2, 2, true, 1);
            let (mut tx, [mut one, mut two]) = (segment.first_producer(), segment.workers([2, 3]));
            let (mut end, handled) = (segment.end(4), Handled::default());
            let events = publish_runs(&mut tx, 0, &[2], 1) as u64;
            let of_one = (segment.clone(), handled.clone());
            let leaving = thread::spawn(move || {
                let (segment, handled) = of_one;
                let mut batch = available(one.try_batch(4))?;
                batch.release_front(0);
                batch[0] += MARK;
                handled.0[batch.first_seq() as usize].fetch_add(1, Ordering::Relaxed);
                batch.release_front(1);
                drop(batch);
                // A worker that dies in its drop drops nothing twice.
                let mut one = Some(one);
                lives(stores, || drop(one.take()));
                segment.settle(2);
                Some(one)
            });
            handled.work(&mut two, 4);
            let one = leaving.join().unwrap();
            handled.work_off(&mut two);
            handled.assert_all(0..events);
            read_all(&mut end, events);
            (tx, one, two, end)
        });
    }
}

/// A worker joins a pool, while another process recovers a dead worker. Later, the joined worker
/// leaves as the last one. No seat shows the earlier death, so no call returns it.
#[test]
fn loom_a_worker_joins_beside_a_recovery_and_leaves() {
    explore_unfenced(50, Some(3), || {
        let segment = segment(2, 2, false, 1);
        let dead = segment.worker(2).expect("a free seat");
        segment.bytes.unlock(2);
        let of_recovering = segment.clone();
        let recovering = thread::spawn(move || of_recovering.recover(4, 2));
        let joined = segment.worker(3).expect("a free seat");
        assert!(recovering.join().unwrap(), "no other process recovers it");
        drop(joined);
        let ring = segment.attach(6);
        let shows = |seat: usize| ring.seat(seat).last_death().is_some();
        assert!(!ring.seats_of(0).any(shows), "a death outlives a worker that joined");
        assert_eq!(ring.seat(0).deaths(), 1);
        dead
    });
}

/// A worker leaves as the last one, with or without a chunk, while a free seat shows an earlier
/// death. A party that finds no owner at the worker's seat finds no death either.
#[test]
fn loom_a_worker_forgets_deaths_before_it_leaves() {
    for has_chunk in [false, true] {
        explore_unfenced(2, Some(3), move || {
            let segment = segment(2, 2, false, 1);
            let (mut tx, [dead, mut leaving]) = (segment.first_producer(), segment.workers([2, 3]));
            let ring = segment.attach(6);
            // The recoverer has looked at the seats before the other worker joined.
            ring.seat(0).bury(2);
            if has_chunk {
                publish_runs(&mut tx, 0, &[2], 1);
                assert!(available(leaving.try_batch(2)).is_some(), "events were lost");
            }
            let looking = thread::spawn(move || {
                if ring.seat(1).owner().is_none() {
                    let death = ring.seat(0).last_death();
                    assert!(death.is_none(), "a death outlives a worker that left");
                }
                ring
            });
            drop(leaving);
            let ring = looking.join().unwrap();
            assert_eq!(ring.seat(1).is_orphan(), has_chunk);
            assert!(ring.seat(0).last_death().is_none(), "a death outlives a worker that left");
            (tx, dead, ring)
        });
    }
}

#[test]
fn loom_twin_death_outlives_leaver_of_a_shown_death() {
    let how = Caught::Message("a death outlives a worker that left");
    let caught_by = "chunks::left::loom_a_worker_forgets_deaths_before_it_leaves";
    caught(caught_by, "death-outlives-leaver", how);
}

#[test]
fn loom_twin_death_outlives_leaver() {
    let how = Caught::Message("a death outlives a worker that joined");
    let caught_by = "chunks::left::loom_a_worker_joins_beside_a_recovery_and_leaves";
    caught(caught_by, "death-outlives-leaver", how);
}

/// A worker leaves its chunk. Another worker sleeps, wakes, and handles the chunk.
#[test]
fn loom_a_left_chunk_wakes_a_worker() {
    explore(2000, Some(3), || {
        let segment = waiting(2, 2, false, 1, Wait::Blocking);
        let (mut tx, [mut one, mut two]) = (segment.first_producer(), segment.workers([2, 3]));
        publish_runs(&mut tx, 0, &[2], 1);
        drop(tx);
        let leaving = thread::spawn(move || drop(one.try_batch(2).map(drop)));
        let working = thread::spawn(move || two.for_each(|event, _| *event += MARK).unwrap());
        leaving.join().unwrap();
        assert_eq!(working.join().unwrap(), 2, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_orphan_unnotified_of_cells() {
    let caught_by = "chunks::left::loom_a_left_chunk_wakes_a_worker";
    caught(caught_by, "orphan-unnotified", Caught::Deadlock(&["pool"]));
}
