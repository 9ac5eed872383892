//! Tests of the count of a graph's cores, by threads of machines that the tests describe.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::sync::now;
use crate::base::system::{PLAYED, PLAYED_CORES};
use crate::ring::cores::{Cores, Joined};
use crate::ring::plan::Plan;
use crate::ring::spec::{Access, Delivery, StageSpec, ThreadChoice};
use crate::wait::Wait;

const MAIN: u32 = 1;

/// A machine on which a graph is built and run.
struct Machine {
    plan: Plan,
    cores: Cores,
    /// Number of handles that joined the graph's only stage.
    joined: usize,
    looks: u32,
}

fn stage(name: &str, delivery: Delivery) -> StageSpec {
    StageSpec::new(name, Access::Read, delivery, &[])
}

fn bind(thread: u32, cores: impl IntoIterator<Item = usize>) {
    PLAYED_CORES.with_borrow_mut(|played| played.insert(thread, cores.into_iter().collect()));
}

impl Machine {
    /// Builds a graph by a main thread that may run on `cores`, in a process that may use `most`.
    fn new(specs: Vec<StageSpec>, cores: impl IntoIterator<Item = usize>, most: usize) -> Machine {
        let plan = |specs| Plan::new(specs, 8, false, &Wait::Blocking, &Wait::Blocking, true);
        Machine::with(plan(specs).ok().unwrap(), cores, most)
    }

    fn with(plan: Plan, cores: impl IntoIterator<Item = usize>, most: usize) -> Machine {
        Machine::shared(plan, cores, most, false)
    }

    fn shared(
        plan: Plan,
        cores: impl IntoIterator<Item = usize>,
        most: usize,
        is_shared: bool,
    ) -> Machine {
        PLAYED.set(Some(MAIN));
        PLAYED_CORES.set(BTreeMap::new());
        bind(MAIN, cores);
        let own = PLAYED_CORES.with_borrow(|played| played[&MAIN].count());
        let cores = Cores::of(&plan, own.min(most), Some(most), is_shared);
        Machine { plan, cores, joined: 0, looks: 0 }
    }

    /// Notes `thread` as a holder of a handle of the stage with this index; the producers come
    /// after the stages.
    fn note(&mut self, thread: u32, party: usize) {
        PLAYED.set(Some(thread));
        let joined = self.joined;
        self.cores.note(&self.plan, party, &Joined { all: joined, of_stage: &|_| joined });
    }

    /// Lets a waiting thread ask for the cores of each noted thread.
    fn look(&mut self) {
        for _ in 0..20 {
            self.looks += 1;
            self.cores.look(&self.plan, now() + Duration::from_millis(200) * self.looks);
        }
    }

    fn producer(&self) -> usize {
        self.plan.producer_party()
    }

    /// Returns whether the graph has more threads than cores, and the number of cores.
    fn counted(&self) -> (bool, usize) {
        (self.cores.are_too_few(self.joined), self.cores.usable())
    }
}

const CROWDED: bool = true;
const AMPLE: bool = false;

#[test]
fn who_builds_on_a_bound_thread_has_the_cores_of_the_other_threads() {
    let mut machine = Machine::new(vec![stage("log", Delivery::Each)], [3], 12);
    assert_eq!(machine.counted(), (CROWDED, 1), "its threads may all run on that core");
    bind(20, [4]);
    machine.note(20, 0);
    assert_eq!(machine.counted(), (AMPLE, 2));
    machine.note(MAIN, machine.producer());
    assert_eq!(machine.counted(), (AMPLE, 2));
    // Three stages, of which two wait: the third may still run on the main thread's core.
    let three = ["a", "b", "c"].map(|name| stage(name, Delivery::Each));
    let mut machine = Machine::new(three.into(), [0], 12);
    for (thread, expected) in [(1, CROWDED), (2, CROWDED), (3, AMPLE)] {
        bind(20 + thread, [thread as usize]);
        machine.note(20 + thread, thread as usize - 1);
        assert_eq!(machine.counted().0, expected, "{thread}");
    }
}

#[test]
fn threads_that_are_bound_later_count_when_the_system_is_asked_again() {
    let mut machine = Machine::new(vec![stage("log", Delivery::Each)], 0..12, 12);
    bind(20, 0..12);
    machine.note(20, 0);
    machine.note(MAIN, machine.producer());
    assert_eq!(machine.counted(), (AMPLE, 12));
    bind(20, [5]);
    bind(MAIN, [5]);
    assert_eq!(machine.counted(), (AMPLE, 12), "nothing has asked yet");
    machine.look();
    assert!(machine.counted().0 == CROWDED);
    bind(MAIN, [6]);
    machine.look();
    assert!(machine.counted().0 == AMPLE);
}

#[test]
fn two_threads_on_one_core_are_too_many_whatever_the_others_have() {
    let stages = ["a", "b"].map(|name| stage(name, Delivery::Each));
    let mut machine = Machine::new(stages.into(), 0..12, 12);
    bind(20, [7]);
    bind(21, [7]);
    machine.note(20, 0);
    assert!(machine.counted().0 == AMPLE);
    machine.note(21, 1);
    assert!(machine.counted().0 == CROWDED);
    // The second thread gets a core beside it.
    bind(21, [7, 8]);
    machine.look();
    assert!(machine.counted().0 == AMPLE);
    // The main thread takes that core.
    bind(MAIN, [8]);
    machine.note(MAIN, machine.producer());
    assert!(machine.counted().0 == CROWDED);
}

