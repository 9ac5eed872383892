//! The cores on which writer and reader run.

use slipring_exchange::Way;
use slipring_machine::{Core, Machine, allowed_cpus};

/// The relation of two cores.
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

    fn of(machine: Option<&Machine>, one: usize, other: usize) -> Relation {
        let [one_core, other_core] =
            [one, other].map(|cpu| machine.and_then(|machine| machine.core_of(cpu)));
        let package = |core: Option<&Core>| core.and_then(|core| core.package);
        match () {
            () if one == other => Relation::SameCore,
            () if package(one_core) != package(other_core) => Relation::OtherPackage,
            // On a machine that cannot be described, each CPU counts as a core.
            () if one_core.is_some_and(|core| core.cpus.contains(other)) => Relation::Siblings,
            () => Relation::SamePackage,
        }
    }
}

/// The cores of writer and reader.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// The writer's core; `None` if the system offers no pinning.
    pub writer: Option<usize>,
    /// The reader's core.
    pub reader: Option<usize>,
    /// Relation of the two cores.
    pub relation: Relation,
}

impl Placement {
    /// Returns the placements of this machine: the writer on the first core, and the reader on each
    /// core in turn.
    pub fn all() -> Vec<Placement> {
        Self::on(Machine::this().ok().as_ref(), &allowed_cpus())
    }

    fn on(machine: Option<&Machine>, allowed: &[usize]) -> Vec<Placement> {
        let Some(&first) = allowed.first() else {
            return vec![Placement { writer: None, reader: None, relation: Relation::SameCore }];
        };
        let place = |&cpu: &usize| Placement {
            writer: Some(first),
            reader: Some(cpu),
            relation: Relation::of(machine, first, cpu),
        };
        allowed.iter().map(place).collect()
    }

    /// Keeps only the first placement of each relation, so that a machine of many cores takes no
    /// longer to measure than a machine of few.
    pub fn by_relation(all: Vec<Placement>) -> Vec<Placement> {
        let first = |relation: &Relation| all.iter().find(|place| place.relation == *relation);
        Relation::ALL.iter().filter_map(first).copied().collect()
    }

    /// Returns whether this way to exchange can be measured with this placement: the way with a
    /// single thread needs a single core.
    pub fn suits(&self, way: &Way) -> bool {
        !matches!(way, Way::OneThread) || self.relation == Relation::SameCore
    }
}

/// Returns the relations between two cores that are not found on this machine.
pub fn missing(placements: &[Placement]) -> Vec<&'static str> {
    let is_missing =
        |relation: &Relation| placements.iter().all(|placement| placement.relation != *relation);
    Relation::ALL.into_iter().filter(is_missing).map(Relation::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packages, each of two cores with two hardware threads.
    const PACKAGES: &str = "\
        sys/devices/system/cpu/online: 0-7\n\
        sys/devices/system/cpu/cpu[0,4]/topology/thread_siblings_list: 0,4\n\
        sys/devices/system/cpu/cpu[1,5]/topology/thread_siblings_list: 1,5\n\
        sys/devices/system/cpu/cpu[2,6]/topology/thread_siblings_list: 2,6\n\
        sys/devices/system/cpu/cpu[3,7]/topology/thread_siblings_list: 3,7\n\
        sys/devices/system/cpu/cpu[0-1,4-5]/topology/physical_package_id: 0\n\
        sys/devices/system/cpu/cpu[2-3,6-7]/topology/physical_package_id: 1\n";

    #[test]
    fn relations_of_cores() {
        let machine = Machine::from_snapshot(&PACKAGES.parse().unwrap()).unwrap();
        let all: Vec<usize> = (0..8).collect();
        let relations = |machine| -> Vec<Relation> {
            Placement::on(machine, &all).iter().map(|placement| placement.relation).collect()
        };
        use Relation::{OtherPackage, SameCore, SamePackage, Siblings};
        assert_eq!(
            relations(Some(&machine)),
            [
                SameCore,
                SamePackage,
                OtherPackage,
                OtherPackage,
                Siblings,
                SamePackage,
                OtherPackage,
                OtherPackage
            ]
        );
        assert_eq!(relations(None)[..2], [SameCore, SamePackage]);
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
