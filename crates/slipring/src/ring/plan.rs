//! The plan: a declared graph, which was checked once and no longer changes. The plan says which
//! stage follows which, which stages gate the producers, which party notifies which queue, and
//! which line holds which word.
//!
//! Invariants
//! - I1 (the soundness rule): any two stages of a [`Plan`] either both only read, or one comes
//!   after the other.
//! - I2: a stage may follow stages with smaller or larger indices than its own, but the stages
//!   never form a cycle.
//! - I3: a stage's frontier never passes the frontier of an earlier stage. Each stage gates the
//!   producers, or a gating stage follows it directly or indirectly. So the smallest frontier of
//!   the `gating` stages is the smallest frontier of all stages.

use std::fmt;
use std::ops::Range;

use crate::base::name::{Name, PRODUCER};
use crate::base::panics::Contained;
use crate::errors::BuildError;
use crate::ring::check;
use crate::ring::draft::{Draft, assign_partitions, depth, list_announcements};
use crate::ring::early_claims::EarlyClaiming;
use crate::ring::spec::{Access, Delivery, StageSpec, ThreadChoice, count_threads};
use crate::ring::stage::{Guard, Stage};
use crate::wait::{FullRing, Wait, WaitStrategy};

/// A graph that was checked and no longer changes.
pub(crate) struct Plan {
    pub(crate) stages: Vec<Stage>,
    /// For each stage, the earlier stages that the stage follows directly or indirectly.
    pub(crate) before: Vec<Vec<bool>>,
    /// Indices of the stages that no other stage follows. These stages gate the producers.
    pub(crate) gating: Vec<usize>,
    /// Indices of the stages that handles may join while the graph runs: taps, and pools with room.
    pub(crate) open: Vec<usize>,
    /// The cache line on which the producers announce positions, and the taps that gate the
    /// producers; `None` if no tap gates them.
    pub(crate) guard: Option<Guard>,
    /// Whether a single producer stores its cursor. If publications are stamped, the producer
    /// stores the cursor in addition to the stamps.
    pub(crate) cursor: bool,
    /// Whether the ring has many producers and a tap follows them directly. The tap then follows
    /// the sentinel, which a thread moves to the end of the published events before it computes how
    /// far a stage may go.
    pub(crate) sentinel: bool,
    /// Waiting strategy of each stage that has no strategy of its own.
    pub(crate) wait: Contained<Wait>,
    /// Waiting strategy with which producers wait for room.
    pub(crate) producer_wait: Contained<Wait>,
    /// Whether producers sleep at their queue.
    pub(crate) producer_parks: bool,
    /// Indices of the queues that a publication notifies.
    pub(crate) producer_notifies: Vec<usize>,
    /// Indices of the sharded stages whose shard ids the producers compute.
    pub(crate) producer_partitions: Vec<usize>,
    /// Number of lines.
    pub(crate) lines: usize,
    /// Number of wait queues.
    pub(crate) queues: usize,
    /// For each queue, the pool whose workers it wakes one at a time (queue::I6); `None` for a
    /// queue that wakes all of its sleepers.
    pub(crate) pools: Vec<Option<usize>>,
    /// Index of the producers' first seat. The producers' seats come after the seats of all stages.
    pub(crate) first_producer_seat: usize,
    /// Number of the producers' seats. In a ring of one process, producers need no seats, so their
    /// number has no limit.
    pub(crate) producer_seats: usize,
    pub(crate) capacity: usize,
    /// Likely number of threads: one for a single producer or two for many producers, plus the
    /// stages' threads (see [`count_threads`]).
    pub(crate) threads: usize,
    /// Number of cores of the graph's placement; `None` if it has no placement.
    pub(crate) placed: Option<usize>,
    /// Whether several producers may claim and publish at the same time.
    pub(crate) many_producers: bool,
    /// When producers may claim slots that are not free yet.
    pub(crate) early_claims: EarlyClaiming,
    /// Whether the claim word is a [`SeatedClaim`](crate::ring::words::SeatedClaim), which is so if
    /// several processes produce.
    pub(crate) seated_claims: bool,
    /// Whether a publication stamps each of its slots, so that a worker that waits for one position
    /// sees its publication (`worker::I6`). Otherwise it stamps the first slot of each run.
    pub(crate) stamps_each: bool,
    /// Whether publications are stamped. Without stamps the cursor publishes events, and the first
    /// stages follow the cursor as they would follow a stage's frontier.
    pub(crate) stamped: bool,
}

