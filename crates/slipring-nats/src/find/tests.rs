use std::ops::Range;

use super::*;

/// A message from position `after` on: a hole of `hole` positions, and `count` events.
fn header(after: u64, hole: u64, count: u32) -> Header {
    let id = Id([0; 16]);
    Header {
        ring: id,
        epoch: id,
        incarnation: 1,
        writer: 1,
        fingerprint: 1,
        event_size: 8,
        after,
        first: after + hole,
        count,
        window: 1,
    }
}

/// Searches `messages` with the answers that a server would give. Returns the sequence, and the
/// number of probes.
fn search(messages: &[(u64, Header)], wanted: u64, range: Range<u64>) -> (Result<u64, Error>, u32) {
    let mut search = Search::new(wanted, range.start, range.end);
    while let Some(from) = search.next() {
        assert!((search.low..search.high).contains(&from), "{from}");
        search.found(from, messages.iter().find(|(sequence, _)| *sequence >= from).copied());
        assert!(search.probes < 200);
    }
    let looked = search.probes;
    (search.place().map(|found| found.sequence), looked)
}

/// Searches streams with begin messages, holes and removed messages, all at random places.
#[test]
fn a_search_finds_what_a_walk_finds() {
    let mut seen = [0; 4];
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (first, len) = (rng.u64(1..50), rng.u64(0..60));
        let (mut messages, mut position) = (Vec::new(), rng.u64(0..100));
        for sequence in first..first + len {
            let hole = if rng.u8(..8) == 0 { rng.u64(..20) } else { 0 };
            let count = if rng.u8(..5) == 0 { 0 } else { rng.u32(1..40) };
            let header = header(position, hole, count);
            position = header.end();
            messages.push((sequence, header));
        }
        // Retention removes messages from the front. An operator removes some of the messages that
        // have no events, and these may be the last ones.
        messages.drain(..rng.usize(..=messages.len().min(5)));
        messages.retain(|(_, header)| header.count > 0 || rng.bool());
        let wanted = rng.u64(..position + 20);
        let (found, _) = search(&messages, wanted, first..first + len);

        let walked = messages.iter().find(|(_, header)| header.end() > wanted);
        let before = messages.iter().any(|(_, header)| header.end() <= wanted);
        match (walked, messages.last()) {
            (Some((_, header)), _) if header.after > wanted && !before => {
                assert!(
                    matches!(found, Err(Error::Trimmed { oldest, .. }) if oldest == header.first)
                );
                seen[0] += 1;
            }
            (Some((sequence, _)), _) => {
                assert_eq!(found.ok(), Some(*sequence), "seed {seed}");
                seen[1] += 1;
            }
            (None, Some((_, last))) if last.end() < wanted => {
                let lost = |found: u64| found == last.end();
                assert!(matches!(found, Err(Error::LostAcknowledged { found, .. }) if lost(found)));
                seen[2] += 1;
            }
            (None, _) => {
                assert_eq!(found.ok(), Some(first + len), "seed {seed}");
                seen[3] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn few_messages_are_looked_at() {
    let rng = &mut fastrand::Rng::with_seed(1);
    let (mut messages, mut position) = (Vec::new(), 0);
    for sequence in 1..=100_000 {
        let header = header(position, 0, rng.u32(7000..9000));
        position = header.end();
        messages.push((sequence, header));
    }
    let looked = |wanted| {
        let (place, looked) = search(&messages, wanted, 1..100_001);
        place.unwrap();
        looked
    };
    assert_eq!((looked(0), looked(position), looked(position - 1)), (1, 2, 2));
    for _ in 0..100 {
        let looked = looked(rng.u64(..position));
        assert!(looked <= 12, "{looked} messages");
    }
}

/// Lengths that mislead every guess cost at most twice as much as a search by the middle alone.
#[test]
fn misleading_lengths_cost_twice_a_search_by_the_middle() {
    let (mut messages, mut position) = (Vec::new(), 0);
    for sequence in 1..=1 << 12 {
        let header = header(position, 0, if sequence == 1 << 12 { u32::MAX } else { 1 });
        position = header.end();
        messages.push((sequence, header));
    }
    for wanted in [1, 1 << 11, (1 << 12) - 2, (1 << 12) - 1, u64::from(u32::MAX)] {
        let (place, looked) = search(&messages, wanted, 1..(1 << 12) + 1);
        assert_eq!(place.unwrap(), (wanted + 1).min(1 << 12));
        assert!(looked <= 2 + 2 * 12, "{looked} messages for {wanted}");
    }
}
