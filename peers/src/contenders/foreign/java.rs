//! JDKs, and the contenders written in Java, which Maven builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::build::{self, on_path, telling_line};

/// The oldest version that the contenders run on.
const OLDEST: u32 = 17;
/// Advice for a missing JDK.
const ADVICE: &str = "install a JDK of version 17 or newer and name it with JAVA_HOME or --java";

/// A JDK: the directory that holds its `bin`.
#[derive(Clone, Debug)]
pub struct Jdk {
    home: PathBuf,
    /// Version, such as `25.0.3`.
    pub version: String,
    /// First number of the version.
    pub major: u32,
    /// Vendor, as the JDK states it.
    vendor: String,
}

impl Jdk {
    /// Reads the version of the JDK in `home` without starting it. The error says what is missing.
    fn read(home: &Path) -> Result<Self, String> {
        if !home.join("bin/java").is_file() {
            return Err(format!("{} has no bin/java; {ADVICE}", home.display()));
        }
        let release = fs::read_to_string(home.join("release")).unwrap_or_default();
        let field = |name: &str| {
            let mut lines = release.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(unquoted)
        };
        let version = field("JAVA_VERSION")
            .ok_or_else(|| format!("{} does not state its version; {ADVICE}", home.display()))?;
        let major = version.split(['.', '-', '+']).next().and_then(|major| major.parse().ok());
        let major = major.unwrap_or(0);
        if major < OLDEST {
            return Err(format!("{} has Java {version}; {ADVICE}", home.display()));
        }
        let vendor = field("IMPLEMENTOR").unwrap_or_else(|| "unknown vendor".to_owned());
        Ok(Jdk { home: home.to_owned(), version, major, vendor })
    }

    /// Returns the numbers of the version, for comparisons.
    fn numbers(&self) -> Vec<u32> {
        let parts = self.version.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    }

    /// Returns the version and the vendor, for the head of the output.
    pub fn about(&self) -> String {
        format!("Java {} ({})", self.version, self.vendor)
    }

    /// Returns version and directory.
    pub fn place(&self) -> String {
        format!("Java {} in {}", self.version, self.home.display())
    }

    /// Returns the command that runs the contenders in `output`.
    pub fn command(&self, output: &Path) -> Command {
        let mut command = Command::new(self.home.join("bin/java"));
        // The serial collector has the cheapest stores of references, and no threads of its own.
        // The heap holds all events of a run, so no collection falls into a run.
        command.args(["-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData"]);
        command.arg("--enable-native-access=ALL-UNNAMED");
        command.arg("--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED");
        if self.major >= 23 {
            command.arg("--sun-misc-unsafe-memory-access=allow");
        }
        let classes = [output.join("host/host.jar"), output.join("host/lib/*")];
        // `join_paths` fails only if one of the paths contains the separator.
        command.arg("-cp").arg(env::join_paths(classes).unwrap_or_default());
        command.arg("slipring.peers.Main").arg(output);
        command
    }
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches('"').to_owned()
}

/// Returns the JDKs that the user names, otherwise the JDK of `JAVA_HOME`, otherwise the newest of
/// the JDK on the search path and those beside it. A home that is named twice counts once.
pub fn find(homes: &[PathBuf]) -> Vec<Result<Jdk, String>> {
    if !homes.is_empty() {
        let mut known = Vec::new();
        for home in homes {
            let path = home.canonicalize().unwrap_or_else(|_| home.clone());
            if !known.contains(&path) {
                known.push(path);
            }
        }
        return known.iter().map(|home| Jdk::read(home)).collect();
    }
    if let Some(home) = env::var_os("JAVA_HOME").filter(|home| !home.is_empty()) {
        let found = Jdk::read(Path::new(&home));
        return vec![found.map_err(|error| format!("JAVA_HOME: {error}"))];
    }
    // The search path may contain symbolic links, such as Debian's alternatives, that point to the
    // program in the JDK.
    let program = on_path("java").and_then(|java| java.canonicalize().ok());
    let home = program.as_deref().and_then(|java| java.parent()?.parent());
    vec![home.map_or_else(|| Err(format!("no `java` is on the PATH; {ADVICE}")), newest)]
}

/// Returns the newest of the JDK in `home` and the whole JDKs in the directories beside it, such as
/// those of `/usr/lib/jvm`. The error is that of `home`.
fn newest(home: &Path) -> Result<Jdk, String> {
    let beside = home.parent().and_then(|parent| fs::read_dir(parent).ok());
    let beside = beside.into_iter().flatten().flatten().map(|entry| entry.path());
    let whole = beside.filter(|home| home.join("bin/javac").is_file());
    let on_path = Jdk::read(home);
    // The JDK on the search path comes last, because the last one of equals is taken.
    let all = whole.filter_map(|home| Jdk::read(&home).ok()).chain(on_path.clone().ok());
    all.max_by_key(Jdk::numbers).map_or(on_path, Ok)
}