#[test]
fn a_container_of_two_cpus_has_two_cores_on_a_machine_of_twelve() {
    let stages = ["a", "b"].map(|name| stage(name, Delivery::Each));
    let mut machine = Machine::new(stages.into(), 0..12, 2);
    assert_eq!(machine.counted(), (CROWDED, 2));
    bind(20, [1]);
    bind(21, [2]);
    machine.note(20, 0);
    machine.note(21, 1);
    machine.note(MAIN, machine.producer());
    assert_eq!(machine.counted(), (CROWDED, 2), "the quota holds for bound threads, too");
    let one = Machine::new(vec![stage("log", Delivery::Each)], 0..12, 2);
    assert_eq!(one.counted(), (AMPLE, 2));
}

#[test]
fn a_placement_counts_until_its_threads_are_bound() {
    let plan = |placed| {
        let specs = ["a", "b"].map(|name| stage(name, Delivery::Each)).into();
        let plan = Plan::new(specs, 8, false, &Wait::Blocking, &Wait::Blocking, true);
        Plan { placed: Some(placed), ..plan.ok().unwrap() }
    };
    assert_eq!(Machine::with(plan(3), [0], 12).counted(), (AMPLE, 3), "built on a bound thread");
    assert_eq!(Machine::with(plan(3), 0..12, 2).counted(), (CROWDED, 2), "a quota of two");
    let mut machine = Machine::with(plan(2), 0..12, 12);
    assert_eq!(machine.counted(), (CROWDED, 2));
    for (party, core) in [1, 2, 2].into_iter().enumerate() {
        bind(20 + party as u32, [core]);
        machine.note(20 + party as u32, party);
        assert!(machine.counted().0 == CROWDED, "{party}");
    }
}

#[test]
fn a_handle_that_moves_counts_once_and_an_ended_thread_no_longer() {
    let mut machine = Machine::new(vec![stage("log", Delivery::Each)], [0], 12);
    for core in 1..5 {
        bind(20 + core, [core as usize]);
        machine.note(20 + core, 0);
        assert_eq!(machine.counted(), (AMPLE, 2), "one at a time");
    }
    PLAYED_CORES.with_borrow_mut(|played| played.remove(&24));
    machine.look();
    assert_eq!(machine.counted(), (CROWDED, 1));
}

#[test]
fn a_thread_that_holds_several_handles_is_one_thread() {
    let stages = ["request", "answer"].map(|name| stage(name, Delivery::Each));
    let mut machine = Machine::new(stages.into(), [0], 12);
    bind(20, [1]);
    machine.note(20, 0);
    assert!(machine.counted().0 == CROWDED, "the other stage may have a thread of its own");
    machine.note(MAIN, 1);
    machine.note(MAIN, machine.producer());
    assert_eq!(machine.counted(), (AMPLE, 2));
}

#[test]
fn stages_on_one_thread_need_one_core() {
    let named = |name| StageSpec {
        thread: ThreadChoice::Named("both".into()),
        ..stage(name, Delivery::Each)
    };
    let mut machine = Machine::new(vec![named("a"), named("b")], [0], 12);
    bind(20, [1]);
    machine.note(20, 0);
    machine.note(20, 1);
    assert_eq!(machine.counted(), (AMPLE, 2));
    bind(21, [2]);
    machine.note(21, 1);
    assert_eq!(machine.counted(), (AMPLE, 2), "the stages have moved to another thread");
}

#[test]
fn workers_and_members_that_join_need_cores_of_their_own() {
    let mut machine = Machine::new(vec![stage("tap", Delivery::Tap(8))], [0], 12);
    for joined in 1..4 {
        machine.joined = joined;
        assert!(machine.counted().0 == CROWDED, "member {joined} is not known yet");
        bind(20 + joined as u32, [joined]);
        machine.note(20 + joined as u32, 0);
        assert_eq!(machine.counted(), (AMPLE, 1 + joined));
    }
    // All but one leave, and the next one shares that member's core.
    machine.joined = 2;
    bind(30, [3]);
    machine.note(30, 0);
    assert!(machine.counted().0 == CROWDED);
    assert_eq!(machine.cores.usable(), 2, "the oldest notes have given way");
}

#[test]
fn the_other_processes_of_a_segment_may_run_anywhere() {
    let plan = |stages: usize| {
        let specs = (0..stages).map(|i| stage(&format!("s{i}"), Delivery::Each)).collect();
        Plan::new(specs, 8, false, &Wait::Blocking, &Wait::Blocking, false).ok().unwrap()
    };
    let mut machine = Machine::shared(plan(1), [0], 12, true);
    machine.note(MAIN, machine.producer());
    assert_eq!(machine.counted(), (AMPLE, 12));
    assert_eq!(Machine::shared(plan(2), [0], 2, true).counted(), (CROWDED, 2), "a quota of two");
    let mut machine = Machine::shared(plan(2), [0], 12, true);
    bind(20, [0]);
    machine.note(MAIN, 0);
    machine.note(20, 1);
    assert!(machine.counted().0 == CROWDED, "two threads of this process share a core");
}

#[test]
fn tasks_count_by_the_thread_that_last_polled_them() {
    let mut machine = Machine::new(vec![stage("log", Delivery::Each)], 0..2, 2);
    // A runtime of one thread has the handles of both sides.
    bind(20, [1]);
    machine.note(20, 0);
    machine.note(20, machine.producer());
    assert!(machine.counted().0 == AMPLE, "one thread needs one core");
    // Its two workers, on which tasks move about.
    bind(21, 0..2);
    for (thread, party) in [(21, 0), (20, machine.producer()), (20, 0), (21, machine.producer())] {
        machine.note(thread, party);
        assert!(machine.counted().0 == AMPLE);
    }
}
