//! A proxy that cuts connections, swallows acknowledgements, and holds frames back.

use std::time::Duration;

use fastrand::Rng;
use slipring::Producer;
use slipring_nats::{Server as At, Sink};
use slipring_nats_server::{Direction, Proxy};

use crate::common::*;
use crate::support::*;

const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

/// Sets small frames, and a short wait for acknowledgements.
fn quick(sink: Sink) -> Sink {
    sink.max_frame(HEADER + 8 * 8).ack_timeout(Duration::from_millis(150))
}

/// Runs a sink and a source, each behind its own proxy, and makes faults meanwhile.
fn faulty(number: u64, mut fault: impl FnMut(&Proxy, &mut Producer<u64>, &mut Rng)) {
    let Some(server) = server() else { return };
    seeded(|rng| {
        let (ours, theirs) = (Proxy::to(server.port()).unwrap(), Proxy::to(server.port()).unwrap());
        let open = quick(sink(&ours.url())).open(numbers()).unwrap();
        let (mut tx, running) = start(open, 256);
        let follower = Follower::start(At::at(theirs.url()), 0);
        for _ in 0..number {
            feed_some(&mut tx, rng, 100);
            fault(if rng.u8(..3) == 0 { &theirs } else { &ours }, &mut tx, rng);
            feed_some(&mut tx, rng, 100);
            if rng.bool() {
                acknowledged(&running, tx.next_seq());
            }
        }
        acknowledged(&running, tx.next_seq());
        let end = tx.next_seq();
        tx.close();
        let counters = running.join().unwrap();
        let progress = follower.finish(end);
        assert!(counters.doubts > 0 && progress.restarts > 0 || number < 5);
        assert_stored(&mut client(&server), 0, end);
    });
}

#[test]
fn connections_are_cut_at_any_byte() {
    let _watched = watched();
    faulty(faults(50), |proxy, tx, rng| {
        let direction = BOTH[rng.usize(..2)];
        match rng.u8(..8) {
            0 => proxy.cut_now(),
            1 => proxy.cut_clients(),
            _ => proxy.cut_after(direction, rng.u64(..2_000)),
        }
        feed_room(tx, rng, 100);
    });
}

#[test]
fn acknowledgements_are_swallowed() {
    let _watched = watched();
    faulty(faults(20), |proxy, tx, rng| {
        proxy.swallow(Direction::ToClient, true);
        feed_room(tx, rng, 100);
        spin(rng, 20_000);
        proxy.swallow(Direction::ToClient, false);
    });
}

#[test]
fn frames_are_held_back_and_let_through_later() {
    let _watched = watched();
    faulty(faults(50), |proxy, tx, rng| {
        let direction = BOTH[rng.usize(..2)];
        proxy.hold(direction, true);
        feed_room(tx, rng, 100);
        spin(rng, 20_000);
        if rng.bool() {
            // The client continues with another connection, before or after the held frames arrive.
            proxy.cut_clients();
            spin(rng, 5_000);
        }
        proxy.hold(direction, false);
    });
}

/// The faults follow each other so closely that the next one comes while the sink is still in
/// doubt.
#[test]
fn faults_come_while_the_sink_is_in_doubt() {
    let _watched = watched();
    faulty(faults(20), |proxy, tx, rng| {
        for _ in 0..rng.u8(2..8) {
            let direction = BOTH[rng.usize(..2)];
            match rng.u8(..7) {
                0 => proxy.cut_now(),
                1 => proxy.cut_clients(),
                2 => proxy.cut_after(direction, rng.u64(..500)),
                3 => proxy.hold(direction, true),
                4 => proxy.hold(direction, false),
                5 => proxy.refuse(rng.bool()),
                _ => proxy.swallow(Direction::ToClient, rng.bool()),
            }
            feed_room(tx, rng, 20);
            spin(rng, 8_000);
        }
        proxy.refuse(false);
        BOTH.iter().for_each(|direction| {
            proxy.hold(*direction, false);
            proxy.swallow(*direction, false);
        });
    });
}
