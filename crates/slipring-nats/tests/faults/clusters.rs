//! Three servers, of which the leader of the stream is killed, or cut off, while a sink publishes.

use std::time::Duration;

use slipring_nats::{Server as At, Sink, StreamSettings};
use slipring_nats_server::Cluster;

use crate::common::*;
use crate::support::*;

/// Returns where the servers of a cluster are. The first one differs from call to call.
fn at(cluster: &Cluster, first: usize) -> At {
    let urls = cluster.urls();
    (1..urls.len())
        .fold(At::at(&urls[first % urls.len()]), |at, n| at.or_at(&urls[(first + n) % urls.len()]))
}

#[test]
fn the_leader_of_three_replicas_is_killed() {
    let _watched = watched();
    leaders(faults(2), |cluster, leader, back| match back {
        false => cluster.kill(leader).unwrap(),
        true => cluster.restart(leader).unwrap(),
    });
}

/// A leader that is stopped and goes on takes itself for the leader for a while.
#[test]
fn the_leader_of_three_replicas_is_stopped() {
    let _watched = watched();
    leaders(faults(1).min(20), |cluster, leader, back| match back {
        false => cluster.server(leader).pause().unwrap(),
        true => cluster.server(leader).resume().unwrap(),
    });
}

/// Takes the leader away `number` times, and gives it back, while a sink publishes and a source
/// reads.
fn leaders(number: u64, mut change: impl FnMut(&mut Cluster, usize, bool)) {
    if !has_server() {
        return;
    }
    seeded(|rng| {
        let mut cluster = Cluster::of_three().unwrap();
        let settings = StreamSettings::new(SUBJECT).replicas(3);
        let sink = Sink::to(at(&cluster, rng.usize(..3)), STREAM).create(settings);
        let sink = sink.max_frame(HEADER + 8 * 8).ack_timeout(Duration::from_secs(1));
        let open = sink.open(numbers()).unwrap();
        let (mut tx, running) = start(open, 1024);
        let follower = Follower::start(at(&cluster, rng.usize(..3)), 0);
        for _ in 0..number {
            feed_some(&mut tx, rng, 500);
            let leader = cluster.wait_for_leader(STREAM).unwrap();
            // Before, in the middle of or behind the next frames.
            feed_some(&mut tx, rng, 300);
            spin(rng, 3_000);
            change(&mut cluster, leader, false);
            feed_some(&mut tx, rng, 300);
            acknowledged(&running, tx.next_seq());
            feed_some(&mut tx, rng, 300);
            change(&mut cluster, leader, true);
            acknowledged(&running, tx.next_seq());
            follower.wait_for(tx.next_seq());
            cluster.wait_for_replicas(STREAM).unwrap();
        }
        let end = tx.next_seq();
        tx.close();
        running.join().unwrap();
        follower.finish(end);
        assert_stored(&mut cluster.client().unwrap(), 0, end);
    });
}
