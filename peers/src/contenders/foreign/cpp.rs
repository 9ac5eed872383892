//! The contenders written in C++, which a compiler on the search path builds.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build::{self, on_path, telling_line};

/// A library of which the contenders need only the headers.
struct Library {
    header: &'static str,
    /// Names, in requests, of the contenders that need this library.
    contenders: &'static [&'static str],
    /// Advice to a user who lacks the library, such as the package to install.
    advice: &'static str,
}

const LIBRARIES: [Library; 5] = [
    Library {
        header: "boost/lockfree/spsc_queue.hpp",
        contenders: &["boost"],
        advice: "install libboost-dev",
    },
    Library {
        header: "readerwriterqueue/readerwriterqueue.h",
        contenders: &["reader-writer"],
        advice: "install libreaderwriterqueue-dev",
    },
    Library {
        header: "readerwriterqueue/readerwritercircularbuffer.h",
        contenders: &["circular", "circular-blocking"],
        advice: "install libreaderwriterqueue-dev",
    },
    Library {
        header: "concurrentqueue/blockingconcurrentqueue.h",
        contenders: &["concurrent", "concurrent-two-threads", "concurrent-blocking"],
        advice: "install libconcurrentqueue-dev",
    },
    Library {
        header: "rigtorp/SPSCQueue.h",
        contenders: &["rigtorp"],
        advice: "install rigtorp's SPSCQueue and add its include directory to CPLUS_INCLUDE_PATH",
    },
];

/// The flags of every build. The builds are for the compiler's default processor, like the builds
/// of the contenders in Rust.
const FLAGS: [&str; 4] = ["-std=c++20", "-O3", "-DNDEBUG", "-pthread"];

/// The built contenders.
#[derive(Clone, Debug)]
pub struct Built {
    program: PathBuf,
    /// The compiler's own line about its version, and the flags.
    pub about: String,
    /// Headers that are missing.
    missing: Vec<&'static str>,
}

impl Built {
    /// Returns the command that runs the contenders.
    pub fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Makes a stand-in for the built contenders: it runs `program` instead.
    #[cfg(test)]
    pub fn stand_in(program: &str) -> Self {
        Built { program: program.into(), about: String::new(), missing: Vec::new() }
    }

    /// Returns the reason why a contender is left out, if it is.
    pub fn missing(&self, contender: &str) -> Option<String> {
        let mut libraries = LIBRARIES.iter();
        let library = libraries.find(|library| library.contenders.contains(&contender))?;
        let Library { header, advice, .. } = library;
        self.missing.contains(header).then(|| format!("<{header}> is missing; {advice}"))
    }
}

/// Finds the compiler: the one that `CXX` names, otherwise g++, otherwise clang++.
fn compiler() -> Result<PathBuf, String> {
    match env::var("CXX").ok().filter(|name| !name.is_empty()) {
        Some(name) => on_path(&name).ok_or(format!("CXX: `{name}` is not on the PATH")),
        None => on_path("g++")
            .or_else(|| on_path("clang++"))
            .ok_or("no g++ and no clang++ is on the PATH; install g++".to_owned()),
    }
}

/// Builds the contenders, unless they are current.
pub fn build() -> Result<Built, String> {
    let compiler = compiler()?;
    let version = build::run(Command::new(&compiler).arg("--version"));
    let version = version.map_err(|errors| {
        format!("{} does not state its version: {}", compiler.display(), telling_line(&errors, ""))
    })?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    let missing = missing(&compiler)?;
    let sources = build::sources("cpp");
    let readable = |error| format!("cannot read {}: {error}", sources.display());
    let output = build::output("cpp").map_err(readable)?;
    let tools = format!("{version} {FLAGS:?} {missing:?}");
    let digest = build::digest(&sources, &tools).map_err(readable)?;
    let program = output.join("peers-cpp");
    build::unless_current(&output, &digest, || {
        let mut command = Command::new(&compiler);
        command.args(FLAGS).arg("-o").arg(&program).arg(sources.join("main.cpp"));
        build::run(&mut command).map(drop).map_err(|errors| {
            format!("the build of peers/cpp fails: {}", telling_line(&errors, "error"))
        })
    })?;
    Ok(Built { program, about: format!("C++: {version}, {}", FLAGS.join(" ")), missing })
}

/// Returns the headers that the compiler does not find.
fn missing(compiler: &Path) -> Result<Vec<&'static str>, String> {
    let probe = LIBRARIES
        .map(|Library { header, .. }| format!("#if !__has_include(<{header}>)\n{header}\n#endif\n"))
        .concat();
    let mut command = Command::new(compiler);
    command.args(["-std=c++20", "-E", "-P", "-x", "c++", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| format!("{}: {error}", compiler.display());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(probe.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", compiler.display(), telling_line(&errors, "error")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let found = LIBRARIES.iter().map(|library| library.header);
    Ok(found.filter(|header| text.lines().any(|line| line.trim() == *header)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_header_names_its_package() {
        let missing = vec![LIBRARIES[0].header];
        let built = Built { missing, ..Built::stand_in("") };
        let reason = built.missing("boost").unwrap();
        assert_eq!(reason, "<boost/lockfree/spsc_queue.hpp> is missing; install libboost-dev");
        assert_eq!(built.missing("circular"), None);
    }
}
