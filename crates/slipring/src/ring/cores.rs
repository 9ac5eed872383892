//! The cores on which the threads of a graph may run. From them follows whether the graph has more
//! threads than cores, and so how its parties wait.
//!
//! The thread that builds a graph says little about the graph's other threads: programs of this
//! field bind their main thread to one core, build their ring, and start threads that they bind to
//! other cores. So each thread that holds a handle is noted when one of its waits first lasts long,
//! when a stage's loop begins, and after some thousand calls. The noted threads are matched with
//! the cores on which they may run: the graph has enough cores if each thread can have one of its
//! own. A thread that is not noted yet counts with the cores of the thread that built the graph, or
//! with those of the graph's placement.
//!
//! A mask can change, by the thread's own call or by an administrator's. So every [`LOOK_EVERY`], a
//! thread that waits asks the system for the cores of one of the noted threads, in turn.
//!
//! Invariants
//! - I1: a party has at most as many notes as the plan counts threads for it. The oldest note gives
//!   way, so a handle that moves from thread to thread counts once.
//! - I2: a wait acts on what was last counted. It may be outdated, and a strategy must be correct
//!   (if not fast) for any answer.

use std::time::{Duration, Instant};

use crate::base::control_group;
use crate::base::core_set::{Assignment, CoreSet};
use crate::base::sync::machine::AtomicU64 as Word; // virtual cores do not count its accesses
use crate::base::sync::{Mutex, Relaxed, Statistic, available_cores, lock, now};
use crate::base::system;
use crate::ring::plan::Plan;
use crate::ring::spec::{Delivery, ThreadChoice};
use crate::wait::WaitStrategy as _;
use crate::wait::warning::{Warning, warn};

/// Time between two questions to the system for the cores of a noted thread. A question takes some
/// hundred nanoseconds, and a thread asks while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Largest number of notes for which the build takes memory, so that a note allocates nothing.
const MOST_NOTES: usize = 1024;

/// Stands in [`Cores::spare`] if two noted threads share a core that both need.
const TOO_FEW: i64 = -1;

/// A thread that holds a handle.
#[derive(Clone, Copy, Debug)]
struct Note {
    party: usize,
    thread: u32,
    cores: CoreSet,
}

/// The cores of a graph.
pub(crate) struct Cores {
    /// Number of cores beyond the threads that the plan counts, or [`TOO_FEW`].
    spare: Word,
    /// Number of cores that the graph's threads can use at the same time.
    usable: Word,
    /// Time of the next question to the system, in nanoseconds after `built`.
    next_look: Word,
    /// Number of questions so far.
    looks: Word,
    built: Instant,
    /// The cores of the thread that built the graph; `None` if the system does not say, or if the
    /// graph has a placement.
    builder: Option<CoreSet>,
    /// Number of cores of a thread that is not noted, if `builder` is `None`.
    assumed: usize,
    /// The largest number of cores that the threads of this process can use, whatever their masks
    /// are.
    most: usize,
    /// Whether each party's strategy spins.
    spins: Box<[bool]>,
    notes: Mutex<Vec<Note>>,
    /// Whether a test has chosen the number of cores.
    #[cfg(test)]
    is_played: bool,
}

/// The number of handles that joined a graph since its build: of one stage, and of all.
pub(crate) struct Joined<'a> {
    pub(crate) all: usize,
    pub(crate) of_stage: &'a dyn Fn(usize) -> usize,
}

impl Cores {
    /// Counts the cores of a new graph, of which no thread is noted yet.
    /// `is_shared`: other processes share the ring.
    pub(crate) fn new(plan: &Plan, is_shared: bool) -> Cores {
        if cfg!(slipring_loom) {
            // A model explores the same executions on every machine. The system's answer takes
            // 40 µs, and most executions of models take less than 200.
            return Cores::of(plan, plan.placed.unwrap_or(2), None, is_shared);
        }
        #[cfg(test)]
        if let Some(cores) = PLAYED_MACHINE.get() {
            return Cores { is_played: true, ..Cores::of(plan, cores, Some(cores), is_shared) };
        }
        // Virtual cores have no control group.
        let most = if cfg!(slipring_coherence) { None } else { control_group::most_cores() };
        Cores::of(plan, available_cores(), most, is_shared)
    }

