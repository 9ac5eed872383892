//! Reads how much memory the system still has for this process, and refuses a build that needs
//! more.
//!
//! A build touches all of its memory. If it needs more memory than the system has, Linux kills
//! processes, and not only the one that builds. So a build first compares its need with the least
//! of these amounts:
//!
//! - `MemAvailable` of `/proc/meminfo`: the memory that programs can take before the machine swaps.
//!   Swap does not count, because a ring that is swapped out is useless.
//! - For the memory control group of this process, and each group around it: the limit
//!   (`memory.max` and `memory.high`, or `memory.limit_in_bytes` of version 1) less the memory that
//!   the group uses. The group's cached files (`inactive_file` and `active_file`) count as free, as
//!   they do in `MemAvailable`, because the kernel drops cached files before it kills a process.
//!
//! Invariants
//! - I1: a build is refused only because of a limit that was read. A limit whose file is absent or
//!   holds no number is unknown, and no build is refused because of it. So on systems without these
//!   files, no build is refused.
//! - I2: sums and differences saturate. A need beyond `u64` is the largest `u64`.

use std::error::Error as StdError;
use std::fmt;

use super::control_group::{self, Read, Version, files};
use super::fault::debug_is_message;

/// Size below which a need is not checked: 16 MiB. The readings take a tenth of a millisecond. For
/// a larger need this does not matter, because the kernel takes milliseconds to hand out 16 MiB.
const UNCHECKED: u64 = 16 << 20;

/// Divisor of the available memory: one byte in 16 stays free for other programs, and for the
/// threads and handlers of this program.
const RESERVE: u64 = 16;

/// Source of the limit on the memory that a build may take.
///
/// Example: [`MemoryShortage`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// The memory that the machine has available: `MemAvailable` of `/proc/meminfo`.
    Machine,
    /// The limit of the process's memory control group, or of a group around it.
    Group {
        /// The file that states the limit.
        file: String,
    },
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::Machine => f.write_str("the machine (MemAvailable of /proc/meminfo)"),
            MemoryLimit::Group { file } => write!(f, "the control group ({file})"),
        }
    }
}

/// The refusal of a build that takes more memory than is available.
///
/// The build has allocated nothing. A build may take 15/16 of the available memory, so that other
/// programs keep running. The check reads the available memory at that moment and reserves none, so
/// two builds at the same time do not see each other. Builds of less than 16 MiB are not checked.
/// The check does not count memory that events own besides their slots.
///
/// ```
/// use slipring::{Graph, errors::{BuildError, ErrorKind}};
///
/// let error = Graph::new(1 << 44, || 0u64).build().err().unwrap(); // 256 TiB
/// match error.kind() {
///     ErrorKind::Build(BuildError::MemoryShortage(shortage)) => {
///         assert_eq!(shortage.needed >> 40, 256);
///         println!("{} bytes are left by {}", shortage.available, shortage.limit);
///     }
///     // A system that does not say what it has.
///     other => assert!(matches!(other, ErrorKind::Build(BuildError::Memory { .. }))),
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryShortage {
    /// Memory that the build takes, in bytes; `u64::MAX` if the number is larger than a `u64`
    /// holds.
    pub needed: u64,
    /// Memory that is available, in bytes.
    pub available: u64,
    /// The limit that applies: of all limits, the one that leaves the fewest bytes (`available`).
    pub limit: MemoryLimit,
}

impl fmt::Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryShortage { needed, available, limit } = self;
        write!(
            f,
            "it takes {} of memory and may take {}, which is 15/16 of the {} that {limit} has available: take a smaller capacity, smaller events or fewer workers and readers, ",
            Bytes(*needed),
            Bytes(usable(*available)),
            Bytes(*available)
        )?;
        match limit {
            MemoryLimit::Machine => f.write_str("end other programs, ")?,
            MemoryLimit::Group { .. } => f.write_str("raise the limit, ")?,
        }
        f.write_str("or have it built all the same (`allow_overcommit`)")
    }
}

debug_is_message!(MemoryShortage);

impl StdError for MemoryShortage {}

/// A number of bytes. It prints in the largest binary unit of which the number contains at least
/// one.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let Bytes(bytes) = *self;
        match (bytes.max(1).ilog2() / 10) as usize {
            0 => write!(f, "{bytes} bytes"),
            power => {
                let (unit, hundredths) = (10 * power, u128::from(bytes) * 100);
                let hundredths = hundredths >> unit;
                write!(f, "{}.{:02} {}", hundredths / 100, hundredths % 100, UNITS[power - 1])
            }
        }
    }
}

