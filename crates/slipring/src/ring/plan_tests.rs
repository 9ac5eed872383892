//! This module tests which declared graphs the build refuses, and which queues a plan's parties
//! notify.

use crate::base::name::PRODUCER;
use crate::base::panics::Contained;
use crate::errors::BuildError;
use crate::ring::plan::Plan;
use crate::ring::spec::{Access, Delivery, StageSpec, ThreadChoice};
use crate::ring::stage::PRODUCER_QUEUE;
use crate::wait::Wait;

fn stage(name: &str, access: Access, after: &[usize]) -> StageSpec {
    StageSpec::new(name, access, Delivery::Each, after)
}
fn plan(specs: Vec<StageSpec>) -> Result<Plan, BuildError> {
    Plan::new(specs, 8, false, &Wait::Blocking, &Wait::Blocking, true)
}

#[test]
fn writers_stand_alone() {
    use Access::{Read, Write};
    assert!(
        plan(vec![
            stage("a", Write, &[]),
            stage("b", Read, &[0]),
            stage("c", Read, &[0]),
            stage("d", Write, &[1, 2])
        ])
        .is_ok()
    );
    let beside = plan(vec![stage("a", Read, &[]), stage("b", Write, &[])]).err().unwrap();
    assert_eq!(beside, BuildError::UnorderedUpdater { updater: "b".into(), other: "a".into() });
    // The stages c and d are not ordered: stage c follows only stage a, and stage d follows only
    // the stages b and a.
    let deep = plan(vec![
        stage("a", Write, &[]),
        stage("b", Read, &[0]),
        stage("c", Read, &[0]),
        stage("d", Write, &[1]),
    ])
    .err();
    assert_eq!(
        deep.unwrap(),
        BuildError::UnorderedUpdater { updater: "d".into(), other: "c".into() }
    );
}

#[test]
fn cycles_names_capacities_and_worker_counts_are_refused() {
    let read = |name: &str, after: &[usize]| stage(name, Access::Read, after);
    assert_eq!(
        plan(vec![read("a", &[1]), read("b", &[0])]).err().unwrap(),
        BuildError::Cycle { stage: "a".into() }
    );
    assert_eq!(plan(vec![read("a", &[0])]).err().unwrap(), BuildError::Cycle { stage: "a".into() });
    // The error names a stage of the cycle, not a stage that only follows the cycle.
    let behind = plan(vec![read("a", &[1]), read("b", &[2]), read("c", &[1])]).err().unwrap();
    assert_eq!(behind, BuildError::Cycle { stage: "b".into() });
    assert_eq!(
        plan(vec![read("a", &[]), read("a", &[])]).err().unwrap(),
        BuildError::DuplicateName { stage: "a".into() }
    );
    assert_eq!(
        plan(vec![read("", &[])]).err().unwrap(),
        BuildError::InvalidName { given: "".into() }
    );
    assert_eq!(
        plan(vec![read("a\0b", &[])]).err().unwrap(),
        BuildError::InvalidName { given: "a\0b".into() }
    );
    assert_eq!(
        plan(vec![read(PRODUCER, &[])]).err().unwrap(),
        BuildError::InvalidName { given: PRODUCER.into() }
    );
    for asked in [0, 3, usize::MAX] {
        assert_eq!(
            Plan::new(vec![], asked, false, &Wait::Blocking, &Wait::Blocking, true).err().unwrap(),
            BuildError::Capacity { asked }
        );
    }
    for asked in [0, 9, usize::MAX] {
        let pool = StageSpec { delivery: Delivery::pool(asked), ..read("p", &[]) };
        assert_eq!(
            plan(vec![pool]).err().unwrap(),
            BuildError::Workers { stage: "p".into(), asked, capacity: 8 }
        );
    }
}

#[test]
fn stages_behind_the_same_stages_share_a_queue() {
    let read = |name: &str, after: &[usize]| stage(name, Access::Read, after);
    let diamond =
        plan(vec![read("a", &[]), read("b", &[0]), read("c", &[0]), read("d", &[1, 2])]).unwrap();
    assert_eq!(diamond.stages[1].queue, diamond.stages[2].queue);
    assert_eq!(diamond.stages[0].notifies, vec![diamond.stages[1].queue]);
    assert_eq!(diamond.stages[2].notifies, vec![diamond.stages[3].queue]);
    assert_eq!(diamond.stages[3].notifies, vec![PRODUCER_QUEUE]);
    assert_eq!(diamond.gating, vec![3]);
    assert_eq!(diamond.producer_notifies, vec![diamond.stages[0].queue]);
}

