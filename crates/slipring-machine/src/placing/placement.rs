//! Placements: wishes for where the threads of a graph run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::description::cpu_set::{CpuSet, shortened};

/// A wish for where the threads of a graph run. [`Machine::assign`](crate::Machine::assign) finds
/// the CPUs.
///
/// Only CPUs of the affinity mask count. On a machine with several kinds of cores, the named
/// placements first look for different cores of one kind, the fastest kind first. They mix kinds
/// before they put two threads on one core.
///
/// Each placement has a text, for arguments and records:
///
/// | text | placement |
/// |---|---|
/// | `same-core` | [`SameCore`](Self::SameCore) |
/// | `siblings` | [`Siblings`](Self::Siblings) |
/// | `shared-cache` | [`SharedCache`](Self::SharedCache) |
/// | `same-node` | [`SameNode`](Self::SameNode) |
/// | `spread` | [`Spread`](Self::Spread) |
/// | `cpus:2,3,0` | a CPU for each thread, in order; `cpus:2-4` has ranges |
/// | `producer=2,parse=3` | a CPU for each thread, by name |
///
/// The text cannot hold a thread's name with a comma; [`Explicit::named`] takes every name.
///
/// ```
/// use slipring_machine::{Explicit, Placement};
///
/// assert_eq!("shared-cache".parse(), Ok(Placement::SharedCache));
/// let explicit = Placement::Explicit(Explicit::in_order([2, 3, 0]));
/// assert_eq!("cpus:2,3,0".parse(), Ok(explicit));
/// let named: Placement = "producer=2,parse=3".parse()?;
/// assert_eq!(named.to_string(), "producer=2,parse=3");
/// # Ok::<(), slipring_machine::PlacementTextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// All threads on one CPU.
    SameCore,
    /// Each thread on a hardware thread of its own. These hardware threads all belong to one core.
    Siblings,
    /// Each thread gets a core of its own, and all these cores share their last cache: the highest
    /// level that several cores share. Of the groups of cores that are large enough, the smallest
    /// is taken. If no group has a core for each thread, the cores' second hardware threads are
    /// used, too.
    SharedCache,
    /// Each thread on a core of its own, all of one memory node: the node with the most cores.
    /// Where no node has a core for each thread, second hardware threads of the cores are used,
    /// too.
    SameNode,
    /// Each thread on a core of its own, as far apart as the machine allows: the threads take the
    /// packages in turn, in each package the nodes in turn, and in each node the shared caches in
    /// turn.
    Spread,
    /// Each thread on the CPU that the user names for it.
    Explicit(Explicit),
}

impl Placement {
    /// The placements that have names.
    pub const NAMED: [Placement; 5] = [
        Placement::SameCore,
        Placement::Siblings,
        Placement::SharedCache,
        Placement::SameNode,
        Placement::Spread,
    ];
}

/// A CPU for each thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Explicit(pub(crate) Cpus);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cpus {
    Named(Vec<(String, usize)>),
    InOrder(Vec<usize>),
}

impl Explicit {
    /// Asks for a CPU for each thread, by the thread's name. If a name occurs twice, the last CPU
    /// given for it is used.
    ///
    /// ```
    /// use slipring_machine::{Explicit, Placement};
    ///
    /// let explicit = Explicit::named([("producer", 2), ("parse", 3)]);
    /// assert_eq!(Placement::Explicit(explicit).to_string(), "producer=2,parse=3");
    /// ```
    pub fn named<N: Into<String>>(cpus: impl IntoIterator<Item = (N, usize)>) -> Explicit {
        let mut named: Vec<(String, usize)> = Vec::new();
        for (name, cpu) in cpus {
            let name = name.into();
            match named.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = cpu,
                None => named.push((name, cpu)),
            }
        }
        Explicit(Cpus::Named(named))
    }

    /// Asks for a CPU for each thread, in the order of the threads: the producer, then the stages'
    /// threads as they are declared.
    ///
    /// Example: [`Placement`].
    pub fn in_order(cpus: impl IntoIterator<Item = usize>) -> Explicit {
        Explicit(Cpus::InOrder(cpus.into_iter().collect()))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::SameCore => f.pad("same-core"),
            Placement::Siblings => f.pad("siblings"),
            Placement::SharedCache => f.pad("shared-cache"),
            Placement::SameNode => f.pad("same-node"),
            Placement::Spread => f.pad("spread"),
            Placement::Explicit(Explicit(Cpus::InOrder(cpus))) => {
                let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
                f.pad(&format!("cpus:{}", cpus.join(",")))
            }
            Placement::Explicit(Explicit(Cpus::Named(cpus))) => {
                let cpus: Vec<_> = cpus.iter().map(|(name, cpu)| format!("{name}={cpu}")).collect();
                f.pad(&cpus.join(","))
            }
        }
    }
}