    /// Like [`Cores::new`], but told the number of cores of the building thread, and the limit of
    /// the process's threads, if that is known.
    pub(super) fn of(plan: &Plan, cores: usize, most: Option<usize>, is_shared: bool) -> Cores {
        let (built, most) = (now(), most.unwrap_or(cores));
        let (builder, assumed) = match plan.placed {
            // A placement binds each of the graph's threads.
            Some(placed) => (None, placed),
            None if is_shared => (None, most),
            None => (system::cores_of(system::thread_id()), cores),
        };
        let cores = Cores {
            spare: Word::new(0),
            usable: Word::new(0),
            next_look: Word::new(0),
            looks: Word::new(0),
            built,
            builder,
            assumed,
            most,
            spins: (0..=plan.producer_party()).map(|party| plan.wait_of(party).spins()).collect(),
            notes: Mutex::new(Vec::with_capacity(most_notes(plan))),
            #[cfg(test)]
            is_played: false,
        };
        cores.count(plan, &[]);
        cores
    }

    /// Returns whether the graph has more threads than cores. `joined` is the number of handles
    /// that have joined since the build.
    pub(crate) fn are_too_few(&self, joined: usize) -> bool {
        joined as i64 > self.spare.load(Relaxed).cast_signed()
    }

    /// Returns the number of cores that the graph's threads can use at the same time.
    pub(crate) fn usable(&self) -> usize {
        usize::try_from(self.usable.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// Notes the current thread, which holds a handle of `party`.
    #[cold]
    pub(crate) fn note(&self, plan: &Plan, party: usize, joined: &Joined<'_>) {
        #[cfg(test)]
        if self.is_played {
            return;
        }
        let thread = system::thread_id();
        let Some(cores) = system::cores_of(thread) else { return };
        let mut notes = lock(&self.notes);
        let group = group_of(plan, party);
        notes.retain(|note| note.thread != thread || group_of(plan, note.party) != group);
        notes.push(Note { party, thread, cores });
        while let (of_group, Some(oldest)) = members(plan, &notes, group)
            && of_group > threads_of(plan, group, joined)
        {
            notes.remove(oldest); // I1
        }
        let shared = self.shared_core(plan, &notes);
        let is_complete = notes.len() >= plan.threads.saturating_add(joined.all);
        self.count(plan, &notes);
        drop(notes);
        if let Some(warning) = shared {
            static WARNED: Statistic = Statistic::new(0);
            warn(&WARNED, || warning);
        }
        if is_complete && self.are_too_few(joined.all) {
            self.warn_of(plan, self.usable());
        }
    }

    /// Asks the system for the cores of one noted thread, if a question is due. A thread that has
    /// ended is noted no longer.
    pub(crate) fn look(&self, plan: &Plan, now: Instant) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(now.saturating_duration_since(self.built));
        if now >= self.next_look.load(Relaxed) {
            self.next_look.store(now + nanos(LOOK_EVERY), Relaxed);
            self.look_at_one(plan, self.looks.fetch_add(1, Relaxed));
        }
    }

    /// Asks for the cores of the noted thread whose turn it is.
    #[cold]
    fn look_at_one(&self, plan: &Plan, turn: u64) {
        let mut notes = lock(&self.notes);
        let Some(at) = turn.checked_rem(notes.len() as u64) else { return };
        let note = &mut notes[at as usize];
        match system::cores_of(note.thread) {
            Some(cores) if cores == note.cores => return,
            Some(cores) => note.cores = cores,
            None => _ = notes.remove(at as usize),
        }
        self.count(plan, &notes);
    }

    /// Counts the cores that the graph's threads can use, and the threads beyond them.
    fn count(&self, plan: &Plan, notes: &[Note]) {
        let unknown = self.builder;
        // A thread that holds handles of several parties is one thread, and the plan counts
        // several.
        let is_first = |&at: &usize| notes[..at].iter().all(|note| note.thread != notes[at].thread);
        let threads = (0..notes.len()).filter(is_first).count();
        let planned = plan.threads.saturating_sub(notes.len() - threads);
        let (usable, is_crowded) = match unknown {
            // Usually no thread is bound.
            Some(unknown) if notes.iter().all(|note| note.cores == unknown) => {
                (unknown.count(), threads > unknown.count())
            }
            _ => {
                let mut assignment = Assignment::new();
                let allowed = |thread: u32| match notes.get(thread as usize) {
                    Some(note) => note.cores,
                    None => unknown.unwrap_or_default(),
                };
                let mut has_core = |&thread: &usize| assignment.add(thread as u32, allowed);
                let served = (0..notes.len()).filter(is_first).filter(&mut has_core).count();
                let further = unknown.map_or(0, |cores| {
                    (notes.len()..notes.len() + cores.count()).take_while(has_core).count()
                });
                let assumed = if unknown.is_none() { self.assumed } else { 0 };
                ((served + further).max(assumed), served < threads)
            }
        };
        let usable = usable.min(self.most);
        let spare =
            if is_crowded { TOO_FEW } else { (usable as i64 - planned as i64).max(TOO_FEW) };
        self.usable.store(usable as u64, Relaxed);
        self.spare.store(spare.cast_unsigned(), Relaxed);
    }

    /// Warns of a spinning party if the graph has more threads than any masks of its threads could
    /// give it cores.
    pub(crate) fn warn_at_build(&self, plan: &Plan) {
        let most = if self.builder.is_some() { self.most } else { self.assumed.min(self.most) };
        if plan.threads > most {
            self.warn_of(plan, most);
        }
    }

    /// Returns a warning if the last noted thread and another one spin, and are bound to the same
    /// core.
    fn shared_core(&self, plan: &Plan, notes: &[Note]) -> Option<Warning> {
        let (last, earlier) = notes.split_last()?;
        let core = last.cores.only()?;
        let is_rival = |note: &&Note| {
            note.thread != last.thread && note.cores.only() == Some(core) && self.spins[note.party]
        };
        let rival = earlier.iter().find(is_rival).filter(|_| self.spins[last.party])?;
        Some(Warning::SharedCore {
            stage: plan.name_of(last.party),
            other: plan.name_of(rival.party),
            core,
        })
    }

    /// Warns of a party that holds its core while it waits, in a graph with more threads than
    /// cores.
    fn warn_of(&self, plan: &Plan, cores: usize) {
        static WARNED: Statistic = Statistic::new(0);
        if let Some(party) = self.spins.iter().position(|&spins| spins) {
            warn(&WARNED, || Warning::Oversubscribed {
                stage: plan.name_of(party),
                wait: plan.wait_of(party).alias(),
                threads: plan.threads,
                cores,
            });
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Number of cores of the machine on which this thread builds graphs. A test sets it so that
    /// its graphs have enough cores on every machine.
    pub(crate) static PLAYED_MACHINE: std::cell::Cell<Option<usize>> =
        const { std::cell::Cell::new(None) };
}

/// Returns the number of notes of a graph all of whose handles have joined, or [`MOST_NOTES`]. It
/// is one more than there are threads, for a note that takes the place of the oldest.
fn most_notes(plan: &Plan) -> usize {
    let joining = |&stage: &usize| match plan.stages[stage].delivery {
        Delivery::Pool { workers, room } => room.saturating_sub(workers),
        Delivery::Tap(room) => room,
        _ => 0,
    };
    let joining = plan.open.iter().map(joining).fold(0, usize::saturating_add);
    plan.threads.saturating_add(joining).saturating_add(1).min(MOST_NOTES)
}

/// Returns the party that stands for all parties on the same threads as `party`.
fn group_of(plan: &Plan, party: usize) -> usize {
    match plan.stages.get(party).map(|stage| &stage.thread) {
        None | Some(ThreadChoice::Own) => party,
        Some(choice) => {
            plan.stages.iter().position(|stage| stage.thread == *choice).unwrap_or(party)
        }
    }
}

/// Returns the number of threads that the plan counts for the parties of a group, and that joined.
fn threads_of(plan: &Plan, group: usize, joined: &Joined<'_>) -> usize {
    let Some(stage) = plan.stages.get(group) else {
        return if plan.many_producers { 2 } else { 1 };
    };
    match stage.thread {
        ThreadChoice::Own => stage.delivery.len().saturating_add((joined.of_stage)(group)),
        ThreadChoice::Named(_) => 1,
        ThreadChoice::Shared(threads) => threads,
    }
}

/// Returns the number of a group's notes, and the index of the oldest of them.
fn members(plan: &Plan, notes: &[Note], group: usize) -> (usize, Option<usize>) {
    let is_member = |note: &Note| group_of(plan, note.party) == group;
    (notes.iter().filter(|note| is_member(note)).count(), notes.iter().position(is_member))
}