#[test]
fn progress_that_passes_an_empty_tap_notifies_the_parties_behind_it() {
    let read = |name: &str, after: &[usize]| stage(name, Access::Read, after);
    let tap = |after: &[usize]| StageSpec { delivery: Delivery::Tap(1), ..read("tap", after) };
    let queues = |plan: &Plan| plan.stages.iter().map(|stage| stage.queue).collect::<Vec<_>>();

    // The graph has a stage, a tap, and a stage that follows the tap.
    let between = plan(vec![read("a", &[]), tap(&[0]), read("b", &[1])]).unwrap();
    let own = queues(&between);
    assert_eq!(
        (&between.stages[0].notifies[..], &between.stages[1].notifies[..]),
        (&own[1..], &own[2..])
    );
    // The graph has a stage, and a tap that no stage follows.
    let last = plan(vec![read("a", &[]), tap(&[0])]).unwrap();
    assert_eq!(last.stages[0].notifies, [PRODUCER_QUEUE, queues(&last)[1]]);
    assert_eq!(last.stages[1].notifies, [PRODUCER_QUEUE]);
    // The graph has a tap that directly follows the producers, and a stage that follows the tap.
    let first = plan(vec![tap(&[]), read("b", &[0])]).unwrap();
    assert_eq!(first.producer_notifies, queues(&first));
    // The graph has a tap and no other stage.
    let alone = plan(vec![tap(&[])]).unwrap();
    assert_eq!(alone.producer_notifies, [PRODUCER_QUEUE, queues(&alone)[0]]);
    // A stage that follows the tap and spins is not notified.
    let spins = StageSpec { wait: Some(Contained::new(Wait::BusySpin)), ..read("b", &[1]) };
    let spins = plan(vec![read("a", &[]), tap(&[0]), spins]).unwrap();
    assert_eq!(
        (&spins.stages[0].notifies[..], &spins.stages[1].notifies[..]),
        (&queues(&spins)[1..2], &[][..])
    );
}

#[test]
fn queues_are_notified_only_where_a_party_sleeps() {
    let read = |name: &str, after: &[usize], wait: Option<Wait>| StageSpec {
        wait: wait.map(Contained::new),
        ..stage(name, Access::Read, after)
    };
    let specs = || {
        vec![
            read("a", &[], Some(Wait::BusySpin)),
            read("b", &[], None),
            read("c", &[0, 1], Some(Wait::YIELDING)),
        ]
    };
    let plan =
        |wait: Wait, producer: Wait| Plan::new(specs(), 8, false, &wait, &producer, true).unwrap();

    // Stages a and b share a queue, at which only stage b sleeps. Stage c comes after the stages a
    // and b, and spins. The producers sleep.
    let some = plan(Wait::Blocking, Wait::ADAPTIVE);
    assert_eq!(
        (some.stages[0].queue, some.stages[0].parks, some.stages[1].parks),
        (some.stages[1].queue, false, true)
    );
    assert_eq!(some.producer_notifies, [some.stages[1].queue]);
    assert!(some.stages[0].notifies.is_empty() && some.stages[1].notifies.is_empty());
    assert_eq!((some.producer_parks, &some.stages[2].notifies[..]), (true, &[PRODUCER_QUEUE][..]));
    // A party that sleeps is notified, whatever the graph's own strategy is.
    let producers = plan(Wait::SLEEPING, Wait::Blocking);
    assert!(producers.producer_notifies.is_empty());
    assert_eq!(producers.stages[2].notifies, [PRODUCER_QUEUE]);
    let stages = plan(Wait::Blocking, Wait::BusySpin);
    assert!(stages.stages[2].notifies.is_empty() && !stages.producer_notifies.is_empty());
    // If stages share a thread, the waiting strategy that was declared for one of them holds for
    // all.
    let on = |mut spec: StageSpec| {
        spec.thread = ThreadChoice::Named("t".into());
        spec
    };
    let together = vec![on(read("a", &[], None)), on(read("b", &[0], Some(Wait::Blocking)))];
    let together = Plan::new(together, 8, false, &Wait::BusySpin, &Wait::BusySpin, true).unwrap();
    assert_eq!((together.stages[0].parks, together.stages[1].parks), (true, true));
    assert_eq!(together.producer_notifies, [together.stages[0].queue]);
}

/// A pool of one process that sleeps by a built-in strategy has a queue of its own, which wakes one
/// worker.
#[test]
fn a_pool_that_sleeps_has_a_queue_of_its_own() {
    let read = |name: &str| stage(name, Access::Read, &[]);
    let pool = |wait: Option<Wait>| StageSpec {
        delivery: Delivery::pool(2),
        wait: wait.map(Contained::new),
        ..read("pool")
    };
    let planned = |specs, one_process| {
        Plan::new(specs, 8, false, &Wait::Blocking, &Wait::BusySpin, one_process).unwrap()
    };
    let alone = planned(vec![pool(None)], true);
    let own = alone.stages[0].queue;
    assert!(alone.stages[0].wakes_one && alone.wakes_one(own) && !alone.wakes_one(PRODUCER_QUEUE));
    assert_eq!((&alone.producer_notifies, &alone.stages[0].notifies), (&vec![own], &vec![own]));
    assert!(alone.stages[0].notifies_behind().is_empty());

    let beside = planned(vec![read("a"), pool(None), read("b")], true);
    let [a, own, b] = [0, 1, 2].map(|stage| beside.stages[stage].queue);
    assert!(a == b && a != own && beside.wakes_one(own) && !beside.wakes_one(a));
    assert_eq!(beside.producer_notifies, [a, own]);

    let named = StageSpec { thread: ThreadChoice::Named("t".into()), ..pool(None) };
    let spins = pool(Some(Wait::YIELDING));
    for specs in [vec![read("a"), spins], vec![read("a"), named], vec![read("a")]] {
        let plan = planned(specs, true);
        assert!((0..plan.queues).all(|queue| !plan.wakes_one(queue)));
    }
    let shared = planned(vec![read("a"), pool(None)], false);
    assert_eq!(
        (shared.stages[0].queue, shared.stages[1].wakes_one),
        (shared.stages[1].queue, false)
    );
}
