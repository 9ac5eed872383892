//! The declaration of a segment's ring, and the memory that the ring takes.

use super::participant::Participant;
use crate::base::sync::Arc;
use crate::errors::BuildError;
use crate::processes::deaths::{NotedDeaths, OnDeath, Processes};
use crate::processes::reactors::Reactors;
use crate::ring::counters::CounterWords;
use crate::ring::plan::Plan;
use crate::ring::slots::{Interleaved, Layout, Storage as _};
use crate::ring::spec::{Access, Delivery, MAX_MEMBER_BITS, StageSpec};
use crate::ring::stage::Stage;
use crate::ring::status::FailureRecord;
use crate::ring::words::{MAX_CELL_SEATS, MAX_CLAIM_SEATS};
use crate::wait::Wait;

/// How the events of a stage are divided among its handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageDelivery {
    /// One handle sees all events.
    #[default]
    Each,
    /// Each event goes to one worker. The field is the number of workers.
    Pool(usize),
    /// Each event goes to the shard that its key selects.
    Shards {
        /// Number of shards.
        shards: usize,
        /// Offset of the key in the event, in bytes.
        key_offset: usize,
        /// Length of the key, in bytes.
        key_length: usize,
    },
    /// Readers may join and leave. The field is the largest number of readers at a time.
    Tap(usize),
}

/// A stage of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageDeclaration {
    /// The stage's name.
    pub name: String,
    /// Whether the stage may change events.
    pub writes: bool,
    /// How the stage's events are divided among its handles.
    pub delivery: StageDelivery,
    /// Indices of the stages that this stage follows.
    pub after: Vec<usize>,
    /// Effect on the parties that wait for the stage when the stage's process dies; unused
    /// for a tap.
    pub on_death: OnDeath,
}

/// The ring of a segment, as its creator declared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Number of slots, a power of two.
    pub capacity: usize,
    /// Position of the first event.
    pub start: u64,
    /// The stages, each listed after all the stages that its `after` names.
    pub stages: Vec<StageDeclaration>,
    /// Number of producers that the ring has room for, at least 1.
    pub producers: usize,
    /// Effect on the stages when a producer's process dies.
    pub producer_on_death: OnDeath,
}

/// The places of a stage's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagePlace {
    /// Index of the line that holds the stage's position.
    pub line: usize,
    /// Index of the queue at which the stage waits.
    pub queue: usize,
    /// Index of the stage's first seat.
    pub first_seat: usize,
    /// Number of the stage's seats.
    pub seats: usize,
}

/// The memory that a ring needs. Most of it is counted in lines of 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Lines of positions.
    pub lines: usize,
    /// Lines of wait queues.
    pub queues: usize,
    /// Number of lines of seats. The seats of the stages come first, then the seats of the
    /// producers.
    pub seats: usize,
    /// Number of lines of counters, one for each party.
    pub counters: usize,
    /// Number of lines that hold how long the parties waited.
    pub waited: usize,
    /// Lines of the graph's failure.
    pub failure: usize,
    /// Number of pools. Each pool needs one eight-byte cell per slot.
    pub cells: usize,
    /// Number of sharded stages. Each of them needs one four-byte shard id per slot.
    pub shard_ids: usize,
    /// Size of a slot, in bytes, or 0 if the segment's head states the size.
    pub slot: usize,
    /// The place of each stage.
    pub stages: Vec<StagePlace>,
}

impl Declaration {
    /// Makes the plan of the ring. It assumes that all parties may sleep, because each process
    /// chooses the strategies of its own handles.
    pub(super) fn plan(&self) -> Result<Plan, BuildError> {
        self.plan_for(&Wait::Blocking)
    }

