//! What a sink or a source counts while it runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// What a sink or a source is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It publishes: a sink to its stream, a source to its ring.
    #[default]
    Publishing,
    /// It asks the engine where to go on.
    Asking,
    /// The server does not answer.
    Away,
    /// The stream is full, and the sink waits until it is not. No state of a source.
    Full,
    /// It has ended.
    Ended,
}

/// Counts of a sink at one moment. [`RunningSink::counters`](crate::RunningSink::counters) and
/// the end of a sink return them.
///
/// Example: [`Sink`](crate::Sink).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// What the sink is doing.
    pub state: State,
    /// Number of the sink: higher than that of each sink before, and higher again when it begins
    /// anew.
    pub incarnation: u64,
    /// The position behind the last event that the engine has acknowledged.
    pub acknowledged: u64,
    /// Number of positions that the ring has published and the engine has not acknowledged, when
    /// the sink last looked.
    pub lag: u64,
    /// Events that were acknowledged.
    pub events: u64,
    /// Frames that were acknowledged, or batches of single events.
    pub frames: u64,
    /// Bytes that were acknowledged: payloads with frames' headers.
    pub bytes: u64,
    /// Frames that are sent and not acknowledged.
    pub in_flight: u64,
    /// Frames that were sent again.
    pub resent: u64,
    /// Times that the connection was lost, or left for another server.
    pub reconnects: u64,
    /// Times that the sink was in doubt, and asked the engine.
    pub doubts: u64,
    /// Why it was in doubt the last time. Empty: it never was.
    pub last_doubt: String,
    /// Events that were dropped while the engine was away ([`Outage::DropAfter`](crate::Outage)).
    pub dropped: u64,
    /// Median of the time from a frame's publication, the last one if it was sent again, to its
    /// acknowledgement. So it leaves outages out.
    pub latency_p50: Duration,
    /// 99th percentile of that time.
    pub latency_p99: Duration,
    /// Greatest such time.
    pub latency_max: Duration,
}

/// The counts of a running sink, which its thread changes and any thread reads.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    counters: Counters,
    /// Latencies, in microseconds.
    latencies: Option<Histogram<u64>>,
}

impl Shared {
    /// Changes the counts. The lock is held for a few stores.
    pub fn change(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).counters);
    }

    /// Counts the time from a frame's publication to its acknowledgement.
    pub fn latency(&self, time: Duration) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = inner.latencies.get_or_insert_with(|| {
            // One microsecond to one hour, three digits.
            Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order")
        });
        histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Returns the counts.
    pub fn counters(&self) -> Counters {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counters = inner.counters.clone();
        if let Some(latencies) = &inner.latencies {
            let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
            (counters.latency_p50, counters.latency_p99) = (at(0.5), at(0.99));
            counters.latency_max = Duration::from_micros(latencies.max());
        }
        counters
    }
}

#[cfg(feature = "metrics")]
impl Counters {
    /// Hands the counts to the process's `metrics` recorder, under the stream's name `stream`.
    /// Needs the feature `metrics`.
    ///
    /// | series | kind |
    /// |---|---|
    /// | `slipring_nats_events_total`, `_frames_total`, `_bytes_total`, `_resent_total`, `_reconnects_total`, `_doubts_total`, `_dropped_total` | counter |
    /// | `slipring_nats_acknowledged_position`, `slipring_nats_lag_events`, `slipring_nats_in_flight_frames`, `slipring_nats_incarnation` | gauge |
    /// | `slipring_nats_latency_p50_seconds`, `_p99_seconds`, `_max_seconds` | gauge |
    /// | `slipring_nats_publishing` (1: it publishes; 0: it asks, waits or has ended) | gauge |
    ///
    /// ```
    /// slipring_nats::Counters::default().export("ORDERS");
    /// ```
    pub fn export(&self, stream: &str) {
        use metrics::{counter, gauge};
        let labels = [("stream", stream.to_owned())];
        counter!("slipring_nats_events_total", &labels).absolute(self.events);
        counter!("slipring_nats_frames_total", &labels).absolute(self.frames);
        counter!("slipring_nats_bytes_total", &labels).absolute(self.bytes);
        counter!("slipring_nats_resent_total", &labels).absolute(self.resent);
        counter!("slipring_nats_reconnects_total", &labels).absolute(self.reconnects);
        counter!("slipring_nats_doubts_total", &labels).absolute(self.doubts);
        counter!("slipring_nats_dropped_total", &labels).absolute(self.dropped);
        gauge!("slipring_nats_acknowledged_position", &labels).set(self.acknowledged as f64);
        gauge!("slipring_nats_lag_events", &labels).set(self.lag as f64);
        gauge!("slipring_nats_in_flight_frames", &labels).set(self.in_flight as f64);
        gauge!("slipring_nats_incarnation", &labels).set(self.incarnation as f64);
        gauge!("slipring_nats_latency_p50_seconds", &labels).set(self.latency_p50.as_secs_f64());
        gauge!("slipring_nats_latency_p99_seconds", &labels).set(self.latency_p99.as_secs_f64());
        gauge!("slipring_nats_latency_max_seconds", &labels).set(self.latency_max.as_secs_f64());
        let publishing = f64::from(u8::from(self.state == State::Publishing));
        gauge!("slipring_nats_publishing", &labels).set(publishing);
    }
}

#[cfg(feature = "metrics")]
impl crate::Progress {
    /// Hands the counts to the process's `metrics` recorder, under the stream's name `stream`.
    /// Needs the feature `metrics`.
    ///
    /// | series | kind |
    /// |---|---|
    /// | `slipring_nats_source_events_total`, `_messages_total`, `_bytes_total`, `_passed_over_total`, `_holes_total`, `_reconnects_total`, `_restarts_total` | counter |
    /// | `slipring_nats_source_next_position`, `slipring_nats_source_lag_events` | gauge |
    /// | `slipring_nats_source_publishing` (1: it fills its ring; 0: it asks, waits for a server or has ended) | gauge |
    ///
    /// ```
    /// slipring_nats::Progress::default().export("ORDERS");
    /// ```
    pub fn export(&self, stream: &str) {
        use metrics::{counter, gauge};
        let labels = [("stream", stream.to_owned())];
        counter!("slipring_nats_source_events_total", &labels).absolute(self.events);
        counter!("slipring_nats_source_messages_total", &labels).absolute(self.messages);
        counter!("slipring_nats_source_bytes_total", &labels).absolute(self.bytes);
        counter!("slipring_nats_source_passed_over_total", &labels).absolute(self.passed_over);
        counter!("slipring_nats_source_holes_total", &labels).absolute(self.holes);
        counter!("slipring_nats_source_reconnects_total", &labels).absolute(self.reconnects);
        counter!("slipring_nats_source_restarts_total", &labels).absolute(self.restarts);
        gauge!("slipring_nats_source_next_position", &labels).set(self.next as f64);
        gauge!("slipring_nats_source_lag_events", &labels).set(self.lag as f64);
        let publishing = f64::from(u8::from(self.state == State::Publishing));
        gauge!("slipring_nats_source_publishing", &labels).set(publishing);
    }
}
