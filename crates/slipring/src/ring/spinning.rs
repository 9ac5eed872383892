//! Which parties of a graph spin where a thread that they wait for needs the core.

use std::thread::{self, ThreadId};

use crate::base::name::{Name, PRODUCER};
use crate::base::sync::{Mutex, Relaxed, Statistic, lock};
use crate::base::system;
use crate::ring::plan::Plan;
use crate::wait::warning::{Warning, warn};
use crate::wait::{WaitStrategy, cores};

/// Looks at a graph that is about to be built.
pub(crate) fn look_at(plan: &Plan) {
    static SAID: Statistic = Statistic::new(0);
    let cores = cores();
    if plan.threads <= cores {
        return;
    }
    let stage = plan
        .stages
        .iter()
        .find(|stage| stage.wait.spins())
        .map(|stage| (stage.name.clone(), &stage.wait));
    let producer =
        || plan.producer_wait.spins().then(|| (Name::new(PRODUCER), &plan.producer_wait));
    if let Some((stage, wait)) = stage.or_else(producer) {
        warn(&SAID, || Warning::Oversubscribed {
            stage,
            wait: wait.alias(),
            threads: plan.threads,
            cores,
        });
    }
}

/// Which of a graph's parties spin on which core, where they are bound to one. Each is asked once,
/// when it waits for long first.
pub(crate) struct Cores {
    asked: Box<[Statistic]>,
    held: Mutex<Vec<(usize, usize, ThreadId)>>,
}

impl Cores {
    pub(crate) fn new(plan: &Plan) -> Cores {
        let spins =
            plan.stages.iter().map(|stage| stage.wait.spins()).chain([plan.producer_wait.spins()]);
        let asked: Box<[Statistic]> =
            spins.map(|spins| Statistic::new(u64::from(!spins))).collect();
        Cores { held: Mutex::new(Vec::with_capacity(asked.len())), asked }
    }

    /// `party` begins a wait on this thread.
    pub(crate) fn waits(&self, plan: &Plan, party: usize) {
        static SAID: Statistic = Statistic::new(0);
        let asked = &self.asked[party];
        if asked.load(Relaxed) != 0 || asked.swap(1, Relaxed) != 0 {
            return;
        }
        let Some(core) = system::only_core() else { return };
        let mut held = lock(&self.held);
        // Those of one thread take turns there anyway.
        let thread = thread::current().id();
        let other = held
            .iter()
            .find(|(taken, _, by)| *taken == core && *by != thread)
            .map(|(_, other, _)| *other);
        held.push((core, party, thread));
        drop(held);
        if let Some(other) = other {
            warn(&SAID, || Warning::SharedCore {
                stage: plan.name_of(party),
                other: plan.name_of(other),
                core,
            });
        }
    }
}
