//! Processes as the oracle knows them: the seats they have, the deaths that calls have to tell of,
//! and the events that a successor passes over.
//!
//! - I1: A party counts as dead only if its only process died with the seat, none has come since,
//!   and none recovers a dead one at this moment. Then the library has the proof of the death.

use std::collections::BTreeSet;
use std::time::Duration;

use slipring::{errors::WaitError, stages::PRODUCER};
use slipring_coherence::sync::{self, spin_loop};

use super::{Fate, Log};
use crate::event::{Parts, after_write};
use crate::plan::Kind;
use crate::segment::{Death, SegmentPlan};

/// How long a party may call without being told of a death, in nanoseconds of virtual time: a
/// notice, two ticks of the coarse clock, and a pause.
const PATIENCE: u64 = 9_000_000;

/// Number of refused calls after which one has looked at the clock again.
const CALLS: u32 = 32;

/// The pause of a thread that finds nothing, in a program whose processes stay away for a while.
const PAUSE: Duration = Duration::from_micros(500);

impl Log {
    /// Notes that processes share the ring, which come and go.
    pub fn shared_by_processes(&self, plan: &SegmentPlan) {
        let mut notes = self.notes();
        notes.processes = true;
        notes.segment = Some(plan.clone());
    }

    /// Notes that a process has a seat of a party, or if not `surely`, may have one.
    pub fn seated(&self, process: u32, party: usize, surely: bool) {
        self.notes().seated.insert((party, process), surely);
    }

    /// Notes that a process has no seat of a party any more, if it had one.
    pub fn unseated(&self, process: u32, party: usize) {
        if let Some(surely) = self.notes().seated.get_mut(&(party, process)) {
            *surely = false;
        }
    }

    /// Returns whether a process that has died had a seat of a party for certain.
    pub fn had_seat(&self, process: u32, party: usize) -> bool {
        self.notes().seated.get(&(party, process)) == Some(&true)
    }

    /// Notes that a thread begins to recover a dead process, or that it has ended.
    pub fn recovers(&self, begins: bool) {
        let mut notes = self.notes();
        let recoveries = &mut notes.recoveries;
        *recoveries = if begins { *recoveries + 1 } else { *recoveries - 1 };
    }

    /// Notes that a process has neither a seat nor an attempt to take one any more.
    pub fn gone(&self, process: u32) {
        self.notes().gone.insert(process);
    }

    /// Returns how many processes have had a seat of a party, or have tried to take one.
    pub fn tries_to_sit(&self, party: usize) -> usize {
        self.notes().seated.range((party, 0)..=(party, u32::MAX)).count()
    }

    /// Returns whether a living process may have a seat of a party.
    pub fn has_living(&self, party: usize) -> bool {
        self.any_living(party, |_| true)
    }

    /// Returns whether a living process may be about to take a seat of a party, or to leave it.
    pub fn has_joining(&self, party: usize) -> bool {
        self.any_living(party, |surely| !surely)
    }

    fn any_living(&self, party: usize, is: impl Fn(bool) -> bool) -> bool {
        let notes = self.notes();
        let mut of_party = notes.seated.range((party, 0)..=(party, u32::MAX));
        of_party.any(|((_, process), surely)| {
            let lives = !slipring_coherence::has_died(*process) && !notes.gone.contains(process);
            lives && is(*surely)
        })
    }

    /// Notes that a process reads a tap, as a reader of this number.
    pub fn reads(&self, process: u32, subscriber: usize) {
        self.notes().readers.insert(process, (subscriber, None));
    }

    /// Returns how many events a dead reader of a tap had not read, at least, when this function
    /// was first called.
    pub fn unread_by(&self, process: u32) -> Option<u64> {
        let notes = &mut *self.notes();
        // An event that is published may be invisible still.
        let late = notes.calls.stores_late;
        let (subscriber, known) = notes.readers.get_mut(&process).filter(|_| !late)?;
        let (tap, read) = notes.spans.get(subscriber)?;
        let first = self.plan.stages[*tap].after.is_empty();
        let next = read.last().filter(|_| first)?.wrapping_add(1);
        let published = notes.events.values().filter_map(|fate| match fate {
            Fate::Published(seq) => seq.map(|seq| seq.wrapping_sub(next)),
            _ => None,
        });
        let behind: BTreeSet<u64> = published.collect();
        let counted =
            || (0..self.plan.capacity as u64).take_while(|at| behind.contains(at)).count();
        Some(*known.get_or_insert_with(|| counted() as u64))
    }

    /// Notes that a producer has died that had begun to leave.
    pub fn dies_leaving(&self, process: u32) {
        self.notes().died_leaving.insert(process);
    }

    /// Returns whether a producer is known to have died when it had begun to leave.
    pub fn has_died_leaving(&self, process: u32) -> bool {
        self.notes().died_leaving.contains(&process)
    }

    /// Returns whether a process has died that had a seat of the party with this name, or tried to
    /// take one. A producer that had begun to leave counts as one that has left.
    pub fn has_lost(&self, name: &str) -> bool {
        let named = |party: usize| match self.plan.stages.get(party) {
            Some(_) => Log::name(party) == name,
            None => name == PRODUCER,
        };
        let notes = self.notes();
        let mut seated = notes.seated.keys();
        seated.any(|(party, process)| {
            let has_left = notes.died_leaving.contains(process);
            named(*party) && slipring_coherence::has_died(*process) && !has_left
        })
    }

