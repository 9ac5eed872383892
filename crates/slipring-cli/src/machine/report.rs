//! The text about a machine.

use slipring_machine::{Cache, CacheHolds, Machine, Node, Placement};

/// Column at which the facts begin, in characters.
const FACTS: usize = 11;
/// Column at which the CPUs of placements begin, in characters.
const CPUS: usize = 16;
/// A space at which no line ends.
const GLUE: char = '\u{a0}';
/// Least width of the text, in characters.
const LEAST_WIDTH: usize = 40;

/// Describes a machine in lines of at most `width` characters, or 40 where `width` is smaller. The
/// text shows the placements of two threads and, if `threads` is given, also the placements of
/// `threads` threads.
pub fn text(machine: &Machine, threads: Option<usize>, width: usize) -> String {
    let width = width.max(LEAST_WIDTH);
    let mut text = Text { text: String::new(), width };
    text.words("", 0, machine.model().unwrap_or("unknown processor"));
    text.words("", 0, &about(machine));
    text.text.push('\n');
    text.text += &machine.drawing(width);
    text.text.push('\n');
    for (name, fact) in facts(machine) {
        text.words(name, FACTS, &fact);
    }
    if machine.nodes().len() > 1 {
        text.distances(machine.nodes(), machine);
    }
    let mut counts = vec![2];
    counts.extend(threads.filter(|&threads| threads != 2));
    for count in counts {
        text.placements(machine, count);
    }
    // Names and paths of a foreign machine may have control characters.
    text.text.replace(|letter: char| letter.is_control() && letter != '\n', "\u{fffd}")
}

/// Returns the kernel, the hypervisor, and the numbers of cores and CPUs.
fn about(machine: &Machine) -> String {
    let mut parts = vec![machine.kernel().unwrap_or("unknown system").to_owned()];
    if let Some(hypervisor) = machine.hypervisor() {
        parts.push(match hypervisor {
            "unknown" => "in a virtual machine".to_owned(),
            name => format!("in a virtual machine of {name}"),
        });
    }
    parts.push(plural(machine.cores().len(), "core"));
    parts.push(plural(machine.online().len(), "CPU"));
    parts.join(", ")
}

/// Returns the facts that the drawing does not show, and their names.
fn facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for kind in machine.kinds() {
        facts.push(("kind", format!("{}: CPUs {}", kind.name, kind.cpus)));
    }
    facts.push(("caches", caches(machine)));
    if !machine.offline().is_empty() {
        facts.push(("offline", format!("CPUs {}", machine.offline())));
    }
    facts.push((
        "allowed",
        match machine.allowed() == machine.online() {
            true => "all CPUs".to_owned(),
            false => format!("CPUs {}, by the affinity mask", machine.allowed()),
        },
    ));
    if let Some(quota) = machine.quota() {
        let (time, period) = (quota.time_us, quota.period_us);
        let cpus = format!("{:.2}", quota.cpus());
        let cpus = cpus.trim_end_matches('0').trim_end_matches('.');
        let cpus = format!("{cpus} CPUs: {time} of each {period} µs, by {}", quota.file);
        facts.push(("quota", cpus));
    }
    let usable = plural(machine.usable_cores(), "thread");
    facts.push(("usable", format!("{usable} can run all the time")));
    facts.push(("pages", pages(machine)));
    for node in machine.nodes().iter().filter(|node| node.cpus.is_empty()) {
        let memory = node.memory_mib.map(|mib| format!(" with {}", size(mib.saturating_mul(1024))));
        let memory = memory.unwrap_or_default();
        facts.push(("memory", format!("node {}{memory}, without CPUs", node.number)));
    }
    facts
}

/// Returns the number and the sizes of the caches of each level.
fn caches(machine: &Machine) -> String {
    let mut caches: Vec<&Cache> = machine.caches().iter().collect();
    if caches.is_empty() {
        return "unknown".to_owned();
    }
    caches.sort_by_key(|cache| (cache.level, cache.holds));
    let same = |one: &&Cache, other: &&Cache| (one.level, one.holds) == (other.level, other.holds);
    let mut parts = Vec::new();
    for level in caches.chunk_by(same) {
        let letter = match level[0].holds {
            CacheHolds::Data => "d",
            CacheHolds::Instructions => "i",
            _ => "",
        };
        let sizes = level.chunk_by(|one, other| one.size_kib == other.size_kib);
        let sizes = sizes.map(|alike| {
            let size = alike[0].size_kib.map_or_else(|| "unknown size".into(), size);
            glued(&format!("{} × {size}", alike.len()))
        });
        let sizes: Vec<String> = sizes.collect();
        parts.push(format!("L{}{letter}{GLUE}{}", level[0].level, sizes.join(" and ")));
    }
    let mut lines: Vec<u32> = caches.iter().filter_map(|cache| cache.line_bytes).collect();
    lines.sort_unstable();
    lines.dedup();
    if !lines.is_empty() {
        let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
        parts.push(glued(&format!("lines of {} bytes", lines.join(" and "))));
    }
    parts.join(", ")
}

