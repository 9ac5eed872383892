//! The build of a ring checks the graph, allocates all memory, and makes all events.
//!
//! Invariants
//! - I1: slots belong to one core. If a build fails before the core exists, the build frees the
//!   slots. Afterwards, the core frees them.
//! - I2: the events are made once, after the core, and before the first owner of the ring exists.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::available_memory;
use crate::base::name::Name;
use crate::base::panics::{Contained, panic_message};
use crate::errors::{BuildError, Cause};
use crate::ring::board::Board;
use crate::ring::control::{Control, ControlOptions};
use crate::ring::core::Core;
use crate::ring::counters::Samples;
use crate::ring::memory::Pages;
use crate::ring::owner::Owner;
use crate::ring::partition::{Partitioner, ShardIds, partitioner};
use crate::ring::plan::Plan;
use crate::ring::policy::Marks;
use crate::ring::settings::Settings;
use crate::ring::slots::{Layout, Storage as _, View};
use crate::ring::spec::StageSpec;
use crate::ring::world::World;

/// The input of a ring's build: the settings, the event factory of type `F`, and the partitioners.
///
/// The caller of [`RingBuilder::build`] chooses the layout of the slots.
pub(crate) struct RingBuilder<E, F> {
    pub(crate) settings: Settings,
    factory: Contained<F>,
    /// Index of each sharded stage, with the partitioner of that stage.
    partitioners: Vec<(usize, Contained<Partitioner<E>>)>,
}

impl<E, F: FnMut() -> E> RingBuilder<E, F> {
    pub(crate) fn new(capacity: usize, factory: F) -> RingBuilder<E, F> {
        RingBuilder {
            settings: Settings::new(capacity),
            factory: Contained::new(factory),
            partitioners: Vec::new(),
        }
    }

    /// Assigns the events of a stage to its shards by `key`.
    pub(crate) fn partition<K: Hash>(
        &mut self,
        stage: usize,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
    ) {
        self.partitioners.push((stage, Contained::new(partitioner(shards, key))));
    }

    /// Allocates the ring and makes its events. If the drop of the factory panics, the graph fails.
    pub(crate) fn build<L: Layout>(
        mut self,
        stages: Vec<StageSpec>,
    ) -> Result<Owner<E, L>, BuildError> {
        let built = build(self.settings, stages, self.partitioners, &mut *self.factory);
        let panic = self.factory.drop_contained();
        let core: Owner<E, L> = built?;
        if let Some(panic) = panic {
            core.control.fail(core.control.plan.producer_party(), None, Cause::Panic(panic));
        }
        if let Err(problem) = allocate_marks(&core.control) {
            core.take_apart();
            return Err(problem);
        }
        Ok(core)
    }
}

/// Checks a graph and builds its ring. `partitioners` has the index and the partitioner of each
/// sharded stage.
///
/// Before the build allocates anything, it compares its need with the available memory. It
/// allocates the slots first, because they are the largest part of a ring: if there is no memory
/// for them, the build fails before it has filled the arrays of shard ids, positions and counters.
pub(crate) fn build<E, L: Layout>(
    settings: Settings,
    stages: Vec<StageSpec>,
    partitioners: Vec<(usize, Contained<Partitioner<E>>)>,
    factory: &mut dyn FnMut() -> E,
) -> Result<Owner<E, L>, BuildError> {
    let plan = contained(|| plan::<E, L>(&settings, stages))?;
    if !settings.overcommit {
        available_memory::check(needed::<E, L>(&settings, &plan, partitioners.len()))?;
    }
    let slots: View<E, L> = allocate(&plan, settings.pages)?;
    let beside = contained(|| allocate_beside(&settings, plan, partitioners));
    let BesideSlots { shard_ids, control } = match beside {
        Ok(beside) => beside,
        Err(problem) => {
            // SAFETY: the slots were just allocated, and no handle has a view of them (I1).
            unsafe { slots.0.free(settings.pages) };
            return Err(problem);
        }
    };
    // SAFETY: the slots were just allocated, for this core alone (I1).
    let core =
        unsafe { Core::new(control, (slots, settings.pages), shard_ids, L::World::of_heap()) };
    // SAFETY: the core is new, and nothing else fills it (I2).
    match unsafe { core.fill(factory) } {
        Ok(()) => {
            // A graph without a clock needs no warning: its parties share one thread
            // (`Chain::run_inline`) or run in a model.
            if settings.timed {
                core.control.waits.cores.warn_at_build(&core.control.plan);
            }
            Ok(Owner::new(core))
        }
        Err((index, panic)) => Err(BuildError::Factory { index, panic }),
    }
}

/// Runs `part`, a step of the build that may run user code, because it calls methods of waiting
/// strategies. If the step panics, the result is [`BuildError::Strategy`].
fn contained<T>(part: impl FnOnce() -> Result<T, BuildError>) -> Result<T, BuildError> {
    catch_unwind(AssertUnwindSafe(part))
        .unwrap_or_else(|panic| Err(BuildError::Strategy { panic: panic_message(panic) }))
}

