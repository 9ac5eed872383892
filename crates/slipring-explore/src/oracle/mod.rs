//! The library's promises, checked while a program runs and when it has ended.
//!
//! - I1: No lock of a log is held where another thread can be chosen: these locks are real ones,
//!   and all virtual threads share one system thread.
//! - I2: A disruption is noted before it happens, so an error that it causes is never a surprise.
//! - I3: An event's identity is its producer's number and a counter, so no two are alike. It is
//!   noted before the event can be seen.
//!
//! A violation is noted and the program goes on, because a panic would be an event of its own: the
//! graph would fail, and the violation be hidden by its consequences.

mod call_notes;
mod calls;
pub mod deaths;
mod end;
mod errors;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slipring::{errors::WaitError, faults::Marks, stages::PRODUCER};
use slipring_coherence::sync;

use crate::plan::{Front, Kind, RingPlan, StagePlan};
use crate::segment::SegmentPlan;
use call_notes::Calls;

/// How a graph was disrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// A stage, or the producer, failed: by a panic, an error or a dropped handle.
    Failure(String),
    /// The graph was halted.
    Halt,
    /// All producers were closed by one of them.
    CloseAll,
    /// The graph's deadline passes.
    Deadline,
}

/// The fate of an event that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The call has not returned, or has failed in a way that leaves it open.
    Open,
    /// Published, at this position if the call said so.
    Published(Option<u64>),
    GivenUp,
}

#[derive(Debug, Default)]
struct Notes {
    events: BTreeMap<u64, Fate>,
    next_id: u64,
    /// The events that each stage has handled: the identity at each position.
    seen: Vec<BTreeMap<u64, u64>>,
    /// Positions that a subscriber of a tap, by its number, has begun at, and has left at.
    spans: BTreeMap<usize, (usize, Vec<u64>)>,
    disruptions: Vec<Disruption>,
    dropped: u64,
    /// Stages whose handlers failed, to be called again.
    retried: Vec<String>,
    /// The positions and identities that observers saw.
    observed: Vec<(u64, u64)>,
    /// The positions and identities that an onlooker has copied.
    copied: Vec<(u64, u64)>,
    /// How many values an observer of a stage missed between two positions.
    gaps: Vec<(usize, u64, u64, u64)>,
    /// The first position of the events that a stage holds.
    held: BTreeMap<usize, u64>,
    /// The time before which the deadline has not passed.
    due: Option<Instant>,
    /// The stage and the position of the failure that calls have told of.
    failure: Option<(String, Option<u64>)>,
    /// Whether processes share the ring.
    processes: bool,
    /// The party and the number of each process that has had a seat, or has tried to take one, and
    /// whether it has the seat for certain.
    seated: BTreeMap<(usize, u32), bool>,
    /// Processes that have no seat any more, for certain.
    gone: BTreeSet<u32>,
    /// The number of each process's reader of a tap, and how many events it had not read at least
    /// when it was found dead.
    readers: BTreeMap<u32, (usize, Option<u64>)>,
    /// Producers that died when they had begun to leave.
    died_leaving: BTreeSet<u32>,
    /// The plan of the segment that processes share.
    segment: Option<SegmentPlan>,
    /// Number of threads that recover a dead process at this moment.
    recoveries: usize,
    /// The events that a stage has passed over, and that may lack its trail: the stage, and the
    /// position.
    passed: BTreeSet<(usize, u64)>,
    /// Whether readers of taps may have been asked to leave.
    evicts: bool,
    /// Readers of taps that were asked to leave and have not left, by their numbers.
    evicted: BTreeSet<usize>,
    /// Whether producers come when the others may have ended.
    comes_late: bool,
    /// Number of producers that have not ended.
    producers: usize,
    /// Whether a handler calls another handle of the ring, for which it may wait itself.
    nests: bool,
    /// Whether a failure happened before the ring can have closed by itself.
    must_fail: bool,
    /// Number of failures that stages have survived by a retry, and by a skip, as the hook tells.
    survived: [usize; 2],
    /// The events that stages have skipped: the stage, and the position.
    skipped: BTreeSet<(usize, u64)>,
    /// The publications that were visible at once: first position and length.
    wholes: Vec<(u64, u64)>,
    calls: Calls,
    violations: Vec<String>,
}

impl Notes {
    /// Whether the stream may end by itself before a failure.
    fn ends_early(&self) -> bool {
        let ends = |how: &Disruption| matches!(how, Disruption::CloseAll | Disruption::Halt);
        self.disruptions.iter().any(ends)
    }
}

/// The notes, which outlive the process that makes them.
struct Kept<'a> {
    notes: MutexGuard<'a, Notes>,
    _outlives: slipring_coherence::Outlives,
}

