//! The graph as it was declared, checked once, and then fixed: who follows whom, who gates the
//! producers, who wakes whom.
//!
//! Invariants
//! - I1 (the soundness rule): of any two stages of a [`Plan`], one comes after the other, or both
//!   only read.
//! - I2: stages are numbered so that `after` names smaller or larger numbers alike, but never forms
//!   a cycle.
//! - I3: a stage's frontier never passes that of a stage it comes after, so the minimum over
//!   `gating` is the minimum over all.

use std::fmt;

use crate::base::name::{Name, PRODUCER};
use crate::base::panics::Contained;
use crate::base::sync::twin;
use crate::errors::{BuildError, MAX_STAGE_HANDLES};
use crate::ring::policy::Policy;
use crate::wait::{Wait, WaitStrategy};

/// Whether a stage may change events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Who handles a stage's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One handle sees every event.
    Each,
    /// Each event goes to one of so many workers; more may join, up to `room` at a time.
    Pool { workers: usize, room: usize },
    /// Each event goes to one of so many shards, by a key.
    Shards(usize),
    /// Readers join and leave while the graph runs, up to so many at a time. With nobody there,
    /// everything passes.
    Tap(usize),
}

impl Delivery {
    /// A pool that nobody joins.
    pub(crate) fn pool(workers: usize) -> Delivery {
        Delivery::Pool { workers, room: workers }
    }
    /// How many handles there are from the beginning.
    pub(crate) fn len(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { workers, .. } => workers,
            Delivery::Shards(shards) => shards,
            Delivery::Tap(_) => 0,
        }
    }
    /// How many may be there at a time.
    pub(crate) fn room(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { room, .. } | Delivery::Tap(room) => room,
            Delivery::Shards(shards) => shards,
        }
    }
    /// Whether the lowest bit of what its handles say they have let go means that nothing is held.
    pub(crate) fn idles(self) -> bool {
        matches!(self, Delivery::Pool { .. } | Delivery::Tap(_))
    }
    /// How many lines of shared words it takes. See [`Stage::line`].
    fn lines(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { room, .. } => 1 + room + 1,
            Delivery::Shards(shards) => shards,
            Delivery::Tap(room) => 1 + room + room,
        }
    }
}

/// A stage as declared.
#[derive(Clone, Debug)]
pub(crate) struct StageSpec {
    pub(crate) name: String,
    pub(crate) access: Access,
    pub(crate) delivery: Delivery,
    pub(crate) after: Vec<usize>,
    /// Stages with the same label run on the same thread, and so wait at the same bell.
    pub(crate) thread: Option<String>,
    pub(crate) policy: Policy,
    /// How it waits, if not as the graph does.
    pub(crate) wait: Option<Contained<Wait>>,
}

impl StageSpec {
    pub(crate) fn new(
        name: &str,
        access: Access,
        delivery: Delivery,
        after: &[usize],
    ) -> StageSpec {
        StageSpec {
            name: name.to_owned(),
            access,
            delivery,
            after: after.to_vec(),
            thread: None,
            policy: Policy::default(),
            wait: None,
        }
    }
}

/// A stage as built.
pub(crate) struct Stage {
    pub(crate) name: Name,
    pub(crate) access: Access,
    pub(crate) delivery: Delivery,
    pub(crate) after: Vec<usize>,
    pub(crate) thread: Option<String>,
    pub(crate) policy: Policy,
    /// Its first line of shared words. One stage: its released position. Shards: what each has
    /// passed. A pool: its claim word, a bound per worker, a position that the claim word was near.
    /// A tap: how many are there, a bound per member, a ticket per member.
    pub(crate) line: usize,
    /// The stages whose shards go by keys that this stage works out.
    pub(crate) partitions: Vec<usize>,
    /// What this stage has to say before it passes a tap.
    pub(crate) guard: Option<Guard>,
    /// Of a tap: the lines where those say it who follow.
    pub(crate) announced: Vec<usize>,
    /// The bell at which it waits for its upstream.
    pub(crate) queue: usize,
    /// The bells it rings when it releases.
    pub(crate) notifies: Vec<usize>,
    pub(crate) wait: Contained<Wait>,
    /// Whether it sleeps at its bell. Asked of the strategy once: who rings is settled by it.
    pub(crate) parks: bool,
}

