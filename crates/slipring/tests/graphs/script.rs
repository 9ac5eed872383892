//! Runs one graph on one thread: follows a script of publications, polls every handle in turn, and
//! checks each event.

use slipring::{
    Graph, Wait,
    errors::{BatchError, ClaimError, WaitError},
};

use crate::handles::{AnyRing, Ask, Finish, TestLayout, Tx, with_tx};
use crate::shape::{Ev, Shape, after_write, mix};

/// A claim of `len` slots that is published, or dropped.
#[derive(Clone, Copy, Debug)]
pub struct Publication {
    pub len: usize,
    pub live: bool,
}

/// Returns a script that publishes at least this number of slots. Its claims have all lengths that
/// fit into the ring, and some of them are dropped.
pub fn short(slots: usize, capacity: usize) -> Vec<Publication> {
    let mut script = Vec::new();
    let mut published = 0;
    for i in 0.. {
        let publication = Publication { len: 1 + i * 5 % 7 % capacity.min(4), live: i % 5 != 3 };
        script.push(publication);
        if publication.live {
            published += publication.len;
        }
        if published >= slots {
            break;
        }
    }
    script
}

struct Stage {
    /// Number of times that the stage saw each position. Positions are counted from the ring's
    /// first position.
    seen: Vec<u8>,
    latest: Option<usize>,
    events: u64,
    writers: Vec<usize>,
}

/// Runs a script; stages handle up to `max` events at a time.
pub fn run<L: TestLayout>(
    shape: &Shape,
    capacity: usize,
    many: bool,
    start: u64,
    script: &[Publication],
    max: usize,
) {
    let shape = &shape.clone().fitting(capacity);
    let about = || {
        format!(
            "{shape:?} over {capacity} slots ({}), many producers: {many}, from {start} on",
            L::NAME
        )
    };
    let graph = Graph::new(capacity, Ev::default).first_seq(start).wait(Wait::YIELDING);
    let (ring, tx, mut handles) = AnyRing::<L>::build(shape, many, graph)
        .unwrap_or_else(|error| panic!("{error}: {}", about()));
    let mut producers = vec![tx];
    if let Tx::Many(first) = &producers[0] {
        let second = Tx::Many(first.clone());
        producers.push(second);
    }
    let new = |stage| Stage {
        seen: Vec::new(),
        latest: None,
        events: 0,
        writers: shape.writers_before(stage),
    };
    let mut stages: Vec<Stage> = (0..shape.len()).map(new).collect();
    let (mut published, mut tombstones) = (Vec::new(), 0);
    let id = |at: usize| mix(at as u64 ^ start);
    let mut next = 0;
    let (mut waiting, mut round) = (0, 0);
    while !producers.is_empty() || handles.iter().any(|workers| !workers.is_empty()) {
        while let Some(&Publication { len, live }) = script.get(next) {
            let which = next % producers.len();
            let claimed = with_tx!(&mut producers[which], tx => tx.try_claim_n(len).map(|mut slots| {
                let first = slots.first_seq();
                let at = first.wrapping_sub(start) as usize;
                assert_eq!(at, published.len(), "{}", about());
                for (offset, event) in slots.iter_mut().enumerate() {
                    event.fill(if live { id(at + offset) } else { 0 });
                }
                if live {
                    slots.publish();
                }
            }));
            match claimed {
                Ok(()) if live => published.resize(published.len() + len, true),
                Ok(()) if many => {
                    published.resize(published.len() + len, false);
                    tombstones += len as u64;
                }
                Ok(()) => {} // a single producer claims the slots again
                Err(ClaimError::Gated { stage, .. }) => {
                    assert!(
                        shape.gating().iter().any(|&gate| Shape::name(gate) == *stage),
                        "{stage} gates: {}",
                        about()
                    );
                    break;
                }
                Err(other) => panic!("{other}: {}", about()),
            }
            next += 1;
            waiting = 0;
        }
        if next == script.len() {
            producers.clear(); // closes the ring
        }
        waiting += 1;
        round += 1;
        assert!(waiting < 10_000 + published.len(), "no stage makes progress: {}", about());
        for (i, workers) in handles.iter_mut().enumerate() {
            let stage = &mut stages[i];
            let is_pool = shape.0[i].kind.is_pool();
            let mut worker = 0;
            workers.retain_mut(|handle| {
                worker += 1;
                let mut see = |seq: u64, event: &Ev| {
                    let at = seq.wrapping_sub(start) as usize;
                    assert_eq!(published.get(at), Some(&true), "s{i} was lent {at}: {}", about());
                    assert_eq!(event.id, id(at), "s{i} at {at}: {}", about());
                    let trail = stage
                        .writers
                        .iter()
                        .fold(mix(event.id), |trail, &writer| after_write(trail, writer));
                    assert_eq!(event.trail, trail, "s{i} at {at}: {}", about());
                    if stage.seen.len() <= at {
                        stage.seen.resize(at + 1, 0);
                    }
                    stage.seen[at] += 1;
                    stage.events += 1;
                    assert!(
                        is_pool || stage.latest.replace(at).is_none_or(|latest| latest < at),
                        "s{i} at {at}: {}",
                        about()
                    );
                };
                if (round + i + worker) % 3 == 0 {
                    // The batch is dropped, so the stage holds its events while the others
                    // continue.
                    return !matches!(
                        handle.batch(Ask::Try, 1, Finish::Drop, i, &mut |_, _| ()),
                        Err(BatchError::Wait(_))
                    );
                }
                match handle.poll(max, i, &mut see) {
                    Ok(0) => true,
                    Ok(_) => {
                        waiting = 0;
                        true
                    }
                    Err(WaitError::Closed) => false,
                    Err(other) => panic!("{other}: {}", about()),
                }
            });
        }
    }
    let events = published.iter().filter(|&&live| live).count() as u64;
    for (i, stage) in stages.iter().enumerate() {
        assert_eq!(stage.events, events, "s{i}: {}", about());
        assert!(
            stage.seen.iter().zip(&published).all(|(&seen, &live)| seen == u8::from(live)),
            "s{i}: {}",
            about()
        );
    }
    let report = ring.report();
    for stage in report.stages() {
        assert_eq!(
            (stage.events, stage.tombstones),
            (events, tombstones),
            "{}: {}",
            stage.name,
            about()
        );
    }
}
