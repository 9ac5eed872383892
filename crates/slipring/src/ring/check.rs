//! The checks of a declared graph.

use crate::base::name::PRODUCER;
use crate::base::panics::Contained;
use crate::errors::{BuildError, MAX_STAGE_HANDLES};
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::wait::{Wait, WaitStrategy};

/// Checks all properties of a declared graph except the waiting strategies. Returns, for each
/// stage, which stages come before it, directly or indirectly.
pub(crate) fn all(specs: &[StageSpec], capacity: usize) -> Result<Vec<Vec<bool>>, BuildError> {
    if !capacity.is_power_of_two() {
        return Err(BuildError::Capacity { asked: capacity });
    }
    names(specs)?;
    deliveries(specs, capacity)?;
    let before = soundness(specs)?;
    taps(specs)?;
    Ok(before)
}

/// Checks that the names of stages and threads are valid.
fn names(specs: &[StageSpec]) -> Result<(), BuildError> {
    for (i, spec) in specs.iter().enumerate() {
        // A stage's thread has the stage's name, which must not contain a zero byte, because a
        // thread's name would end there.
        if let Some(thread) =
            spec.thread.label().filter(|thread| thread.is_empty() || thread.contains('\0'))
        {
            return Err(BuildError::InvalidName { given: thread.to_owned() });
        }
        if spec.name.is_empty() || spec.name == PRODUCER || spec.name.contains('\0') {
            return Err(BuildError::InvalidName { given: spec.name.clone() });
        }
        if specs[..i].iter().any(|other| other.name == spec.name) {
            return Err(BuildError::DuplicateName { stage: spec.name.clone() });
        }
    }
    Ok(())
}

/// Checks that each pool and each sharded stage has a valid number of workers or shards.
fn deliveries(specs: &[StageSpec], capacity: usize) -> Result<(), BuildError> {
    let most = capacity.min(MAX_STAGE_HANDLES);
    for spec in specs {
        let asked = match spec.delivery {
            Delivery::Each | Delivery::Tap(_) => continue,
            Delivery::Shards(shards) => [shards; 2],
            Delivery::Pool { workers, room } => [workers, room],
        };
        if let Some(&asked) = asked.iter().find(|asked| !(1..=most).contains(*asked)) {
            return Err(BuildError::Workers { stage: spec.name.clone(), asked, capacity });
        }
        let [workers, room] = asked;
        if room < workers {
            let problem = format!(
                "pool `{}` begins with {workers} workers and has room for {room}; give it room for all",
                spec.name
            );
            return Err(BuildError::Declaration { problem });
        }
    }
    Ok(())
}

/// Checks that the declared stages keep the invariants plan::I1 and plan::I2. Returns, for each
/// stage, which stages come before it.
fn soundness(specs: &[StageSpec]) -> Result<Vec<Vec<bool>>, BuildError> {
    let count = specs.len();
    let mut before = vec![vec![false; count]; count];
    let mut done = vec![false; count];
    for _ in 0..count {
        let next = (0..count)
            .find(|&stage| !done[stage] && specs[stage].after.iter().all(|&earlier| done[earlier]));
        let Some(stage) = next else {
            // No stage can be ordered next, so each unfinished stage (not `done`) follows another
            // unfinished one. Each step of the loop below replaces `stuck` by an unfinished stage
            // that it follows, so after `count` steps `stuck` is on a cycle.
            let mut stuck = (0..count).find(|&stage| !done[stage]).unwrap_or(0);
            for _ in 0..count {
                stuck = specs[stuck]
                    .after
                    .iter()
                    .copied()
                    .find(|&earlier| !done[earlier])
                    .unwrap_or(stuck);
            }
            return Err(BuildError::Cycle { stage: specs[stuck].name.clone() });
        };
        for &earlier in &specs[stage].after {
            before[stage][earlier] = true;
            let inherited = before[earlier].clone();
            before[stage].iter_mut().zip(inherited).for_each(|(own, inherited)| *own |= inherited);
        }
        done[stage] = true;
    }
    for a in 0..count {
        for b in 0..a {
            let beside = !before[a][b] && !before[b][a];
            if beside && (specs[a].access == Access::Write || specs[b].access == Access::Write) {
                let (writer, other) =
                    if specs[b].access == Access::Write { (b, a) } else { (a, b) };
                return Err(BuildError::UnorderedUpdater {
                    updater: specs[writer].name.clone(),
                    other: specs[other].name.clone(),
                });
            }
        }
    }
    Ok(before)
}

/// Checks the taps: no tap follows another tap, and each tap has a valid number of seats.
fn taps(specs: &[StageSpec]) -> Result<(), BuildError> {
    for spec in specs.iter().filter(|spec| matches!(spec.delivery, Delivery::Tap(_))) {
        if let Some(&earlier) =
            spec.after.iter().find(|&&earlier| matches!(specs[earlier].delivery, Delivery::Tap(_)))
        {
            let (tap, earlier) = (&spec.name, &specs[earlier].name);
            let problem = format!(
                "tap `{tap}` cannot come after tap `{earlier}`: put it after what `{earlier}` comes after"
            );
            return Err(BuildError::Declaration { problem });
        }
        if spec.delivery.room() == 0 {
            return Err(BuildError::Declaration {
                problem: format!(
                    "tap `{}` has no room; give it room for at least one reader",
                    spec.name
                ),
            });
        }
        if spec.delivery.room() > MAX_STAGE_HANDLES {
            return Err(BuildError::Declaration {
                problem: format!(
                    "tap `{}` cannot have room for {} readers: {MAX_STAGE_HANDLES} is the most",
                    spec.name,
                    spec.delivery.room()
                ),
            });
        }
    }
    Ok(())
}

/// Returns the waiting strategy of each stage. Stages of one thread wait together, so all of them
/// use the first strategy that was declared for any of them.
pub(crate) fn waits(specs: &[StageSpec], wait: &Wait) -> Result<Vec<Contained<Wait>>, BuildError> {
    let settle = |spec: &StageSpec| {
        let shares = |other: &&StageSpec| spec.thread.shares(&other.thread) && other.wait.is_some();
        let Some(first) = specs.iter().find(shares) else {
            return Ok(Contained::new(spec.wait.as_deref().unwrap_or(wait).clone()));
        };
        let chosen = first.wait.as_deref().unwrap_or(wait);
        if let Some(own) = spec.wait.as_deref().filter(|own| own.alias() != chosen.alias()) {
            let (stage, other) = (&spec.name, &first.name);
            let threads = match spec.thread.label() {
                Some(thread) => format!("thread `{thread}`"),
                None => "the executor's threads".to_owned(),
            };
            return Err(BuildError::Declaration {
                problem: format!(
                    "stages `{other}` ({chosen}) and `{stage}` ({own}) share {threads}, so they have to wait the same way"
                ),
            });
        }
        Ok(Contained::new(chosen.clone()))
    };
    specs.iter().map(settle).collect()
}
