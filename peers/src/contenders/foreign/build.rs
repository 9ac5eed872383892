//! The parts that the builds of all languages share: tools on the search path, and stamps of built
//! sources.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

/// Returns the directory of a language's sources.
pub fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(language)
}

/// Returns the directory for a language's output. It lies beside this program's output, so that it
/// follows `CARGO_TARGET_DIR`.
pub fn output(language: &str) -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).unwrap_or(Path::new("target"));
    Ok(target.join("foreign").join(language))
}

/// Finds a program on the search path.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns a number, as text, that changes if a file below `dir` or `tools` changes.
pub fn digest(dir: &Path, tools: &str) -> io::Result<String> {
    let mut files = Vec::new();
    collect(dir, &mut files)?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    tools.hash(&mut hasher);
    for file in files {
        file.strip_prefix(dir).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            files.push(entry.path());
        } else if entry.file_name() != "target" {
            collect(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// Runs `build` unless the output has this digest. The stamp of an older build is removed first, so
/// that a failed build leaves none.
pub fn unless_current(
    output: &Path,
    digest: &str,
    build: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let stamp = output.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|old| old == digest) {
        return Ok(());
    }
    let written = |done: io::Result<()>| {
        done.map_err(|error| format!("cannot write to {}: {error}", output.display()))
    };
    written(fs::create_dir_all(output))?;
    if stamp.exists() {
        written(fs::remove_file(&stamp))?;
    }
    build()?;
    written(fs::write(&stamp, digest))
}

/// Runs a command without input. Returns its output, or its error output if it fails.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        // Maven writes its errors to standard output.
        Err(text(&output.stderr) + &text(&output.stdout))
    }
}

/// Returns the first line that contains `mark`. If there is none, returns the first line that is
/// not empty. Colour codes are removed.
pub fn telling_line(errors: &str, mark: &str) -> String {
    let plain = |line: &str| {
        let mut text = String::new();
        let mut parts = line.split('\x1b');
        text += parts.next().unwrap_or_default();
        for part in parts {
            text += part.split_once('m').map_or("", |(_, rest)| rest);
        }
        text.trim().to_owned()
    };
    let mut lines = errors.lines().map(plain).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_else(|| "it gives no reason".to_owned());
    if first.contains(mark) {
        return first;
    }
    lines.find(|line| line.contains(mark)).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_runs_once_for_the_same_digest() {
        let dir = env::temp_dir().join(format!("peers-stamp-{}", std::process::id()));
        let mut runs = 0;
        for digest in ["a", "a", "b", "b"] {
            unless_current(&dir, digest, || {
                runs += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(runs, 2);
        assert_eq!(
            unless_current(&dir, "c", || Err("broken".to_owned())),
            Err("broken".to_owned())
        );
        unless_current(&dir, "b", || {
            runs += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(runs, 3, "a failed build leaves no stamp");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_digest_of_sources_follows_the_tools() {
        let dir = sources("java");
        assert_eq!(digest(&dir, "a").unwrap(), digest(&dir, "a").unwrap());
        assert_ne!(digest(&dir, "a").unwrap(), digest(&dir, "b").unwrap());
    }

    #[test]
    fn the_telling_line_has_no_colours() {
        let errors = "\x1b[1mWARN\x1b[m old\n[\x1b[1;31mERROR\x1b[m] no network\nmore";
        assert_eq!(telling_line(errors, "ERROR"), "[ERROR] no network");
        assert_eq!(telling_line(errors, "absent"), "WARN old");
        assert_eq!(telling_line("", "ERROR"), "it gives no reason");
    }
}