/// Checks the graph, and plans its ring.
fn plan<E, L: Layout>(settings: &Settings, stages: Vec<StageSpec>) -> Result<Plan, BuildError> {
    let Settings { capacity, many_producers, publish_cursor, .. } = *settings;
    let (wait, producer_wait) = (&settings.wait, settings.producer_wait());
    let mut plan = Plan::new(stages, capacity, many_producers, wait, producer_wait, true)?;
    plan.placed = settings.placed;
    plan.stamped = many_producers || !View::<E, L>::CURSOR;
    plan.stamps_each = (0..plan.stages.len()).any(|stage| plan.draws_tickets(stage));
    plan.cursor |= !plan.stamped || (publish_cursor && !many_producers);
    Ok(plan)
}

/// Returns the size of the build's allocations, in bytes. The size does not include memory that
/// events own outside of their slots, or the unused parts of huge pages. `sharded` is the number of
/// sharded stages.
fn needed<E, L: Layout>(settings: &Settings, plan: &Plan, sharded: usize) -> u64 {
    let marked = plan.stages.iter().filter(|stage| stage.policy.marks.is_some()).count();
    let per_slot = [
        (1, L::Storage::<E>::bytes_per_slot(plan.stamped)),
        (sharded, ShardIds::<E>::BYTES_PER_SLOT),
        (marked, Marks::BYTES_PER_SLOT),
    ];
    // A product of two 64-bit words fits 128 bits, and the sizes are small enough that the sum of
    // the products fits, too.
    let per_slot: u128 = per_slot.iter().map(|&(count, bytes)| count as u128 * bytes as u128).sum();
    let samples = settings.sample_every;
    let samples = samples.map(|every| Samples::bytes(every, plan.capacity, plan.stages.len()));
    let all = per_slot
        .saturating_mul(plan.capacity as u128)
        .saturating_add(samples.unwrap_or(0))
        .saturating_add(Board::bytes(plan));
    u64::try_from(all).unwrap_or(u64::MAX)
}

fn allocate<E, L: Layout>(plan: &Plan, pages: Pages) -> Result<View<E, L>, BuildError> {
    let slots = L::Storage::<E>::allocate(plan.capacity, plan.stamped, pages);
    let bytes_per_slot = L::Storage::<E>::bytes_per_slot(plan.stamped);
    slots.map(View).ok_or(BuildError::Memory { capacity: plan.capacity, bytes_per_slot })
}

/// The data that a ring's handles share besides the slots.
struct BesideSlots<E> {
    shard_ids: Box<[Option<ShardIds<E>>]>,
    control: Control,
}

/// Allocates the data that a ring's handles share, except for the slots.
fn allocate_beside<E>(
    settings: &Settings,
    plan: Plan,
    partitioners: Vec<(usize, Contained<Partitioner<E>>)>,
) -> Result<BesideSlots<E>, BuildError> {
    let capacity = settings.capacity;
    let no_memory = |bytes_per_slot| BuildError::Memory { capacity, bytes_per_slot };
    let samples = |every| {
        Samples::new(every, capacity, plan.stages.len()).ok_or(no_memory(Samples::BYTES_PER_SLOT))
    };
    let samples = settings.sample_every.map(samples).transpose()?;
    let mut shard_ids: Box<[Option<ShardIds<E>>]> = plan.stages.iter().map(|_| None).collect();
    for (stage, partitioner) in partitioners {
        let ids = ShardIds::new(partitioner, capacity);
        shard_ids[stage] = Some(ids.ok_or(no_memory(ShardIds::<E>::BYTES_PER_SLOT))?);
    }
    let no_lines =
        BuildError::Memory { capacity: plan.lines, bytes_per_slot: Board::BYTES_PER_LINE };
    let Settings { start, deadline, timed, .. } = *settings;
    let options = ControlOptions { start, deadline, timed, samples };
    let board = Board::heap(&plan, start);
    let control = board.and_then(|board| Control::new(plan, board, options)).ok_or(no_lines)?;
    Ok(BesideSlots { shard_ids, control })
}

/// Allocates the marks of all stages that record marks. If some marks already belong to another
/// stage or run, the call fails. It has then allocated no marks, unless another thread was building
/// a ring with the same marks at the same time.
fn allocate_marks(control: &Control) -> Result<(), BuildError> {
    let stages = || control.plan.stages.iter();
    let all = || stages().filter_map(|stage| Some((&stage.name, stage.policy.marks.as_ref()?)));
    let taken = |name: &Name| BuildError::Declaration {
        problem: format!(
            "the marks of `{name}` belong to another stage or run already; make some for each stage"
        ),
    };
    for (i, (name, marks)) in all().enumerate() {
        if marks.are_taken() || all().take(i).any(|(_, other)| other.are_same(marks)) {
            return Err(taken(name));
        }
    }
    let capacity = control.plan.capacity;
    for (name, marks) in all() {
        match marks.allocate(control.start, capacity) {
            Some(true) => {}
            Some(false) => return Err(taken(name)),
            None => {
                return Err(BuildError::Memory { capacity, bytes_per_slot: Marks::BYTES_PER_SLOT });
            }
        }
    }
    Ok(())
}
