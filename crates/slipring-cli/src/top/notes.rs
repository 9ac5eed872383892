//! Sentences about a ring: which party waits for which, who is dead or stopped, and what to do.
//!
//! Invariants
//! - I1: the worst sentence comes first. A sentence names its party, the process and, where a
//!   person can act, the command.
//! - I2: a command in a sentence can be pasted into a shell, whatever the names are.

use std::cmp::Reverse;
use std::time::Duration;

use indicatif::HumanCount;
use slipring_shm::{
    OnDeath,
    summaries::{Ending, Liveness, ParticipantSummary, Party, SeatSummary, StageSummary, Summary},
};

use super::view::{Note, PartyView, Severity};
use crate::segments::words::{self, process};

/// A party that has events to handle is mentioned if it makes no progress for this time.
const UNMOVED: Duration = Duration::from_secs(1);
/// A wait for a stage is mentioned if it takes at least this share of the time.
const SHARE: f64 = 0.05;

use Severity::{Error, Info, Warning};

/// Returns the sentences about a look at `segment`, the worst first. `nameless` is the sentence
/// about processes of an earlier segment of that name.
pub fn notes(
    segment: &str,
    summary: &Summary,
    parties: &[PartyView],
    seconds: Option<f64>,
    nameless: Option<String>,
) -> Vec<Note> {
    let about = About { segment, summary, parties };
    let mut notes = Vec::new();
    notes.extend(about.ending());
    notes.extend(nameless.map(|text| Note::new(Error, text)));
    notes.extend(about.full());
    notes.extend(summary.participants.iter().filter_map(|one| about.participant(one)));
    for (party, view) in summary.parties().zip(parties) {
        about.places(party, &mut notes);
        notes.extend(about.vacant(party));
        notes.extend(about.unmoved(party, view));
    }
    notes.extend(about.stale());
    notes.extend(about.longest_wait(seconds));
    if notes.is_empty() {
        notes.push(about.calm());
    }
    // The sort is stable: sentences of the same severity keep their order.
    notes.sort_by_key(|note| Reverse(note.severity));
    notes
}

/// A place of a party, with its number among the party's places.
struct PartySeat<'s> {
    party: Party,
    number: usize,
    seat: &'s SeatSummary,
}

struct About<'a> {
    segment: &'a str,
    summary: &'a Summary,
    parties: &'a [PartyView],
}

/// Returns `number` and the word `event`, in the singular or the plural.
fn events(number: u64) -> String {
    format!("{} event{}", HumanCount(number), if number == 1 { "" } else { "s" })
}

fn shell(text: &str) -> String {
    // Only a zero byte cannot be quoted, and names of stages and segments have none.
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), |quoted| quoted.into_owned())
}