    /// Makes the ring's plan. In it, all parties of all processes follow the wait strategy `wait`.
    pub(super) fn plan_for(&self, wait: &Wait) -> Result<Plan, BuildError> {
        let spec = |stage: &StageDeclaration| {
            let access = if stage.writes { Access::Write } else { Access::Read };
            let delivery = match stage.delivery {
                StageDelivery::Each => Delivery::Each,
                StageDelivery::Pool(workers) => Delivery::pool(workers),
                StageDelivery::Shards { shards, .. } => Delivery::Shards(shards),
                StageDelivery::Tap(room) => Delivery::Tap(room),
            };
            StageSpec::new(&stage.name, access, delivery, &stage.after)
        };
        if self.stages.is_empty() {
            let problem = "a segment needs a stage: declare at least one reader or writer".into();
            return Err(BuildError::Declaration { problem });
        }
        if self.producers > MAX_CLAIM_SEATS {
            let problem = format!("a segment has room for {MAX_CLAIM_SEATS} producers at most");
            return Err(BuildError::Declaration { problem });
        }
        let count = self.stages.len();
        if self.stages.iter().any(|stage| stage.after.iter().any(|&other| other >= count)) {
            let problem = "a stage follows a stage that is not declared".into();
            return Err(BuildError::Declaration { problem });
        }
        let beyond = |room: usize| room > MAX_MEMBER_BITS;
        let crowded = |stage: &&StageDeclaration| matches!(stage.delivery, StageDelivery::Tap(room) if beyond(room));
        if let Some(stage) = self.stages.iter().find(crowded) {
            let problem = format!(
                "tap `{}` of a segment has room for {MAX_MEMBER_BITS} readers at most; give it less",
                stage.name
            );
            return Err(BuildError::Declaration { problem });
        }
        let is_too_large = |stage: &&StageDeclaration| matches!(stage.delivery, StageDelivery::Pool(workers) if workers > MAX_CELL_SEATS);
        if let Some(StageDeclaration { name, .. }) = self.stages.iter().find(is_too_large) {
            let problem = format!("pool `{name}` has more than {MAX_CELL_SEATS} workers");
            return Err(BuildError::Declaration { problem });
        }
        let specs = self.stages.iter().map(spec).collect();
        let mut plan = Plan::new(specs, self.capacity, self.producers > 1, wait, wait, false)?;
        plan.producer_seats = self.producers;
        plan.seated_claims = self.producers > 1;
        Ok(plan)
    }

    /// Returns what `participant` needs to know about the ring's other processes: the declared
    /// effects of a death, and how to detect one. The ring has `queues` wait queues.
    pub(super) fn processes(&self, participant: &Participant, queues: usize) -> Processes {
        // No party waits for a dead member of a tap, so no call reports such a death.
        let on_death = self.stages.iter().map(|stage| match stage.delivery {
            StageDelivery::Tap(_) => OnDeath::Wait,
            _ => stage.on_death,
        });
        Processes {
            on_death: on_death.chain([self.producer_on_death]).collect(),
            notice: participant.notice,
            proof: Arc::clone(&participant.proof),
            noted: NotedDeaths::default(),
            reactors: Reactors::new(queues),
        }
    }

    /// Checks that the key of each sharded stage lies in an event of `size` bytes.
    fn check_keys(&self, size: usize) -> Result<(), BuildError> {
        for stage in &self.stages {
            let StageDelivery::Shards { key_offset, key_length, .. } = stage.delivery else {
                continue;
            };
            let end = key_offset.checked_add(key_length);
            if key_length == 0 || end.is_none_or(|end| end > size) {
                let problem = format!(
                    "the key of stage `{}`, {key_length} bytes from offset {key_offset} on, does not lie in an event of {size} bytes: give a field of the event",
                    stage.name
                );
                return Err(BuildError::Declaration { problem });
            }
        }
        Ok(())
    }

    /// Returns how much memory the ring needs for events of type `E`.
    ///
    /// # Errors
    /// Returns why no ring can be made from this declaration.
    pub fn needs<E>(&self) -> Result<Needs, BuildError> {
        let needs = self.needs_for(size_of::<E>())?;
        let slot = <Interleaved as Layout>::Storage::<E>::bytes_per_slot(true);
        Ok(Needs { slot, ..needs })
    }

    /// Returns how much memory the ring needs for blocks of `size` bytes, in addition to the blocks
    /// and their stamps.
    ///
    /// # Errors
    /// Returns why no ring can be made from this declaration.
    pub fn needs_for(&self, size: usize) -> Result<Needs, BuildError> {
        let plan = self.plan()?;
        self.check_keys(size)?;
        let parties = plan.stages.len() + 1;
        let no_memory = || BuildError::Memory { capacity: parties, bytes_per_slot: 128 };
        let (counters, waited) = CounterWords::lines(parties).ok_or_else(no_memory)?;
        let place = |stage: &Stage| StagePlace {
            line: stage.line,
            queue: stage.queue,
            first_seat: stage.first_seat,
            seats: stage.delivery.room(),
        };
        let count = |is: fn(&StageDelivery) -> bool| {
            self.stages.iter().filter(|stage| is(&stage.delivery)).count()
        };
        Ok(Needs {
            stages: plan.stages.iter().map(place).collect(),
            lines: plan.lines,
            queues: plan.queues,
            seats: plan.seats(),
            counters,
            waited,
            failure: FailureRecord::LINES,
            cells: count(|delivery| matches!(delivery, StageDelivery::Pool(_))),
            shard_ids: count(|delivery| matches!(delivery, StageDelivery::Shards { .. })),
            slot: 0,
        })
    }
}
