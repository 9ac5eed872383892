//! Reads CPUs, cores, packages, nodes, kinds of cores, and caches.

use std::collections::BTreeMap;

use super::files::{Files, MachineError, quoted};
use crate::description::cpu_set::CpuSet;
use crate::description::parts::{Cache, CacheHolds, Core, CoreKind, Node, Package};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// Highest cache level that is accepted. Real machines have four levels.
const MOST_LEVELS: u32 = 16;
/// Greatest number of caches that are read for one CPU. Real CPUs have five.
const MOST_CACHES: usize = 64;

/// Returns two sets: the CPUs that are online, and the CPUs that exist but are offline.
pub fn online(files: &Files<'_>) -> Result<(CpuSet, CpuSet), MachineError> {
    let list = format!("{CPUS}/online");
    let online = match files.cpus(&list)? {
        Some(online) => online,
        None => files.numbered(CPUS, "cpu")?,
    };
    if online.is_empty() {
        let problem = "names no CPU, and there are no folders of CPUs beside it";
        return Err(files.malformed(&list, problem.into()));
    }
    let present = files.cpus(&format!("{CPUS}/present"))?.unwrap_or_default();
    let offline = present.difference(&online);
    Ok((online, offline))
}

/// Returns the CPUs of the affinity mask that are online.
pub fn allowed(files: &Files<'_>, online: &CpuSet) -> Result<CpuSet, MachineError> {
    const KEY: &str = "Cpus_allowed_list:";
    for path in ["proc/thread-self/status", "proc/self/status"] {
        let Some(text) = files.lines(path, |line| line.starts_with(KEY))? else { continue };
        let Some(list) = text.lines().find_map(|line| line.strip_prefix(KEY)) else { continue };
        let mask: CpuSet =
            list.parse().map_err(|error| files.malformed(path, format!("{KEY} {error}")))?;
        let allowed = mask.intersection(online);
        if allowed.is_empty() {
            let problem = format!("{KEY} {mask} has no CPU that is online; online are {online}");
            return Err(files.malformed(path, problem));
        }
        return Ok(allowed);
    }
    Ok(online.clone())
}

/// Returns the memory nodes.
pub fn nodes(files: &Files<'_>, online: &CpuSet) -> Result<Vec<Node>, MachineError> {
    let numbers = files.numbered(NODES, "node")?;
    if numbers.is_empty() {
        let memory_mib = memory(files, "proc/meminfo")?;
        return Ok(vec![Node { number: 0, cpus: online.clone(), memory_mib, distances: vec![] }]);
    }
    let node = |number: usize| -> Result<Node, MachineError> {
        let folder = format!("{NODES}/node{number}");
        let cpus = files.cpus(&format!("{folder}/cpulist"))?.unwrap_or_default();
        let path = format!("{folder}/distance");
        let text = files.text(&path)?.unwrap_or_default();
        let distances = text.split_ascii_whitespace().map(|word| files.parse(&path, word));
        Ok(Node {
            number,
            cpus: cpus.intersection(online),
            memory_mib: memory(files, &format!("{folder}/meminfo"))?,
            distances: distances.collect::<Result<_, _>>()?,
        })
    };
    let nodes: Vec<Node> = numbers.iter().map(node).collect::<Result<_, _>>()?;
    for node in &nodes {
        let count = node.distances.len();
        if count != 0 && count != nodes.len() {
            let problem = format!("has {count} distances for {} nodes", nodes.len());
            return Err(files.malformed(&format!("{NODES}/node{}/distance", node.number), problem));
        }
    }
    Ok(nodes)
}

/// Reads the size of the memory from a line such as `Node 0 MemTotal: 16384 kB`, and returns it in
/// MiB.
fn memory(files: &Files<'_>, path: &str) -> Result<Option<u64>, MachineError> {
    let Some(text) = files.lines(path, |line| line.contains("MemTotal:"))? else {
        return Ok(None);
    };
    let Some((_, size)) = text.split_once("MemTotal:") else { return Ok(None) };
    let size = size.split_ascii_whitespace().next().unwrap_or_default();
    let kib: u64 = files.parse(path, size)?;
    Ok(Some(kib / 1024))
}

/// Returns the kinds of cores, the fastest first; empty if all cores are alike.
pub fn kinds(files: &Files<'_>, online: &CpuSet) -> Result<Vec<CoreKind>, MachineError> {
    let mut kinds = Vec::new();
    let named = [("core", "performance"), ("atom", "efficiency"), ("lowpower", "low-power")];
    for (folder, name) in named {
        let cpus = files.cpus(&format!("sys/devices/cpu_{folder}/cpus"))?.unwrap_or_default();
        let cpus = cpus.intersection(online);
        if !cpus.is_empty() {
            kinds.push(CoreKind { name: name.into(), capacity: None, cpus });
        }
    }
    if kinds.is_empty() {
        let mut capacities: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for cpu in online.iter() {
            if let Some(capacity) = files.number(&format!("{CPUS}/cpu{cpu}/cpu_capacity"))? {
                capacities.entry(capacity).or_default().extend(&CpuSet::from_iter([cpu]));
            }
        }
        let kind = |(capacity, cpus)| CoreKind {
            name: format!("capacity {capacity}"),
            capacity: Some(capacity),
            cpus,
        };
        kinds.extend(capacities.into_iter().rev().map(kind));
    }
    if kinds.len() < 2 {
        kinds.clear();
    }
    Ok(kinds)
}