/// Who passes taps says on a line how far it is going to, and only then asks who is there. See
/// PROTOCOL.md ("Joining").
pub(crate) struct Guard {
    pub(crate) line: usize,
    pub(crate) taps: Vec<usize>,
}

/// The line of the word that many producers claim by.
pub(crate) const CLAIM_LINE: usize = 0;
/// The line of the frontier that gates producers when no stage does.
pub(crate) const SENTINEL_LINE: usize = 1;
/// The line that says how far a single producer has published where nothing is stamped.
pub(crate) const CURSOR_LINE: usize = 2;
/// The bell at which producers wait for room.
pub(crate) const PRODUCER_QUEUE: usize = 0;

pub(crate) struct Plan {
    pub(crate) stages: Vec<Stage>,
    /// For each stage, which ones come before it, directly or not.
    pub(crate) before: Vec<Vec<bool>>,
    /// Stages that nobody follows: they gate the producers.
    pub(crate) gating: Vec<usize>,
    /// What producers have to say before they pass a tap that nobody follows.
    pub(crate) guard: Option<Guard>,
    /// Whether a single producer tells by the cursor how far it has published, be there stamps or
    /// not.
    pub(crate) cursor: bool,
    /// Whether the sentinel is moved for taps directly behind producers.
    pub(crate) sentinel: bool,
    /// How stages wait that do not say otherwise.
    pub(crate) wait: Contained<Wait>,
    /// How producers wait for room, and whether they sleep at their bell.
    pub(crate) producer_wait: Contained<Wait>,
    pub(crate) producer_parks: bool,
    /// The bells that a publication rings.
    pub(crate) producer_notifies: Vec<usize>,
    /// The stages whose shards go by keys that the producers work out.
    pub(crate) producer_partitions: Vec<usize>,
    pub(crate) lines: usize,
    pub(crate) queues: usize,
    pub(crate) capacity: usize,
    /// How many threads there are likely to be: the producers', and one for each handle of a stage
    /// that does not share its thread.
    pub(crate) threads: usize,
    /// Whether claims may be given up after others have claimed behind them.
    pub(crate) many_producers: bool,
    /// Whether publications are stamped. If not, the producer tells how far it has come as a stage
    /// does, and the stages directly behind it stand as behind a stage.
    pub(crate) stamped: bool,
}