    /// Notes that a stage passes over an event that it was lent before.
    pub fn passes_over(&self, stage: usize, seq: u64, id: u64) {
        let mut notes = self.notes();
        let open = !matches!(notes.events.get(&id), None | Some(Fate::GivenUp));
        let handled = notes.seen[stage].values().any(|seen| *seen == id);
        notes.passed.insert((stage, seq));
        if open && !handled {
            notes.seen[stage].insert(seq, id);
        }
    }

    /// Returns the trails that an event may have behind some writers: that of all, or if one of
    /// them has passed over the event, also one without its part.
    pub fn trails(&self, writers: &[usize], seq: u64, event: &Parts) -> Vec<u64> {
        let mut trails = vec![event.first_trail()];
        if writers.is_empty() {
            return trails;
        }
        let notes = self.notes();
        for &writer in writers {
            let written = trails.iter().map(|trail| after_write(*trail, writer)).collect();
            let before = std::mem::replace(&mut trails, written);
            if notes.passed.contains(&(writer, seq)) {
                trails.extend(before);
            }
        }
        trails
    }

    /// Checks an event that an onlooker has copied whole. `is_final`: no writer changes it any
    /// more.
    pub fn copied(&self, seq: u64, event: Parts, is_final: bool) {
        let (id, stages) = (event.id(), 0..self.plan.stages.len());
        let mut writers: Vec<usize> =
            stages.filter(|&stage| self.plan.stages[stage].kind.writes()).collect();
        writers.sort_by_key(|&writer| self.plan.before(writer).len());
        let is_written = !is_final || self.trails(&writers, seq, &event).contains(&event.trail());
        let fate = self.notes().events.get(&id).copied();
        let was_there = match fate {
            Some(Fate::Open | Fate::Published(None)) => true,
            Some(Fate::Published(Some(told))) => told == seq,
            Some(Fate::GivenUp) | None => false,
        };
        if !event.is_whole() || !is_written || !was_there {
            self.violation(format!(
                "an onlooker copied an event at {seq} that is torn, was not published there, or \
                 lacks its writers: {event:x?}, {fate:?}, final: {is_final}"
            ));
        }
        self.notes().copied.push((seq, id));
    }

    /// Returns the process that is dead (I1), and its party, if a call of `party` that finds
    /// nothing waits for this party and no other, and has to be told.
    fn dead_before(&self, party: usize) -> Option<(u32, usize)> {
        let notes = self.notes();
        let plan = notes.segment.as_ref()?;
        let stages = &plan.ring.stages;
        let before = match stages.get(party).map(|stage| &stage.after[..]) {
            Some([]) => stages.len(),
            Some([one]) => *one,
            Some(_) => return None,
            None => {
                let followed = |last: &usize| stages.iter().any(|it| it.after.contains(last));
                let mut gating = (0..stages.len()).filter(|stage| !followed(stage));
                let only = gating.next()?;
                gating.next().is_none().then_some(only)?
            }
        };
        let (single, death) = match stages.get(before) {
            Some(stage) => {
                (matches!(stage.kind, Kind::Reader | Kind::Writer), plan.on_death[before])
            }
            None => (plan.producers.len() == 1, plan.producer_on_death),
        };
        if !single || !matches!(death, Death::Tell | Death::Fail) {
            return None;
        }
        let (&(_, process), surely) =
            notes.seated.range((before, 0)..=(before, u32::MAX)).last()?;
        let dead = *surely && slipring_coherence::has_died(process);
        (dead && notes.recoveries == 0).then_some((process, before))
    }

    /// Whether room that the producer has found stays there.
    pub fn is_steady(&self) -> bool {
        // Between processes, a death also ends a wait.
        self.plan.is_steady() && self.notes().segment.is_none()
    }

    /// Whether a process that takes the place of a dead one may come late.
    pub fn pauses(&self) -> bool {
        self.notes().segment.as_ref().is_some_and(|plan| plan.absent != 0)
    }
}

/// Checks that a party's calls which find nothing are told of a death.
#[derive(Default)]
pub struct Told {
    /// The dead process, and its party.
    dead: Option<(u32, usize)>,
    /// When the first call was refused.
    since: u64,
    /// Number of calls that were refused later than that by more than patience.
    calls: u32,
}

impl Told {
    /// Notes that a call has found nothing and told nothing, and gives way to other threads.
    pub fn refused(&mut self, log: &Log, party: usize) {
        if slipring_coherence::deaths() == 0 {
            return spin_loop();
        }
        let dead = log.dead_before(party);
        let now = sync::virtual_nanos().unwrap_or(0);
        if dead.is_none() || dead != self.dead {
            *self = Told { dead, since: now, calls: 0 };
        } else if now - self.since > PATIENCE {
            self.calls += 1;
            if let (CALLS, Some((process, of))) = (self.calls, dead) {
                log.violation(format!(
                    "calls of party {party} find nothing, and do not tell that process {process} \
                     of party {of} has died"
                ));
            }
        }
        if log.pauses() { sync::sleep(PAUSE) } else { spin_loop() }
    }

    /// Notes that a call has found something, or has told something.
    pub fn found(&mut self) {
        self.dead = None;
    }
}

/// Lets other threads run after a call that has failed. A death is told again and again until the
/// dead one comes again, and the calls meanwhile are no sign of a sleeper.
pub fn pause_after(error: &WaitError) {
    match error {
        WaitError::PeerDead(_) => sync::sleep(Duration::from_micros(100)),
        _ => sync::spin_loop(),
    }
}
