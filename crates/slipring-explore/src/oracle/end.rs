//! The oracle's checks of what has happened when a ring is idle, or all threads have ended.
//!
//! - I1: No event is in flight then, so each published event was handled, and each count is exact.

use std::collections::{BTreeMap, BTreeSet};

use slipring::Report;

use super::{Disruption, Fate, Log, Notes};
use crate::plan::{Front, Kind};

impl Log {
    /// Notes that a graph's run has ended without an error.
    pub fn ended_well(&self) {
        let notes = self.notes();
        let failed = notes.must_fail && !notes.ends_early();
        drop(notes);
        if failed {
            self.violation("the run ended well, although its producer failed".to_owned());
        }
    }

    /// Returns how the report of a ring in which nothing happens differs from what its stages have
    /// handled.
    pub fn differs(&self, report: &Report) -> Option<String> {
        let notes = self.notes();
        // A reader that was asked to leave counts when it is dropped.
        if notes.evicts {
            return None;
        }
        let published = notes.events.values();
        let published = published.filter(|fate| matches!(fate, Fate::Published(_))).count() as u64;
        let counted = report.producer().events;
        if counted < published && self.plan.stages.iter().any(|stage| stage.kind != Kind::Tap) {
            return Some(format!(
                "the report of an idle ring counts {counted} of {published} published events"
            ));
        }
        let capacity = self.plan.capacity;
        let remaining = report.remaining().filter(|_| self.plan.counts_room());
        if let Some(remaining) = remaining.filter(|remaining| *remaining != capacity) {
            return Some(format!(
                "the report of an idle ring counts {remaining} free slots of {capacity}"
            ));
        }
        notes.seen.iter().enumerate().find_map(|(stage, seen)| {
            let counted = report.stage(&Log::name(stage)).map_or(0, |stage| stage.events);
            let handled = seen.len() as u64;
            let counts = self.plan.stages[stage].kind != Kind::Tap;
            (counts && counted != handled).then(|| {
                format!(
                    "the report of an idle ring counts {counted} of {handled} events of s{stage}"
                )
            })
        })
    }

    /// Checks how many deaths the seats of a party have counted.
    pub fn check_deaths(&self, party: usize, counted: u64) {
        let notes = self.notes();
        let of_party = notes.seated.range((party, 0)..=(party, u32::MAX));
        let died = of_party.filter(|((_, process), _)| slipring_coherence::has_died(*process));
        let surely: Vec<bool> = died.map(|(_, surely)| *surely).collect();
        drop(notes);
        let least = surely.iter().filter(|surely| **surely).count() as u64;
        let most = surely.len() as u64;
        if !(least..=most).contains(&counted) {
            self.violation(format!(
                "the seats of party {party} count {counted} deaths, and {least} to {most} happened"
            ));
        }
    }

