//! The export of reports to the recorder of the `metrics` crate. Needs the feature `metrics`.

use metrics::{counter, gauge};

use crate::errors::Report;

impl Report {
    /// Passes this report to the process's `metrics` recorder, under the ring name `ring`.
    ///
    /// Each series has the labels `ring` and `stage`. Export a fresh
    /// [`Monitor::report`](crate::Monitor::report) before each reading of the `metrics` recorder.
    ///
    /// | series | kind | for |
    /// |---|---|---|
    /// | `slipring_events_total`, `_batches_total`, `_tombstones_total`, `_skipped_total`, `_retries_total`, `_dropped_total`, `_waits_total`, `_wakes_total` | counter | each stage and the producer |
    /// | `slipring_lag_events` | gauge | each stage |
    /// | `slipring_waited_seconds`, `slipring_held_up_seconds` | gauge | each stage and the producer: the time that it waited, and that others waited for it |
    /// | `slipring_turns_total` | counter | stages that take turns on shared threads |
    /// | `slipring_ran_seconds`, `slipring_threads` | gauge | these stages: the time of their turns, and the number of threads that have run them |
    /// | `slipring_latency_p50_seconds`, `_p99_seconds`, `_max_seconds` | gauge | stages whose latency is sampled |
    /// | `slipring_capacity_slots`, `slipring_remaining_slots` | gauge | the ring |
    ///
    /// ```
    /// let monitor = slipring::Monitor::new();
    /// slipring::ring(64, || 0u64).monitor(&monitor).read("end", |_, _| ()).run(|p| {
    ///     p.publish(|v| *v = 1)?;
    ///     if let Some(report) = monitor.report() { report.export("feed"); }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn export(&self, ring: &str) {
        let ring = ring.to_owned();
        for stage in self.stages() {
            let labels = [("ring", ring.clone()), ("stage", stage.name.to_string())];
            counter!("slipring_events_total", &labels).absolute(stage.events);
            counter!("slipring_batches_total", &labels).absolute(stage.batches);
            counter!("slipring_tombstones_total", &labels).absolute(stage.tombstones);
            counter!("slipring_skipped_total", &labels).absolute(stage.skipped);
            counter!("slipring_retries_total", &labels).absolute(stage.retries);
            counter!("slipring_dropped_total", &labels).absolute(stage.dropped);
            counter!("slipring_waits_total", &labels).absolute(stage.waits);
            counter!("slipring_wakes_total", &labels).absolute(stage.wakes);
            gauge!("slipring_lag_events", &labels).set(stage.lag as f64);
            gauge!("slipring_waited_seconds", &labels).set(stage.waited.as_secs_f64());
            gauge!("slipring_held_up_seconds", &labels).set(stage.waited_for.as_secs_f64());
            if let Some(turns) = stage.turns {
                counter!("slipring_turns_total", &labels).absolute(turns.count);
                gauge!("slipring_ran_seconds", &labels).set(turns.ran.as_secs_f64());
                gauge!("slipring_threads", &labels).set(turns.threads as f64);
            }
            if let Some(latency) = stage.latency {
                gauge!("slipring_latency_p50_seconds", &labels).set(latency.p50.as_secs_f64());
                gauge!("slipring_latency_p99_seconds", &labels).set(latency.p99.as_secs_f64());
                gauge!("slipring_latency_max_seconds", &labels).set(latency.max.as_secs_f64());
            }
        }
        let labels = [("ring", ring)];
        gauge!("slipring_capacity_slots", &labels).set(self.capacity() as f64);
        if let Some(remaining) = self.remaining() {
            gauge!("slipring_remaining_slots", &labels).set(remaining as f64);
        }
    }
}