/// Returns the cores and packages.
pub fn cores(
    files: &Files<'_>,
    online: &CpuSet,
    nodes: &[Node],
    kinds: &[CoreKind],
) -> Result<(Vec<Core>, Vec<Package>), MachineError> {
    let (mut cores, mut packages) = (Vec::<Core>::new(), BTreeMap::<usize, CpuSet>::new());
    let mut seen = CpuSet::new();
    for first in online.iter() {
        if seen.contains(first) {
            continue;
        }
        // If the lists of two CPUs disagree, the list of the CPU with the lower number counts.
        let cpus = siblings(files, first)?.intersection(online).difference(&seen);
        seen.extend(&cpus);
        let path = format!("{CPUS}/cpu{first}/topology/physical_package_id");
        // Some systems report -1 if they do not know the package.
        let package = files.number::<i64>(&path)?.and_then(|id| usize::try_from(id).ok());
        if let Some(package) = package {
            packages.entry(package).or_default().extend(&cpus);
        }
        cores.push(Core {
            number: cores.len(),
            package,
            node: nodes.iter().find(|node| node.cpus.contains(first)).map(|node| node.number),
            kind: kinds.iter().position(|kind| kind.cpus.contains(first)),
            cpus,
        });
    }
    let package = |(number, cpus)| Package { number, cpus };
    Ok((cores, packages.into_iter().map(package).collect()))
}

/// Returns the hardware threads of a CPU's core.
fn siblings(files: &Files<'_>, cpu: usize) -> Result<CpuSet, MachineError> {
    // The first name is the newer one: a system has both files, or only the second.
    for name in ["core_cpus_list", "thread_siblings_list"] {
        let path = format!("{CPUS}/cpu{cpu}/topology/{name}");
        if let Some(cpus) = files.cpus(&path)? {
            if !cpus.contains(cpu) {
                let problem = format!("`{cpus}` does not have CPU {cpu} itself");
                return Err(files.malformed(&path, problem));
            }
            return Ok(cpus);
        }
    }
    Ok(CpuSet::from_iter([cpu]))
}

/// Returns the caches in order: by level, the highest first, and within a level by their first CPU.
pub fn caches(files: &Files<'_>, online: &CpuSet) -> Result<Vec<Cache>, MachineError> {
    let mut caches: Vec<Cache> = Vec::new();
    for cpu in online.iter() {
        let folder = format!("{CPUS}/cpu{cpu}/cache");
        for index in files.numbered(&folder, "index")?.iter().take(MOST_CACHES) {
            let found = cache(files, &format!("{folder}/index{index}"), cpu)?;
            let Some(mut cache) = found else { continue };
            cache.cpus = cache.cpus.intersection(online);
            // Every CPU that uses a cache lists it, so the cache is counted only at the first of
            // these CPUs.
            if cache.cpus.first() == Some(cpu) && !caches.contains(&cache) {
                caches.push(cache);
            }
        }
    }
    caches.sort_by_key(|cache| (std::cmp::Reverse(cache.level), cache.holds, cache.cpus.first()));
    Ok(caches)
}

fn cache(files: &Files<'_>, folder: &str, cpu: usize) -> Result<Option<Cache>, MachineError> {
    let path = |name: &str| format!("{folder}/{name}");
    let Some(level) = files.number(&path("level"))? else { return Ok(None) };
    if !(1..=MOST_LEVELS).contains(&level) {
        return Err(files.malformed(&path("level"), format!("there is no level {level}")));
    }
    let holds = match files.text(&path("type"))?.as_deref() {
        Some("Data") => CacheHolds::Data,
        Some("Instruction") => CacheHolds::Instructions,
        Some("Unified") | None => CacheHolds::Both,
        Some(other) => {
            let problem = format!("{} is no type of cache", quoted(other));
            return Err(files.malformed(&path("type"), problem));
        }
    };
    let cpus = match files.cpus(&path("shared_cpu_list"))? {
        Some(cpus) if !cpus.contains(cpu) => {
            let problem = format!("`{cpus}` does not have CPU {cpu} itself");
            return Err(files.malformed(&path("shared_cpu_list"), problem));
        }
        Some(cpus) => cpus,
        None => CpuSet::from_iter([cpu]),
    };
    let size_kib = match files.text(&path("size"))? {
        // The system states a size of 0 where it does not know the size.
        Some(text) => kib(&text)
            .ok_or_else(|| files.malformed(&path("size"), format!("{} is no size", quoted(&text))))
            .map(|kib| Some(kib).filter(|&kib| kib != 0))?,
        None => None,
    };
    let line_bytes = files.number(&path("coherency_line_size"))?.filter(|&bytes| bytes != 0);
    Ok(Some(Cache { level, holds, size_kib, line_bytes, cpus }))
}

/// Parses a size such as `32K`, and returns it in KiB.
fn kib(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    match unit {
        "K" => Some(number),
        "M" => number.checked_mul(1024),
        "G" => number.checked_mul(1024 * 1024),
        "" => Some(number / 1024),
        _ => None,
    }
}