/// Returns a text that stays on one line.
fn glued(text: &str) -> String {
    text.replace(' ', &GLUE.to_string())
}

fn pages(machine: &Machine) -> String {
    let memory = machine.memory();
    let mut parts = vec![memory.page_kib.map_or_else(|| "unknown size".into(), size)];
    if let Some(mode) = &memory.transparent_huge_pages {
        let of = memory.transparent_huge_page_kib.map(|kib| format!(" of {}", size(kib)));
        parts.push(format!("transparent huge pages{}: {mode}", of.unwrap_or_default()));
    }
    let reserved = memory.huge_pages.iter().filter(|pages| pages.reserved != 0);
    let reserved = reserved.map(|pages| {
        let (count, free) = (pages.reserved, pages.free);
        format!("{count} of {} reserved, {free} of them free", size(pages.size_kib))
    });
    let reserved: Vec<String> = reserved.collect();
    match reserved.is_empty() {
        true if memory.huge_pages.is_empty() => {}
        true => parts.push(glued("no huge pages reserved")),
        false => parts.extend(reserved),
    }
    parts.join(", ")
}

/// Returns the distances between memory nodes, if two numbers are enough: one for all nodes of the
/// same package, and one for nodes of different packages.
fn distances(nodes: &[Node], machine: &Machine) -> Option<String> {
    let package = |node: &Node| {
        let first = node.cpus.first()?;
        machine.packages().iter().find(|package| package.cpus.contains(first))
    };
    let mut classes: [Option<u32>; 3] = [None; 3];
    for (row, one) in nodes.iter().enumerate() {
        for (column, other) in nodes.iter().enumerate() {
            let distance = one.distances.get(column).copied()?;
            let class = match (package(one)?, package(other)?) {
                _ if row == column => 0,
                (one, other) if one == other => 1,
                _ => 2,
            };
            if *classes[class].get_or_insert(distance) != distance {
                return None;
            }
        }
    }
    let names = ["within a node", "within a package", "between packages"];
    let named = classes.iter().zip(names);
    let parts =
        named.filter_map(|(class, name)| class.map(|distance| format!("{distance} {name}")));
    Some(parts.collect::<Vec<_>>().join(", "))
}

/// A text that is broken into lines of a given width.
struct Text {
    text: String,
    width: usize,
}

impl Text {
    /// Adds a name, padded to `column` characters, and behind it the words. The words are wrapped
    /// at the text's width, and a word that is longer than a line is broken.
    fn words(&mut self, name: &str, column: usize, words: &str) {
        let mut line = format!("{name:column$}");
        let mut used = column.max(name.chars().count());
        let mut is_first = true;
        for word in words.split(' ') {
            let word = word.replace(GLUE, " ");
            let length = word.chars().count();
            if !is_first && used + 1 + length > self.width {
                self.line(&line);
                (line, used) = (" ".repeat(column), column);
            } else if !is_first {
                line.push(' ');
                used += 1;
            }
            is_first = false;
            for letter in word.chars() {
                if used == self.width {
                    self.line(&line);
                    (line, used) = (" ".repeat(column), column);
                }
                line.push(letter);
                used += 1;
            }
        }
        self.line(&line);
    }

    fn line(&mut self, line: &str) {
        self.text += line.trim_end();
        self.text.push('\n');
    }

    fn distances(&mut self, nodes: &[Node], machine: &Machine) {
        if nodes.iter().all(|node| node.distances.is_empty()) {
            return;
        }
        if let Some(text) = distances(nodes, machine) {
            return self.words("distances", FACTS, &text);
        }
        let numbers = nodes.iter().flat_map(|node| &node.distances);
        let (least, most) = (numbers.clone().min(), numbers.max());
        let digits = most.map_or(1, |most| most.to_string().len()).max(3);
        if FACTS + 4 + nodes.len() * (digits + 1) > self.width {
            let range = least.zip(most).map(|(least, most)| format!("{least} to {most}"));
            return self.words("distances", FACTS, &range.unwrap_or_default());
        }
        let row = |name: String, numbers: Vec<u32>| {
            let numbers = numbers.iter().map(|number| format!(" {number:>digits$}"));
            format!("{name:>4}{}", numbers.collect::<String>())
        };
        let columns = nodes.iter().map(|node| u32::try_from(node.number).unwrap_or(u32::MAX));
        let header = row("node".into(), columns.collect());
        self.line(&format!("{:FACTS$}{header}", "distances"));
        for node in nodes {
            let numbers = row(node.number.to_string(), node.distances.clone());
            self.line(&format!("{:FACTS$}{numbers}", ""));
        }
    }