impl Plan {
    /// Checks a declared graph. `wait`: how stages wait that do not say otherwise; `producer_wait`:
    /// how producers do.
    pub(crate) fn new(
        specs: Vec<StageSpec>,
        capacity: usize,
        many_producers: bool,
        wait: &Wait,
        producer_wait: &Wait,
    ) -> Result<Plan, BuildError> {
        if !capacity.is_power_of_two() {
            return Err(BuildError::Capacity { asked: capacity });
        }
        check_names(&specs)?;
        for spec in &specs {
            if let Delivery::Shards(asked) = spec.delivery
                && !(1..=capacity.min(MAX_STAGE_HANDLES)).contains(&asked)
            {
                return Err(BuildError::Workers { stage: spec.name.clone(), asked, capacity });
            }
            if let Delivery::Pool { workers, room } = spec.delivery {
                for asked in [workers, room] {
                    if !(1..=capacity.min(MAX_STAGE_HANDLES)).contains(&asked) {
                        return Err(BuildError::Workers {
                            stage: spec.name.clone(),
                            asked,
                            capacity,
                        });
                    }
                }
                if room < workers {
                    let what = format!(
                        "pool `{}` begins with {workers} workers and has room for {room}; give it room for all",
                        spec.name
                    );
                    return Err(BuildError::Misplaced { what });
                }
            }
        }
        let before = check_soundness(&specs)?;
        check_taps(&specs)?;
        let strategies = settle_waits(&specs, wait)?;
        // Only bells at which somebody ever sleeps need be rung at all.
        let parks: Vec<bool> = strategies.iter().map(|wait| wait.parks()).collect();
        let producer_parks = producer_wait.parks();

        // Who waits at which bell: stages of one thread at one, and stages behind the same stages
        // at one.
        let mut waits: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
        let mut queue_of = Vec::with_capacity(specs.len());
        for spec in &specs {
            let thread = spec.thread.as_deref();
            let mut after = if thread.is_some() { Vec::new() } else { spec.after.clone() };
            after.sort_unstable();
            let key = (thread, after);
            let queue = waits.iter().position(|known| *known == key).unwrap_or_else(|| {
                waits.push(key);
                waits.len() - 1
            });
            queue_of.push(PRODUCER_QUEUE + 1 + queue);
        }
        let queues = PRODUCER_QUEUE + 1 + waits.len();

        let is_gating = |stage: usize| !specs.iter().any(|spec| spec.after.contains(&stage));
        let is_tap = |stage: usize| matches!(specs[stage].delivery, Delivery::Tap(_));
        let follows = |upstream: Option<usize>, follower: usize| match upstream {
            None => specs[follower].after.is_empty(),
            Some(stage) => specs[follower].after.contains(&stage),
        };
        let notified_by = |upstream: Option<usize>| -> Vec<usize> {
            let mut notifies = Vec::new();
            for follower in (0..specs.len()).filter(|&follower| follows(upstream, follower)) {
                let notified_at = twin!("behind-member-unnotified": parks[follower] => parks[follower] && !upstream.is_some_and(is_tap));
                notifies.extend(notified_at.then_some(queue_of[follower]));
                // What passes a tap with nobody there, passes it at once.
                if is_tap(follower) {
                    let behind = |&next: &usize| parks[next] && follows(Some(follower), next);
                    let behind =
                        twin!("behind-tap-unnotified": 0..specs.len() => 0..0).filter(behind);
                    notifies.extend(behind.map(|next| queue_of[next]));
                    let gates =
                        twin!("producer-behind-tap-unnotified": is_gating(follower) => false);
                    notifies.extend((producer_parks && gates).then_some(PRODUCER_QUEUE));
                }
            }
            notifies.sort_unstable();
            notifies.dedup();
            notifies
        };

        let guard_of = |after: &[usize], lines: &mut usize| -> Option<Guard> {
            let taps: Vec<usize> = after.iter().copied().filter(|&stage| is_tap(stage)).collect();
            let guard = (!taps.is_empty()).then_some(Guard { line: *lines, taps });
            *lines += usize::from(guard.is_some());
            guard
        };
        let mut lines = CURSOR_LINE + 1;
        let mut stages = Vec::with_capacity(specs.len());
        for (i, spec) in specs.iter().enumerate() {
            let mut notifies = notified_by(Some(i));
            if twin!("leaf-unnotified": is_gating(i) => false) && producer_parks {
                notifies.push(PRODUCER_QUEUE);
            }
            let idle_workers = twin!("idle-workers-unnotified": matches!(spec.delivery, Delivery::Pool { .. }) => false);
            if idle_workers && parks[i] && !notifies.contains(&queue_of[i]) {
                // idle workers stay until the last chunk is done, and end with it
                notifies.push(queue_of[i]);
            }
            let guard = guard_of(&spec.after, &mut lines);
            stages.push(Stage {
                guard,
                announced: Vec::new(),
                partitions: Vec::new(),
                name: Name::new(&spec.name),
                access: spec.access,
                delivery: spec.delivery,
                after: spec.after.clone(),
                thread: spec.thread.clone(),
                policy: spec.policy.clone(),
                line: lines,
                queue: queue_of[i],
                notifies,
                wait: strategies[i].clone(),
                parks: parks[i],
            });
            lines += spec.delivery.lines();
        }
        let mut producer_partitions = Vec::new();
        for (i, spec) in specs
            .iter()
            .enumerate()
            .filter(|(_, spec)| matches!(spec.delivery, Delivery::Shards(_)))
        {
            debug_assert!(spec.delivery.room() > 0);
            // Stages that write come one after the other (I1), so the last one has the most before
            // it.
            let writers = (0..specs.len())
                .filter(|&earlier| before[i][earlier] && specs[earlier].access == Access::Write);
            match writers.max_by_key(|&writer| before[writer].iter().filter(|is| **is).count()) {
                Some(last) => stages[last].partitions.push(i),
                None => producer_partitions.push(i),
            }
        }
        let gating: Vec<usize> = (0..specs.len()).filter(|&stage| is_gating(stage)).collect();
        let guard = guard_of(&gating, &mut lines);
        for i in 0..stages.len() {
            if let Some(Guard { line, ref taps }) = stages[i].guard {
                taps.clone().into_iter().for_each(|tap| stages[tap].announced.push(line));
            }
        }
        if let Some(Guard { line, taps }) = &guard {
            taps.iter().for_each(|&tap| stages[tap].announced.push(*line));
        }
        let first_tap =
            (0..specs.len()).any(|stage| is_tap(stage) && specs[stage].after.is_empty());
        let mut producer_notifies = notified_by(None);
        if twin!("publication-unnotified": specs.is_empty() => false) && producer_parks {
            producer_notifies.push(PRODUCER_QUEUE); // a publication is what moves the sentinel
        }
        let threads = if many_producers { 2 } else { 1 } + count_threads(&specs);
        Ok(Plan {
            stages,
            before,
            gating,
            guard,
            cursor: first_tap && !many_producers,
            sentinel: first_tap && many_producers,
            wait: Contained::new(wait.clone()),
            producer_wait: Contained::new(producer_wait.clone()),
            producer_parks,
            producer_notifies,
            producer_partitions,
            lines,
            queues,
            capacity,
            threads,
            many_producers,
            stamped: true,
        })
    }
}