impl Deref for Kept<'_> {
    type Target = Notes;
    fn deref(&self) -> &Notes {
        &self.notes
    }
}

impl DerefMut for Kept<'_> {
    fn deref_mut(&mut self) -> &mut Notes {
        &mut self.notes
    }
}

/// The log of one ring.
#[derive(Debug)]
pub struct Log {
    plan: RingPlan,
    number: usize,
    notes: Mutex<Notes>,
    /// The marks of each stage that has some.
    marks: Vec<Option<Marks>>,
}

impl Log {
    /// Returns an empty log.
    pub fn new(plan: &RingPlan, number: usize) -> Log {
        let seen = plan.stages.iter().map(|_| BTreeMap::new()).collect();
        let by_library = plan.front != Front::Handles;
        let marks = |stage: &StagePlan| (by_library && stage.has_marks()).then(Marks::new);
        let disruptions = plan.deadline.map(|_| Disruption::Deadline).into_iter().collect();
        Log {
            plan: plan.clone(),
            number,
            notes: Mutex::new(Notes {
                seen,
                disruptions,
                calls: Calls::new(plan),
                ..Notes::default()
            }),
            marks: plan.stages.iter().map(marks).collect(),
        }
    }

    /// Notes that stores become visible late.
    pub fn with_late_stores(self, late: bool) -> Log {
        self.notes().calls.stores_late = late;
        self
    }

    /// The ring's number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The name of a stage.
    pub fn name(stage: usize) -> String {
        format!("s{stage}")
    }

