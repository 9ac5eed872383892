//! The workspace's root, its files, and a few facts from its manifests.
//!
//! The manifests are parsed by hand. Only six of their lines are needed, and for these `cargo
//! metadata` would build an index of all dependencies.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the workspace's root.
pub fn root() -> PathBuf {
    // `cargo run` sets the variable. If it is not set, the folder from which this program was built
    // is used.
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the folder that cargo builds into.
pub fn target() -> PathBuf {
    let named = env::var_os("CARGO_TARGET_DIR").or_else(|| env::var_os("CARGO_BUILD_TARGET_DIR"));
    root().join(named.unwrap_or_else(|| "target".into()))
}

/// Returns the project's files, relative to `root`, in sorted order. These are the files that git
/// tracks or would track; without git, they are all files outside of `target`.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let mut found = match git {
        // git lists no file in a folder that it ignores.
        Ok(listed) if listed.status.success() && !listed.stdout.is_empty() => {
            String::from_utf8_lossy(&listed.stdout)
                .split_terminator('\0')
                .map(PathBuf::from)
                .filter(|path| root.join(path).is_file())
                .collect()
        }
        _ => walk(root, root)?,
    };
    found.sort();
    found.dedup();
    Ok(found)
}

/// Returns a number that the last commit's files determine, or `None` without git.
pub fn number_of_files(root: &Path) -> Option<u64> {
    let git =
        Command::new("git").args(["rev-parse", "HEAD^{tree}"]).current_dir(root).output().ok()?;
    let digits = str::from_utf8(git.stdout.get(..12)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Returns all files below `folder`, relative to `root`, without `target` and `.git`.
fn walk(root: &Path, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !matches!(path.file_name().and_then(|name| name.to_str()), Some("target" | ".git")) {
                found.extend(walk(root, &path)?);
            }
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_path_buf());
        }
    }
    Ok(found)
}

/// Copies the project's files from `from` to `to`, and removes all other files there. Equal files
/// stay untouched, so that a build there stays warm.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let files = files(from)?;
    if to.exists() {
        for stale in walk(to, to)?.iter().filter(|path| files.binary_search(path).is_err()) {
            fs::remove_file(to.join(stale))?;
        }
    }
    for file in &files {
        let (content, copy) = (fs::read(from.join(file))?, to.join(file));
        if fs::read(&copy).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(copy, content)?;
    }
    Ok(())
}

/// Returns the minimum Rust version that the workspace's manifest states.
pub fn minimum_version(root: &Path) -> Option<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).ok()?;
    values(&manifest, "[workspace.package]", "rust-version").into_iter().next()
}

/// Returns the names of the example programs.
pub fn examples(root: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("examples/Cargo.toml")).unwrap_or_default();
    values(&manifest, "[[example]]", "name")
}

/// Returns the folders of the workspace's packages, relative to `root`.
pub fn members(root: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    listed(&manifest, "members")
}

/// Returns the name of the package in `folder`.
pub fn package(folder: &Path) -> Option<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    values(&manifest, "[package]", "name").into_iter().next()
}

/// Returns the strings in the list `key`.
fn listed(manifest: &str, key: &str) -> Vec<String> {
    let is_key = |rest: &&str| rest.trim_start().starts_with('=');
    let list = manifest
        .split('\n')
        .enumerate()
        .find_map(|(at, line)| line.trim_start().strip_prefix(key).filter(is_key).map(|_| at));
    let rest = manifest.split('\n').skip(list.unwrap_or(usize::MAX)).collect::<Vec<_>>().join("\n");
    let list = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let strings = list.map_or("", |(list, _)| list).split('"').skip(1).step_by(2);
    strings.map(str::to_owned).collect()
}

/// Returns the string values of `key` in every table that is opened by `header`.
fn values(manifest: &str, header: &str, key: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == header;
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            found.extend(value.split('"').nth(1).map(str::to_owned));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_manifests() {
        let manifest = "[package]\nname = \"p\"\n[[example]]\nname = \"a\" # first\npath = \"a.rs\"\n[[example]]\nname=\"b\"\n[lib]\nname = \"c\"\n";
        assert_eq!(values(manifest, "[[example]]", "name"), ["a", "b"]);
        assert_eq!(values(manifest, "[package]", "name"), ["p"]);
        let lists =
            "[workspace]\nmembers_not = [\"x\"]\nmembers = [\"a\",\n \"b/c\"]\nother = [\"d\"]";
        assert_eq!(listed(lists, "members"), ["a", "b/c"]);
        assert!(listed(lists, "none").is_empty());
        assert!(members(&root()).contains(&"xtask".to_owned()));
        assert_eq!(package(&root().join("xtask")).as_deref(), Some("xtask"));
        assert!(minimum_version(&root()).is_some_and(|version| version.starts_with("1.")));
    }

    #[test]
    fn the_project_lists_itself() {
        let files = files(&root()).unwrap();
        assert!(files.contains(&PathBuf::from("xtask/src/workspace.rs")));
        assert!(files.iter().all(|path| !path.starts_with("target")));
    }
}
