//! Contenders in other languages. A program for each language runs beside this one, and answers one
//! request at a time, so its contenders run in the same rotation as all others.
//!
//! A program is built when a figure needs it, and starts at its first request. While it waits for a
//! request it uses no processor time. If a tool or library for a program is missing, its contenders
//! are left out.
//!
//! The threads of these contenders are pinned like all others: each to a core of its own, or all to
//! the first two cores. Two things differ from the contenders in Rust:
//!
//! - Each program measures the producer's or the handler's work by itself, because the same steps
//!   may take another time in its language.
//! - In Java, at least 10,000 events of a stream precede the timed ones, so that both sides run
//!   compiled code. In an open loop, these first events follow the same schedule.

mod build;
mod catalogue;
mod cpp;
mod java;
mod process;
mod request;

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

pub use catalogue::Producers;
use java::Jdk;
use process::Process;
use request::{Answer, Request, WarmUp};
pub use request::{Arrivals, Form, Work};

use super::StreamSpec;
use crate::measure::{Contender, Figure, Foreign, Size, Values};

/// A program in another language.
struct Program {
    /// Suffix of the names of the program's contenders, such as `Java 25`.
    suffix: String,
    language: Language,
    /// The built program. It is unset before [`Programs::prepare`], and stays unset if the program
    /// cannot be built.
    built: OnceCell<Built>,
    /// The running program; `None` before the first request.
    process: RefCell<Option<Process>>,
}

enum Language {
    /// The JDK, or the reason why it cannot be used.
    Java(Result<Jdk, String>),
    Cpp,
}

enum Built {
    /// Directory of the jars.
    Java(PathBuf),
    Cpp(cpp::Built),
}

impl Program {
    fn new(suffix: String, language: Language) -> Rc<Self> {
        Rc::new(Program { suffix, language, built: OnceCell::new(), process: RefCell::new(None) })
    }

    fn language(&self) -> &'static str {
        match self.language {
            Language::Java(_) => "Java",
            Language::Cpp => "C++",
        }
    }

    fn jdk(&self) -> Option<Jdk> {
        match &self.language {
            Language::Java(jdk) => jdk.as_ref().ok().cloned(),
            Language::Cpp => None,
        }
    }

    /// Describes the program's runtime or compiler, for the head of the output.
    fn about(&self) -> Option<String> {
        match (&self.language, self.built.get()?) {
            (Language::Java(Ok(jdk)), Built::Java(_)) => Some(jdk.about()),
            (_, Built::Cpp(built)) => Some(built.about.clone()),
            _ => None,
        }
    }

    /// Runs a request; starts the program if it is not running.
    fn ask(&self, request: Request) -> Result<Answer, String> {
        let command = match (&self.language, self.built.get()) {
            (Language::Java(Ok(jdk)), Some(Built::Java(output))) => jdk.command(output),
            (Language::Cpp, Some(Built::Cpp(built))) => built.command(),
            _ => return Err("its program is not built".to_owned()),
        };
        let mut running = self.process.borrow_mut();
        let mut process = match running.take() {
            Some(process) => process,
            None => Process::start(command)?,
        };
        let answer = process.ask(&request.to_string());
        *running = Some(process);
        Answer::parse(&answer?)
    }
}

/// The programs in other languages, whether or not they run.
pub struct Programs {
    programs: Vec<Rc<Program>>,
    warm_up: WarmUp,
}

impl Programs {
    /// Finds the JDKs in `homes`, or the installed JDK if `homes` is empty. Starts and builds
    /// nothing.
    pub fn find(homes: &[PathBuf], size: Size) -> Self {
        let jdks = java::find(homes);
        // Finds the shortest name that no other JDK has.
        let suffix = |jdk: &Jdk| {
            let names = |jdk: &Jdk| [format!("Java {}", jdk.major), jdk.about(), jdk.place()];
            let unique = |at: usize, name: &str| {
                jdks.iter().flatten().filter(|other| names(other)[at] == name).count() == 1
            };
            let mut all = names(jdk).into_iter().enumerate();
            all.find(|(at, name)| unique(*at, name)).map_or_else(|| jdk.place(), |(_, name)| name)
        };
        let mut programs: Vec<_> = jdks
            .iter()
            .map(|jdk| {
                let suffix = jdk.as_ref().map_or_else(|_| "Java".to_owned(), suffix);
                Program::new(suffix, Language::Java(jdk.clone()))
            })
            .collect();
        programs.push(Program::new("C++".to_owned(), Language::Cpp));
        Programs { programs, warm_up: WarmUp::new(size) }
    }

    /// Makes the contenders of a figure.
    ///
    /// `work` returns the figure's work. Its argument says whether the contender is slow.
    /// `overhead` asks for the time beyond the work itself, as in a figure with a baseline.
    pub fn contenders(
        &self,
        producers: Producers,
        overhead: bool,
        work: impl Fn(bool) -> Work,
    ) -> Vec<Contender> {
        let entries = |language: &Language| match language {
            Language::Java(_) => catalogue::java(&work(false), producers),
            Language::Cpp => catalogue::cpp(&work(false), producers),
        };
        self.named(entries, overhead, &work)
    }