/// The error for a text that does not describe a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementTextError {
    text: String,
    problem: String,
}

impl fmt::Display for PlacementTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, problem } = self;
        write!(
            f,
            "`{}` {problem}; placements are same-core, siblings, shared-cache, same-node, spread, \
             CPUs in order such as cpus:2,3, and CPUs by name such as producer=2,parse=3",
            text.escape_debug()
        )
    }
}

impl std::error::Error for PlacementTextError {}

impl FromStr for Placement {
    type Err = PlacementTextError;

    fn from_str(text: &str) -> Result<Self, PlacementTextError> {
        let text = text.trim();
        if let Some(named) = Self::NAMED.into_iter().find(|named| named.to_string() == text) {
            return Ok(named);
        }
        let explicit = match text.strip_prefix("cpus:") {
            Some(list) => in_order(list),
            None if text.contains('=') => named(text),
            None => Err("is no placement".into()),
        };
        let error = |problem| PlacementTextError { text: shortened(text), problem };
        explicit.map(Placement::Explicit).map_err(error)
    }
}

fn in_order(list: &str) -> Result<Explicit, String> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        // Each part is parsed alone, because a single set of all parts would lose their order.
        let set: CpuSet = part.parse().map_err(|_| "names no CPUs".to_owned())?;
        if set.is_empty() || cpus.len() > CpuSet::LIMIT {
            return Err("names no CPUs".into());
        }
        cpus.extend(set.iter());
    }
    Ok(Explicit::in_order(cpus))
}

fn named(list: &str) -> Result<Explicit, String> {
    let mut cpus: Vec<(String, usize)> = Vec::new();
    for part in list.split(',') {
        // The part is split at its last equals sign, because a name may contain one and a number
        // may not.
        let (name, cpu) = part.rsplit_once('=').ok_or("has a thread without a CPU")?;
        let (name, cpu) = (name.trim(), cpu.trim());
        let cpu = cpu.parse().map_err(|_| format!("has no CPU for thread {name}"))?;
        if name.is_empty() {
            return Err("has a CPU without a thread".into());
        }
        if cpus.iter().any(|(known, _)| known == name) {
            return Err(format!("has two CPUs for thread {name}"));
        }
        cpus.push((name.to_owned(), cpu));
    }
    Ok(Explicit::named(cpus))
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_is_written() {
        let explicit = ["cpus:2,3,0", "cpus:7", "producer=2,a=b=3"].map(str::to_owned);
        for text in Placement::NAMED.map(|named| named.to_string()).into_iter().chain(explicit) {
            let placement: Placement = text.parse().unwrap();
            assert_eq!(placement.to_string(), text);
            let json = serde_json::to_string(&placement).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Placement>(&json).unwrap(), placement);
        }
        assert_eq!("cpus:4-6,0".parse(), Ok(Placement::Explicit(Explicit::in_order([4, 5, 6, 0]))));
    }

    #[test]
    fn what_is_no_placement_is_named() {
        for (text, said) in [
            ("", "`` is no placement; placements are same-core,"),
            ("sibling", "`sibling` is no placement"),
            ("cpus:", "names no CPUs"),
            ("cpus:1,,2", "names no CPUs"),
            ("cpus:x", "names no CPUs"),
            ("parse=", "has no CPU for thread parse"),
            ("parse=-1", "has no CPU for thread parse"),
            ("=1", "has a CPU without a thread"),
            ("parse=1,parse=2", "has two CPUs for thread parse"),
            ("parse=1,store", "has a thread without a CPU"),
        ] {
            let error = text.parse::<Placement>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
