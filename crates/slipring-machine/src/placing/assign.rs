//! Finds the CPUs of a placement.
//!
//! Where nothing else decides, the lowest numbers are chosen, so equal machines give equal
//! assignments.

use std::collections::BTreeMap;

use super::assignment::{Assignment, PlacementError};
use super::placement::{Cpus, Explicit, Placement};
use crate::description::machine::Machine;
use crate::description::parts::Core;
use crate::printing::summary::plural;

/// A core of which this process may use a CPU.
#[derive(Debug)]
struct Site {
    /// CPUs that this process may use, in order. Not empty.
    cpus: Vec<usize>,
    /// Index of the core's kind among the machine's kinds; the fastest is 0.
    kind: usize,
    package: Option<usize>,
    node: Option<usize>,
    /// Shared caches of the core, each by its level and its index, the highest level first.
    caches: Vec<(u32, usize)>,
}

/// The way in which threads share the cores of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Each thread has a core of its own.
    None,
    /// Cores take as many threads as they have CPUs.
    Hardware,
}

/// The preference among groups that suffice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preference {
    Smallest,
    Largest,
}

impl Machine {
    /// Finds a CPU for each thread of a graph. The list of the threads' names has the producer
    /// first, and then the stages' threads in the order of their declaration.
    ///
    /// The quota of a control group does not make a placement impossible;
    /// [`Assignment::exceeds_quota`] reports it.
    ///
    /// # Errors
    /// The placement is impossible here. The error says why and which placements are possible, and
    /// it lists the machine's cores, caches and nodes.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    ///
    /// let machine = Machine::this()?;
    /// let assignment = machine.assign(&Placement::SameCore, &["producer", "parse"])?;
    /// assert_eq!(assignment.cpu("producer"), assignment.cpu("parse"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assign<N: AsRef<str>>(
        &self,
        placement: &Placement,
        threads: &[N],
    ) -> Result<Assignment, PlacementError> {
        let names: Vec<&str> = threads.iter().map(AsRef::as_ref).collect();
        match self.find(placement, &names) {
            Ok(cpus) => Ok(Assignment::new(self, &names, &cpus)),
            Err(reason) => {
                let possible = Placement::NAMED.into_iter();
                let possible = possible.filter(|other| self.find(other, &names).is_ok()).collect();
                Err(PlacementError::new(self, placement, names.len(), reason, possible))
            }
        }
    }

    /// Returns a CPU for each thread, or why there is none.
    fn find(&self, placement: &Placement, names: &[&str]) -> Result<Vec<usize>, String> {
        let count = names.len();
        if let Placement::Explicit(Explicit(cpus)) = placement {
            return self.explicit(cpus, names);
        }
        let sites = self.sites();
        // A single thread shares everything with itself, so it goes to the fastest kind of core.
        let fastest = sites.iter().min_by_key(|site| site.kind);
        let Some(first) = fastest.map(|site| site.cpus[0]).filter(|_| count != 0) else {
            return Err("there is no thread, or no CPU that this process may use".into());
        };
        match placement {
            Placement::SameCore => Ok(vec![first; count]),
            _ if count == 1 => Ok(vec![first]),
            Placement::Siblings => siblings(&sites, count),
            Placement::SharedCache => {
                // Cores that share a higher-level cache come first, because they are nearer to
                // memory and to the other cores.
                let cache = |site: &Site| {
                    site.caches.first().map(|&(level, cache)| (u32::MAX - level, cache))
                };
                if sites.iter().all(|site| cache(site).is_none()) {
                    return Err("no two cores share a cache, as far as the system says".into());
                }
                within_group(&sites, count, cache, Preference::Smallest).map_err(|most| {
                    let cpus = plural(most, "allowed CPU");
                    format!("the cores of one cache have at most {cpus}")
                })
            }
            Placement::SameNode => {
                let node = |site: &Site| site.node.map(|node| (0, node));
                within_group(&sites, count, node, Preference::Largest)
                    .map_err(|most| format!("a node has at most {}", plural(most, "allowed CPU")))
            }
            Placement::Spread => spread(&sites, count),
            Placement::Explicit(_) => unreachable!("handled above"),
        }
    }

    /// Returns the cores of which this process may use a CPU.
    fn sites(&self) -> Vec<Site> {
        let shared = self.shared_caches();
        let site = |core: &Core| {
            let within = shared.iter().enumerate();
            let within = within.filter(|(_, cache)| {
                core.cpus.first().is_some_and(|first| cache.cpus.contains(first))
            });
            Site {
                cpus: core.cpus.intersection(self.allowed()).iter().collect(),
                kind: core.kind.unwrap_or(usize::MAX),
                package: core.package,
                node: core.node,
                caches: within.map(|(place, cache)| (cache.level, place)).collect(),
            }
        };
        self.cores().iter().map(site).filter(|site| !site.cpus.is_empty()).collect()
    }

    fn explicit(&self, cpus: &Cpus, names: &[&str]) -> Result<Vec<usize>, String> {
        let cpus: Vec<usize> = match cpus {
            Cpus::InOrder(cpus) if cpus.len() == names.len() => cpus.clone(),
            Cpus::InOrder(cpus) => {
                let (cpus, threads) = (plural(cpus.len(), "CPU"), names.join(", "));
                return Err(format!("it names {cpus}, and the threads are {threads}"));
            }
            Cpus::Named(cpus) => {
                if let Some((name, _)) = cpus.iter().find(|(name, _)| !names.contains(&&**name)) {
                    let threads = names.join(", ");
                    return Err(format!("there is no thread {name}; the threads are {threads}"));
                }
                let cpu = |name: &&str| {
                    let found = cpus.iter().find(|(known, _)| known == name);
                    found.map(|&(_, cpu)| cpu).ok_or(format!("thread {name} has no CPU"))
                };
                names.iter().map(cpu).collect::<Result<_, _>>()?
            }
        };
        for &cpu in &cpus {
            if self.offline().contains(cpu) {
                return Err(format!("CPU {cpu} is offline"));
            }
            if !self.online().contains(cpu) {
                return Err(format!("there is no CPU {cpu}"));
            }
            if !self.allowed().contains(cpu) {
                let allowed = self.allowed();
                return Err(format!(
                    "CPU {cpu} is outside of this thread's affinity mask, which is {allowed}"
                ));
            }
        }
        Ok(cpus)
    }
}

