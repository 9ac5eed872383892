//! Reads the limit of processor time that control groups set.

use super::files::{Files, MachineError, quoted};
use crate::description::parts::Quota;

const MEMBERSHIP: &str = "proc/self/cgroup";
const GROUPS: &str = "sys/fs/cgroup";

/// Returns the smallest quota among the groups of this process and the groups around them. Both
/// versions of control groups are read.
pub fn read(files: &Files<'_>) -> Result<Option<Quota>, MachineError> {
    let membership = files.lines(MEMBERSHIP, matters)?.unwrap_or_default();
    let mut quotas = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(files.malformed(MEMBERSHIP, format!("{} is no group", quoted(line))));
        };
        if controllers.is_empty() {
            for folder in around(GROUPS, group) {
                quotas.extend(version_2(files, &format!("{folder}/cpu.max"))?);
            }
        } else if has_cpu(controllers) {
            // `cpu` is a link to the folder of all controllers that are mounted together.
            let mut mounts = vec![format!("{GROUPS}/{controllers}"), format!("{GROUPS}/cpu")];
            mounts.dedup();
            for folder in mounts.iter().flat_map(|mount| around(mount, group)) {
                quotas.extend(version_1(files, &folder)?);
            }
        }
    }
    // Compares a/b with c/d by comparing a*d with c*b, because products are exact, while a division
    // would round.
    let product =
        |one: &Quota, other: &Quota| u128::from(one.time_us) * u128::from(other.period_us);
    Ok(quotas.into_iter().min_by(|one, other| product(one, other).cmp(&product(other, one))))
}

/// Returns whether a line in the list of this process's control groups concerns processor time.
/// Returns `true` for a damaged line, so that [`read`] reports it.
fn matters(line: &str) -> bool {
    let controllers = line.split(':').nth(1);
    controllers.is_none_or(|names| names.is_empty() || has_cpu(names))
}

fn has_cpu(controllers: &str) -> bool {
    controllers.split(',').any(|name| name == "cpu")
}

/// Returns the folder of a group, and the folders of all groups around it up to the mount. In a
/// container, the mount may be the folder of the group itself, although the group's path is that of
/// the host.
fn around(mount: &str, group: &str) -> Vec<String> {
    let mut folders = vec![mount.to_owned()];
    let mut parts = group.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    // A process outside of its namespace's root has a path that begins with `..`.
    if parts.peek() == Some(&"..") {
        return folders;
    }
    for part in parts.take(64) {
        if part == ".." || part.contains('\0') {
            break;
        }
        let folder = format!("{}/{part}", folders.last().map_or(mount, String::as_str));
        folders.push(folder);
    }
    folders.reverse();
    folders
}

/// Reads `cpu.max`, which contains either `max 100000`, or a time and a period.
fn version_2(files: &Files<'_>, path: &str) -> Result<Option<Quota>, MachineError> {
    let Some(text) = files.text(path)? else { return Ok(None) };
    let mut words = text.split_ascii_whitespace();
    let (time, period) = (words.next(), words.next().unwrap_or("100000"));
    match time {
        Some("max") => Ok(None),
        Some(time) => quota(files, path, files.parse(path, time)?, files.parse(path, period)?),
        None => Err(files.malformed(path, "is empty".into())),
    }
}

/// Reads `cpu.cfs_quota_us`, which is -1 without a quota, and `cpu.cfs_period_us`.
fn version_1(files: &Files<'_>, folder: &str) -> Result<Option<Quota>, MachineError> {
    let path = format!("{folder}/cpu.cfs_quota_us");
    let Some(time) = files.number::<i64>(&path)? else { return Ok(None) };
    let Ok(time) = u64::try_from(time) else { return Ok(None) };
    let period = files.number(&format!("{folder}/cpu.cfs_period_us"))?.unwrap_or(100_000);
    quota(files, &path, time, period)
}

fn quota(
    files: &Files<'_>,
    path: &str,
    time_us: u64,
    period_us: u64,
) -> Result<Option<Quota>, MachineError> {
    if period_us == 0 {
        return Err(files.malformed(path, "has a period of 0".into()));
    }
    Ok(Some(Quota { time_us, period_us, file: files.path(path).display().to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::files::Source;

    fn quota_of(text: &str) -> Result<Option<(u64, u64, String)>, String> {
        let snapshot = text.parse().unwrap();
        let quota = read(&Files::new(Source::Snapshot(&snapshot)));
        let shown = |quota: Quota| (quota.time_us, quota.period_us, quota.file);
        quota.map(|quota| quota.map(shown)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_least_of_a_group_and_those_around_it_wins() {
        let text = "proc/self/cgroup: 0::/a/b/c\n\
            sys/fs/cgroup/a/cpu.max: 50000 20000\n\
            sys/fs/cgroup/a/b/cpu.max: 200000 100000\n\
            sys/fs/cgroup/a/b/c/cpu.max: max 100000\n";
        let file = "sys/fs/cgroup/a/b/cpu.max".to_owned();
        assert_eq!(quota_of(text), Ok(Some((200_000, 100_000, file))));
    }

    #[test]
    fn a_mount_that_is_the_group_itself_counts() {
        let text = "proc/self/cgroup: 4:cpu,cpuacct:/docker/abc\\n3:cpuset:/\n\
            sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us: 250000\n\
            sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us: 100000\n";
        let file = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us".to_owned();
        assert_eq!(quota_of(text), Ok(Some((250_000, 100_000, file))));
        let outside = "proc/self/cgroup: 0::/../../x\nsys/fs/cgroup/cpu.max: 1000 2000\n";
        let file = "sys/fs/cgroup/cpu.max".to_owned();
        assert_eq!(quota_of(outside), Ok(Some((1000, 2000, file))));
    }

    #[test]
    fn without_a_quota_there_is_none() {
        for text in [
            "a: b",
            "proc/self/cgroup: 0::/\nsys/fs/cgroup/cpu.max: max 100000",
            "proc/self/cgroup: 1:cpu:/\nsys/fs/cgroup/cpu/cpu.cfs_quota_us: -1",
            "proc/self/cgroup: 0::/x",
        ] {
            assert_eq!(quota_of(text), Ok(None));
        }
    }

    #[test]
    fn a_damaged_quota_is_named() {
        for (text, said) in [
            ("proc/self/cgroup: 0", "proc/self/cgroup: `0` is no group"),
            ("proc/self/cgroup: 0::/\nsys/fs/cgroup/cpu.max:", "cpu.max: is empty"),
            ("proc/self/cgroup: 0::/\nsys/fs/cgroup/cpu.max: x 1", "`x` is no such number"),
            ("proc/self/cgroup: 0::/\nsys/fs/cgroup/cpu.max: 1 0", "has a period of 0"),
        ] {
            let error = quota_of(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
