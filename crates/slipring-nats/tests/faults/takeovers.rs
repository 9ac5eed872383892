//! Two sinks at one stream.

use std::time::Duration;

use slipring::errors::WaitError;
use slipring_nats::{Error, RunningSink};
use slipring_nats_server::{Direction, Proxy};

use crate::common::*;
use crate::support::*;

/// The earlier sink has several frames in flight when the later one takes over. From then on, none
/// of their conditions holds: that of the first frame names a sequence that is no longer the last,
/// and those of the others name sequences that the later sink's messages get.
#[test]
fn frames_on_the_way_are_refused_after_a_takeover() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let (mut end, mut fenced) = (0, 0);
    for _ in 0..faults(10) {
        let open = sink(&proxy.url()).max_frame(HEADER + 8 * 4).open(numbers()).unwrap();
        let (mut tx, mut earlier) = start(open, 256);
        feed(&mut tx, end + 10).unwrap();
        until("acknowledgements", || earlier.counters().acknowledged == end + 10);
        proxy.hold(Direction::ToServer, true);
        feed(&mut tx, end + 60).unwrap();
        until("frames in flight", || earlier.counters().in_flight == 8);
        let held = |counts: &slipring_nats_server::Counts| counts.to_server.held > 8 * 100;
        proxy.wait_until(SOON, held).unwrap();

        let open = sink(&server.url()).open(numbers()).unwrap();
        assert_eq!(open.next_seq(), end + 10);
        let (mut next, later) = start(open, 256);
        proxy.hold(Direction::ToServer, false);
        until("the earlier sink's end", || earlier.is_finished());
        match earlier.join_by(std::time::Instant::now() + Duration::from_secs(1)) {
            Err(Error::Fenced { ours, theirs }) if ours + 1 == theirs => fenced += 1,
            other => panic!("{other:?}"),
        }
        end += 20;
        feed(&mut next, end).unwrap();
        next.close();
        later.join().unwrap();
    }
    assert_eq!(fenced, faults(10));
    assert_stored(&mut client(&server), 0, end);
}

/// Each sink takes over while its predecessor publishes as fast as it can.
#[test]
fn one_of_two_sinks_is_fenced() {
    let _watched = watched();
    let Some(server) = server() else { return };
    seeded(|rng| {
        let mut earlier: Option<(std::thread::JoinHandle<()>, RunningSink)> = None;
        for number in 0..=faults(20) {
            let open = sink(&server.url()).max_frame(HEADER + 8 * 4).open(numbers()).unwrap();
            let (mut tx, running) = start(open, 256);
            assert_eq!(running.counters().incarnation, number + 1);
            let feeding = std::thread::spawn(move || {
                let ended = feed(&mut tx, u64::MAX);
                assert!(matches!(ended, Err(WaitError::Failed(_))), "{ended:?}");
            });
            if let Some((feeding, running)) = earlier.take() {
                let error = failure(running);
                assert!(matches!(&error, Error::Fenced { ours, .. } if *ours == number), "{error}");
                assert_numbers(&error, &[number, number + 1]);
                feeding.join().unwrap();
            }
            spin(rng, 3_000);
            earlier = Some((feeding, running));
        }
        let (feeding, running) = earlier.unwrap();
        running.stop();
        assert!(matches!(failure(running), Error::Stopped));
        feeding.join().unwrap();
        scan(&mut client(&server));
    });
}
