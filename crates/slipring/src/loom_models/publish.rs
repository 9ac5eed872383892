//! Publication, by one producer and by several.

use loom::thread;

use super::*;
use Access::{Read, Write};

/// Reads what is there, `looks` times; each event must be the one that belongs there.
pub(super) fn read_some(reader: &mut Reader<u64>, looks: usize, value: impl Fn(u64) -> u64) -> usize {
    let mut seen = 0;
    for _ in 0..looks {
        seen += reader.poll(4, |event, at| assert_eq!(*event, value(at.seq.wrapping_sub(START)), "at {}", at.seq)).unwrap();
    }
    seen
}

#[test]
fn loom_one_producer_one_reader() {
    explore(1, None, || {
        let ring = ring(settings(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let reading = thread::spawn(move || (read_some(&mut rx, 3, |i| i), rx));
        for i in 0..2 {
            tx.publish(|event| *event = i).unwrap();
        }
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_some(&mut rx, 1, |i| i), 2, "events were lost");
    });
}

#[test]
fn loom_twin_stamp_relaxed() {
    caught("publish::loom_one_producer_one_reader", "stamp-relaxed", Caught::Race);
}
