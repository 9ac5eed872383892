//! The counts of sinks and sources.

#[path = "common/checks.rs"]
mod checks;
mod common;

use checks::until;
use common::*;
use slipring_nats::{Decoding, Server as At, Source, State};

#[test]
fn a_sink_counts_what_it_has_stored() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let open = sink(&server.url()).max_frame(HEADER + 10 * 8).resume_at(7).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 1024);
    let counters = running.counters();
    assert_eq!((counters.acknowledged, counters.events, counters.incarnation), (7, 0, 1));
    for round in 1..=3 {
        feed(&mut tx, 7 + round * 1000).unwrap();
        until("the events", || running.counters().acknowledged == 7 + round * 1000);
        until("no lag", || running.counters().lag == 0);
        let counters = running.counters();
        assert_eq!((counters.state, counters.in_flight), (State::Publishing, 0));
        assert_eq!(counters.events, round * 1000);
        // Each frame has at most ten events, and each event eight bytes.
        assert!(counters.frames >= round * 100);
        assert_eq!(counters.bytes, counters.events * 8 + counters.frames * HEADER as u64);
        assert!(counters.latency_p50 <= counters.latency_p99);
        assert!(counters.latency_p99 <= counters.latency_max && !counters.latency_max.is_zero());
    }
    tx.close();
    let counters = running.join().unwrap();
    assert_eq!(counters.state, State::Ended);
    let others = (counters.resent, counters.reconnects, counters.doubts, counters.dropped);
    assert_eq!(others, (0, 0, 0, 0));
    let frames = scan(&mut client(&server));
    let stored = frames.iter().filter(|frame| !frame.events.is_empty()).count() as u64;
    assert_eq!(stored, counters.frames);
}

#[test]
fn a_source_counts_what_it_has_read() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let open = sink(&server.url()).max_frame(HEADER + 10 * 8).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 1024);
    feed(&mut tx, 1000).unwrap();
    tx.close();
    running.join().unwrap();
    let frames = scan(&mut client(&server));
    for first in [0, 505, 1000] {
        let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
        let (tx, mut rx) = ring(first, 64);
        let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
        assert_eq!(rx.for_each(|_, _| ()).unwrap(), 1000 - first);
        let progress = source.join().unwrap();
        assert_eq!((progress.events, progress.next), (1000 - first, 1000));
        assert_eq!((progress.holes, progress.restarts), (0, 0));
        let behind = frames.iter().filter(|frame| frame.end() > first).count() as u64;
        assert_eq!(progress.messages - progress.passed_over, behind);
        assert!(progress.messages <= frames.len() as u64);
        assert!(progress.bytes >= (1000 - first) * 8 + behind * HEADER as u64);
        assert_eq!((progress.state, progress.lag, progress.reconnects), (State::Ended, 0, 0));
    }
}

#[test]
fn a_source_tells_how_far_it_is_behind_the_stream() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store(&server, 1000);
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    // The source knows where the stream ends.
    let until_end_known = |end: u64| {
        let what = format_args!("the end at {end}: {source:?}");
        until(what, || {
            let progress = source.progress();
            progress.next + progress.lag == end
        });
    };
    // The source claims several positions at once. The ring has no room for the next ones, so the
    // source waits.
    until("a full ring", || source.progress().next > 64 - 16);
    until_end_known(1000);
    assert_eq!(source.progress().state, State::Publishing);
    store(&server, 2000);
    until_end_known(2000);
    assert!(source.progress().lag >= 2000 - 64);
    let mut read = 0;
    while read < 2000 {
        read += rx.poll(64, |_, _| ()).unwrap();
    }
    until_end_known(2000);
    assert_eq!(source.progress().lag, 0);
    // The source follows the stream.
    store(&server, 2030);
    until("the last events", || source.progress().next == 2030);
    until_end_known(2030);
    server.kill().unwrap();
    until("the outage", || source.progress().state == State::Away);
    server.restart().unwrap();
    until("the server", || source.progress().state == State::Publishing);
    let progress = source.progress();
    assert!(progress.reconnects >= 1 && progress.restarts >= 1, "{progress:?}");
    assert_eq!(progress.lag, 0);
    source.stop();
    assert_eq!(source.join().unwrap().state, State::Ended);
}