    /// Makes the contenders of a figure of rings between processes. `overhead` is as in
    /// [`Programs::contenders`].
    pub fn between_processes(&self, overhead: bool, work: Work) -> Vec<Contender> {
        let entries = |language: &Language| match language {
            Language::Java(_) => catalogue::java_between_processes(),
            Language::Cpp => Vec::new(),
        };
        self.named(entries, overhead, |_| work)
    }

    fn named(
        &self,
        entries: impl Fn(&Language) -> Vec<catalogue::Entry>,
        overhead: bool,
        work: impl Fn(bool) -> Work,
    ) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for (index, program) in self.programs.iter().enumerate() {
            for (id, name) in entries(&program.language) {
                let foreign = Foreign { program: index, id, built_with: None };
                let request = Request {
                    contender: id,
                    work: work(catalogue::is_slow(id)),
                    warm_up: self.warm_up,
                };
                let asked = program.clone();
                contenders.push(Contender::foreign(
                    format!("{name}, {}", program.suffix),
                    foreign,
                    move || -> Result<Values, String> {
                        asked.ask(request).map(|answer| answer.values(overhead))
                    },
                ));
            }
        }
        contenders
    }

    /// Returns contenders for a stream from one thread to another whose producer works between two
    /// publications.
    pub fn streams(&self, producers: Producers, spec: StreamSpec) -> Vec<Contender> {
        self.contenders(producers, spec.steps != 0, |_| Work::Stream(spec))
    }

    /// Builds the programs that the figures need, and removes the contenders that cannot run.
    pub fn prepare(&self, figures: &mut Vec<Figure>) -> Prepared {
        let mut wanted: Vec<usize> = Vec::new();
        let all = figures.iter().flat_map(|figure| &figure.contenders);
        for Foreign { program, .. } in all.filter_map(|contender| contender.foreign.as_ref()) {
            if !wanted.contains(program) {
                wanted.push(*program);
            }
        }
        let wanted: Vec<&Program> =
            wanted.into_iter().map(|index| &*self.programs[index]).collect();
        let mut skipped = Vec::new();
        let mut skip = |language: &str, reason: &str| {
            // A tool may report several lines, and the reason takes only one.
            let reason = reason.replace('\n', " ");
            let line = format!("skipping contenders in {language}: {reason}");
            if !skipped.contains(&line) {
                skipped.push(line);
            }
        };
        // One build serves all JDKs.
        let jdks: Vec<Jdk> = wanted.iter().filter_map(|program| program.jdk()).collect();
        let jars = (!jdks.is_empty()).then(|| java::build(&jdks));
        for program in &wanted {
            let built = match (&program.language, &jars) {
                (Language::Java(Err(reason)), _) => Err(reason.clone()),
                (Language::Java(Ok(_)), Some(jars)) => jars.clone().map(Built::Java),
                (Language::Java(Ok(_)), None) => Err("it is not built".to_owned()),
                (Language::Cpp, _) => cpp::build().map(Built::Cpp),
            };
            match built {
                Ok(built) => drop(program.built.set(built)),
                Err(reason) => skip(program.language(), &reason),
            }
        }
        for figure in figures.iter_mut() {
            figure.contenders.retain_mut(|contender| {
                let Some(foreign) = &mut contender.foreign else { return true };
                let program = &self.programs[foreign.program];
                foreign.built_with = program.about();
                match program.built.get() {
                    None => false,
                    Some(Built::Java(_)) => true,
                    Some(Built::Cpp(built)) => {
                        let missing = built.missing(foreign.id);
                        missing.iter().for_each(|reason| skip(program.language(), reason));
                        missing.is_none()
                    }
                }
            });
        }
        figures.retain(|figure| !figure.contenders.is_empty());
        let versions = wanted.iter().filter_map(|program| program.about()).collect();
        Prepared { skipped, versions }
    }
}

/// The result of the preparation.
pub struct Prepared {
    /// A line for each reason to leave contenders out: what is missing, and what to install.
    pub skipped: Vec<String>,
    /// Versions of the runtimes and compilers.
    pub versions: Vec<String>,
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::measure::measure;

    /// Returns a figure whose contenders in C++ run `program` instead of their own.
    fn figure(program: &str) -> Figure {
        let programs = Programs {
            programs: vec![Program::new("C++".to_owned(), Language::Cpp)],
            warm_up: WarmUp::new(Size::Smoke),
        };
        let built = Built::Cpp(cpp::Built::stand_in(program));
        assert!(programs.programs[0].built.set(built).is_ok());
        let work = |_| Work::RoundTrip { rounds: 1 };
        Figure {
            table: "round trip".to_owned(),
            column: "ns".to_owned(),
            baseline: None,
            contenders: programs.contenders(Producers::One, false, work),
        }
    }

    #[test]
    fn a_program_that_dies_or_fails_ends_the_run_and_the_message_names_the_contender() {
        // `true` ends at once, and `cat` answers with the request itself.
        for (program, part) in [("true", "ended early"), ("cat", "unknown answer")] {
            let error = measure(&[figure(program)], 1, |_, _, _| ()).err().unwrap();
            assert!(error.starts_with("round trip, ns: Boost spsc_queue, C++: "), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }
}
