//! The control groups of this process: where their files lie, and what they say about cores.
//!
//! Invariants
//! - I1: a limit whose file is absent or holds no number is unknown, and does not count. So on
//!   systems without these files there are no limits.

/// Returns the text of a file, or `None` if the file is absent or may not be read.
pub(crate) type Read<'r> = &'r dyn Fn(&str) -> Option<String>;

/// The two versions of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Returns the directories of this process's groups of a `controller`, and of the groups around
/// them. `membership` is the text of `/proc/self/cgroup`, which lists the groups. In a container,
/// the mounted directory may be the process's own group, while the listed path is that of the host.
/// In that case, only the mounted directory itself has files.
pub(crate) fn folders(membership: &str, controller: &str) -> Vec<(Version, String)> {
    let mut folders = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (version, mut folder) = match controllers {
            "" => (Version::Two, "/sys/fs/cgroup".to_owned()),
            names if names.split(',').any(|name| name == controller) => {
                (Version::One, format!("/sys/fs/cgroup/{names}"))
            }
            _ => continue,
        };
        folders.push((version, folder.clone()));
        // A process outside of its namespace's root has a path that begins with `..`.
        let parts = group.split('/').filter(|part| !part.is_empty());
        for part in parts.take_while(|part| *part != "..") {
            folder = format!("{folder}/{part}");
            folders.push((version, folder.clone()));
        }
    }
    folders
}

/// Returns the largest number of cores that threads of this process can use at the same time,
/// whatever their masks are: the least of the machine's cores, of the cores of each group around
/// the process, and of each group's quota of CPU time, in whole cores. Returns `None` if no limit
/// is known (I1). Reads some files, which takes 10 µs for each file.
pub(crate) fn most_cores() -> Option<usize> {
    most_cores_by(&files::read)
}

/// Like [`most_cores`], but with files whose text `read` returns.
fn most_cores_by(read: Read<'_>) -> Option<usize> {
    let cores = |path: &str| read(path).and_then(|list| count_list(&list));
    let membership = read("/proc/self/cgroup").unwrap_or_default();
    let sets = folders(&membership, "cpuset").into_iter().filter_map(|(version, folder)| {
        let name = match version {
            Version::One => "cpuset.effective_cpus",
            Version::Two => "cpuset.cpus.effective",
        };
        cores(&format!("{folder}/{name}"))
    });
    let quotas = folders(&membership, "cpu").into_iter().filter_map(|(version, folder)| {
        let text = |name: &str| read(&format!("{folder}/{name}"));
        let (quota, period) = match version {
            Version::One => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
            Version::Two => {
                let text = text("cpu.max")?;
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        // A group without a quota says `max` or -1.
        let [quota, period] = [quota, period].map(|number| number.trim().parse::<usize>().ok());
        Some(quota?.checked_div(period?)?.max(1))
    });
    cores("/sys/devices/system/cpu/online").into_iter().chain(sets).chain(quotas).min()
}

/// Returns the number of cores in a list such as `0-3,8`. Returns `None` if the text is no such
/// list, or an empty one.
fn count_list(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').map(count).try_fold(0usize, |sum, count| sum.checked_add(count?))
}

#[cfg(all(target_os = "linux", not(miri), not(slipring_loom)))]
pub(crate) mod files {
    pub(crate) fn read(path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(slipring_loom))))]
pub(crate) mod files {
    pub(crate) fn read(_: &str) -> Option<String> {
        None
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    fn most(files: &[(&str, &str)]) -> Option<usize> {
        let text = |path: &str| files.iter().find(|(name, _)| *name == path);
        most_cores_by(&|path| text(path).map(|(_, text)| (*text).to_owned()))
    }

    const ONLINE: (&str, &str) = ("/sys/devices/system/cpu/online", "0-11\n");

    #[test]
    fn without_readings_there_is_no_limit() {
        assert_eq!(most(&[]), None);
        let damaged = [
            ("/sys/devices/system/cpu/online", "all"),
            ("/proc/self/cgroup", "0::/a\n4:cpu:/b\n4\n"),
            ("/sys/fs/cgroup/a/cpu.max", "200000"),
            ("/sys/fs/cgroup/a/cpuset.cpus.effective", "\n"),
            ("/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "200000"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "0"),
        ];
        assert_eq!(most(&damaged), None);
        assert_eq!(most(&[ONLINE]), Some(12));
    }

    #[test]
    fn a_container_has_as_many_cores_as_its_quota_and_its_set_allow() {
        let two = [
            ONLINE,
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ];
        assert_eq!(most(&two), Some(2));
        let outer = [
            ONLINE,
            ("/proc/self/cgroup", "0::/pod/own\n"),
            ("/sys/fs/cgroup/pod/cpu.max", "350000 100000\n"),
            ("/sys/fs/cgroup/pod/own/cpu.max", "max 100000\n"),
        ];
        assert_eq!(most(&outer), Some(3));
        let set = ("/sys/fs/cgroup/pod/cpuset.cpus.effective", "1,4-4\n");
        assert_eq!(most(&[&outer[..], &[set]].concat()), Some(2));
        let half =
            [ONLINE, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/cpu.max", "50000 100000")];
        assert_eq!(most(&half), Some(1), "less than a core");
    }

    #[test]
    fn version_1_has_its_own_files() {
        let files = [
            ONLINE,
            ("/proc/self/cgroup", "5:cpuset:/a\n4:cpu,cpuacct:/a\n0::/\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "0-7\n"),
        ];
        assert_eq!(most(&files), Some(4));
        assert_eq!(most(&files[..2]), Some(12));
    }
}
