//! The reports of a graph, made from its positions and counters.

use crate::base::name::{Name, PRODUCER};
use crate::base::sync::Relaxed;
use crate::errors::{Report, StageReport};
use crate::ring::control::Control;
use crate::ring::spec::Delivery;
use crate::ring::words::{ahead, earlier, later};

/// Returns the position before which all events are published or, with many producers, claimed.
/// Returns `None` if no shared word holds that position.
fn published(control: &Control, positions: &[u64]) -> Option<u64> {
    if control.plan.many_producers {
        let lower_bound = positions.first().copied().unwrap_or(control.start);
        Some(control.claimed(lower_bound).0)
    } else {
        control.plan.cursor.then(|| control.positions.cursor())
    }
}

/// Returns a number of events that the producers have certainly published, even if their flushed
/// counts are lower. The number never decreases.
///
/// - A single producer publishes each position, so it has published at least those before `newest`.
///   A pool's worker that has lost a race shows an old bound for a moment, so `newest` can
///   decrease.
/// - Several producers may have claimed positions that they have not published or have given up.
///   But they have published each event that a stage has handled, so the result is the largest
///   count of a stage. Taps are left out, because each member of a tap counts each event. In a
///   segment, an event that a stage gets twice also counts twice, so the result is limited to the
///   number of claimed positions.
fn least_published(control: &Control, newest: u64) -> u64 {
    if !control.plan.many_producers {
        return control.counters.report_published(newest.wrapping_sub(control.start));
    }
    let stages = control.plan.stages.iter().enumerate();
    let counted = stages.filter(|(_, stage)| !matches!(stage.delivery, Delivery::Tap(_)));
    let handled = counted.map(|(stage, _)| control.counters.party(stage).events.load(Relaxed));
    handled.max().unwrap_or(0).min(newest.wrapping_sub(control.start))
}

/// Returns the positions and counts of all parties, loaded one after the other.
pub(crate) fn report(control: &Control) -> Report {
    let positions: Vec<u64> = (0..control.plan.stages.len())
        .map(|stage| control.positions.position(&control.plan, stage))
        .collect();
    let published = published(control, &positions);
    let newest = published.into_iter().chain(positions.iter().copied()).reduce(later);
    let newest = newest.unwrap_or(control.start);
    let oldest = control.plan.gating.iter().map(|&leaf| positions[leaf]).reduce(earlier);
    let counters = &control.counters;
    let names =
        control.plan.stages.iter().map(|stage| stage.name.clone()).chain([Name::new(PRODUCER)]);
    let stages = names.enumerate().map(|(i, name)| {
        let own = counters.party(i);
        let seq = positions.get(i).copied().unwrap_or(newest);
        let flushed = own.events.load(Relaxed);
        StageReport {
            name,
            seq,
            lag: ahead(newest, seq).max(0) as u64,
            events: if i == control.plan.producer_party() {
                flushed.max(least_published(control, newest))
            } else {
                flushed
            },
            batches: own.batches.load(Relaxed),
            tombstones: own.tombstones.load(Relaxed),
            skipped: own.skipped.load(Relaxed),
            retries: own.retries.load(Relaxed),
            dropped: own.dropped.load(Relaxed),
            waits: own.waits.load(Relaxed),
            wakes: own.wakes.load(Relaxed),
            waited: (0..counters.parties()).map(|upstream| counters.waited_for(i, upstream)).sum(),
            waited_for: (0..counters.parties()).map(|party| counters.waited_for(party, i)).sum(),
            turns: counters.turns(i),
            latency: counters.samples.as_ref().and_then(|samples| samples.latency(i)),
        }
    });
    let waited = (0..counters.parties() * counters.parties())
        .map(|i| counters.waited_for(i / counters.parties(), i % counters.parties()));
    Report {
        stages: stages.collect(),
        waited: waited.collect(),
        capacity: control.plan.capacity,
        // A stage can be ahead of the cursor: stages follow the stamps, and a producer stores its
        // cursor after the stamps.
        published: published.map(|_| newest),
        remaining: published.and_then(|_| {
            Some(control.plan.capacity.saturating_sub(ahead(newest, oldest?).max(0) as usize))
        }),
        halted: control.status.is_halted(),
        crowd: None,
    }
}
