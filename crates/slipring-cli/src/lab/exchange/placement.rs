//! The cores on which writer and reader run.

use std::fs;

use slipring_exchange::Way;
use slipring_machine::allowed_cpus;

/// What two cores have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Both ends run on one core, or the system offers no pinning.
    SameCore,
    /// Two hardware threads of one core.
    Siblings,
    /// Two cores of one package.
    SamePackage,
    /// Two cores of different packages.
    OtherPackage,
}

impl Relation {
    const ALL: [Relation; 4] =
        [Relation::SameCore, Relation::Siblings, Relation::SamePackage, Relation::OtherPackage];

    pub fn name(self) -> &'static str {
        match self {
            Relation::SameCore => "same core",
            Relation::Siblings => "siblings",
            Relation::SamePackage => "same package",
            Relation::OtherPackage => "other package",
        }
    }

    fn of(one: &Topology, other: &Topology) -> Relation {
        match () {
            () if one.number == other.number => Relation::SameCore,
            () if one.package != other.package => Relation::OtherPackage,
            () if one.core == other.core => Relation::Siblings,
            () => Relation::SamePackage,
        }
    }
}

/// What the system says of a core.
struct Topology {
    number: usize,
    core: Option<usize>,
    package: Option<usize>,
}

impl Topology {
    fn of(number: usize) -> Topology {
        let read = |what| {
            let path = format!("/sys/devices/system/cpu/cpu{number}/topology/{what}");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        // Without an answer, each core is one of its own.
        let core = read("core_id").or(Some(usize::MAX - number));
        Topology { number, core, package: read("physical_package_id") }
    }
}

/// The cores of writer and reader.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// The writer's core; `None`: the system offers no pinning.
    pub writer: Option<usize>,
    /// The reader's core.
    pub reader: Option<usize>,
    /// What the two cores have in common.
    pub relation: Relation,
}

impl Placement {
    /// Returns the placements of this machine: the writer on the first core, and the reader on each
    /// core in turn.
    pub fn all() -> Vec<Placement> {
        let cores: Vec<Topology> = allowed_cpus().into_iter().map(Topology::of).collect();
        let Some(first) = cores.first() else {
            return vec![Placement { writer: None, reader: None, relation: Relation::SameCore }];
        };
        let place = |core: &Topology| Placement {
            writer: Some(first.number),
            reader: Some(core.number),
            relation: Relation::of(first, core),
        };
        cores.iter().map(place).collect()
    }

    /// Leaves the first placement of each relation, so that a machine of many cores is measured in
    /// the time of one of few.
    pub fn by_relation(all: Vec<Placement>) -> Vec<Placement> {
        let first = |relation: &Relation| all.iter().find(|place| place.relation == *relation);
        Relation::ALL.iter().filter_map(first).copied().collect()
    }

    /// Returns whether a way can be measured here: one thread has one core.
    pub fn suits(&self, way: &Way) -> bool {
        !matches!(way, Way::OneThread) || self.relation == Relation::SameCore
    }
}

/// Returns the relations that no two cores of this machine have.
pub fn missing(placements: &[Placement]) -> Vec<&'static str> {
    let is_missing =
        |relation: &Relation| placements.iter().all(|placement| placement.relation != *relation);
    Relation::ALL.into_iter().filter(is_missing).map(Relation::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_of_cores() {
        let core =
            |number, core, package| Topology { number, core: Some(core), package: Some(package) };
        let first = core(0, 0, 0);
        for (other, relation) in [
            (core(0, 0, 0), Relation::SameCore),
            (core(4, 0, 0), Relation::Siblings),
            (core(1, 1, 0), Relation::SamePackage),
            (core(2, 0, 1), Relation::OtherPackage),
        ] {
            assert_eq!(Relation::of(&first, &other), relation);
        }
        let unknown = |number| Topology::of(usize::MAX / 2 - number);
        assert_eq!(Relation::of(&unknown(0), &unknown(1)), Relation::SamePackage);
    }

    #[test]
    fn one_thread_is_measured_on_one_core() {
        let all = Placement::all();
        assert!(!all.is_empty() && all[0].suits(&Way::OneThread));
        assert!(all[1..].iter().all(|placement| !placement.suits(&Way::OneThread)));
        assert!(all.iter().all(|placement| placement.suits(&Way::File)));
        assert_eq!(missing(&all).len() + distinct(&all), Relation::ALL.len());
    }

    fn distinct(all: &[Placement]) -> usize {
        let has = |relation: &Relation| all.iter().any(|place| place.relation == *relation);
        Relation::ALL.into_iter().filter(has).count()
    }
}
