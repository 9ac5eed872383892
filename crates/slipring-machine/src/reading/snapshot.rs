//! A snapshot: one text with all the files from which a machine's description is read.
//!
//! A line is `path: content`. The path is relative to the root. `[0-3,8]` in a path stands for one
//! file for each of these numbers, all with this content. In the content, `\n`, `\t` and `\\` stand
//! for a line break, a tab and a backslash. Empty lines and lines that begin with `#` mean nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path};
use std::str::FromStr;

use crate::description::cpu_set::{CpuSet, shortened};

/// Greatest number of files in a snapshot. A machine with 8192 CPUs has fewer.
const MOST_FILES: usize = 1 << 19;
/// Largest size of all files together, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// The files that [`Machine`](crate::Machine) reads, as they were on one machine at one moment. On
/// any other machine, a snapshot yields the same description.
///
/// ```
/// use slipring_machine::{Machine, Snapshot};
///
/// let text = "# a machine of two cores\n\
///     sys/devices/system/cpu/online: 0-1\n\
///     sys/devices/system/cpu/cpu[0-1]/topology/physical_package_id: 0\n";
/// let snapshot: Snapshot = text.parse()?;
/// assert_eq!(snapshot.len(), 3);
/// assert_eq!(Machine::from_snapshot(&snapshot)?.cores().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<String, String>,
}

impl Snapshot {
    /// Makes a snapshot of these files. A file whose path does not fit into a line is left out:
    /// control groups may have any name.
    pub(crate) fn new(mut files: BTreeMap<String, String>) -> Self {
        files.retain(|path, _| !path.contains(": ") && !path.contains(['[', '\n', '#']));
        Self { files }
    }

    /// Returns the number of files.
    ///
    /// Example: [`Snapshot`].
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether there are no files.
    ///
    /// ```
    /// assert!(slipring_machine::Snapshot::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the content of a file, by its path below the root.
    ///
    /// ```
    /// let snapshot: slipring_machine::Snapshot = "proc/version: Linux".parse()?;
    /// assert_eq!(snapshot.get("proc/version"), Some("Linux"));
    /// # Ok::<(), slipring_machine::SnapshotError>(())
    /// ```
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Writes each file below a folder, which must exist, and makes the folders in between.
    ///
    /// # Errors
    /// The system refuses to make a folder or a file. Some of the files may then already be
    /// written.
    ///
    /// ```
    /// use slipring_machine::{Machine, Snapshot};
    ///
    /// let folder = tempfile::tempdir()?;
    /// "sys/devices/system/cpu/online: 0-1".parse::<Snapshot>()?.unpack(folder.path())?;
    /// assert_eq!(Machine::below(folder.path())?.online().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unpack(&self, folder: &Path) -> io::Result<()> {
        for (path, content) in &self.files {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, format!("{content}\n"))?;
        }
        Ok(())
    }

    /// Returns the sorted names of a folder's entries.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let prefix = format!("{folder}/");
        let below = self.files.range(prefix.clone()..);
        let mut names: Vec<String> = below
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
            .collect();
        names.dedup();
        names
    }
}

impl fmt::Display for Snapshot {
    /// Writes a single line for files with the same content whose paths differ only in one number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.iter().map(|(path, content)| (path.clone(), content.as_str()));
        let mut lines: Vec<(String, &str)> = files.collect();
        for prefix in ["/cpu", "/index", "/node"] {
            lines = merged(lines, prefix);
        }
        for (path, content) in lines {
            writeln!(f, "{path}: {}", escaped(content))?;
        }
        Ok(())
    }
}

/// Merges paths of equal content that differ only in the number behind `prefix`. A merged path
/// stands where the first of its paths stood.
fn merged<'c>(lines: Vec<(String, &'c str)>, prefix: &str) -> Vec<(String, &'c str)> {
    let mut numbers: BTreeMap<(String, &str), (usize, CpuSet)> = BTreeMap::new();
    let mut merged = Vec::new();
    for (place, (path, content)) in lines.into_iter().enumerate() {
        match split_number(&path, prefix) {
            None => merged.push((place, path, content)),
            Some((before, number, after)) => {
                let template = format!("{before}\0{after}");
                let entry = numbers.entry((template, content)).or_insert((place, CpuSet::new()));
                entry.1.extend(&CpuSet::from_iter([number]));
            }
        }
    }
    for ((template, content), (place, set)) in numbers {
        let (before, after) = template.split_once('\0').unwrap_or((&template, ""));
        let set = if set.len() == 1 { set.to_string() } else { format!("[{set}]") };
        merged.push((place, format!("{before}{set}{after}"), content));
    }
    merged.sort_by_key(|(place, ..)| *place);
    merged.into_iter().map(|(_, path, content)| (path, content)).collect()
}