impl About<'_> {
    fn is_over(&self) -> bool {
        self.summary.ending != Ending::Running
    }

    /// Returns whether a stage has handled all events of a closed ring.
    fn is_done(&self, party: Party) -> bool {
        self.summary.last.is_some_and(|last| last == self.summary.position(party))
    }

    /// Returns the command that kills the process at a place and frees the place.
    fn evict(&self, party: Party, pid: u32) -> String {
        let taken = self.summary.seats(party).iter().filter(|seat| seat.participant.is_some());
        let several = taken.count() > 1;
        let pid = if several { format!(" --pid {pid}") } else { String::new() };
        let [segment, stage] = [self.segment, self.summary.name_of(party)].map(shell);
        format!("slipring evict {segment} {stage}{pid} --kill")
    }

    /// Returns the name of a place: the stage, such as `store`, or its worker, such as `upper 2`.
    fn place(&self, party: Party, number: usize) -> String {
        let name = self.summary.name_of(party);
        match self.summary.seats(party).len() {
            1 => format!("`{name}`"),
            _ => {
                let number = words::place_number(self.summary.stage(party), number);
                format!("`{name} {number}`")
            }
        }
    }

    fn ending(&self) -> Option<Note> {
        let summary = self.summary;
        let text = match (summary.ending, &summary.failure) {
            (Ending::Running, _) => return None,
            (Ending::Failed, Some(failure)) => format!("the ring has failed: {failure}"),
            (Ending::Failed, None) => {
                "the ring has failed, and no process has recorded why".to_owned()
            }
            (Ending::Halted, _) => "the ring was halted: no party goes on".to_owned(),
            (Ending::Damaged, _) => {
                "the status of the ring has bits that no ring sets: a process has damaged it; stop \
                 all processes, and make the segment anew"
                    .to_owned()
            }
            (Ending::Closing, _) => {
                return Some(Note::new(
                    Info,
                    "the ring is closing: producers publish no more, and a first stage has yet to \
                     find the last event",
                ));
            }
            _ => return Some(self.closed()),
        };
        Some(Note::new(Error, text))
    }

    fn closed(&self) -> Note {
        let behind = self.summary.stages.iter().filter(|stage| stage.lag != 0);
        let behind: Vec<String> = behind
            .map(|stage| format!("`{}` has {} to handle", stage.name, events(stage.lag)))
            .collect();
        Note::new(
            Info,
            match behind.is_empty() {
                true => "the ring is closed, and every stage has handled all events".to_owned(),
                false => format!("the ring is closed; {}", behind.join(", ")),
            },
        )
    }

    /// Says which party the producers wait for.
    fn full(&self) -> Option<Note> {
        let summary = self.summary;
        let chain = summary.awaited_in_turn(Party::Producers);
        let (first, rest) = chain.split_first()?;
        let behind = summary.stage(*first).map_or(0, |stage| stage.lag);
        let wait = if summary.producers > 1 { "producers wait" } else { "producer waits" };
        let name = summary.name_of(*first);
        let mut text = match summary.free {
            0 => {
                format!("ring full: {wait} for `{name}`, {} behind", HumanCount(behind))
            }
            free => format!(
                "{wait} for more than the {} free slot{}: for `{name}`, {} behind",
                HumanCount(free),
                if free == 1 { "" } else { "s" },
                HumanCount(behind)
            ),
        };
        for &party in rest {
            text += &format!(", which waits for `{}`", summary.name_of(party));
        }
        if let Some(reader) = self.slowest_reader(*chain.last().unwrap_or(first)) {
            text += &format!(" ({reader})");
        }
        Some(Note::new(Warning, text))
    }

    /// Names the reader that holds a tap up.
    fn slowest_reader(&self, party: Party) -> Option<String> {
        let tap = self.summary.stage(party).filter(|stage| stage.delivery == "tap")?;
        let at = |seat: &SeatSummary| seat.position == Some(tap.position);
        let (number, seat) = (1..).zip(&tap.seats).find(|(_, seat)| at(seat))?;
        let who = words::occupant(self.summary, seat).map(process);
        Some(format!("reader {number}: {}", who.unwrap_or_else(|| "a process that left".into())))
    }

    /// Reports a process that is not running, once for all of its places.
    fn participant(&self, occupant: &ParticipantSummary) -> Option<Note> {
        let parties = self.summary.parties().map(|party| (party, self.summary.seats(party)));
        let seats = parties.flat_map(|(party, seats)| {
            (1..).zip(seats).map(move |(number, seat)| PartySeat { party, number, seat })
        });
        let owned = |place: &PartySeat<'_>| place.seat.participant == Some(occupant.number);
        let places: Vec<PartySeat<'_>> = seats.filter(owned).collect();
        // A process that has no place holds up no party.
        let first = places.first()?;
        match occupant.liveness {
            Liveness::Alive if occupant.stopped => Some(self.stopped(occupant, &places)),
            Liveness::Dead if places.len() == 1 => Some(self.dead(occupant, first)),
            Liveness::Dead => Some(self.all_dead(occupant, &places)),
            Liveness::Alive | Liveness::Free => None,
            _ => Some(self.held(occupant, &places)),
        }
    }

    /// Reports orphaned places of a party, and places whose process has claimed a position and does
    /// not publish it.
    fn places(&self, party: Party, notes: &mut Vec<Note>) {
        for (number, seat) in (1..).zip(self.summary.seats(party)) {
            if seat.orphan {
                notes.push(self.orphan(party, number, seat));
            }
            if let Some(occupant) = words::occupant(self.summary, seat)
                && occupant.liveness == Liveness::Alive
                && !occupant.stopped
            {
                notes.extend(self.slow_claim(party, number, seat, occupant));
            }
        }
    }

    /// Lists places, followed by `is` or `are`.
    fn are(&self, places: &[PartySeat<'_>]) -> String {
        let mut names: Vec<String> =
            places.iter().map(|place| self.place(place.party, place.number)).collect();
        match (names.pop(), names.is_empty()) {
            (Some(only), true) => format!("{only} is"),
            (last, _) => format!("{} and {} are", names.join(", "), last.unwrap_or_default()),
        }
    }

    fn stopped(&self, occupant: &ParticipantSummary, places: &[PartySeat<'_>]) -> Note {
        let text = format!(
            "{} stopped: {} was stopped by a signal or a debugger; let it go on: kill -CONT {}, or \
             free its place{}: {}",
            self.are(places),
            process(occupant),
            occupant.pid,
            if places.len() == 1 { "" } else { "s" },
            self.evict(places[0].party, occupant.pid)
        );
        Note::new(Error, text)
    }

    fn all_dead(&self, occupant: &ParticipantSummary, places: &[PartySeat<'_>]) -> Note {
        let all = places.iter().map(|place| self.dead(occupant, place).severity);
        let severity = all.max().unwrap_or(Error);
        let mut text = format!("{} dead: {} died", self.are(places), process(occupant));
        if severity == Error {
            let evict = self.evict(places[0].party, occupant.pid);
            text += &format!("; start it again, or free its places: {evict}");
        }
        Note::new(severity, text)
    }

    fn held(&self, occupant: &ParticipantSummary, places: &[PartySeat<'_>]) -> Note {
        let text = format!(
            "{} held: the process of {} is gone, and another one holds its lock (a child of it, or \
             a process that takes the place over)",
            self.are(places),
            process(occupant),
        );
        Note::new(Warning, text)
    }

    /// Reports the only place of a dead process.
    fn dead(&self, occupant: &ParticipantSummary, place: &PartySeat<'_>) -> Note {
        let PartySeat { party, number, seat } = *place;
        let summary = self.summary;
        let dead = format!("{} is dead: {} died", self.place(party, number), process(occupant));
        let again = || {
            let evict = self.evict(party, occupant.pid);
            format!("start it again, or free its place: {evict}")
        };
        let (severity, text) = match summary.stage(party) {
            _ if self.is_done(party) => (Info, format!("{dead}, with all events handled")),
            None if summary.producers > 1 => {
                let claim = seat.events.as_ref().map_or_else(String::new, |claim| {
                    format!(" with the claim {}..{}", claim.first_seq(), claim.end_seq())
                });
                let rest = "; the other parties give up what it claimed when they wait";
                (Warning, format!("{dead}{claim}{rest}"))
            }
            None if self.is_over() => (Info, dead),
            None => {
                let at = summary.published;
                (Error, format!("{dead} at {at}, and the next one goes on there; {}", again()))
            }
            Some(stage) if stage.delivery == "tap" => (
                Warning,
                format!(
                    "{dead}; the parties that wait for it remove it within {:?}",
                    summary.notice
                ),
            ),
            Some(stage) if stage.delivery == "pool" && self.has_worker(stage) => {
                (Warning, format!("{dead}; the other workers take its events over"))
            }
            Some(stage) => (
                Error,
                format!(
                    "{dead} at {}, {} behind, and the next one goes on there; {}{}",
                    stage.position,
                    HumanCount(stage.lag),
                    again(),
                    match stage.on_death {
                        // Only the death of a producer can close a ring.
                        OnDeath::Wait | OnDeath::Close => "",
                        OnDeath::Tell => "; the parties that wait are told",
                        OnDeath::Fail => "; the ring fails when a party waits for it",
                    }
                ),
            ),
        };
        Note::new(severity, text)
    }

    /// Returns whether a running process has a place of the stage.
    fn has_worker(&self, stage: &StageSummary) -> bool {
        let seats = stage.seats.iter();
        let mut occupants = seats.filter_map(|seat| words::occupant(self.summary, seat));
        occupants.any(|one| one.liveness == Liveness::Alive && !one.stopped)
    }

    fn orphan(&self, party: Party, number: usize, seat: &SeatSummary) -> Note {
        let left = seat.events.as_ref().map_or(0, |left| left.len() as u64);
        let runs = self.summary.stage(party).is_some_and(|stage| self.has_worker(stage));
        let (severity, then) = match runs {
            true => (Warning, "another worker takes them over when it waits"),
            false => (Error, "no other worker runs: start one"),
        };
        let place = self.place(party, number);
        let (left, name) = (events(left), self.summary.name_of(party));
        let text = format!("{place} is an orphan: a worker of `{name}` left {left}; {then}");
        Note::new(severity, text)
    }

    /// Reports a producer that has claimed the next position but has not published it.
    fn slow_claim(
        &self,
        party: Party,
        number: usize,
        seat: &SeatSummary,
        occupant: &ParticipantSummary,
    ) -> Option<Note> {
        let claim = seat.events.as_ref().filter(|_| party == Party::Producers)?;
        let unmoved = self.parties.first()?.unmoved_seconds;
        if claim.first_seq() != self.summary.published || unmoved < UNMOVED.as_secs_f64() {
            return None;
        }
        let text = format!(
            "{} has claimed {}..{} and not published it for {unmoved:.0} s, so no stage sees what \
             comes after: {} is alive",
            self.place(party, number),
            claim.first_seq(),
            claim.end_seq(),
            process(occupant)
        );
        Some(Note::new(Warning, text))
    }

    /// Says that no process has a party's place.
    fn vacant(&self, party: Party) -> Option<Note> {
        let summary = self.summary;
        let seats = summary.seats(party);
        let taken = seats.iter().any(|seat| seat.orphan || seat.participant.is_some());
        let stage = summary.stage(party);
        let tap = stage.is_some_and(|stage| stage.delivery == "tap");
        // A ring without any process gets a single sentence of its own.
        if taken || seats.is_empty() || tap || summary.stale || self.is_done(party) {
            return None;
        }
        let name = summary.name_of(party);
        let at = summary.position(party);
        Some(match stage {
            None if self.is_over() => return None,
            None => {
                Note::new(Warning, format!("no process produces: the next one goes on at {at}"))
            }
            Some(stage) if stage.lag != 0 => Note::new(
                Error,
                format!(
                    "no process has the place `{name}`, {} behind: start one; it goes on at {at}",
                    HumanCount(stage.lag)
                ),
            ),
            Some(_) => Note::new(
                Warning,
                format!("no process has the place `{name}`: start one; it goes on at {at}"),
            ),
        })
    }

    /// Reports a stage that has events to handle, and does not move.
    fn unmoved(&self, party: Party, view: &PartyView) -> Option<Note> {
        let summary = self.summary;
        let stage = summary.stage(party).filter(|stage| stage.delivery != "tap")?;
        let has_work = summary.awaited(party).is_none() && stage.lag != 0;
        let ended = matches!(summary.ending, Ending::Halted | Ending::Failed | Ending::Damaged);
        if !has_work || ended || view.unmoved_seconds < UNMOVED.as_secs_f64() {
            return None;
        }
        let occupants = stage.seats.iter().filter_map(|seat| words::occupant(summary, seat));
        let alive = occupants.filter(|one| one.liveness == Liveness::Alive && !one.stopped);
        // A process that keeps an event here while it waits at another place is reported at that
        // other place.
        let alive = alive.filter(|one| !self.waits_elsewhere(one.number));
        let alive: Vec<String> = alive.map(process).collect();
        let are = match alive.len() {
            0 => return None, // another sentence says why
            1 => "is alive",
            _ => "are alive",
        };
        let text = format!(
            "`{}` has not moved for {:.0} s, {} behind: {} {are}, and handles an event for so long, \
             or hangs",
            stage.name,
            view.unmoved_seconds,
            HumanCount(stage.lag),
            alive.join(", ")
        );
        Some(Note::new(Warning, text))
    }

    /// Returns whether a participant has a place of a waiting party.
    fn waits_elsewhere(&self, participant: u32) -> bool {
        self.summary.parties().any(|party| {
            let mut seats = self.summary.seats(party).iter();
            self.summary.awaited(party).is_some()
                && seats.any(|seat| seat.participant == Some(participant))
        })
    }

    fn stale(&self) -> Option<Note> {
        let text = format!(
            "no process is attached; the segment keeps its events until: slipring rm {}",
            shell(self.segment)
        );
        self.summary.stale.then(|| Note::new(Warning, text))
    }

    /// Names the stage for which another party has waited longest since the previous look.
    fn longest_wait(&self, seconds: Option<f64>) -> Option<Note> {
        let seconds = seconds?;
        let pairs = self.parties.iter().flat_map(|view| {
            view.waited_for.iter().map(move |waited| (waited.share, &view.name, &waited.party))
        });
        // Two kinds of waits are left out: a party that waits for the producers just has nothing to
        // do, and the wait of the producers in a full ring is reported already.
        let producers = self.summary.name_of(Party::Producers);
        let gate =
            self.parties.first().and_then(|view| Some((&view.name, view.waits_for.first()?)));
        let pairs = pairs.filter(|&(share, party, awaited)| {
            share >= SHARE && awaited != producers && gate != Some((party, awaited))
        });
        let (share, party, awaited) = pairs.max_by(|one, other| one.0.total_cmp(&other.0))?;
        let text = format!(
            "in the last {seconds:.1} s, `{party}` waited {:.0} % of the time for `{awaited}`",
            share * 100.0
        );
        Some(Note::new(Info, text))
    }

    fn calm(&self) -> Note {
        let behind = self.summary.stages.iter().any(|stage| stage.lag != 0);
        Note::new(
            Info,
            match behind {
                true => "no party is held up",
                false => "all published events are handled: the stages wait for the producer",
            },
        )
    }
}
