//! A machine as an indented drawing.

use super::summary::{cache_name, plural, runs, size, wrapped};
use crate::description::cpu_set::CpuSet;
use crate::description::machine::Machine;
use crate::description::parts::{Cache, Core, Node, Package};

/// Number of CPUs up to which the drawing shows every core.
const MOST_CPUS_SHOWN: usize = 48;

/// Smallest width of a drawing, in characters.
const LEAST_WIDTH: usize = 40;

/// Indentation of a group, and whether a group around it already says that no CPU is allowed.
type Outer = (usize, bool);

/// A group of cores, and the groups within it.
struct Group {
    title: String,
    cpus: CpuSet,
    groups: Vec<Group>,
}

impl Group {
    /// Inserts `group` into the smallest group that contains all of `group`'s CPUs.
    fn insert(&mut self, group: Group) {
        match self.groups.iter_mut().find(|within| group.cpus.is_subset(&within.cpus)) {
            Some(within) => within.insert(group),
            None => self.groups.push(group),
        }
    }

    /// Returns whether some group overlaps these CPUs without one containing the other, so that
    /// they cannot be nested.
    fn crosses(&self, cpus: &CpuSet) -> bool {
        self.groups.iter().any(|group| {
            let both = group.cpus.intersection(cpus).len();
            match both {
                0 => false,
                _ if both == cpus.len() => group.crosses(cpus),
                // Groups are inserted in order of size, the largest first, so `group` cannot lie
                // within `cpus`.
                _ => true,
            }
        })
    }
}

