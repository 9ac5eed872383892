//! Building the library with one weakness and asking the models about it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{LIBRARY, sites::Mutant, source_folder};
use crate::{
    checks,
    command::{Call, Line, Running, Tally},
    workspace,
};

/// The unchanged library gets so much time.
const AT_MOST: Duration = Duration::from_secs(30 * 60);

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A model failed.
    Killed {
        /// The first model that failed.
        by: String,
    },
    /// All models passed.
    Survived,
    /// No model failed within the time, and not all passed.
    Timeout,
    /// The compiler would not have it.
    DoesNotBuild {
        /// The first error.
        error: String,
    },
}

impl Verdict {
    /// Whether a model noticed.
    pub fn is_killed(&self) -> bool {
        matches!(self, Self::Killed { .. })
    }

    /// The word for it in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Killed { .. } => "killed",
            Self::Survived => "survived",
            Self::Timeout => "timeout",
            Self::DoesNotBuild { .. } => "does-not-build",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { by } => write!(f, "killed by {by}"),
            Self::DoesNotBuild { error } => write!(f, "does not build: {error}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// The unchanged library.
pub struct Baseline {
    /// How many models there are.
    pub models: usize,
    /// How long they take.
    pub took: Duration,
}

/// A copy of the workspace in which one file at a time is weakened.
pub struct Judge {
    tree: PathBuf,
    build: PathBuf,
    models: String,
}

/// How a run of the models ended.
enum Ended {
    Passed(usize),
    Failed(String),
    OutOfTime,
}

impl Judge {
    /// Copies the workspace at `root` to a folder of its own below `scratch`.
    pub fn new(root: &Path, scratch: &Path, models: &str) -> Result<Self, String> {
        let tree = scratch.join("tree");
        workspace::copy(root, &tree).map_err(|error| format!("cannot copy the workspace: {error}"))?;
        Ok(Self { tree, build: scratch.join("build"), models: models.to_owned() })
    }

    /// The models of the unchanged library; they must pass, or no verdict means anything.
    pub fn baseline(&self) -> Result<Baseline, String> {
        let program = self.build().map_err(|error| format!("the unchanged library does not build:\n{error}"))?;
        let started = Instant::now();
        match self.ask(&program, AT_MOST)? {
            Ended::Passed(0) => Err(format!("there is no model: no unit test's path contains `{}`", self.models)),
            Ended::Passed(models) => Ok(Baseline { models, took: started.elapsed() }),
            Ended::Failed(model) => Err(format!("the model {model} fails on the unchanged library")),
            Ended::OutOfTime => Err(format!("the models of the unchanged library take longer than {AT_MOST:?}")),
        }
    }

    /// Judges one mutant, and leaves the copy as it was.
    pub fn judge(&self, mutant: &Mutant, limit: Duration) -> Result<Verdict, String> {
        let path = source_folder(&self.tree).join(&mutant.file);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let original = fs::read_to_string(&path).map_err(failed)?;
        fs::write(&path, mutant.apply(&original)).map_err(failed)?;
        let built = self.build();
        let verdict = match built {
            Err(error) => Ok(Verdict::DoesNotBuild { error: first_error(&error) }),
            Ok(program) => self.ask(&program, limit).map(|ended| match ended {
                Ended::Passed(_) => Verdict::Survived,
                Ended::Failed(by) => Verdict::Killed { by },
                Ended::OutOfTime => Verdict::Timeout,
            }),
        };
        fs::write(&path, original).map_err(failed)?;
        verdict
    }

    /// Builds the copy's models; returns the program, or what the compiler said.
    fn build(&self) -> Result<PathBuf, String> {
        let call = Call::cargo("test --release -p slipring --lib --no-run --color never")
            .target_dir(&self.build)
            .env("RUSTFLAGS", format!("{} --cap-lints warn", checks::LOOM))
            // Only the crate itself changes from mutant to mutant.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        let built = call.command(&self.tree).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        if !built.status.success() {
            return Err(said);
        }
        // "  Executable unittests src/lib.rs (/.../slipring-0123456789abcdef)"
        let line = said.lines().find(|line| line.trim_start().starts_with("Executable"));
        let path = line.and_then(|line| line.rsplit_once('(')).map(|(_, path)| PathBuf::from(path.trim_end_matches(')')));
        path.map(|path| self.tree.join(path)).ok_or(said)
    }

    /// Runs the models in `program` until the first fails, all have passed, or `limit` is over.
    ///
    /// Weakened twins expect to fail, and say nothing about a mutant: they are left out.
    fn ask(&self, program: &Path, limit: Duration) -> Result<Ended, String> {
        let mut command = Command::new(program);
        command.args([&self.models, "--skip", "twin", "--nocapture"]).current_dir(self.tree.join(LIBRARY));
        // Models do not count their executions then: fewer of them catch nothing.
        command.env("SLIPRING_MUTANT", "1").env("RUST_BACKTRACE", "0");
        let mut running = Running::start(command).map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let deadline = Some(Instant::now() + limit);
        let (mut tally, mut panicked) = (Tally::default(), None);
        loop {
            match running.line(deadline) {
                Line::Said(line) => {
                    tally.read(&line);
                    panicked = panicking_model(&line).map(str::to_owned).or(panicked);
                    if let Some(model) = failed_model(&line) {
                        return Ok(Ended::Failed(model.to_owned()));
                    }
                }
                Line::Late => return Ok(Ended::OutOfTime),
                Line::End => break,
            }
        }
        let status = running.status().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(Ended::Passed(tally.passed as usize));
        }
        // A model that panics once more while it unwinds takes the program with it.
        Ok(Ended::Failed(panicked.unwrap_or_else(|| format!("the end of the program: {status}"))))
    }
}

/// The model that `line` says has failed: `test gating::loom_lap ... FAILED`.
fn failed_model(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_prefix("test ")?.strip_suffix("FAILED")?;
    name.split_whitespace().next()
}

/// The model that `line` says has panicked: `thread 'gating::loom_lap' (17) panicked at ...`.
fn panicking_model(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix("thread '")?.split_once('\'')?;
    rest.contains(" panicked at ").then_some(name)
}

/// The first error in what the compiler said.
fn first_error(said: &str) -> String {
    said.lines().find(|line| line.starts_with("error")).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_models_are_recognised() {
        assert_eq!(failed_model("test gating::loom_lap ... FAILED\n"), Some("gating::loom_lap"));
        assert_eq!(failed_model("test gating::loom_lap - should panic ... FAILED"), Some("gating::loom_lap"));
        assert_eq!(failed_model("test gating::loom_lap ... ok"), None);
        assert_eq!(failed_model("test result: FAILED. 0 passed; 1 failed;"), None);
    }

    #[test]
    fn panicking_models_are_recognised() {
        assert_eq!(panicking_model("thread 'gating::loom_lap' (17) panicked at src/a.rs:1:2:\n"), Some("gating::loom_lap"));
        assert_eq!(panicking_model("thread 'gating::loom_lap' panicked at src/a.rs:1:2:"), Some("gating::loom_lap"));
        assert_eq!(panicking_model("thread 'main' has overflowed its stack"), None);
    }

    #[test]
    fn the_first_error_is_told() {
        assert_eq!(first_error("warning: a\nerror[E0425]: no `x`\nerror: b"), "error[E0425]: no `x`");
    }
}