    fn notes(&self) -> Kept<'_> {
        let outlives = slipring_coherence::outlives();
        Kept {
            notes: self.notes.lock().unwrap_or_else(PoisonError::into_inner),
            _outlives: outlives,
        }
    }

    /// Notes that a promise was broken.
    pub fn violation(&self, what: String) {
        let _outlives = slipring_coherence::outlives();
        let what = format!("ring {}: {what}", self.number);
        let mut notes = self.notes();
        if notes.violations.len() < 8 {
            notes.violations.push(what.clone());
        }
        drop(notes);
        if slipring_coherence::records_accesses() {
            // So that the last accesses are those before it.
            slipring_coherence::give_up(&what);
        }
    }

    /// Notes a disruption, before it happens (I2).
    pub fn disrupt(&self, how: Disruption) {
        self.notes().disruptions.push(how);
    }

    /// Notes that the producer is dropped by a panic before it can count as closed.
    pub fn fail_in_drop(&self) {
        self.disrupt(Disruption::Failure(PRODUCER.to_owned()));
        self.notes().must_fail = true;
    }

    /// Notes that a handler calls another handle of the ring.
    pub fn nests(&self) {
        self.notes().nests = true;
    }

    /// Notes that producers begin.
    pub fn produce(&self, producers: usize) {
        let mut notes = self.notes();
        notes.producers += producers;
        notes.calls.producers += producers;
    }

    /// Notes that a handler has a producer of its own.
    pub fn publishes_inside(&self) {
        self.notes().calls.publish_inside = true;
    }

    /// Notes that a producer has ended.
    pub fn produced(&self) {
        self.notes().producers -= 1;
    }

    /// Returns the number of producers that have not ended, if there are some.
    pub fn producing(&self) -> Option<usize> {
        Some(self.notes().producers).filter(|number| *number != 0)
    }

    /// Returns the number of producers that there have been, but for one.
    pub fn but_one(&self) -> usize {
        self.notes().calls.producers.saturating_sub(1)
    }

    /// Notes that a producer is made while the others may have ended.
    pub fn comes_late(&self) {
        self.notes().comes_late = true;
    }

    /// The marks of a stage's skipped events, if it has some.
    pub fn marks(&self, stage: usize) -> Option<&Marks> {
        self.marks[stage].as_ref()
    }

    /// Notes that a stage skips an event.
    pub fn skips(&self, stage: usize, seq: u64) {
        self.notes().skipped.insert((stage, seq));
    }

    /// Checks a failure that a stage has survived, as the hook tells.
    pub fn survived(&self, stage: &str, seq: Option<u64>, skips: bool) {
        let mut notes = self.notes();
        notes.survived[usize::from(skips)] += 1;
        let is_own = |&(number, at): &(usize, u64)| Log::name(number) == stage && Some(at) == seq;
        let fits = match skips {
            true => notes.skipped.iter().any(is_own),
            false => notes.retried.iter().any(|name| name == stage),
        };
        drop(notes);
        if !fits {
            self.violation(format!("the hook tells of a failure of {stage} at {seq:?}"));
        }
    }

    /// Checks the marks that earlier stages have made on an event.
    pub fn check_marks(&self, stage: usize, seq: u64) {
        for earlier in self.plan.before(stage) {
            let Some(marks) = self.marks(earlier) else { continue };
            let (marked, skipped) =
                (marks.skipped(seq), self.notes().skipped.contains(&(earlier, seq)));
            if marked != skipped {
                self.violation(format!(
                    "stage s{stage} got {seq} with s{earlier}'s mark {marked}, not {skipped}"
                ));
            }
        }
    }

    /// Notes a publication that becomes visible at once.
    pub fn whole(&self, first: u64, len: u64) {
        self.notes().wholes.push((first, len));
    }

    /// Checks that a call of a stage that has lent `len` events from `first` on, of at most `max`,
    /// has cut no publication.
    pub fn called(&self, stage: usize, first: u64, len: u64, max: u64) {
        let of = &self.plan.stages[stage];
        let all = matches!(of.kind, Kind::Reader | Kind::Writer) && of.after.is_empty();
        // Side by side, events are cut where the slots begin again. A producer that has died may
        // not have published.
        if all && !self.plan.contiguous && slipring_coherence::deaths() == 0 {
            let max = max.min(self.plan.capacity as u64);
            let cuts = |&&(begin, whole): &&(u64, u64)| {
                let offset = begin.wrapping_sub(first);
                len < max && offset < len && offset + whole > len
            };
            let cut = self.notes().wholes.iter().find(cuts).copied();
            if let Some((begin, whole)) = cut {
                self.violation(format!(
                    "stage s{stage} got {len} events from {first} on, a part of the {whole} from \
                     {begin} on"
                ));
            }
        }
    }

    /// Returns whether something disrupts the graph, or may.
    pub fn is_disrupted(&self) -> bool {
        !self.notes().disruptions.is_empty()
    }

    /// Returns the identity of the next event, which is about to be filled (I3).
    pub fn begin(&self) -> u64 {
        let mut notes = self.notes();
        notes.next_id += 1;
        let id = notes.next_id;
        notes.events.insert(id, Fate::Open);
        id
    }

    /// Notes that an event was published.
    pub fn published(&self, id: u64, seq: Option<u64>) {
        self.notes().events.insert(id, Fate::Published(seq));
    }

    /// Notes that an event was given up. No stage may see it.
    pub fn given_up(&self, id: u64) {
        self.notes().events.insert(id, Fate::GivenUp);
    }

    /// Notes that an event was dropped because the ring was full.
    pub fn dropped(&self) {
        self.notes().dropped += 1;
    }

    /// Forgets an event that was never filled.
    pub fn unfilled(&self, id: u64) {
        self.notes().events.remove(&id);
    }

    /// The ring's plan.
    pub fn plan(&self) -> &RingPlan {
        &self.plan
    }

    /// Returns whether a stage has handled an event at a position.
    pub fn has_handled(&self, stage: usize, seq: u64, id: u64) -> bool {
        self.notes().seen[stage].get(&seq) == Some(&id)
    }

    /// Notes that a reader of a tap, by its number, has read an event.
    pub fn read_by(&self, subscriber: usize, tap: usize, seq: u64) {
        self.check_holds(tap, seq);
        self.notes().spans.entry(subscriber).or_insert((tap, Vec::new())).1.push(seq);
    }

    /// Notes that a stage's handler has failed, to be called again.
    pub fn retries(&self, stage: usize) {
        self.notes().retried.push(Log::name(stage));
    }

    /// Notes that the ring is about to be built.
    pub fn builds(&self) {
        if let Some(micros) = self.plan.deadline {
            let due = sync::now() + Duration::from_micros(micros);
            self.notes().due = Some(due);
        }
    }

    /// Returns whether no call has told of a failure yet, if there is a deadline.
    pub fn is_untold(&self) -> bool {
        self.plan.deadline.is_some() && self.notes().failure.is_none()
    }

    /// Notes the first position of the events that a stage holds, or that it holds none.
    pub fn holds(&self, stage: usize, first: Option<u64>) {
        let mut notes = self.notes();
        match first {
            Some(first) => _ = notes.held.insert(stage, first),
            None => _ = notes.held.remove(&stage),
        }
    }

    /// Checks that no stage before `stage` holds an event that `stage` has got.
    fn check_holds(&self, stage: usize, seq: u64) {
        let notes = self.notes();
        let is_held = |(earlier, first): (&usize, &u64)| {
            // A tap's reader holds up those that write.
            let kinds = [*earlier, stage].map(|stage| self.plan.stages[stage].kind);
            let holds_up = kinds[0] != Kind::Tap || kinds[1].writes();
            (holds_up && self.place(seq) >= self.place(*first)).then_some(*earlier)
        };
        let holders: Vec<usize> = notes.held.iter().filter_map(is_held).collect();
        drop(notes);
        let before = if holders.is_empty() { Vec::new() } else { self.plan.before(stage) };
        for earlier in holders.into_iter().filter(|earlier| before.contains(earlier)) {
            self.violation(format!("stage s{stage} got {seq}, which s{earlier} holds"));
        }
    }

    /// Notes that a stage has handled an event. It handles none twice.
    pub fn handled(&self, stage: usize, seq: u64, id: u64) {
        self.check_holds(stage, seq);
        let before = self.notes().seen[stage].insert(seq, id);
        if let Some(before) = before {
            self.violation(format!(
                "stage s{stage} handled position {seq} twice: event {before:x}, then {id:x}"
            ));
        }
    }

    /// The place of a position, counted from the ring's first.
    pub fn place(&self, seq: u64) -> u64 {
        seq.wrapping_sub(self.plan.first)
    }

    /// Notes what an observer saw.
    pub fn observed(&self, seq: u64, id: u64) {
        self.notes().observed.push((seq, id));
    }

    /// Notes how many values of a stage an observer missed between two positions.
    pub fn missed(&self, stage: usize, from: u64, to: u64, missed: u64) {
        self.notes().gaps.push((stage, from, to, missed));
    }

    /// Returns the events that are published, and not yet handled by all stages.
    pub fn unhandled(&self) -> BTreeSet<u64> {
        let notes = self.notes();
        let published = notes.events.iter().filter(|(_, fate)| matches!(fate, Fate::Published(_)));
        let ids: BTreeSet<u64> = published.map(|(id, _)| *id).collect();
        let stages = notes.seen.iter().enumerate();
        let counting = stages.filter(|(stage, _)| self.plan.stages[*stage].kind != Kind::Tap);
        let seen: Vec<BTreeSet<u64>> =
            counting.map(|(_, seen)| seen.values().copied().collect()).collect();
        ids.into_iter().filter(|id| !seen.iter().all(|seen| seen.contains(id))).collect()
    }

    /// Notes that readers of taps are asked to leave.
    pub fn evict(&self) {
        self.notes().evicts = true;
    }

    /// Notes that a reader of a tap was asked to leave.
    pub fn asked_to_leave(&self, number: usize) {
        self.notes().evicted.insert(number);
    }

    /// Notes that a reader of a tap has left.
    pub fn left(&self, number: usize) {
        self.notes().evicted.remove(&number);
    }

    /// Returns the number of a reader that was asked to leave, and has not left.
    pub fn lingers(&self) -> Option<usize> {
        self.notes().evicted.first().copied()
    }

    /// Returns whether a stage has handled all events that another one has handled before the
    /// position `seq`.
    pub fn has_followed(&self, stage: usize, other: usize, seq: u64) -> bool {
        let notes = self.notes();
        let (seen, place) = (&notes.seen[stage], self.place(seq));
        let before = |at: &&u64| self.place(**at) < place;
        notes.seen[other].keys().filter(before).all(|at| seen.contains_key(at))
    }

    /// Returns whether the last stage has handled an event.
    pub fn is_answered(&self, id: u64) -> bool {
        let last = self.plan.stages.iter().rposition(|stage| stage.kind != Kind::Tap);
        let notes = self.notes();
        last.is_none_or(|last| notes.seen[last].values().any(|seen| *seen == id))
    }

    /// Returns whether a stage has not handled all published events, but for `besides` of them.
    pub fn lags(&self, stage: usize, besides: usize) -> bool {
        let notes = self.notes();
        let published = notes.events.iter().filter(|(_, fate)| matches!(fate, Fate::Published(_)));
        let seen: BTreeSet<u64> = notes.seen[stage].values().copied().collect();
        published.into_iter().filter(|(id, _)| !seen.contains(id)).count() > besides
    }

    /// Returns the number of a stage that has not handled all published events, and one of these.
    pub fn behind(&self) -> Option<(usize, u64)> {
        let notes = self.notes();
        let published = notes.events.iter().filter(|(_, fate)| matches!(fate, Fate::Published(_)));
        let ids: BTreeSet<u64> = published.map(|(id, _)| *id).collect();
        notes.seen.iter().enumerate().find_map(|(stage, seen)| {
            if self.plan.stages[stage].kind == Kind::Tap || seen.len() >= ids.len() {
                return None;
            }
            let seen: BTreeSet<u64> = seen.values().copied().collect();
            ids.difference(&seen).next().map(|id| (stage, *id))
        })
    }

    /// Takes what was noted of broken promises.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.notes().violations)
    }
}

/// Whether the stream goes on after an error of a call.
pub fn goes_on(error: &WaitError) -> bool {
    matches!(error, WaitError::TimedOut(_) | WaitError::PeerDead(_) | WaitError::WaitsForItself(_))
}
