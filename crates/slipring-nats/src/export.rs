//! Hands the counts of sinks and sources to the recorder of the `metrics` crate.

use metrics::{counter, gauge};

use crate::counters::{Counters, State};
use crate::source::Progress;

/// The series of one stream.
struct Series {
    labels: [(&'static str, String); 1],
}

impl Series {
    fn of(stream: &str) -> Series {
        Series { labels: [("stream", stream.to_owned())] }
    }

    fn set_counters(&self, counts: &[(&'static str, u64)]) {
        for &(name, count) in counts {
            counter!(name, &self.labels).absolute(count);
        }
    }

    fn set_gauges(&self, values: &[(&'static str, f64)]) {
        for &(name, value) in values {
            gauge!(name, &self.labels).set(value);
        }
    }
}

/// Returns 1 if the sink or the source publishes, and 0 otherwise.
fn publishing(state: State) -> f64 {
    f64::from(u8::from(state == State::Publishing))
}

impl Counters {
    /// Hands the counts to the process's `metrics` recorder, with the label `stream`. Needs the
    /// feature `metrics`.
    ///
    /// | series | kind |
    /// |---|---|
    /// | `slipring_nats_events_total`, `_frames_total`, `_bytes_total`, `_resent_total`, `_reconnects_total`, `_doubts_total`, `_dropped_total` | counter |
    /// | `slipring_nats_acknowledged_position`, `slipring_nats_lag_events`, `slipring_nats_in_flight_frames`, `slipring_nats_incarnation` | gauge |
    /// | `slipring_nats_latency_p50_seconds`, `_p99_seconds`, `_max_seconds` | gauge |
    /// | `slipring_nats_publishing` (1: the sink publishes; 0: it asks, waits or has ended) | gauge |
    ///
    /// ```
    /// slipring_nats::Counters::default().export("ORDERS");
    /// ```
    pub fn export(&self, stream: &str) {
        let series = Series::of(stream);
        series.set_counters(&[
            ("slipring_nats_events_total", self.events),
            ("slipring_nats_frames_total", self.frames),
            ("slipring_nats_bytes_total", self.bytes),
            ("slipring_nats_resent_total", self.resent),
            ("slipring_nats_reconnects_total", self.reconnects),
            ("slipring_nats_doubts_total", self.doubts),
            ("slipring_nats_dropped_total", self.dropped),
        ]);
        series.set_gauges(&[
            ("slipring_nats_acknowledged_position", self.acknowledged as f64),
            ("slipring_nats_lag_events", self.lag as f64),
            ("slipring_nats_in_flight_frames", self.in_flight as f64),
            ("slipring_nats_incarnation", self.incarnation as f64),
            ("slipring_nats_latency_p50_seconds", self.latency_p50.as_secs_f64()),
            ("slipring_nats_latency_p99_seconds", self.latency_p99.as_secs_f64()),
            ("slipring_nats_latency_max_seconds", self.latency_max.as_secs_f64()),
            ("slipring_nats_publishing", publishing(self.state)),
        ]);
    }
}

impl Progress {
    /// Hands the counts to the process's `metrics` recorder, with the label `stream`. Needs the
    /// feature `metrics`.
    ///
    /// | series | kind |
    /// |---|---|
    /// | `slipring_nats_source_events_total`, `_messages_total`, `_bytes_total`, `_passed_over_total`, `_holes_total`, `_reconnects_total`, `_restarts_total` | counter |
    /// | `slipring_nats_source_next_position`, `slipring_nats_source_lag_events` | gauge |
    /// | `slipring_nats_source_publishing` (1: the source fills its ring; 0: it asks, waits for a server or has ended) | gauge |
    ///
    /// ```
    /// slipring_nats::Progress::default().export("ORDERS");
    /// ```
    pub fn export(&self, stream: &str) {
        let series = Series::of(stream);
        series.set_counters(&[
            ("slipring_nats_source_events_total", self.events),
            ("slipring_nats_source_messages_total", self.messages),
            ("slipring_nats_source_bytes_total", self.bytes),
            ("slipring_nats_source_passed_over_total", self.passed_over),
            ("slipring_nats_source_holes_total", self.holes),
            ("slipring_nats_source_reconnects_total", self.reconnects),
            ("slipring_nats_source_restarts_total", self.restarts),
        ]);
        series.set_gauges(&[
            ("slipring_nats_source_next_position", self.next as f64),
            ("slipring_nats_source_lag_events", self.lag as f64),
            ("slipring_nats_source_publishing", publishing(self.state)),
        ]);
    }
}
