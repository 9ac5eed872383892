//! The counts of a running sink.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Activity of a sink or a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// A sink publishes to its stream, or a source to its ring.
    #[default]
    Publishing,
    /// The sink or source is asking the engine where to continue.
    Asking,
    /// The server does not answer.
    Away,
    /// The stream is full, and the sink waits for room. Sources never have this state.
    Full,
    /// The sink or source has ended.
    Ended,
}

/// A snapshot of a sink's counts. [`RunningSink::counters`](crate::RunningSink::counters) returns
/// it while the sink runs, and [`RunningSink::join`](crate::RunningSink::join) returns the last
/// one.
///
/// Example: [`Sink`](crate::Sink).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Current activity of the sink.
    pub state: State,
    /// Number of the sink: higher than that of every earlier sink. It rises again when the sink
    /// begins anew.
    pub incarnation: u64,
    /// Position behind the last event that the engine has acknowledged.
    pub acknowledged: u64,
    /// Number of positions that the ring had published but the engine had not acknowledged, at the
    /// sink's last check.
    pub lag: u64,
    /// Number of acknowledged events.
    pub events: u64,
    /// Number of acknowledged frames, or batches of single events.
    pub frames: u64,
    /// Acknowledged bytes: the payloads of messages. The payload of a frame includes the frame's
    /// header.
    pub bytes: u64,
    /// Number of frames that are sent and not acknowledged.
    pub in_flight: u64,
    /// Number of frames that were sent again.
    pub resent: u64,
    /// Number of times that the sink lost its connection, or gave it up for another server.
    pub reconnects: u64,
    /// Number of doubts. In each, the sink asked the engine where to continue.
    pub doubts: u64,
    /// Reason for the last doubt; empty if there was none.
    pub last_doubt: String,
    /// Number of events that were dropped during outages ([`Outage::DropAfter`](crate::Outage)).
    pub dropped: u64,
    /// Median latency: the time between a frame's last sending and its acknowledgement. Outages are
    /// therefore left out.
    pub latency_p50: Duration,
    /// 99th percentile of the latency.
    pub latency_p99: Duration,
    /// Greatest latency.
    pub latency_max: Duration,
}

/// The counts of a running sink. The sink's thread changes them, and any thread reads them.
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

    /// Records a latency.
    pub fn latency(&self, time: Duration) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = inner.latencies.get_or_insert_with(|| {
            // The histogram covers one microsecond to one hour, with three significant digits.
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