impl Plan {
    /// Checks a declared graph and makes its plan.
    ///
    /// `wait` is the waiting strategy of each stage that has none of its own. `producer_wait` is
    /// the waiting strategy of the producers. `one_process`: no other process shares the ring.
    pub(crate) fn new(
        specs: Vec<StageSpec>,
        capacity: usize,
        many_producers: bool,
        wait: &Wait,
        producer_wait: &Wait,
        one_process: bool,
    ) -> Result<Plan, BuildError> {
        let before = check::all(&specs, capacity)?;
        let waits = check::waits(&specs, wait)?;
        let mut draft = Draft::new(&specs, waits, producer_wait, one_process);
        let mut stages = draft.stages();
        let gating: Vec<usize> = (0..specs.len()).filter(|&stage| draft.is_gating(stage)).collect();
        let guard = draft.guard(&gating);
        list_announcements(&mut stages, &guard);
        let producer_partitions = assign_partitions(&mut stages, &before);
        let is_first_tap =
            |stage: &Stage| stage.after.is_empty() && matches!(stage.delivery, Delivery::Tap(_));
        let first_tap = stages.iter().any(is_first_tap);
        let is_open = |&stage: &usize| match specs[stage].delivery {
            Delivery::Tap(_) => true,
            Delivery::Pool { workers, room } => room > workers,
            _ => false,
        };
        Ok(Plan {
            before,
            open: (0..specs.len()).filter(is_open).collect(),
            gating,
            guard,
            cursor: first_tap && !many_producers,
            sentinel: first_tap && many_producers,
            wait: Contained::new(wait.clone()),
            producer_wait: Contained::new(producer_wait.clone()),
            producer_parks: draft.producer_parks,
            producer_notifies: draft.producer_notifies(),
            producer_partitions,
            lines: draft.lines,
            queues: draft.queues,
            pools: (0..draft.queues).map(|queue| draft.pool_of(queue)).collect(),
            first_producer_seat: draft.seats,
            producer_seats: 1,
            capacity,
            threads: if many_producers { 2 } else { 1 } + count_threads(&specs),
            placed: None,
            many_producers,
            early_claims: EarlyClaiming::with(producer_wait),
            seated_claims: false,
            stamps_each: false,
            stamped: true,
            stages,
        })
    }

    /// Sets the strategies by which the parties of this process wait. The call does not change
    /// which parties sleep, or which queues a party notifies. In a segment, the other processes
    /// choose strategies of their own.
    pub(crate) fn choose_wait(&mut self, wait: &Wait, producer_wait: &Wait) {
        self.stages.iter_mut().for_each(|stage| stage.wait = Contained::new(wait.clone()));
        self.wait = Contained::new(wait.clone());
        self.producer_wait = Contained::new(producer_wait.clone());
    }

    /// Describes the full ring in which a producer waits for `len` positions, starting at `at`.
    /// Returns `None` if a stage of the graph follows another stage: a stage then has only a part
    /// of the ring's events before it, and may run out of events while later stages still have
    /// some.
    pub(crate) fn full_ring(&self, at: u64, len: u64) -> Option<FullRing> {
        let is_flat = self.gating.len() == self.stages.len();
        is_flat.then_some(FullRing { at, len, capacity: self.capacity as u64 })
    }

    /// Returns the index of the stage to which the line with the index `line` belongs.
    pub(crate) fn stage_of(&self, line: usize) -> Option<usize> {
        self.stages
            .iter()
            .position(|stage| (stage.line..stage.line + stage.lines()).contains(&line))
    }

    /// Returns the indices of a party's seats.
    pub(crate) fn seats_of(&self, party: usize) -> Range<usize> {
        let (first, count) = match self.stages.get(party) {
            Some(stage) => (stage.first_seat, stage.seats),
            None => (self.first_producer_seat, self.producer_seats),
        };
        first..first + count
    }

    /// Returns the party to which the seat with the index `seat` belongs, and the seat's number
    /// among the party's seats.
    pub(crate) fn place_of(&self, seat: usize) -> (usize, usize) {
        let owns = |&party: &usize| self.seats_of(party).contains(&seat);
        let party = (0..self.stages.len()).find(owns).unwrap_or(self.producer_party());
        (party, seat - self.seats_of(party).start)
    }