    /// Checks what all stages have handled, when all threads have ended.
    pub fn check_end(&self, report: Option<&Report>) {
        let notes = self.notes();
        let mut wrong = Vec::new();
        let at = |seq: u64| seq.wrapping_sub(self.plan.first);
        let mut positions = BTreeMap::new();
        for (stage, seen) in notes.seen.iter().enumerate() {
            let mut ids = BTreeSet::new();
            for (&seq, &id) in seen {
                if !ids.insert(id) {
                    wrong.push(format!("stage s{stage} handled event {id:x} twice"));
                }
                match notes.events.get(&id) {
                    Some(Fate::Published(None) | Fate::Open) => {}
                    Some(Fate::Published(Some(told))) if *told == seq => {}
                    other => wrong.push(format!(
                        "stage s{stage} handled event {id:x} at {seq}, which is {other:?}"
                    )),
                }
                if *positions.entry(seq).or_insert(id) != id {
                    wrong.push(format!("two stages handled different events at {seq}"));
                }
            }
        }
        for (seq, id) in &notes.observed {
            if positions.get(seq) != Some(id) {
                wrong.push(format!("an observer saw event {id:x} at {seq}, which no stage had"));
            }
        }
        for &(stage, from, to, missed) in &notes.gaps {
            let is_put = |seq: &&u64| !notes.skipped.contains(&(stage, **seq));
            let within = |seq: &&u64| at(**seq) > at(from) && at(**seq) < at(to);
            let puts = notes.seen[stage].keys().filter(within).filter(is_put).count() as u64;
            if puts != missed {
                wrong.push(format!(
                    "an observer of s{stage} missed {missed} of {puts} values from {from} to {to}"
                ));
            }
        }
        let published: BTreeSet<u64> = (notes.events.iter())
            .filter(|(_, fate)| matches!(fate, Fate::Published(_)))
            .map(|(id, _)| *id)
            .collect();
        for (seq, id) in &notes.copied {
            if positions.get(seq).is_some_and(|handled| handled != id) {
                wrong
                    .push(format!("an onlooker copied event {id:x} at {seq}, and no stage had it"));
            }
        }
        // An event that was published before all producers were closed is handled all the same.
        let ends_well = |how: &Disruption| *how == Disruption::CloseAll;
        let all_well = notes.disruptions.iter().all(ends_well);
        for (stage, seen) in notes.seen.iter().enumerate() {
            let ids: BTreeSet<u64> = seen.values().copied().collect();
            let missed: Vec<_> = published.difference(&ids).collect();
            if all_well && self.plan.stages[stage].kind != Kind::Tap && !missed.is_empty() {
                wrong.push(format!("stage s{stage} did not handle {missed:x?}"));
            }
        }
        let failures = [notes.retried.len(), notes.skipped.len()];
        // A handle that drops its batch has not failed.
        let by_library = self.plan.front != Front::Handles
            && self.plan.stages.iter().all(|stage| stage.room == 0);
        if notes.disruptions.is_empty() && by_library && failures != notes.survived {
            let told = notes.survived;
            wrong.push(format!("the hook told of {told:?} retries and skips, not {failures:?}"));
        }
        for (subscriber, (stage, seqs)) in &notes.spans {
            // Within its first and last event, a reader of a tap has missed none.
            let (Some(&first), Some(&last)) = (seqs.first(), seqs.last()) else { continue };
            for (&seq, id) in &positions {
                let within = at(seq) > at(first) && at(seq) < at(last);
                if within && published.contains(id) && !seqs.contains(&seq) {
                    wrong.push(format!("reader {subscriber} of tap s{stage} missed {seq}"));
                }
            }
        }
        // A call that failed may have published a part of its events.
        // A pipeline without stages is joined while its producers still publish.
        let ends = self.plan.stages.iter().any(|stage| stage.kind != Kind::Tap);
        // The end of the ring cuts the calls of a late producer short.
        let ends = ends && !notes.comes_late;
        if let (Some(report), true) = (report, ends && notes.disruptions.is_empty()) {
            self.check_report(&notes, published.len() as u64, report, &mut wrong);
        }
        drop(notes);
        wrong.into_iter().for_each(|what| self.violation(what));
    }

    fn check_report(
        &self,
        notes: &Notes,
        published: u64,
        report: &Report,
        wrong: &mut Vec<String>,
    ) {
        for (stage, seen) in notes.seen.iter().enumerate() {
            let counted = report.stage(&Log::name(stage)).map_or(0, |stage| stage.events);
            if self.plan.stages[stage].kind != Kind::Tap && counted != seen.len() as u64 {
                wrong.push(format!(
                    "the report counts {counted} events of s{stage}, which handled {}",
                    seen.len()
                ));
            }
        }
        let producer = report.producer();
        if producer.waits < notes.calls.waits {
            wrong.push(format!(
                "the report counts {} waits of producers, whose tasks waited {} times",
                producer.waits, notes.calls.waits
            ));
        }
        if producer.events != published || producer.dropped != notes.dropped {
            wrong.push(format!(
                "the report counts {} events published and {} dropped, not {published} and {}",
                producer.events, producer.dropped, notes.dropped
            ));
        }
    }
}
