//! Makes the view of each look: its figures, and their change since the previous look.
//!
//! Invariants
//! - I1: rates follow from positions, which wrap at 2^64. A position that went back gives a rate of
//!   zero.
//! - I2: looks at two segments are never compared: a segment that was removed and created again has
//!   another id, and no rates at its first look.
//! - I3: once a segment loses its name, the processes that were attached to it at the last look are
//!   shown until they end: they may continue in a file without a name.
//! - I4: a share is from 0 to 1, whatever the words of the segment say.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use slipring_shm::{
    SegmentError,
    errors::Problem,
    summaries::{Counts, Liveness, ParticipantSummary, Party, SeatSummary, Summary},
};

use super::notes;
use super::view::{CountsView, Look, PartyView, PlaceView, Rates, View, WaitedFor};
use crate::segments::words;

/// The part of the previous looks that later looks need.
#[derive(Debug, Default)]
pub struct History {
    number: u64,
    last: Option<Past>,
    /// Living participants of segments that have lost the name, with the ids of these segments
    /// (I3).
    nameless: Vec<([u8; 16], ParticipantSummary)>,
}

/// The previous look.
#[derive(Debug)]
struct Past {
    at: Instant,
    summary: Summary,
    /// The part of each party's figures that the next look needs.
    parties: Vec<PastParty>,
}

#[derive(Debug, Clone, Copy)]
struct PastParty {
    /// Time of the look that found the position changed.
    moved: Instant,
    /// Longest waiting time that the party has shown so far, summed over the party's handles.
    waited: Duration,
}

/// The time of a look, by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Time of the monotonic clock, for intervals.
    pub at: Instant,
    /// Time of the wall clock, for the screen.
    pub time: Timestamp,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { at: Instant::now(), time: Timestamp::now() }
    }
}

impl History {
    /// Returns whether there has been no look yet.
    pub fn is_new(&self) -> bool {
        self.number == 0
    }

    /// Turns a segment's summary, or the error of reading it, into the look of this moment.
    pub fn look(
        &mut self,
        segment: &str,
        Moment { at, time }: Moment,
        result: Result<Summary, String>,
    ) -> Look {
        self.number += 1;
        let result = result.map(|summary| self.view(segment, at, summary));
        Look { segment: segment.to_owned(), time, number: self.number, result }
    }

    /// Returns the text of a look that failed: the error, and its meaning for the processes that
    /// were attached.
    pub fn explain(&mut self, error: &SegmentError) -> String {
        if matches!(error.problem(), Problem::Missing) {
            let past = self.last.take();
            past.into_iter().for_each(|past| self.lose_name(past.summary));
        }
        match self.left_nameless() {
            Some(note) => format!("{error}; {note}"),
            None => error.to_string(),
        }
    }

    /// Notes the processes of a segment that has lost its name.
    fn lose_name(&mut self, summary: Summary) {
        let alive = |one: &ParticipantSummary| one.liveness == Liveness::Alive;
        let alive = summary.participants.into_iter().filter(alive);
        self.nameless.extend(alive.map(|one| (summary.id, one)));
    }

    /// Describes the processes that may continue in a segment without a name (I3).
    fn left_nameless(&mut self) -> Option<String> {
        self.nameless.retain(|(_, one)| !one.has_ended());
        let list: Vec<_> = self.nameless.iter().map(|(_, one)| words::process(one)).collect();
        let (was, it, goes) = match list.len() {
            0 => return None,
            1 => ("was", "it", "goes"),
            _ => ("were", "they", "go"),
        };
        let list = list.join(", ");
        Some(format!(
            "{list} {was} attached to the segment that had this name before; unless {it} left, \
             {it} {goes} on there without a name, where no program finds it: end these processes, \
             and start them again (`slipring rm` removes no segment in use)"
        ))
    }

    fn view(&mut self, segment: &str, at: Instant, summary: Summary) -> View {
        let past = match self.last.take() {
            Some(past) if past.summary.id != summary.id => {
                self.lose_name(past.summary);
                None
            }
            past => past.filter(|past| past.summary.stages.len() == summary.stages.len()),
        };
        self.nameless.retain(|(id, _)| *id != summary.id);
        let nameless = self.left_nameless();
        let change = Change { at, past: past.as_ref(), summary: &summary };
        let all = summary.parties().map(|party| change.party(party));
        let (parties, kept): (Vec<PartyView>, Vec<PastParty>) = all.unzip();
        let view = View {
            seconds: change.seconds(),
            state: words::ending(&summary).unwrap_or("running"),
            events: format!("{} v{}", summary.type_name, summary.type_version),
            capacity: summary.capacity,
            free: summary.free,
            published: summary.published,
            last: summary.last,
            stale: summary.stale,
            notes: notes::notes(segment, &summary, &parties, change.seconds(), nameless),
            parties,
        };
        self.last = Some(Past { at, summary, parties: kept });
        view
    }
}

/// A summary, and the previous summary for comparison.
struct Change<'c> {
    at: Instant,
    past: Option<&'c Past>,
    summary: &'c Summary,
}

