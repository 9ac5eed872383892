//! The command line of `cargo xtask`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::{deep, mutants, steps::Policy};

/// Help text about the limit on hangs.
const HANGS: &str = "\
A check has no limit on its total time. It is ended if it makes no progress for ten minutes: no test
ends, or no line is printed. Its report names the tests that were running. SLIPRING_TEST_LIMIT states
the seconds that a single test may take; the check's limit is ten minutes more if they exceed that.";

/// The project's own checks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_version_flag = true)]
#[command(after_help = HANGS)]
pub struct Cli {
    /// Warn about a missing tool instead of failing.
    #[arg(long, global = true)]
    pub allow_missing: bool,
    /// Stop at the first failure.
    #[arg(long, global = true)]
    pub fail_fast: bool,
    /// The check to run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// One check, or all of them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the checks that need a stable toolchain, or the tests of the named parts.
    Test(Test),
    /// Check lengths, labels of edges, imports between rooms, examples and forbidden words.
    Tidy,
    /// Print the structure of all crates in numbers, or the map of one crate.
    House(House),
    /// Print random paragraphs of comments and pages, each with its item's name.
    Paragraphs(Draw),
    /// Print random sentences of ARCHITECTURE.md.
    Claims(Draw),
    /// Check the formatting.
    Fmt,
    /// Run the lints.
    Clippy,
    /// Build the documentation; a broken link is an error.
    Doc,
    /// Run the unit, integration, documentation and compile-fail tests.
    Unit,
    /// Make the first change of `CONTRIBUTING.md` in a copy of the project.
    Contributing,
    /// Run every example program with a small amount of data.
    Examples,
    /// Check the machine code of a publication and of a release.
    Asm,
    /// Count the instructions of the hot paths under valgrind, and compare them with their budgets.
    Instructions {
        /// Write the counts as the new budgets.
        #[arg(long)]
        renew: bool,
    },
    /// Run the models of the memory orderings.
    Loom {
        /// Part of the names of the models to run; all of them by default.
        filter: Option<String>,
    },
    /// Run each test of a harness in a process of its own, as `loom` does.
    #[command(hide = true)]
    Each {
        /// The harness.
        program: PathBuf,
        /// Parts of the names of the tests to run; all of them by default.
        filters: Vec<OsString>,
    },
    /// Measure slipring beside its peers; `cargo xtask peers --help` lists the options.
    #[command(disable_help_flag = true)]
    Peers {
        /// The arguments of the measurement.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Count what slipring and its peers cost on virtual cores; unchanged peers need nightly.
    #[command(disable_help_flag = true)]
    Simulated {
        /// The arguments of the count.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Run random programs under random schedules; `cargo xtask explore --help` lists the options.
    #[command(disable_help_flag = true)]
    Explore {
        /// The arguments of the exploration.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Print the path and the version of a nats-server, which is installed if there is none.
    Nats {
        /// Another task instead.
        #[command(subcommand)]
        command: Option<Nats>,
    },
    /// Run the tests under Miri, over many schedules.
    Miri {
        /// The schedules and the tests.
        #[command(flatten)]
        seeds: Seeds,
        /// Parts of the names of the tests to run; all of them by default.
        filters: Vec<String>,
    },
    /// Run the tests under ThreadSanitizer.
    Tsan {
        /// Parts of the names of the tests to run; all of them by default.
        filters: Vec<String>,
    },
    /// Build with the oldest compiler that the manifest promises.
    Msrv,
    /// Run the slow tests.
    Soak {
        /// Parts of the names of the tests to run; all of them by default.
        filters: Vec<String>,
    },
    /// Weaken one ordering, drop one fence or exchange two statements: does a test notice?
    Mutants {
        /// Print the mutants without judging them.
        #[arg(long)]
        list: bool,
        /// The mutants.
        #[command(flatten)]
        options: Selection,
    },
}

/// The arguments of `test`.
#[derive(Debug, Args)]
pub struct Test {
    /// Parts to test: a source file, a test file, a model or a crate; everything by default.
    #[arg(value_name = "NAME", conflicts_with = "deep")]
    pub names: Vec<String>,
    /// Run msrv, soak, tsan, miri and mutants, too.
    #[arg(long)]
    pub deep: bool,
    /// The schedules of Miri.
    #[command(flatten, next_help_heading = "With --deep")]
    pub seeds: Seeds,
    /// The mutants.
    #[command(flatten)]
    pub mutants: Selection,
}

/// The arguments of `house`.
#[derive(Debug, Args)]
pub struct House {
    /// The folder of the crate whose rooms, floors and arrows are printed. Without it, only numbers
    /// are printed, for all crates.
    #[arg(value_name = "CRATE")]
    pub krate: Option<String>,
    /// The checkout to read; this one by default.
    #[arg(long, value_name = "FOLDER")]
    pub root: Option<PathBuf>,
}

/// The arguments of a random choice.
#[derive(Debug, Args)]
pub struct Draw {
    /// The seed; with equal files, equal seeds draw the same text.
    #[arg(long, value_name = "N")]
    pub seed: u64,
    /// The number that is drawn.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub count: usize,
}

/// The commands of `nats`.
#[derive(Debug, Subcommand)]
pub enum Nats {
    /// Run a server with JetStream until standard input ends, and print its URL.
    Run {
        /// Run a cluster of three servers instead, and print the URL of each.
        #[arg(long)]
        cluster: bool,
    },
}

/// The schedules of Miri.
#[derive(Debug, Args)]
pub struct Seeds {
    /// Number of schedules that Miri tries.
    #[arg(long, value_name = "N", default_value_t = deep::SEEDS)]
    pub seeds: u32,
}

/// The mutants to judge.
#[derive(Debug, Args)]
pub struct Selection {
    /// Judge only the mutants whose path or function contains one of these.
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Time that each test gets, in seconds; a multiple of its usual time by default.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u32>,
    /// Write a second copy of the report.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Selection {
    /// The options of a run.
    pub fn options(&self, list: bool) -> mutants::Options {
        let Self { only, limit, output } = self;
        let (only, output) = (only.clone(), output.clone());
        mutants::Options { only, list, output, limit: limit.map(u64::from) }
    }
}

impl Cli {
    /// Reads the arguments of the process.
    pub fn read(args: &[OsString]) -> clap::error::Result<Self> {
        let mut cli = Self::try_parse_from(args)?;
        let passed = match &mut cli.command {
            Some(Command::Peers { args }) => Some(("peers", args)),
            Some(Command::Simulated { args }) => Some(("simulated", args)),
            Some(Command::Explore { args }) => Some(("explore", args)),
            _ => None,
        };
        if let Some((name, passed)) = passed {
            // clap would drop a `--` and take flags that this program has, too, so the arguments
            // come from `args`.
            let begin = args.iter().position(|arg| arg == name);
            *passed = args[begin.map_or(args.len(), |at| at + 1)..].to_vec();
        }
        Ok(cli)
    }

    /// The text of `cargo xtask help`.
    pub fn help() -> String {
        Self::command().render_help().to_string()
    }

    /// A missing tool fails `--deep` and a check that was named; the everyday run only warns.
    pub fn policy(&self) -> Policy {
        let everyday = matches!(&self.command, Some(Command::Test(test)) if !test.deep);
        Policy { allow_missing: self.allow_missing || everyday, fail_fast: self.fail_fast }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> clap::error::Result<Cli> {
        let words = ["xtask"].into_iter().chain(line.split_whitespace());
        Cli::read(&words.map(OsString::from).collect::<Vec<_>>())
    }

    fn command(line: &str) -> Command {
        read(line).unwrap().command.unwrap()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::help().contains("mutants") && read("").unwrap().command.is_none());
    }

    #[test]
    fn command_lines_are_read() {
        let Command::Mutants { list, options } =
            command("mutants --only gating,stamp --list --limit 9 --output a.txt")
        else {
            panic!("another command")
        };
        let options = options.options(list);
        assert_eq!(
            (options.only.join(" ").as_str(), options.list, options.limit),
            ("gating stamp", true, Some(9))
        );
        let Command::Miri { seeds, filters } = command("miri --seeds 4 a b") else {
            panic!("another command")
        };
        assert_eq!((seeds.seeds, filters.len()), (4, 2));
        let Command::Test(test) = command("test --deep --seeds 3 --only a") else {
            panic!("another command")
        };
        assert!(test.deep && test.seeds.seeds == 3 && test.mutants.options(false).only == ["a"]);
    }

    #[test]
    fn misuse_is_told_from_help() {
        for wrong in [
            "miri --seeds x",
            "miri --seeds",
            "test --deeper",
            "test a --deep",
            "tidy --root .",
            "house --map",
            "tidy now",
            "nonsense",
        ] {
            assert_eq!(read(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        for help in ["help", "--help", "help tidy", "tidy --help"] {
            assert_eq!(read(help).unwrap_err().exit_code(), 0, "{help}");
        }
    }

    #[test]
    fn peers_gets_its_arguments_unchanged() {
        for line in [
            "peers --full --json a.json round",
            "peers -- a -- b",
            "peers --help",
            "peers --fail-fast --list",
            "peers",
            "peers peers",
        ] {
            let Command::Peers { args } = command(line) else { panic!("another command") };
            let words: Vec<&str> = line.split_whitespace().skip(1).collect();
            assert_eq!(args, words, "{line}");
        }
    }

    #[test]
    fn missing_tools_fail_a_check_by_name() {
        let allowed = |line| read(line).unwrap().policy().allow_missing;
        for line in ["test", "test ring", "test --deep --allow-missing", "--allow-missing miri"] {
            assert!(allowed(line), "{line}");
        }
        assert!(!allowed("test --deep") && !allowed("miri") && !allowed("clippy"));
        assert!(read("miri --fail-fast").unwrap().policy().fail_fast);
    }
}
