//! A server that is killed.

use slipring_nats::Server as At;

use crate::common::*;
use crate::support::*;

#[test]
fn the_server_is_killed() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    seeded(|rng| {
        let open = sink(&server.url()).max_frame(HEADER + 8 * 8).open(numbers()).unwrap();
        let (mut tx, running) = start(open, 1024);
        let follower = Follower::start(At::at(server.url()), 0);
        for _ in 0..faults(8) {
            feed_some(&mut tx, rng, 500);
            spin(rng, 3_000);
            server.kill().unwrap();
            feed_some(&mut tx, rng, 400);
            server.restart().unwrap();
            acknowledged(&running, tx.next_seq());
            if rng.bool() {
                follower.wait_for(tx.next_seq());
            }
        }
        let end = tx.next_seq();
        tx.close();
        assert!(running.join().unwrap().doubts > 0);
        assert!(follower.finish(end).restarts > 0);
        assert_stored(&mut client(&server), 0, end);
    });
}