/// Builds the contenders, unless they are current. Returns the directory of the jars.
pub fn build(jdks: &[Jdk]) -> Result<PathBuf, String> {
    let maven = on_path("mvn").ok_or("`mvn` is not on the PATH; install Maven")?;
    let compiler = jdks
        .iter()
        .find(|jdk| jdk.home.join("bin/javac").is_file())
        .ok_or("the JDK has no bin/javac; install a whole JDK")?;
    let sources = build::sources("java");
    let readable = |error| format!("cannot read {}: {error}", sources.display());
    let output = build::output("java").map_err(readable)?;
    let digest = build::digest(&sources, "").map_err(readable)?;
    build::unless_current(&output, &digest, || {
        let package = |offline: bool| {
            let mut command = Command::new(&maven);
            command.args(["-q", "-B", "package"]).current_dir(&sources);
            command.args(offline.then_some("-o")).env("JAVA_HOME", &compiler.home);
            let mut target = std::ffi::OsString::from("-Dpeers.target=");
            target.push(&output);
            build::run(command.arg(target))
        };
        // Maven first works offline: that is quick, and the libraries are usually there.
        let built = package(true).or_else(|_| package(false));
        built.map(drop).map_err(|errors| {
            let line = telling_line(&errors, "ERROR");
            format!("`mvn package` fails in peers/java: {line}; it needs Maven Central once")
        })
    })?;
    Ok(output)
}

/// Returns the version of a library that Maven's project file states.
pub fn library_version(property: &str) -> &'static str {
    let project = include_str!("../../../java/pom.xml");
    let begin = format!("<{property}.version>");
    let version = project.split_once(&begin).and_then(|(_, rest)| rest.split_once('<'));
    version.map_or("", |(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a JDK's directory with these files and their contents.
    fn home(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let home = env::temp_dir().join(format!("peers-jdk-{name}-{}", std::process::id()));
        for (file, content) in files {
            let path = home.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        home
    }

    #[test]
    fn the_version_is_read_without_starting_the_jdk() {
        let release = "IMPLEMENTOR=\"A vendor\"\nJAVA_VERSION=\"25.0.3\"\n";
        let home = home("new", &[("bin/java", ""), ("release", release)]);
        let jdk = Jdk::read(&home).unwrap();
        assert_eq!((jdk.major, jdk.about()), (25, "Java 25.0.3 (A vendor)".to_owned()));
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_home_without_a_fitting_jdk_says_what_to_install() {
        let old = home("old", &[("bin/java", ""), ("release", "JAVA_VERSION=\"11.0.2\"")]);
        let empty = home("empty", &[("bin/java", "")]);
        for (home, part) in
            [(&old, "Java 11.0.2"), (&empty, "state its version"), (&old.join("no"), "no bin/java")]
        {
            let error = Jdk::read(home).unwrap_err();
            assert!(error.contains(part) && error.ends_with(ADVICE), "{error}");
        }
        fs::remove_dir_all(old).unwrap();
        fs::remove_dir_all(empty).unwrap();
    }

    #[test]
    fn the_newest_whole_jdk_beside_the_one_on_the_search_path_is_taken() {
        let version = |version: &str| format!("JAVA_VERSION=\"{version}\"");
        let (old, new, newer) = (version("17.0.15"), version("17.0.9"), version("25.0.3"));
        let all = home(
            "several",
            &[
                ("jdk-17/bin/java", ""),
                ("jdk-17/release", &old),
                ("older/bin/java", ""),
                ("older/bin/javac", ""),
                ("older/release", &new),
                ("without-compiler/bin/java", ""),
                ("without-compiler/release", &newer),
                ("no-jdk/file", ""),
            ],
        );
        let taken = || newest(&all.join("jdk-17")).unwrap();
        assert_eq!(taken().home, all.join("jdk-17"));
        fs::write(all.join("without-compiler/bin/javac"), "").unwrap();
        assert_eq!(taken().home, all.join("without-compiler"));
        assert_eq!(taken().major, 25);
        // A file of no use on the search path is named only if no other JDK can take its place.
        assert_eq!(newest(&all.join("no-jdk")).unwrap().major, 25);
        fs::remove_dir_all(all.join("without-compiler")).unwrap();
        fs::remove_dir_all(all.join("older")).unwrap();
        let error = newest(&all.join("no-jdk")).unwrap_err();
        assert!(error.contains("no bin/java"), "{error}");
        fs::remove_dir_all(all).unwrap();
    }

    #[test]
    fn every_library_has_a_version() {
        for property in ["lmax", "lmax3", "questdb", "jctools", "agrona", "aeron"] {
            assert!(library_version(property).contains('.'), "{property}");
        }
    }
}