impl Plan {
    /// The stage that has this line of shared words.
    pub(crate) fn stage_of(&self, line: usize) -> Option<usize> {
        self.stages
            .iter()
            .position(|stage| (stage.line..stage.line + stage.delivery.lines()).contains(&line))
    }
}

/// How each stage waits. Stages of one thread wait together, so they wait as the one that says how.
fn settle_waits(specs: &[StageSpec], wait: &Wait) -> Result<Vec<Contained<Wait>>, BuildError> {
    let settle = |spec: &StageSpec| {
        let shares = |other: &&StageSpec| {
            spec.thread.is_some() && other.thread == spec.thread && other.wait.is_some()
        };
        let Some(first) = specs.iter().find(shares) else {
            return Ok(Contained::new(spec.wait.as_deref().unwrap_or(wait).clone()));
        };
        let chosen = first.wait.as_deref().unwrap_or(wait);
        if let Some(own) = spec.wait.as_deref().filter(|own| own.alias() != chosen.alias()) {
            let (stage, other, thread) =
                (&spec.name, &first.name, spec.thread.as_deref().unwrap_or_default());
            return Err(BuildError::Misplaced {
                what: format!(
                    "stages `{other}` ({chosen}) and `{stage}` ({own}) share thread `{thread}`, so they have to wait the same way"
                ),
            });
        }
        Ok(Contained::new(chosen.clone()))
    };
    specs.iter().map(settle).collect()
}

/// One for each handle, and one for each label that stages share.
fn count_threads(specs: &[StageSpec]) -> usize {
    let first_of_thread =
        |i: usize| specs[..i].iter().all(|before| before.thread != specs[i].thread);
    let threads = specs.iter().enumerate().map(|(i, spec)| match spec.thread {
        None => spec.delivery.len(),
        Some(_) => usize::from(first_of_thread(i)),
    });
    threads.sum()
}

fn check_names(specs: &[StageSpec]) -> Result<(), BuildError> {
    for (i, spec) in specs.iter().enumerate() {
        // Names become names of threads, and those end at a zero byte.
        if let Some(thread) =
            spec.thread.as_ref().filter(|thread| thread.is_empty() || thread.contains('\0'))
        {
            return Err(BuildError::Name { given: thread.clone() });
        }
        if spec.name.is_empty() || spec.name == PRODUCER || spec.name.contains('\0') {
            return Err(BuildError::Name { given: spec.name.clone() });
        }
        if specs[..i].iter().any(|other| other.name == spec.name) {
            return Err(BuildError::Twice { stage: spec.name.clone() });
        }
    }
    Ok(())
}

/// A tap's followers are known when the graph is built, and members of a tap are not.
fn check_taps(specs: &[StageSpec]) -> Result<(), BuildError> {
    for spec in specs.iter().filter(|spec| matches!(spec.delivery, Delivery::Tap(_))) {
        if let Some(&earlier) =
            spec.after.iter().find(|&&earlier| matches!(specs[earlier].delivery, Delivery::Tap(_)))
        {
            let (tap, earlier) = (&spec.name, &specs[earlier].name);
            let what = format!(
                "tap `{tap}` cannot come after tap `{earlier}`: put it after what `{earlier}` comes after"
            );
            return Err(BuildError::Misplaced { what });
        }
        if spec.delivery.room() == 0 {
            return Err(BuildError::Misplaced {
                what: format!(
                    "tap `{}` has room for nobody; give it room for one reader at least",
                    spec.name
                ),
            });
        }
        if spec.delivery.room() > MAX_STAGE_HANDLES {
            return Err(BuildError::Misplaced {
                what: format!(
                    "tap `{}` cannot have room for {} readers: {MAX_STAGE_HANDLES} is the most",
                    spec.name,
                    spec.delivery.room()
                ),
            });
        }
    }
    Ok(())
}