/// Returns the sets of cores that are tried one after the other: each kind alone, the fastest
/// first, and then all cores together, the fastest first.
fn by_kind(sites: &[Site]) -> Vec<Vec<&Site>> {
    let mut kinds: BTreeMap<usize, Vec<&Site>> = BTreeMap::new();
    for site in sites {
        kinds.entry(site.kind).or_default().push(site);
    }
    let all: Vec<&Site> = kinds.values().flatten().copied().collect();
    let mut sets: Vec<_> = kinds.into_values().collect();
    if sets.len() > 1 {
        sets.push(all);
    }
    sets
}

fn siblings(sites: &[Site], count: usize) -> Result<Vec<usize>, String> {
    let enough = by_kind(sites).into_iter().flatten().find(|site| site.cpus.len() >= count);
    enough.map(|site| site.cpus[..count].to_vec()).ok_or_else(|| {
        let most = sites.iter().map(|site| site.cpus.len()).max().unwrap_or(0);
        format!("a core has at most {}", plural(most, "allowed CPU"))
    })
}

/// Finds a group of cores that has room for all threads, and a CPU of that group for each thread.
/// `group_of` returns the rank and number of a core's group. Among the groups with enough room,
/// only those of the lowest rank are considered. If no group has enough room, the error is the
/// number of CPUs of the largest group.
fn within_group(
    sites: &[Site],
    count: usize,
    group_of: impl Fn(&Site) -> Option<(u32, usize)>,
    preference: Preference,
) -> Result<Vec<usize>, usize> {
    let mut most = 0;
    for sharing in [Sharing::None, Sharing::Hardware] {
        for set in by_kind(sites) {
            let mut groups: Vec<((u32, usize), Vec<&Site>)> = Vec::new();
            for site in set {
                let Some(group) = group_of(site) else { continue };
                match groups.iter_mut().find(|(known, _)| *known == group) {
                    Some((_, members)) => members.push(site),
                    None => groups.push((group, vec![site])),
                }
            }
            let capacity = |members: &[&Site]| match sharing {
                Sharing::None => members.len(),
                Sharing::Hardware => members.iter().map(|site| site.cpus.len()).sum(),
            };
            most = groups.iter().map(|(_, group)| capacity(group)).max().unwrap_or(0).max(most);
            let enough = groups.iter().filter(|(_, group)| capacity(group) >= count);
            // Where threads share cores, the group with the most cores is chosen: there the fewest
            // threads share a core.
            let smallest = preference == Preference::Smallest && sharing == Sharing::None;
            let order = |members: &[&Site]| match smallest {
                true => members.len(),
                false => usize::MAX - members.len(),
            };
            // `min_by_key` takes the first of equals: the group with the lowest number.
            let best = enough.min_by_key(|((rank, _), group)| (*rank, order(group)));
            if let Some((_, group)) = best {
                return Ok(fill(group, count));
            }
        }
    }
    Err(most)
}

