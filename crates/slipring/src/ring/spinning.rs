//! Warnings about parties that spin on a core while another thread of the graph needs that core.

use crate::base::name::{Name, PRODUCER};
use crate::base::sync::unmodelled::{ThreadId, this_thread};
use crate::base::sync::{Mutex, Relaxed, Statistic, lock};
use crate::base::system;
use crate::ring::plan::Plan;
use crate::wait::WaitStrategy;
use crate::wait::warning::{Warning, warn};

/// Warns if a party of an oversubscribed graph holds its core while it waits.
pub(crate) fn warn_of(plan: &Plan) {
    static WARNED: Statistic = Statistic::new(0);
    let cores = plan.cores;
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
        warn(&WARNED, || Warning::Oversubscribed {
            stage,
            wait: wait.alias(),
            threads: plan.threads,
            cores,
        });
    }
}

/// The spinning parties whose threads are each bound to a single core. A party's core is looked up
/// once, when one of its waits first reads the clock.
pub(crate) struct Cores {
    /// One value per party: 1 if the party's core was looked up or the party does not spin, else 0.
    asked: Box<[Statistic]>,
    /// One entry per spinning party whose thread is bound to a single core: the core, the party's
    /// index, and the thread.
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

    /// If the current thread is bound to a single core, records that `party` waits on this core.
    /// Warns if a party on another thread spins on the same core.
    pub(crate) fn record(&self, plan: &Plan, party: usize) {
        static WARNED: Statistic = Statistic::new(0);
        let asked = &self.asked[party];
        if asked.load(Relaxed) != 0 || asked.swap(1, Relaxed) != 0 {
            return;
        }
        let Some(core) = system::only_core() else { return };
        let mut held = lock(&self.held);
        // Parties that share a thread cause no warning, because only one of them runs at a time.
        let thread = this_thread().id();
        let other = held
            .iter()
            .find(|(taken, _, by)| *taken == core && *by != thread)
            .map(|(_, other, _)| *other);
        held.push((core, party, thread));
        drop(held);
        if let Some(other) = other {
            warn(&WARNED, || Warning::SharedCore {
                stage: plan.name_of(party),
                other: plan.name_of(other),
                core,
            });
        }
    }
}