/// Returns the part of the available memory that a build may take.
fn usable(available: u64) -> u64 {
    available - available / RESERVE
}

/// Compares the need of a build, in bytes, with the memory that is available now.
///
/// If the need is 16 MiB or more, the call reads some files, which takes 10 µs for each file.
pub fn check(needed: u64) -> Result<(), MemoryShortage> {
    check_by(needed, &files::read)
}

/// Like [`check`], but with files whose text `read` returns.
fn check_by(needed: u64, read: Read<'_>) -> Result<(), MemoryShortage> {
    if needed < UNCHECKED {
        return Ok(());
    }
    match available(read) {
        Some((available, limit)) if needed > usable(available) => {
            Err(MemoryShortage { needed, available, limit })
        }
        _ => Ok(()),
    }
}

/// Returns the memory that is available, in bytes, and the limit that applies; `None` if no limit
/// is known (I1).
fn available(read: Read<'_>) -> Option<(u64, MemoryLimit)> {
    let machine = read("/proc/meminfo").and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.map(|kib| (kib.saturating_mul(1024), MemoryLimit::Machine));
    let groups = control_group::folders(&read("/proc/self/cgroup").unwrap_or_default(), "memory");
    let left = |(version, folder): (_, String)| Names::of(version).left(&folder, read);
    let groups = groups.into_iter().filter_map(left);
    machine.into_iter().chain(groups).min_by_key(|(bytes, _)| *bytes)
}

/// File names in one version of memory control groups.
struct Names {
    limits: &'static [&'static str],
    used: &'static str,
    /// Fields of `memory.stat` that count the cached files of the group and of all groups in it.
    cached: [&'static str; 2],
}

const VERSION_1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Names = Names {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cached: ["inactive_file", "active_file"],
};

impl Names {
    fn of(version: Version) -> Names {
        match version {
            Version::One => VERSION_1,
            Version::Two => VERSION_2,
        }
    }

    /// Returns the memory that a group's limit leaves, in bytes, or `None` if the group has no
    /// limit, or its files state no limit.
    fn left(self, folder: &str, read: Read<'_>) -> Option<(u64, MemoryLimit)> {
        let number = |name: &str| read(&format!("{folder}/{name}"))?.trim().parse::<u64>().ok();
        // If a group has no limit, version 2 says `max`, and version 1 gives a number near 2^63.
        let limits = self.limits.iter().filter_map(|&name| Some((number(name)?, name)));
        let (limit, name) = limits.filter(|(limit, _)| *limit < 1 << 62).min()?;
        let stat = read(&format!("{folder}/memory.stat")).unwrap_or_default();
        let cached = self.cached.into_iter().filter_map(|name| field(&stat, name));
        let used = number(self.used)?.saturating_sub(cached.sum());
        Some((limit.saturating_sub(used), MemoryLimit::Group { file: format!("{folder}/{name}") }))
    }
}

