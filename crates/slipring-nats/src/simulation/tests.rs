//! Runs of the simulation.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slipring::Graph;
use tokio::task::{LocalSet, spawn_local};

use super::case::Case;
use super::network::Network;
use super::oracle::{Oracle, broken};
use super::play::{play, sink_settings};
use super::ring::{SinkRing, SinkStage, lock};
use super::server::Server;
use super::shrink::shrink;
use crate::encoding::Encoding;
use crate::frame::Id;
use crate::resume::Start;
use crate::sink::Stage;
use crate::sink::parts::{Opened, SinkRun, watch};

/// Number of the seeds that each test run plays.
const SEEDS: u64 = 200;

/// Reads a number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns the cases of a file of this folder.
fn cases(file: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation").join(file);
    Case::all(&std::fs::read_to_string(path).unwrap())
}

/// Plays a case. If it fails, makes it smaller, and returns it with the messages of its run.
fn failure(case: &Case) -> Option<(Case, String)> {
    let found = play(case, false).broken?;
    let small = shrink(Case { found, ..case.clone() });
    let trace = play(&small, true).trace.join("\n");
    Some((small, trace))
}

#[test]
fn promises_hold_for_random_seeds() {
    let twin = std::env::var("SLIPRING_TWIN").ok();
    let (first, number) = match (number("SLIPRING_SEED"), number("SLIPRING_SEEDS")) {
        (Some(seed), number) => (seed, number.unwrap_or(1)),
        (None, Some(number)) => (fastrand::u64(..1 << 40), number),
        (None, None) => (0, SEEDS),
    };
    let (mut messages, begun) = (0, Instant::now());
    let mut ends = BTreeMap::<String, u64>::new();
    for seed in first..first + number {
        let case = Case { twin: twin.clone(), ..Case::of(seed) };
        let played = play(&case, false);
        messages += played.messages;
        for end in played.ends {
            *ends.entry(end).or_default() += 1;
        }
        if played.broken.is_some()
            && let Some((small, trace)) = failure(&case)
        {
            println!("{trace}\nseed {seed} after {:?}:\n{small}", begun.elapsed());
            panic!("{}", small.found);
        }
    }
    println!(
        "{number} seeds from {first} on: {messages} messages, {ends:?}, {:?}",
        begun.elapsed()
    );
}

#[test]
fn a_case_always_runs_in_the_same_way() {
    for seed in 0..20 {
        let case = Case::of(seed);
        assert_eq!(play(&case, true).trace, play(&case, true).trace, "{case}");
    }
}

/// Cases that once failed, and must hold.
#[test]
fn cases_that_once_failed_hold() {
    for case in cases("regressions.jsonl") {
        assert_eq!(play(&case, false).broken, None, "{case}");
    }
}

/// Each case fails with its twin, and holds without it.
#[test]
fn planted_defects_are_found() {
    for case in cases("twins.jsonl") {
        assert!(case.twin.is_some(), "{case}");
        assert!(play(&case, false).broken.is_some(), "the twin is no longer found by {case}");
        let without = Case { twin: None, ..case };
        assert_eq!(play(&without, false).broken, None, "{without}");
    }
}

/// A sink of the library's own ring, which has no events at two positions. The stream's end lies
/// behind the hole, and the ring's events go on behind the stream's end.
#[test]
fn a_sink_at_a_surviving_ring_keeps_the_events_behind_a_hole() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let oracle = Arc::new(Mutex::new(Oracle::default()));
        let server = Server::new(oracle.clone());
        let network = Network::new(server, BTreeMap::new(), Duration::from_millis(1), false);
        let _running = super::enter(None, network.clone());
        spawn_local(network.clone().run());
        let epoch = Id::random();

        let before = SinkRing::new(epoch, 0, 16, oracle.clone());
        before.publish(5);
        before.leave_out(2);
        before.publish(1);
        before.close();
        run(SinkStage(before), epoch, false).await;
        assert_eq!(network.server(|server| server.end()), Some(8));

        // The same ring, as the next sink finds it after the death of the first.
        let graph = Graph::new(16, || 0u64).shared();
        let key = graph.reader("journal");
        let ring = graph.build().unwrap();
        let mut tx = ring.producer();
        let event = |seq| lock(&oracle).published(epoch, seq);
        (0..5).for_each(|seq| tx.publish(|slot| *slot = event(seq)).map(drop).unwrap());
        drop(tx.claim_n(2).unwrap());
        (7..10).for_each(|seq| tx.publish(|slot| *slot = event(seq)).map(drop).unwrap());
        tx.close();
        run(ring.reader(key), epoch, true).await;
        assert_eq!(network.server(|server| server.end()), Some(10));
        assert_eq!(broken(&oracle), None);
    });
}

/// Runs a sink at a ring until the ring ends.
async fn run(stage: impl Stage<Event = u64>, epoch: Id, survives: bool) {
    let settings = sink_settings(0, "s", 1, 1 << 10);
    let (at, number) = (survives.then(|| stage.next()), Id::random());
    let start = Start { survives, at, accepts_loss: false, journal: None, number };
    let opened = Opened::new(settings, Encoding::plain("event", 1), epoch, start).await.unwrap();
    SinkRun::new(stage, opened, watch()).run().await.unwrap();
}