/// Finds a folder whose name is `prefix` and a number.
fn split_number<'p>(path: &'p str, prefix: &str) -> Option<(&'p str, usize, &'p str)> {
    path.match_indices(prefix).find_map(|(at, _)| {
        let (before, rest) = path.split_at(at + prefix.len());
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        // A number in another form, such as one with leading zeros, would be written back as a
        // different path.
        let number = number.parse().ok().filter(|n: &usize| n.to_string() == number)?;
        (after.starts_with('/') && number < CpuSet::LIMIT).then_some((before, number, after))
    })
}

fn escaped(content: &str) -> String {
    content.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t")
}

fn unescaped(text: &str) -> Option<String> {
    let mut content = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        content.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                't' => '\t',
                '\\' => '\\',
                _ => return None,
            },
            letter => letter,
        });
    }
    Some(content)
}

/// The error for a text that is not a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotError {
    line: usize,
    problem: String,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, problem } = self;
        write!(f, "line {line}: {problem}; a line of a machine's files is `path: content`")
    }
}

impl std::error::Error for SnapshotError {}

impl FromStr for Snapshot {
    type Err = SnapshotError;

    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        let (mut files, mut bytes) = (BTreeMap::new(), 0_usize);
        for (number, line) in (1..).zip(text.lines()) {
            let error = |problem: String| SnapshotError { line: number, problem };
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // In the line of an empty file, no space follows the colon, because the line's end was
            // trimmed.
            let (path, content) = line
                .split_once(": ")
                .or_else(|| line.strip_suffix(':').map(|path| (path, "")))
                .ok_or_else(|| error(format!("no path in `{}`", shortened(line).escape_debug())))?;
            let content = unescaped(content)
                .ok_or_else(|| error("a backslash without n, t or backslash behind it".into()))?;
            let paths = expanded(path).map_err(&error)?;
            if files.len() + paths.len() > MOST_FILES {
                return Err(error("too many files".into()));
            }
            bytes += paths.len().saturating_mul(content.len());
            if bytes > MOST_BYTES {
                return Err(error("too much content".into()));
            }
            files.extend(paths.into_iter().map(|path| (path, content.clone())));
        }
        Ok(Self { files })
    }
}

/// Returns the paths that a line stands for.
fn expanded(path: &str) -> Result<Vec<String>, String> {
    let plain = |path: &str| {
        !path.is_empty()
            && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
    };
    if !plain(path) {
        let shown = shortened(path);
        return Err(format!("`{}` is no path below a root", shown.escape_debug()));
    }
    let mut paths = vec![String::new()];
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once('[') {
        let (list, after) = behind.split_once(']').ok_or("a bracket that does not end")?;
        let numbers: CpuSet = list.parse().map_err(|error| format!("{error}"))?;
        if paths.len() * numbers.len() > MOST_FILES {
            return Err("too many files".into());
        }
        let each = |path: &String| -> Vec<String> {
            numbers.iter().map(|number| format!("{path}{before}{number}")).collect()
        };
        paths = paths.iter().flat_map(each).collect();
        rest = after;
    }
    paths.iter_mut().for_each(|path| path.push_str(rest));
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_written_as_it_is_read() {
        let text = "proc/self/status: Cpus_allowed_list:\\t0-3\\nback\\\\slash\n\
            sys/devices/system/cpu/cpu[0-1]/cache/index[0-2]/shared_cpu_list: 0-1\n\
            sys/devices/system/cpu/cpu0/topology/empty:\n\
            sys/devices/system/cpu/cpu[2-3]/cache/index0/level: 1\n";
        let snapshot: Snapshot = text.parse().unwrap();
        assert_eq!(snapshot.len(), 10);
        let status = "Cpus_allowed_list:\t0-3\nback\\slash";
        assert_eq!(snapshot.get("proc/self/status"), Some(status));
        assert_eq!(snapshot.get("sys/devices/system/cpu/cpu0/topology/empty"), Some(""));
        let written = snapshot.to_string();
        assert_eq!(written.lines().count(), 4, "{written}");
        assert!(written.contains("cpu[0-1]/cache/index[0-2]/shared_cpu_list: 0-1\n"), "{written}");
        assert_eq!(written.parse(), Ok(snapshot.clone()));
        let cpu = "sys/devices/system/cpu";
        assert_eq!(snapshot.names(cpu), ["cpu0", "cpu1", "cpu2", "cpu3"]);
        assert_eq!(snapshot.names("sys/devices/system/node"), [""; 0]);
    }

    #[test]
    fn what_is_no_snapshot_is_named_with_its_line() {
        let many = format!("a{}: 1", "[0-8191]".repeat(9));
        for (text, said) in [
            ("# fine\nnothing", "line 2: no path in `nothing`"),
            ("/etc/passwd: x", "`/etc/passwd` is no path below a root"),
            ("a/../../b: x", "is no path below a root"),
            ("a[0-1: x", "a bracket that does not end"),
            ("a[b]: x", "`b` is no number or range"),
            ("a: \\x", "a backslash without"),
            ("a: \\", "a backslash without"),
            (&many, "too many files"),
        ] {
            let error = text.parse::<Snapshot>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