/// Takes the first CPUs of all cores, then the second ones, and so on.
fn fill(sites: &[&Site], count: usize) -> Vec<usize> {
    let deepest = sites.iter().map(|site| site.cpus.len()).max().unwrap_or(0);
    let round = |thread: usize| sites.iter().filter_map(move |site| site.cpus.get(thread).copied());
    (0..deepest).flat_map(round).take(count).collect()
}

fn spread(sites: &[Site], count: usize) -> Result<Vec<usize>, String> {
    let Some(set) = by_kind(sites).into_iter().find(|set| set.len() >= count) else {
        return Err(match sites.len() {
            1 => "1 core has allowed CPUs".to_owned(),
            cores => format!("{cores} cores have allowed CPUs"),
        });
    };
    let mut keys: Vec<Key> = vec![Key::Package, Key::Node];
    let mut levels: Vec<u32> =
        set.iter().flat_map(|site| &site.caches).map(|&(level, _)| level).collect();
    levels.sort_unstable_by(|one, other| other.cmp(one));
    levels.dedup();
    keys.extend(levels.into_iter().map(Key::Cache));
    // All cores of a faster kind come before those of a slower kind.
    let kinds = set.chunk_by(|one, other| one.kind == other.kind);
    let order = kinds.flat_map(|kind| in_turns(kind.to_vec(), &keys));
    Ok(order.take(count).map(|site| site.cpus[0]).collect())
}

/// A property that the cores of a group share.
#[derive(Clone, Copy)]
enum Key {
    Package,
    Node,
    Cache(u32),
}

impl Key {
    fn of(self, site: &Site) -> Option<usize> {
        match self {
            Key::Package => site.package,
            Key::Node => site.node,
            Key::Cache(level) => {
                site.caches.iter().find(|(known, _)| *known == level).map(|&(_, cache)| cache)
            }
        }
    }
}

/// Orders cores so that the groups of the first key take turns. Within a group, the groups of the
/// next key take turns, and so on.
fn in_turns<'s>(sites: Vec<&'s Site>, keys: &[Key]) -> Vec<&'s Site> {
    let Some((key, inner)) = keys.split_first() else { return sites };
    let count = sites.len();
    let mut groups: Vec<(Option<usize>, Vec<&Site>)> = Vec::new();
    for site in sites {
        let value = key.of(site);
        // Cores that the system does not describe form one group.
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, members)) => members.push(site),
            None => groups.push((value, vec![site])),
        }
    }
    let groups: Vec<_> = groups.into_iter().map(|(_, group)| in_turns(group, inner)).collect();
    let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
    let turn = |turn: usize| groups.iter().filter_map(move |group| group.get(turn).copied());
    let order: Vec<&Site> = (0..longest).flat_map(turn).collect();
    debug_assert_eq!(order.len(), count);
    order
}