/// Returns the number that follows `name` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// Returns the available memory that [`available`] computes from files with these texts.
    fn available_by(files: &[(&str, &str)]) -> Option<(u64, MemoryLimit)> {
        available(&|path| texts(files, path))
    }

    fn texts(files: &[(&str, &str)], path: &str) -> Option<String> {
        files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    }

    fn group(file: &str) -> MemoryLimit {
        MemoryLimit::Group { file: file.to_owned() }
    }

    const MEMINFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       24684084 kB\nMemFree:        21734500 kB\nMemAvailable:   22814160 kB\n",
    );

    #[test]
    fn without_readings_nothing_is_refused() {
        let damaged = [
            ("/proc/meminfo", "MemAvailable: much kB"),
            ("/proc/self/cgroup", "0::/a\n0\nmemory\n7:memory:/b"),
            ("/sys/fs/cgroup/a/memory.max", "x"),
            ("/sys/fs/cgroup/memory/b/memory.limit_in_bytes", ""),
        ];
        for files in [&[][..], &damaged] {
            assert_eq!(available_by(files), None);
            assert_eq!(check_by(u64::MAX, &|path| texts(files, path)), Ok(()));
        }
        // Here the limit's file exists, but the file with the group's use of memory does not.
        let files = [damaged[1], ("/sys/fs/cgroup/a/memory.max", "1000")];
        assert_eq!(available_by(&files), None);
    }

    #[test]
    fn the_machine_s_memory_counts_without_groups_and_within_larger_ones() {
        let machine = Some((22_814_160 << 10, MemoryLimit::Machine));
        assert_eq!(available_by(&[MEMINFO]), machine);
        let unlimited = [
            MEMINFO,
            ("/proc/self/cgroup", "5:devices:/\n4:memory:/jobs/one\n0::/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1099511627776\n"),
            ("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "1000\n"),
        ];
        assert_eq!(available_by(&unlimited), machine);
    }

    #[test]
    fn the_group_that_leaves_least_counts_of_all_around_the_process() {
        // The middle group has the smallest limit, and the outer group has the least memory left.
        let files = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/outer/middle/own\n"),
            ("/sys/fs/cgroup/outer/memory.max", "4000000000\n"),
            ("/sys/fs/cgroup/outer/memory.high", "max\n"),
            ("/sys/fs/cgroup/outer/memory.current", "3900000000\n"),
            (
                "/sys/fs/cgroup/outer/memory.stat",
                "anon 1\ninactive_file 30000000\nactive_file 20000000\nslab 7\n",
            ),
            ("/sys/fs/cgroup/outer/middle/memory.max", "1000000000\n"),
            ("/sys/fs/cgroup/outer/middle/memory.current", "1000\n"),
            ("/sys/fs/cgroup/outer/middle/own/memory.max", "max\n"),
            ("/sys/fs/cgroup/outer/middle/own/memory.current", "1000\n"),
        ];
        let outer = group("/sys/fs/cgroup/outer/memory.max");
        assert_eq!(available_by(&files), Some((150_000_000, outer)));
        // `memory.high` slows a group down long before `memory.max` ends it.
        let high = ("/sys/fs/cgroup/outer/middle/own/memory.high", "1000000");
        let own = group("/sys/fs/cgroup/outer/middle/own/memory.high");
        assert_eq!(available_by(&[&files[..], &[high]].concat()), Some((999_000, own)));
    }

    #[test]
    fn a_container_s_own_mount_and_controllers_mounted_together_count() {
        let mounted = [
            ("/proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "inactive_file 9\ntotal_inactive_file 400\ntotal_active_file 100",
            ),
        ];
        let file = group("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        assert_eq!(available_by(&mounted), Some((1500, file)));
        let together = [
            ("/proc/self/cgroup", "4:cpu,memory:/\n0::/../x\n"),
            ("/sys/fs/cgroup/cpu,memory/memory.limit_in_bytes", "5000"),
            ("/sys/fs/cgroup/cpu,memory/memory.usage_in_bytes", "6000"),
        ];
        let file = group("/sys/fs/cgroup/cpu,memory/memory.limit_in_bytes");
        assert_eq!(available_by(&together), Some((0, file)), "more is used than the limit");
    }

    #[test]
    fn a_sixteenth_stays_and_small_needs_read_nothing() {
        let read = |path: &str| texts(&[MEMINFO], path);
        let most = (22_814_160 << 10) / 16 * 15;
        assert_eq!(check_by(most, &read), Ok(()));
        let shortage = check_by(most + 1, &read).unwrap_err();
        assert_eq!((shortage.needed, shortage.available), (most + 1, 22_814_160 << 10));
        assert_eq!(shortage.limit, MemoryLimit::Machine);
        assert!(check_by(u64::MAX, &read).is_err());
        let none = |path: &str| texts(&[("/proc/meminfo", "MemAvailable: 0 kB")], path);
        assert!(check_by(UNCHECKED, &none).is_err());
        assert_eq!(check_by(UNCHECKED - 1, &|path| panic!("{path} was read")), Ok(()));
    }

    #[test]
    fn a_refusal_has_both_numbers_the_limit_and_the_word_to_insist() {
        let machine =
            MemoryShortage { needed: 256 << 30, available: 22 << 30, limit: MemoryLimit::Machine };
        assert_eq!(
            machine.to_string(),
            "it takes 256.00 GiB of memory and may take 20.62 GiB, which is 15/16 of the 22.00 GiB that the machine (MemAvailable of /proc/meminfo) has available: take a smaller capacity, smaller events or fewer workers and readers, end other programs, or have it built all the same (`allow_overcommit`)"
        );
        let limit = group("/sys/fs/cgroup/a/memory.max");
        let text = MemoryShortage { limit, ..machine }.to_string();
        assert!(text.contains("the control group (/sys/fs/cgroup/a/memory.max)"), "{text}");
        assert!(text.contains("raise the limit, or have it"), "{text}");
    }

    #[test]
    fn bytes_have_readable_units() {
        let text = |bytes| Bytes(bytes).to_string();
        assert_eq!([0, 1023].map(text), ["0 bytes", "1023 bytes"]);
        assert_eq!([1024, 1 << 20].map(text), ["1.00 KiB", "1.00 MiB"]);
        assert_eq!([(3 << 40) + (1 << 39), u64::MAX].map(text), ["3.50 TiB", "15.99 EiB"]);
    }
}