    /// Returns the taps that a party passes.
    pub(crate) fn taps_before(&self, party: usize) -> &[usize] {
        let guard = self.stages.get(party).map_or(&self.guard, |stage| &stage.guard);
        guard.as_ref().map_or(&[], |guard| &guard.taps)
    }

    /// Returns the number of stages that come before a stage.
    pub(crate) fn depth(&self, stage: usize) -> usize {
        depth(&self.before, stage)
    }

    /// Returns the number of seats of all parties.
    pub(crate) fn seats(&self) -> usize {
        self.first_producer_seat + self.producer_seats
    }

    /// Returns whether a stage reads stamps to see which events are published.
    pub(crate) fn reads_stamps(&self, stage: usize) -> bool {
        let stage = &self.stages[stage];
        self.stamped && stage.after.is_empty() && !matches!(stage.delivery, Delivery::Tap(_))
    }

    /// Returns whether the idle workers of a stage draw tickets (`worker::I6`): it is a pool of
    /// several, finds events by their stamps, and its workers never sleep or leave their tickets
    /// before they do.
    #[inline]
    pub(crate) fn draws_tickets(&self, stage: usize) -> bool {
        let pool = &self.stages[stage];
        let is_pool = matches!(pool.delivery, Delivery::Pool { room: 2.., .. });
        is_pool && self.reads_stamps(stage) && (pool.leaves_tickets() || pool.wait.stays_awake())
    }

    // A party is a stage, which has the same index here as in `stages`, or the producers.

    /// Returns the index of the producers as a party: the index after the last stage's index.
    #[inline(always)]
    pub(crate) fn producer_party(&self) -> usize {
        self.stages.len()
    }

    pub(crate) fn name_of(&self, party: usize) -> Name {
        self.stages.get(party).map_or_else(|| Name::new(PRODUCER), |stage| stage.name.clone())
    }

    pub(crate) fn wait_of(&self, party: usize) -> &Wait {
        self.stages.get(party).map_or(&self.producer_wait, |stage| &stage.wait)
    }

    /// Returns whether the queue with this index wakes one worker for each event.
    pub(crate) fn wakes_one(&self, queue: usize) -> bool {
        self.pools[queue].is_some()
    }

    /// Returns whether a waiting party sleeps until a notification.
    pub(crate) fn parks(&self, party: usize) -> bool {
        self.stages.get(party).map_or(self.producer_parks, |stage| stage.parks)
    }
}

impl fmt::Display for Plan {
    /// Prints each stage with the stages that it follows, one stage per line. A last line names the
    /// stages that gate the producers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = Name::column(self.stages.iter().map(|stage| &stage.name));
        for stage in &self.stages {
            let access = if stage.access == Access::Read { "reads" } else { "updates" };
            let kind = match stage.delivery {
                Delivery::Each => access.to_owned(),
                Delivery::Pool { workers, room } if room == workers => {
                    format!("pool of {workers}, {access}")
                }
                Delivery::Pool { workers, room } => {
                    format!("pool of {workers}, room for {room}, {access}")
                }
                Delivery::Shards(shards) => format!("{shards} shards by key, {access}"),
                Delivery::Tap(room) => format!("tap with room for {room}"),
            };
            write!(f, "  {:width$}  {kind}, after ", stage.name.as_str())?;
            if stage.after.is_empty() {
                f.write_str(PRODUCER)?;
            }
            for (i, &earlier) in stage.after.iter().enumerate() {
                write!(f, "{}{}", if i == 0 { "" } else { " and " }, self.stages[earlier].name)?;
            }
            match &stage.thread {
                ThreadChoice::Own => {}
                ThreadChoice::Named(thread) => write!(f, ", on thread {thread}")?,
                ThreadChoice::Shared(_) => f.write_str(", on shared threads")?,
            }
            let (wait, general) = (stage.wait.alias(), self.wait.alias());
            if wait != general {
                write!(f, ", waits: {wait}")?;
            }
            writeln!(f)?;
        }
        let gates: Vec<&str> =
            self.gating.iter().map(|&leaf| self.stages[leaf].name.as_str()).collect();
        if self.producer_wait.alias() != self.wait.alias() {
            writeln!(f, "  {PRODUCER} waits: {}", *self.producer_wait)?;
        }
        match &gates[..] {
            [] => writeln!(f, "  no stage gates the producer: events are overwritten unseen"),
            gates => writeln!(f, "  gating the producer: {}", gates.join(" and ")),
        }
    }
}