impl Change<'_> {
    fn seconds(&self) -> Option<f64> {
        let since = self.at.checked_duration_since(self.past?.at)?;
        (!since.is_zero()).then_some(since.as_secs_f64())
    }

    /// Returns the rate at which a position moved (I1).
    fn rate(&self, now: u64, before: u64) -> Option<f64> {
        Some((now.wrapping_sub(before) as i64).max(0) as f64 / self.seconds()?)
    }

    fn party(&self, party: Party) -> (PartyView, PastParty) {
        let summary = self.summary;
        let index = match party {
            Party::Producers => 0,
            Party::Stage(number) => number + 1,
        };
        let before = self.past.and_then(|past| Some((past, past.parties.get(index)?)));
        let position = summary.position(party);
        let stays = before.filter(|(past, _)| past.summary.position(party) == position);
        let moved = stays.map_or(self.at, |(_, kept)| kept.moved);
        let unmoved = self.at.saturating_duration_since(moved);

        let seats = summary.seats(party);
        let taken = seats.iter().filter(|seat| words::occupant(summary, seat).is_some()).count();
        let handles = u32::try_from(taken.max(1)).unwrap_or(u32::MAX);
        let waits_for = summary.awaited_in_turn(party);
        // Handles count a wait only when it is over. So while a party stays at its position with
        // nothing to do, that time belongs to a wait that is not counted yet.
        let counted = waited(summary, party);
        let pending = if waits_for.is_empty() { Duration::ZERO } else { unmoved * handles };
        let known = counted.saturating_add(pending);
        // While a long wait lasts, its time is already shown as pending. When the wait ends, the
        // pending time drops to zero, and the party counts the wait only later. So the known time
        // first falls, and then rises again. The maximum hides both changes, so that no time is
        // shown twice.
        let most = before.map_or(known, |(_, kept)| known.max(kept.waited));
        let share = |time: Duration| {
            let seconds = self.seconds()?;
            Some((time.as_secs_f64() / seconds / f64::from(handles)).clamp(0.0, 1.0))
        };
        let wait_share = before.and_then(|(_, kept)| share(most.saturating_sub(kept.waited)));

        let waited_for = summary.parties().filter_map(|awaited| {
            let (past, _) = before?;
            let now = summary.waited(party, awaited);
            let share = share(now.saturating_sub(past.summary.waited(party, awaited)))?;
            let party = summary.name_of(awaited).to_owned();
            (share > 0.0).then_some(WaitedFor { party, share })
        });
        let counts = summary.counts(party);
        let rates = before.and_then(|(past, _)| {
            let then = past.summary.counts(party);
            Some(Rates {
                batches: self.rate(counts.batches, then.batches)?,
                waits: self.rate(counts.waits, then.waits)?,
                sleeps: self.rate(counts.wakes, then.wakes)?,
            })
        });
        let stage = summary.stage(party);
        let lag = stage.map_or(0, |stage| stage.lag);
        let plain = |seat: &SeatSummary| {
            seat.participant.is_none() && !seat.orphan && seat.deaths == 0 && seat.unread == 0
        };
        let places = (1..).zip(seats).filter(|(_, seat)| seats.len() == 1 || !plain(seat));
        let places = places.map(|(number, seat)| self.place(party, number, seat));
        let view = PartyView {
            name: summary.name_of(party).to_owned(),
            kind: stage.map_or("producer", |stage| stage.delivery),
            position,
            lag,
            lag_share: lag as f64 / summary.capacity.max(1) as f64,
            rate: before.and_then(|(past, _)| self.rate(position, past.summary.position(party))),
            wait_share,
            waited_for: waited_for.collect(),
            asleep: summary.asleep(party),
            waits_for: waits_for.iter().map(|&party| summary.name_of(party).to_owned()).collect(),
            unmoved_seconds: unmoved.as_secs_f64(),
            rates,
            counts: counts_view(counts),
            room: seats.len(),
            taken,
            places: places.collect(),
        };
        (view, PastParty { moved, waited: most })
    }

    fn place(&self, party: Party, number: usize, seat: &SeatSummary) -> PlaceView {
        let summary = self.summary;
        let occupant = words::occupant(summary, seat);
        let dead = occupant.is_some_and(|participant| participant.liveness == Liveness::Dead);
        let before = self.past.and_then(|past| past.summary.seats(party).get(number - 1));
        // A rate compares one reader with itself, not with the previous reader at the place.
        let before = before.filter(|before| before.participant == seat.participant);
        let rate = || self.rate(seat.position?, before?.position?);
        PlaceView {
            number: words::place_number(summary.stage(party), number),
            state: words::seat_state(summary, seat),
            process: occupant.map(|participant| participant.name.clone()),
            pid: occupant.map(|participant| participant.pid),
            deaths: seat.deaths.saturating_add(dead.into()),
            position: seat.position,
            lag: seat.position.map(|position| words::lag(summary, position)),
            rate: rate(),
            events: seat.events.as_ref().map(|events| events.first_seq()..events.end_seq()),
            unread: seat.unread,
        }
    }
}

/// Returns how long a party's handles have waited, summed over all parties for which they waited.
/// Only waits that are already counted are included.
fn waited(summary: &Summary, party: Party) -> Duration {
    let times = summary.parties().map(|awaited| summary.waited(party, awaited));
    times.fold(Duration::ZERO, Duration::saturating_add)
}

fn counts_view(counts: &Counts) -> CountsView {
    let Counts { events, batches, tombstones, skipped, retries, dropped, waits, wakes, .. } =
        *counts;
    let waited = counts.waited.iter().fold(Duration::ZERO, |all, time| all.saturating_add(*time));
    let waited_seconds = waited.as_secs_f64();
    let sleeps = wakes;
    CountsView {
        events,
        batches,
        tombstones,
        skipped,
        retries,
        dropped,
        waits,
        sleeps,
        waited_seconds,
    }
}
