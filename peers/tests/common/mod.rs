//! Directories that tests of contenders in other languages make.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Makes an empty directory.
pub fn empty(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Makes a home of Java 21 whose `bin/java` does nothing.
pub fn hollow_jdk(name: &str) -> PathBuf {
    let home = empty(name);
    fs::create_dir(home.join("bin")).unwrap();
    fs::write(home.join("bin/java"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(home.join("bin/java"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(home.join("release"), "JAVA_VERSION=\"21.0.1\"\n").unwrap();
    home
}