/// I1 and I2: works out, and says, everything that comes before each stage.
fn check_soundness(specs: &[StageSpec]) -> Result<Vec<Vec<bool>>, BuildError> {
    let count = specs.len();
    let mut before = vec![vec![false; count]; count];
    let mut done = vec![false; count];
    for _ in 0..count {
        let next = (0..count)
            .find(|&stage| !done[stage] && specs[stage].after.iter().all(|&earlier| done[earlier]));
        let Some(stage) = next else {
            // A stage that is stuck comes after another one that is; so many steps back lead onto a
            // circle, and stay there.
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
                return Err(BuildError::SideBySide {
                    writer: specs[writer].name.clone(),
                    other: specs[other].name.clone(),
                });
            }
        }
    }
    Ok(before)
}

impl fmt::Display for Plan {
    /// One line per place where the graph goes on: what follows what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = Name::column(self.stages.iter().map(|stage| &stage.name));
        for stage in &self.stages {
            let access = if stage.access == Access::Read { "reads" } else { "writes" };
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
            if let Some(thread) = &stage.thread {
                write!(f, ", on thread {thread}")?;
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

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    fn stage(name: &str, access: Access, after: &[usize]) -> StageSpec {
        StageSpec::new(name, access, Delivery::Each, after)
    }
    fn plan(specs: Vec<StageSpec>) -> Result<Plan, BuildError> {
        Plan::new(specs, 8, false, &Wait::Blocking, &Wait::Blocking)
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
        assert_eq!(beside, BuildError::SideBySide { writer: "b".into(), other: "a".into() });
        // d comes after b only, so it stands beside c.
        let deep = plan(vec![
            stage("a", Write, &[]),
            stage("b", Read, &[0]),
            stage("c", Read, &[0]),
            stage("d", Write, &[1]),
        ])
        .err();
        assert_eq!(deep.unwrap(), BuildError::SideBySide { writer: "d".into(), other: "c".into() });
    }

    #[test]
    fn cycles_names_capacities_and_crews_are_refused() {
        let read = |name: &str, after: &[usize]| stage(name, Access::Read, after);
        assert_eq!(
            plan(vec![read("a", &[1]), read("b", &[0])]).err().unwrap(),
            BuildError::Cycle { stage: "a".into() }
        );
        assert_eq!(
            plan(vec![read("a", &[0])]).err().unwrap(),
            BuildError::Cycle { stage: "a".into() }
        );
        // The one named waits for itself, and not only for those who do.
        let behind = plan(vec![read("a", &[1]), read("b", &[2]), read("c", &[1])]).err().unwrap();
        assert_eq!(behind, BuildError::Cycle { stage: "b".into() });
        assert_eq!(
            plan(vec![read("a", &[]), read("a", &[])]).err().unwrap(),
            BuildError::Twice { stage: "a".into() }
        );
        assert_eq!(plan(vec![read("", &[])]).err().unwrap(), BuildError::Name { given: "".into() });
        assert_eq!(
            plan(vec![read("a\0b", &[])]).err().unwrap(),
            BuildError::Name { given: "a\0b".into() }
        );
        assert_eq!(
            plan(vec![read(PRODUCER, &[])]).err().unwrap(),
            BuildError::Name { given: PRODUCER.into() }
        );
        for asked in [0, 3, usize::MAX] {
            assert_eq!(
                Plan::new(vec![], asked, false, &Wait::Blocking, &Wait::Blocking).err().unwrap(),
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
    fn bells_join_those_who_wait_for_the_same() {
        let read = |name: &str, after: &[usize]| stage(name, Access::Read, after);
        let diamond =
            plan(vec![read("a", &[]), read("b", &[0]), read("c", &[0]), read("d", &[1, 2])])
                .unwrap();
        assert_eq!(diamond.stages[1].queue, diamond.stages[2].queue);
        assert_eq!(diamond.stages[0].notifies, vec![diamond.stages[1].queue]);
        assert_eq!(diamond.stages[2].notifies, vec![diamond.stages[3].queue]);
        assert_eq!(diamond.stages[3].notifies, vec![PRODUCER_QUEUE]);
        assert_eq!(diamond.gating, vec![3]);
        assert_eq!(diamond.producer_notifies, vec![diamond.stages[0].queue]);
    }

    #[test]
    fn progress_that_passes_an_empty_tap_rings_behind_it() {
        let read = |name: &str, after: &[usize]| stage(name, Access::Read, after);
        let tap = |after: &[usize]| StageSpec { delivery: Delivery::Tap(1), ..read("tap", after) };
        let queues = |plan: &Plan| plan.stages.iter().map(|stage| stage.queue).collect::<Vec<_>>();

        // A stage, a tap, and a stage behind the tap.
        let between = plan(vec![read("a", &[]), tap(&[0]), read("b", &[1])]).unwrap();
        let own = queues(&between);
        assert_eq!(
            (&between.stages[0].notifies[..], &between.stages[1].notifies[..]),
            (&own[1..], &own[2..])
        );
        // A stage, and a tap at the end of the graph.
        let last = plan(vec![read("a", &[]), tap(&[0])]).unwrap();
        assert_eq!(last.stages[0].notifies, [PRODUCER_QUEUE, queues(&last)[1]]);
        assert_eq!(last.stages[1].notifies, [PRODUCER_QUEUE]);
        // A tap directly behind the producers, and a tap alone.
        let first = plan(vec![tap(&[]), read("b", &[0])]).unwrap();
        assert_eq!(first.producer_notifies, queues(&first));
        let alone = plan(vec![tap(&[])]).unwrap();
        assert_eq!(alone.producer_notifies, [PRODUCER_QUEUE, queues(&alone)[0]]);
        // Who spins behind the tap is not rung for.
        let spins = StageSpec { wait: Some(Contained::new(Wait::BusySpin)), ..read("b", &[1]) };
        let spins = plan(vec![read("a", &[]), tap(&[0]), spins]).unwrap();
        assert_eq!(
            (&spins.stages[0].notifies[..], &spins.stages[1].notifies[..]),
            (&queues(&spins)[1..2], &[][..])
        );
    }

    #[test]
    fn bells_are_rung_for_those_who_sleep_and_for_nobody_else() {
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
            |wait: Wait, producer: Wait| Plan::new(specs(), 8, false, &wait, &producer).unwrap();

        // Two share a bell, and one of them sleeps there; nobody sleeps behind them; producers do.
        let some = plan(Wait::Blocking, Wait::ADAPTIVE);
        assert_eq!(
            (some.stages[0].queue, some.stages[0].parks, some.stages[1].parks),
            (some.stages[1].queue, false, true)
        );
        assert_eq!(some.producer_notifies, [some.stages[1].queue]);
        assert!(some.stages[0].notifies.is_empty() && some.stages[1].notifies.is_empty());
        assert_eq!(
            (some.producer_parks, &some.stages[2].notifies[..]),
            (true, &[PRODUCER_QUEUE][..])
        );
        // Only who sleeps is woken, whatever the graph's own strategy is.
        let producers = plan(Wait::SLEEPING, Wait::Blocking);
        assert!(producers.producer_notifies.is_empty());
        assert_eq!(producers.stages[2].notifies, [PRODUCER_QUEUE]);
        let stages = plan(Wait::Blocking, Wait::BusySpin);
        assert!(stages.stages[2].notifies.is_empty() && !stages.producer_notifies.is_empty());
        // Stages of one thread wait together: as the one that says how.
        let on = |mut spec: StageSpec| {
            spec.thread = Some("t".into());
            spec
        };
        let together = vec![on(read("a", &[], None)), on(read("b", &[0], Some(Wait::Blocking)))];
        let together = Plan::new(together, 8, false, &Wait::BusySpin, &Wait::BusySpin).unwrap();
        assert_eq!((together.stages[0].parks, together.stages[1].parks), (true, true));
        assert_eq!(together.producer_notifies, [together.stages[0].queue]);
    }
}