    /// Adds the CPUs that each placement gives.
    fn placements(&mut self, machine: &Machine, count: usize) {
        let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        self.line("");
        self.line(&format!("CPUs of {}, the producer first", plural(count, "thread")));
        for placement in Placement::NAMED {
            let name = format!("  {placement}");
            let cpus = match machine.assign(&placement, &names) {
                Err(error) => format!("impossible: {}", error.reason()),
                Ok(assignment) => {
                    let cpus: Vec<usize> =
                        assignment.threads().iter().map(|thread| thread.cpu).collect();
                    let quota = if assignment.exceeds_quota() { " (beyond the quota)" } else { "" };
                    format!("{}{quota}", in_order(&cpus))
                }
            };
            self.words(&name, CPUS, &cpus);
        }
    }
}

/// Lists CPUs in their order, with runs of three or more as ranges.
fn in_order(cpus: &[usize]) -> String {
    let mut parts = Vec::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let rising = (first..).zip(rest).take_while(|&(next, &cpu)| next == cpu).count();
        let same = rest.iter().take_while(|&&cpu| cpu == first).count();
        let taken = match (rising, same) {
            (_, same) if same > 3 => {
                parts.push(format!("{first} ({same} times)"));
                same
            }
            (rising, _) if rising > 2 => {
                parts.push(format!("{first}-{}", first + rising - 1));
                rising
            }
            _ => {
                parts.push(first.to_string());
                1
            }
        };
        rest = &rest[taken..];
    }
    parts.join(" ")
}

/// Returns a size in the unit that suits it.
fn size(kib: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (kib as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.2}");
    format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), UNITS[unit])
}

fn plural(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use slipring_machine::Snapshot;

    use super::*;

    fn machines() -> Vec<Machine> {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../slipring-machine/tests/machines");
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let texts = paths.filter(|path| path.extension().is_some_and(|end| end == "txt"));
        let snapshots = texts.map(|path| fs::read_to_string(path).unwrap().parse().unwrap());
        snapshots.map(|snapshot| Machine::from_snapshot(&snapshot).unwrap()).collect()
    }

    #[test]
    fn lines_fit_the_terminal() {
        let machines = machines();
        assert!(machines.len() >= 10);
        for machine in &machines {
            for width in [0, 40, 61, 80, 200] {
                let text = text(machine, Some(1000), width);
                let most = width.max(LEAST_WIDTH);
                assert!(text.lines().all(|line| line.chars().count() <= most), "{most}\n{text}");
                assert!(!text.contains(GLUE), "{text}");
            }
        }
    }

    #[test]
    fn distances_that_follow_no_packages_are_a_table() {
        let snapshot: Snapshot = "sys/devices/system/cpu/online: 0-2\n\
            sys/devices/system/cpu/cpu[0-2]/topology/physical_package_id: 0\n\
            sys/devices/system/node/node0/cpulist: 0\n\
            sys/devices/system/node/node0/distance: 10 20 30\n\
            sys/devices/system/node/node1/cpulist: 1\n\
            sys/devices/system/node/node1/distance: 20 10 20\n\
            sys/devices/system/node/node5/cpulist: \n\
            sys/devices/system/node/node5/distance: 30 20 10\n\
            sys/devices/system/node/node5/meminfo: Node 5 MemTotal: 1048576 kB\n"
            .parse()
            .unwrap();
        let machine = Machine::from_snapshot(&snapshot).unwrap();
        let text = text(&machine, None, 80);
        let table = "distances  node   0   1   5\n\
            \x20             0  10  20  30\n\
            \x20             1  20  10  20\n\
            \x20             5  30  20  10\n";
        assert!(text.contains(table), "{text}");
        assert!(text.contains("memory     node 5 with 1 GiB, without CPUs\n"), "{text}");
    }

    #[test]
    fn a_foreign_name_controls_no_terminal() {
        let snapshot: Snapshot = "sys/devices/system/cpu/online: 0\n\
            proc/cpuinfo: model name: \u{1b}[2J\u{7}\n"
            .parse()
            .unwrap();
        let machine = Machine::from_snapshot(&snapshot).unwrap();
        assert_eq!(text(&machine, None, 80).lines().next(), Some("\u{fffd}[2J\u{fffd}"));
    }

    #[test]
    fn cpus_in_order() {
        for (cpus, text) in [
            (&[0usize, 1][..], "0 1"),
            (&[0, 1, 2, 8], "0-2 8"),
            (&[4, 4, 4], "4 4 4"),
            (&[4, 4, 4, 4], "4 (4 times)"),
            (&[7, 5, 6, 7, 7], "7 5-7 7"),
        ] {
            assert_eq!(in_order(cpus), text);
        }
    }
}
