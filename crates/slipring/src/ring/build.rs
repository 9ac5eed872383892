//! Building a ring: the plan is checked, all memory is allocated, and all events are made.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::panics::{Contained, panic_message};
use crate::errors::BuildError;
use crate::ring::control::Control;
use crate::ring::core::{Core, Settings};
use crate::ring::counters::Samples;
use crate::ring::owner::Owner;
use crate::ring::partition::{Partitioner, ShardIds};
use crate::ring::plan::Plan;
use crate::ring::positions::Positions;
use crate::ring::slots::{Layout, Storage as _, View};
use crate::ring::spec::StageSpec;
use crate::ring::spinning;

/// Checks a graph and builds its ring. `partitioners` go by the number of their stage.
///
/// The slots are allocated first, because they take the most: no other memory is written before it
/// is known that they can be had.
pub(crate) fn build<E, L: Layout>(
    settings: Settings,
    stages: Vec<StageSpec>,
    partitioners: Vec<(usize, Contained<Partitioner<E>>)>,
    factory: &mut dyn FnMut() -> E,
) -> Result<Owner<E, L>, BuildError> {
    let plan = contained(|| plan::<E, L>(&settings, stages))?;
    let slots: View<E, L> = allocate(&plan)?;
    let (shard_ids, control) = match contained(|| share(&settings, plan, partitioners)) {
        Ok(shared) => shared,
        Err(problem) => {
            // SAFETY: just allocated, and no handle has a view.
            unsafe { slots.0.free() };
            return Err(problem);
        }
    };
    // SAFETY: just allocated for this core alone.
    let core = unsafe { Core::new(control, slots, shard_ids) };
    // SAFETY: just put together, and filled once.
    match unsafe { core.fill(factory) } {
        Ok(()) => Ok(Owner::new(core)),
        Err((index, panic)) => Err(BuildError::Factory { index, panic }),
    }
}

/// Runs a part of the build that asks strategies, which may be the user's, how they wait.
fn contained<T>(part: impl FnOnce() -> Result<T, BuildError>) -> Result<T, BuildError> {
    catch_unwind(AssertUnwindSafe(part))
        .unwrap_or_else(|panic| Err(BuildError::Strategy { panic: panic_message(panic) }))
}

/// Checks the graph, and warns of threads that hold cores.
fn plan<E, L: Layout>(settings: &Settings, stages: Vec<StageSpec>) -> Result<Plan, BuildError> {
    let Settings { capacity, many_producers, watched, timed, .. } = *settings;
    let wait = &*settings.wait;
    let producer_wait = settings.producer_wait.as_deref().unwrap_or(wait);
    let mut plan = Plan::new(stages, capacity, many_producers, wait, producer_wait)?;
    // A graph that does not read the clock runs on one thread.
    if timed {
        spinning::warn_of(&plan);
    }
    plan.stamped = many_producers || !View::<E, L>::CURSOR;
    plan.cursor |= !plan.stamped || (watched && !many_producers);
    Ok(plan)
}

fn allocate<E, L: Layout>(plan: &Plan) -> Result<View<E, L>, BuildError> {
    let slots = L::Storage::<E>::allocate(plan.capacity, plan.stamped);
    let bytes_per_slot = L::Storage::<E>::bytes_per_slot(plan.stamped);
    slots.map(View).ok_or(BuildError::Memory { capacity: plan.capacity, bytes_per_slot })
}

type Shared<E> = (Box<[Option<ShardIds<E>>]>, Control);

/// Allocates what the handles share besides the slots.
fn share<E>(
    settings: &Settings,
    plan: Plan,
    partitioners: Vec<(usize, Contained<Partitioner<E>>)>,
) -> Result<Shared<E>, BuildError> {
    let capacity = settings.capacity;
    let no_memory = |bytes_per_slot| BuildError::Memory { capacity, bytes_per_slot };
    let samples = |every| {
        Samples::new(every, capacity, plan.stages.len()).ok_or(no_memory(Samples::BYTES_PER_SLOT))
    };
    let samples = settings.sample.map(samples).transpose()?;
    let mut shard_ids: Box<[Option<ShardIds<E>>]> = plan.stages.iter().map(|_| None).collect();
    for (stage, partitioner) in partitioners {
        let ids = ShardIds::new(partitioner, capacity);
        shard_ids[stage] = Some(ids.ok_or(no_memory(ShardIds::<E>::BYTES_PER_SLOT))?);
    }
    let no_lines =
        BuildError::Memory { capacity: plan.lines, bytes_per_slot: Positions::BYTES_PER_LINE };
    let Settings { start, deadline, timed, .. } = *settings;
    let control = Control::new(plan, start, deadline, timed, samples).ok_or(no_lines)?;
    Ok((shard_ids, control))
}