impl Machine {
    /// Draws packages, nodes, shared caches and cores within each other. Lines have at most `width`
    /// characters, or 40 where `width` is smaller; only a longer word exceeds that.
    ///
    /// A core is a pair of brackets with its CPUs. A CPU that this process may not use stands in
    /// parentheses. On large machines, equal cores are one range, and a group whose CPUs are all
    /// forbidden says so.
    ///
    /// ```
    /// use slipring_machine::{Machine, Snapshot};
    ///
    /// let snapshot: Snapshot = "sys/devices/system/cpu/online: 0-3\n\
    ///     sys/devices/system/cpu/cpu[0-3]/topology/physical_package_id: 0\n\
    ///     sys/devices/system/cpu/cpu[0-1]/topology/core_cpus_list: 0-1\n\
    ///     sys/devices/system/cpu/cpu[2-3]/topology/core_cpus_list: 2-3\n\
    ///     proc/self/status: Cpus_allowed_list: 0-2\n".parse()?;
    /// let drawing = Machine::from_snapshot(&snapshot)?.drawing(80);
    /// assert_eq!(drawing, "package 0, node 0: [0 1] [2 (3)]\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drawing(&self, width: usize) -> String {
        let width = width.max(LEAST_WIDTH);
        let mut text = String::new();
        for group in &self.groups().groups {
            self.draw(group, (0, false), width, &mut text);
        }
        text
    }

    /// Returns all groups, nested in one another.
    fn groups(&self) -> Group {
        let package =
            |package: &Package| (0, format!("package {}", package.number), package.cpus.clone());
        let node = |node: &Node| {
            let memory =
                node.memory_mib.map(|mib| format!(" with {}", size(mib.saturating_mul(1024))));
            let title = format!("node {}{}", node.number, memory.unwrap_or_default());
            (1, title, node.cpus.clone())
        };
        let cache = |cache: &&Cache| {
            let title = match cache.size_kib {
                Some(kib) => format!("{} {}", cache_name(cache), size(kib)),
                None => cache_name(cache),
            };
            (2, title, cache.cpus.clone())
        };
        let shared = self.shared_caches();
        let mut groups: Vec<(usize, String, CpuSet)> =
            self.packages().iter().map(package).collect();
        groups.extend(self.nodes().iter().map(node));
        groups.extend(shared.iter().map(cache));
        groups.retain(|(_, _, cpus)| !cpus.is_empty());
        // If groups have the same CPUs, a package contains a node, and a node contains a cache. The
        // sort is stable, so a cache of a higher level contains one of a lower level.
        groups.sort_by_key(|(kind, _, cpus)| (std::cmp::Reverse(cpus.len()), *kind));
        let mut machine =
            Group { title: String::new(), cpus: self.online().clone(), groups: Vec::new() };
        for (_, title, cpus) in groups {
            if !machine.crosses(&cpus) {
                machine.insert(Group { title, cpus, groups: Vec::new() });
            }
        }
        sort(&mut machine);
        machine
    }

    fn draw(&self, group: &Group, outer: Outer, width: usize, text: &mut String) {
        let (indent, mut is_forbidden) = outer;
        // A group with the same CPUs as the group around it is shown on that group's line.
        let (mut titles, mut inner) = (vec![group.title.clone()], group);
        while let [only] = &inner.groups[..] {
            if only.cpus != inner.cpus {
                break;
            }
            titles.push(only.title.clone());
            inner = only;
        }
        // The words "not allowed" apply to their line and to all lines below it, so these lines do
        // not repeat the words.
        if !is_forbidden && group.cpus.is_disjoint(self.allowed()) {
            titles.push("not allowed".into());
            is_forbidden = true;
        }
        let title = wrapped(&" ".repeat(indent), &titles, indent + 4, width);
        let grouped: CpuSet = inner.groups.iter().flat_map(|group| group.cpus.iter()).collect();
        let rest = inner.cpus.difference(&grouped);
        let mut cores = String::new();
        self.draw_cores(&rest, indent + 2, width, &mut cores);
        let one_line = format!("{}: {}", title.trim_end(), cores.trim_start());
        // Both texts end with a line break, which counts in neither length.
        let fits = one_line.chars().count() <= width + 1 && one_line.lines().count() == 1;
        if inner.groups.is_empty() && fits {
            *text += &one_line;
            return;
        }
        *text += &title;
        let first_group = inner.groups.first().and_then(|group| group.cpus.first());
        let cores_first = rest.first() < first_group;
        if cores_first {
            *text += &cores;
        }
        for group in &inner.groups {
            self.draw(group, (indent + 2, is_forbidden), width, text);
        }
        if !cores_first {
            *text += &cores;
        }
    }

    /// Draws the cores that belong to no smaller group, one kind of core after the other.
    fn draw_cores(&self, cpus: &CpuSet, indent: usize, width: usize, text: &mut String) {
        let within = |core: &&Core| core.cpus.first().is_some_and(|first| cpus.contains(first));
        let mut cores: Vec<&Core> = self.cores().iter().filter(within).collect();
        cores.sort_by_key(|core| core.kind);
        for alike in cores.chunk_by(|one, other| one.kind == other.kind) {
            let kind = alike[0].kind.and_then(|kind| self.kinds().get(kind));
            let name = kind.map(|kind| format!("{}: ", kind.name)).unwrap_or_default();
            let first = format!("{:indent$}{name}", "");
            *text += &match self.online().len() <= MOST_CPUS_SHOWN {
                true => {
                    let cores: Vec<String> = alike.iter().map(|core| self.brackets(core)).collect();
                    // Brackets need no commas between them.
                    let deeper = if name.is_empty() { indent } else { indent + 2 };
                    filled(&first, &cores, deeper, width)
                }
                false => {
                    let first = format!("{first}{}: ", plural(alike.len(), "core"));
                    wrapped(&first, &self.runs_by_use(alike), indent + 2, width)
                }
            };
        }
    }

    fn brackets(&self, core: &Core) -> String {
        let cpu = |cpu: usize| match self.allowed().contains(cpu) {
            true => cpu.to_string(),
            false => format!("({cpu})"),
        };
        format!("[{}]", core.cpus.iter().map(cpu).collect::<Vec<_>>().join(" "))
    }

    /// Returns runs of cores. Those whose CPUs are not allowed are in parentheses.
    fn runs_by_use(&self, cores: &[&Core]) -> Vec<String> {
        let allowed = |core: &Core| core.cpus.intersection(self.allowed()).len();
        let alike = cores.chunk_by(|one, other| {
            let whole = |core: &Core| allowed(core) == core.cpus.len();
            (allowed(one) == 0, whole(one)) == (allowed(other) == 0, whole(other))
        });
        let all_forbidden = cores.iter().all(|core| allowed(core) == 0);
        let mut parts = Vec::new();
        for alike in alike {
            let runs = runs(alike).into_iter();
            let first = alike[0];
            match allowed(first) {
                // If a whole group is forbidden, the line above already says so.
                0 if !all_forbidden => parts.extend(runs.map(|run| format!("({run})"))),
                part if part != 0 && part < first.cpus.len() => {
                    parts.extend(alike.iter().map(|core| self.brackets(core)));
                }
                _ => parts.extend(runs),
            }
        }
        parts
    }
}

fn sort(group: &mut Group) {
    group.groups.sort_by_key(|group| group.cpus.first());
    group.groups.iter_mut().for_each(sort);
}

/// Wraps words into lines of at most `width` characters.
fn filled(first: &str, words: &[String], indent: usize, width: usize) -> String {
    let mut text = first.to_owned();
    let mut used = first.chars().count();
    for (number, word) in words.iter().enumerate() {
        let length = word.chars().count();
        if number != 0 && used + 1 + length > width {
            text += &format!("\n{:indent$}", "");
            used = indent;
        } else if number != 0 {
            text.push(' ');
            used += 1;
        }
        text += word;
        used += length;
    }
    text.push('\n');
    text
}