#[cfg(feature = "metrics")]
mod recorder {
    use metrics::{
        Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// Keeps the last value of every series.
    #[derive(Clone, Default)]
    pub struct Kept(pub Arc<Mutex<BTreeMap<String, f64>>>);
    struct Series(Kept, String);
    impl metrics::CounterFn for Series {
        fn increment(&self, _: u64) {}
        fn absolute(&self, value: u64) {
            self.0.0.lock().unwrap().insert(self.1.clone(), value as f64);
        }
    }
    impl metrics::GaugeFn for Series {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, value: f64) {
            self.0.0.lock().unwrap().insert(self.1.clone(), value);
        }
    }
    impl Kept {
        fn series(&self, key: &Key) -> Arc<Series> {
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            Arc::new(Series(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
        }
    }
    impl Recorder for Kept {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.series(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.series(key))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }
}

#[cfg(feature = "metrics")]
#[test]
fn a_recorder_gets_each_series_by_stream() {
    let _watched = watched();
    use recorder::Kept;
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 500).unwrap();
    until("the events", || running.counters().acknowledged == 500);
    let (kept, counters) = (Kept::default(), running.counters());
    metrics::with_local_recorder(&kept, || counters.export(STREAM));
    {
        let kept = kept.0.lock().unwrap();
        let value = |series: &str| {
            let name = format!("slipring_nats_{series} stream={STREAM}");
            *kept.get(&name).unwrap_or_else(|| panic!("{name}: {kept:?}"))
        };
        for (series, number) in [
            ("events_total", 500),
            ("frames_total", counters.frames),
            ("bytes_total", counters.bytes),
            ("resent_total", 0),
            ("reconnects_total", 0),
            ("doubts_total", 0),
            ("dropped_total", 0),
            ("acknowledged_position", 500),
            ("lag_events", counters.lag),
            ("in_flight_frames", counters.in_flight),
            ("incarnation", 1),
            ("publishing", 1),
        ] {
            assert_eq!(value(series), number as f64, "{series}");
        }
        for (series, time) in [
            ("latency_p50_seconds", counters.latency_p50),
            ("latency_p99_seconds", counters.latency_p99),
            ("latency_max_seconds", counters.latency_max),
        ] {
            assert_eq!(value(series), time.as_secs_f64(), "{series}");
        }
        assert_eq!(kept.len(), 15);
    }
    tx.close();
    let counters = running.join().unwrap();
    metrics::with_local_recorder(&kept, || counters.export(STREAM));
    let kept = kept.0.lock().unwrap();
    assert_eq!(kept[&format!("slipring_nats_publishing stream={STREAM}")], 0.0);
}

#[cfg(feature = "metrics")]
#[test]
fn a_recorder_gets_each_series_of_a_source() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 500);
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, mut rx) = ring(100, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    until("a full ring", || source.progress().next > 164 - 16);
    let (kept, progress) = (recorder::Kept::default(), source.progress());
    metrics::with_local_recorder(&kept, || progress.export(STREAM));
    let check = |publishing: u64, progress: &slipring_nats::Progress| {
        let kept = kept.0.lock().unwrap();
        for (series, number) in [
            ("events_total", progress.events),
            ("messages_total", progress.messages),
            ("bytes_total", progress.bytes),
            ("passed_over_total", progress.passed_over),
            ("holes_total", 0),
            ("reconnects_total", 0),
            ("restarts_total", 0),
            ("next_position", progress.next),
            ("lag_events", progress.lag),
            ("publishing", publishing),
        ] {
            let name = format!("slipring_nats_source_{series} stream={STREAM}");
            assert_eq!(kept.get(&name), Some(&(number as f64)), "{name}: {kept:?}");
        }
        assert_eq!(kept.len(), 10);
    };
    check(1, &progress);
    assert_eq!((progress.events + 100, progress.lag), (progress.next, 500 - progress.next));
    source.stop();
    while rx.poll(64, |_, _| ()).is_ok() {}
    let progress = source.join().unwrap();
    metrics::with_local_recorder(&kept, || progress.export(STREAM));
    check(0, &progress);
}
