//! The summary of a machine: its cores, caches and nodes in a few lines, even if it is large.

use std::fmt::Write as _;

use crate::description::cpu_set::CpuSet;
use crate::description::machine::Machine;
use crate::description::parts::{Cache, CacheHolds, Core, Node};

/// Width of the lines of an error, in characters.
const WIDTH: usize = 80;

/// Returns `first` and then `parts`, separated by commas, in lines of at most `width` characters. A
/// line is longer only if a single part does not fit. Every line but the first begins with `indent`
/// spaces.
pub fn wrapped(first: &str, parts: &[String], indent: usize, width: usize) -> String {
    let mut text = first.to_owned();
    let mut used = first.chars().count();
    for (number, part) in parts.iter().enumerate() {
        let comma = if number + 1 < parts.len() { "," } else { "" };
        let length = part.chars().count() + comma.len();
        if number != 0 && used + 1 + length > width {
            let _ = write!(text, "\n{:indent$}", "");
            used = indent;
        } else if number != 0 {
            text.push(' ');
            used += 1;
        }
        let _ = write!(text, "{part}{comma}");
        used += length;
    }
    text.push('\n');
    text
}

/// Returns the CPUs of cores, with one text for each run of equal cores. `0-63 with 128-191` stands
/// for 64 cores, each with two hardware threads: core 0 has the CPUs 0 and 128. `0-11 in twos`
/// stands for six cores, each with two adjacent CPUs. `12-19` stands for eight cores with one CPU
/// each.
pub fn runs(cores: &[&Core]) -> Vec<String> {
    struct CoreRun {
        first: usize,
        last: usize,
        step: usize,
        /// Distance of each hardware thread of a core from the core's first one.
        offsets: Vec<usize>,
    }
    let mut runs: Vec<CoreRun> = Vec::new();
    for core in cores {
        let Some(first) = core.cpus.first() else { continue };
        let offsets: Vec<usize> = core.cpus.iter().map(|cpu| cpu - first).collect();
        // A system numbers the threads of each core one after the other, or first numbers one
        // thread of every core.
        let step = if offsets.get(1) == Some(&1) { offsets.len() } else { 1 };
        match runs.last_mut() {
            Some(run) if run.offsets == offsets && run.last + step == first => run.last = first,
            _ => runs.push(CoreRun { first, last: first, step, offsets }),
        }
    }
    let range = |first: usize, last: usize| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let shown = |run: &CoreRun| match run.step {
        _ if run.offsets.len() > 1 && run.first == run.last => {
            let cpus = run.offsets.iter().map(|offset| (run.first + offset).to_string());
            cpus.collect::<Vec<_>>().join("+")
        }
        1 => {
            let of = |offset: &usize| range(run.first + offset, run.last + offset);
            run.offsets.iter().map(of).collect::<Vec<_>>().join(" with ")
        }
        step => {
            let word = match step {
                2 => "twos".to_owned(),
                4 => "fours".to_owned(),
                step => format!("groups of {step}"),
            };
            format!("{} in {word}", range(run.first, run.last + step - 1))
        }
    };
    runs.iter().map(shown).collect()
}

/// Returns a size, given in KiB, as a text in the largest unit of which it has at least one.
pub fn size(kib: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (kib as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.2}");
    format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), UNITS[unit])
}

/// Returns the name of a cache, such as `L2`. The name of a cache that holds only data or only
/// instructions ends with `d` or `i`.
pub fn cache_name(cache: &Cache) -> String {
    let letter = match cache.holds {
        CacheHolds::Data => "d",
        CacheHolds::Instructions => "i",
        CacheHolds::Both => "",
    };
    format!("L{}{letter}", cache.level)
}

impl Machine {
    /// Returns the cores, shared caches and nodes in a few lines, even for a machine with hundreds
    /// of CPUs. The lines are indented by two spaces, and usually have at most 80 characters.
    ///
    /// `0-63 with 128-191` stands for 64 cores with two CPUs each: CPU 0 and CPU 128 for the first
    /// core. `0-11 in twos` stands for six cores with two CPUs each: CPU 0 and CPU 1 for the first
    /// core.
    ///
    /// ```
    /// use slipring_machine::{Machine, Snapshot};
    ///
    /// let snapshot: Snapshot = "sys/devices/system/cpu/online: 0-3\n\
    ///     sys/devices/system/cpu/cpu[0,2]/topology/core_cpus_list: 0,2\n\
    ///     sys/devices/system/cpu/cpu[1,3]/topology/core_cpus_list: 1,3\n".parse()?;
    /// let machine = Machine::from_snapshot(&snapshot)?;
    /// assert_eq!(machine.summary(), "  2 cores: 0-1 with 2-3\n  1 node: 0: 0-3\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut part = |name: String, parts: &[String]| {
            text += &wrapped(&format!("  {name}: "), parts, 4, WIDTH);
        };
        let cores: Vec<&Core> = self.cores().iter().collect();
        part(plural(cores.len(), "core"), &runs(&cores));
        for kind in self.kinds() {
            part(format!("{} cores", kind.name), &[kind.cpus.to_string()]);
        }
        if self.allowed() != self.online() {
            part("this process may use".into(), &[self.allowed().to_string()]);
        }
        let shared = self.shared_caches();
        let mut rest = shared.as_slice();
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|cache| cache.level == first.level).count();
            let (level, others) = rest.split_at(alike);
            let cpus: Vec<String> = level.iter().map(|cache| joined(&cache.cpus)).collect();
            part(plural(level.len(), &format!("shared {} cache", cache_name(first))), &cpus);
            rest = others;
        }
        let nodes = self.nodes().iter().map(|node: &Node| match node.cpus.is_empty() {
            true => format!("{}: memory alone", node.number),
            false => format!("{}: {}", node.number, joined(&node.cpus)),
        });
        part(plural(self.nodes().len(), "node"), &nodes.collect::<Vec<_>>());
        text
    }
}

/// Returns CPUs as one part of a list with commas: `0-7+128-135`.
fn joined(cpus: &CpuSet) -> String {
    cpus.to_string().replace(',', "+")
}

/// Returns a number and a word, which gets an s unless the number is one.
pub fn plural(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}
