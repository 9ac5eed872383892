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

/// Counts of a sink at one moment. [`RunningSink::counters`](crate::RunningSink::counters) and the
/// end of a sink return them.
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
pub struct LiveCounters(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    counters: Counters,
    /// Latencies, in microseconds.
    latencies: Option<Histogram<u64>>,
}

impl LiveCounters {
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
