//! Clusters of three servers. The stream's leader is killed or cut off while a sink publishes.

use std::time::Duration;

use slipring_nats::{Error, Server as At, Sink, Source, StreamSettings};
use slipring_nats_server::{Cluster, Proxy};

use crate::common::*;
use crate::support::*;

/// Returns the addresses of a cluster's servers, in an order that begins at another server for each
/// `first`.
fn at(cluster: &Cluster, first: usize) -> At {
    let urls = cluster.urls();
    (1..urls.len())
        .fold(At::at(&urls[first % urls.len()]), |at, n| at.or_at(&urls[(first + n) % urls.len()]))
}

#[test]
fn the_leader_of_three_replicas_is_killed() {
    let _watched = watched();
    leaders(Cluster::of_three, faults(2), |cluster, leader, back| match back {
        false => cluster.kill(leader).unwrap(),
        true => cluster.restart(leader).unwrap(),
    });
}

/// A leader that is stopped and resumed still believes for a while that it is the leader.
#[test]
fn the_leader_of_three_replicas_is_stopped() {
    let _watched = watched();
    leaders(Cluster::of_three, faults(1).min(20), |cluster, leader, back| match back {
        false => cluster.server(leader).pause().unwrap(),
        true => cluster.server(leader).resume().unwrap(),
    });
}

/// Traffic between the leader and the others is held up, and comes late or never.
#[test]
fn the_leader_of_three_replicas_is_isolated() {
    let _watched = watched();
    let mut healed = 0;
    leaders(Cluster::with_links, faults(1).min(20), |cluster, leader, back| match back {
        false => cluster.isolate(leader),
        true => {
            healed += 1;
            cluster.heal(healed % 2 == 0);
        }
    });
}

/// A sink and a source are connected to a server that is cut off from the others. They move to
/// another server.
#[test]
fn a_sink_and_a_source_leave_an_isolated_server() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    seeded(|rng| {
        let mut cluster = Cluster::with_links().unwrap();
        let settings = StreamSettings::new(SUBJECT).replicas(3);
        let sink = Sink::to(at(&cluster, 0), STREAM).create(settings);
        drop(sink.open(numbers()).unwrap());
        let mut end = 0;
        for round in 0..faults(1).min(20) {
            // The clients connect to one server, and learn the other servers from it.
            let leader = cluster.wait_for_leader(STREAM).unwrap();
            let number = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
            let only = At::at(cluster.servers()[number].url());
            let sink = Sink::to(only.clone(), STREAM).max_frame(HEADER + 8 * 8);
            let open = sink.ack_timeout(Duration::from_secs(1)).open(numbers()).unwrap();
            let (mut tx, running) = start(open, 1024);
            let follower = Follower::start(only, end);
            feed_some(&mut tx, rng, 500);
            acknowledged(&running, tx.next_seq());
            follower.wait_for(tx.next_seq());
            if round % 2 == 0 {
                // The other two servers are down until the sink has tried to move to them.
                let others = [1, 2].map(|n| (number + n) % 3);
                others.iter().for_each(|other| cluster.kill(*other).unwrap());
                feed_some(&mut tx, rng, 500);
                let before = running.counters().reconnects;
                until("an attempt", || running.counters().reconnects > before);
                others.iter().for_each(|other| cluster.restart(*other).unwrap());
                acknowledged(&running, tx.next_seq());
                follower.wait_for(tx.next_seq());
                cluster.wait_for_replicas(STREAM).unwrap();
            }
            cluster.isolate(number);
            feed_some(&mut tx, rng, 500);
            acknowledged(&running, tx.next_seq());
            follower.wait_for(tx.next_seq());
            cluster.heal(rng.bool());
            feed_some(&mut tx, rng, 500);
            end = tx.next_seq();
            tx.close();
            assert!(running.join().unwrap().reconnects > 0);
            follower.finish(end);
            cluster.wait_for_replicas(STREAM).unwrap();
        }
        assert_stored(&mut cluster.client().unwrap(), 0, end);
    });
}

/// The replicas answer no request about the stream until they know that its leader is gone.
#[test]
fn a_sink_and_a_source_open_while_a_leader_is_elected() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let mut cluster = Cluster::of_three().unwrap();
    let settings = StreamSettings::new(SUBJECT).replicas(3);
    drop(Sink::to(at(&cluster, 0), STREAM).create(settings).open(numbers()).unwrap());
    cluster.wait_for_replicas(STREAM).unwrap();
    let leader = cluster.wait_for_leader(STREAM).unwrap();
    let other = At::at(cluster.servers()[(leader + 1) % 3].url());
    cluster.kill(leader).unwrap();
    let opened = std::thread::scope(|scope| {
        let source = scope.spawn(|| Source::of(other.clone(), STREAM).open());
        let sink = Sink::to(other.clone(), STREAM).open(numbers());
        (sink, source.join().unwrap())
    });
    opened.0.unwrap();
    opened.1.unwrap();
}

/// A replaced leader may report a loss although nothing is lost, so reports count only after some
/// seconds. After that, a running sink and a new one both fail with the error for a loss.
#[test]
fn a_message_removed_from_three_replicas_is_a_loss() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let mut cluster = Cluster::of_three().unwrap();
    let proxy = Proxy::to(cluster.servers()[0].port()).unwrap();
    let settings = StreamSettings::new(SUBJECT).replicas(3);
    let sink = |at| Sink::to(at, STREAM).create(settings.clone()).max_frame(HEADER + 8 * 8);
    let (mut tx, journal) = ring(0, 256);
    let epoch = [7; 16];
    let running = sink(At::at(proxy.url())).attach(numbers(), journal, epoch).unwrap();
    feed(&mut tx, 100).unwrap();
    acknowledged(&running, 100);
    let mut client = cluster.client().unwrap();
    let frames = scan(&mut client);
    let [.., before, last] = frames.as_slice() else { panic!("few frames: {frames:?}") };
    client.delete_message(STREAM, last.sequence).unwrap();
    proxy.cut_now();
    // A ring that has outlived its sink, and whose last event was acknowledged.
    let surviving = ring(100, 256).1;
    let error = sink(at(&cluster, 1)).attach(numbers(), surviving, epoch).unwrap_err();
    for error in [error, failure(running)] {
        assert!(matches!(error, Error::LostAcknowledged { .. }), "{error:?}");
        assert_numbers(&error, &[99, before.end()]);
    }
}

/// Takes the leader out of the cluster and brings it back, `number` times, while a sink publishes
/// and a source reads.
fn leaders(
    make: fn() -> std::io::Result<Cluster>,
    number: u64,
    mut change: impl FnMut(&mut Cluster, usize, bool),
) {
    if !has_server() {
        return;
    }
    seeded(|rng| {
        let mut cluster = make().unwrap();
        let settings = StreamSettings::new(SUBJECT).replicas(3);
        let sink = Sink::to(at(&cluster, rng.usize(..3)), STREAM).create(settings);
        let sink = sink.max_frame(HEADER + 8 * 8).ack_timeout(Duration::from_secs(1));
        let open = sink.open(numbers()).unwrap();
        let (mut tx, running) = start(open, 1024);
        let follower = Follower::start(at(&cluster, rng.usize(..3)), 0);
        for _ in 0..number {
            feed_some(&mut tx, rng, 500);
            let leader = cluster.wait_for_leader(STREAM).unwrap();
            // The leader is taken away before, while or after these events are stored.
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
