//! The work of the contenders in other languages: the figures that they join, and the results that
//! their checks refuse. A test whose tools are missing says so and checks nothing.
#![cfg(unix)]

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use common::{empty, hollow_jdk};

/// The requests to a foreign program. Each asks for 500 events, or for 50 if it is named `small`.
const REQUESTS: &str = "\
open one ring=64 events=500 gap=320 until=147717 steps=1 warm=0
open one ring=64 events=500 gap=320 until=147000 steps=1 warm=0
shape two-stages form=pipeline stages=2 ring=64 events=500 steps=0 handler_steps=1 warm=0
shape small form=pipeline stages=2 ring=64 events=50 steps=0 handler_steps=1 warm=0
pool three-threads ring=64 events=500 task=steps steps=1 warm=0
pool two-threads ring=64 events=500 task=steps steps=1 warm=0
pool small ring=64 events=50 task=steps steps=1 warm=0
";
/// Parts of the answers of a queue that damages event 100.
const ANSWERS: [&str; 7] = [
    "out of order or damaged",
    "the schedule ends at 147717 ns, not at 147000",
    "out of order or damaged",
    "ns ",
    "tasks lost, doubled or damaged",
    "tasks lost, doubled or damaged",
    "ns ",
];

/// A test whose runs build the contenders holds this lock: two builds at once would share their
/// output.
static BUILDS: Mutex<()> = Mutex::new(());

fn peers() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.stdin(Stdio::null());
    command
}

fn sources(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns whether a program states its version.
fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command that must succeed, with an input. Returns its output.
fn output(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that the answers to [`REQUESTS`] report the event that the queue damages.
fn refused(answers: &str) {
    assert_eq!(answers.lines().count(), ANSWERS.len(), "{answers}");
    for ((answer, part), request) in answers.lines().zip(ANSWERS).zip(REQUESTS.lines()) {
        assert!(answer.contains(part), "{request}: {answer}");
    }
}

/// Returns the contenders of a table's first figure in the output of `--list`.
fn contenders<'a>(list: &'a str, table: &str) -> Vec<&'a str> {
    let lines = list.lines().skip_while(|line| !line.starts_with(table));
    lines.skip(1).take_while(|line| line.starts_with(' ')).map(str::trim).collect()
}

#[test]
fn contenders_in_other_languages_join_the_busy_figures() {
    let home = hollow_jdk("jdk-of-a-list");
    let list = output(peers().args(["--list", "busy", "--java"]).arg(home), "");
    let expected: [(&str, &[&str]); 3] = [
        (
            "busy consumer, events at random times",
            &[
                "LMAX Disruptor 4.0.0, Java 21",
                "LMAX Disruptor 4.0.0, producer spins, Java 21",
                "QuestDB 9.3.4 RingQueue, Java 21",
                "JCTools 4.0.7 SpscArrayQueue, Java 21",
                "Agrona 2.6.0 OneToOneConcurrentArrayQueue, Java 21",
                "Agrona 2.6.0 OneToOneRingBuffer, Java 21",
                "Boost spsc_queue, C++",
                "rigtorp SPSCQueue, C++",
                "moodycamel ReaderWriterQueue, C++",
                "moodycamel BlockingReaderWriterCircularBuffer, C++",
                "moodycamel ConcurrentQueue, C++",
            ],
        ),
        (
            "busy pipeline of 2 on two cores",
            &[
                "LMAX Disruptor 4.0.0, yielding, Java 21",
                "LMAX Disruptor 4.0.0, yielding, producer yields, Java 21",
                "LMAX Disruptor 4.0.0, sleeping, Java 21",
                "LMAX Disruptor 4.0.0, blocking, Java 21",
                "QuestDB 9.3.4 RingQueue, yielding, Java 21",
                "JCTools 4.0.7 SpscArrayQueue, yielding, Java 21",
                "Agrona 2.6.0 OneToOneConcurrentArrayQueue, yielding, Java 21",
                "Agrona 2.6.0 OneToOneRingBuffer, yielding, Java 21",
                "LMAX Disruptor 4.0.0, first stage on the producer's thread, Java 21",
                "QuestDB 9.3.4 RingQueue, first stage on the producer's thread, Java 21",
                "Boost spsc_queue, yielding, C++",
                "rigtorp SPSCQueue, yielding, C++",
                "moodycamel ReaderWriterQueue, yielding, C++",
                "moodycamel BlockingReaderWriterCircularBuffer, blocking, C++",
                "moodycamel ConcurrentQueue, yielding, C++",
            ],
        ),
        (
            "busy pool of 2 on two cores",
            &[
                "LMAX Disruptor 3.4.4 WorkerPool, 3 threads, yielding, Java 21",
                "LMAX Disruptor 3.4.4 WorkerPool, 3 threads, yielding, producer yields, Java 21",
                "LMAX Disruptor 3.4.4 WorkerPool, 3 threads, sleeping, Java 21",
                "LMAX Disruptor 3.4.4 WorkerPool, 3 threads, blocking, Java 21",
                "QuestDB 9.3.4 RingQueue, MCSequence, 3 threads, yielding, Java 21",
                "QuestDB 9.3.4 RingQueue, MCSequence, producer's thread working too, Java 21",
                "JCTools 4.0.7 SpmcArrayQueue, 3 threads, yielding, Java 21",
                "JCTools 4.0.7 SpmcArrayQueue, producer's thread working too, Java 21",
                "JCTools 4.0.7 MpmcArrayQueue, 3 threads, yielding, Java 21",
                "JCTools 4.0.7 MpmcArrayQueue, producer's thread working too, Java 21",
                "Agrona 2.6.0 ManyToManyConcurrentArrayQueue, 3 threads, yielding, Java 21",
                "Agrona 2.6.0 ManyToManyConcurrentArrayQueue, producer's thread working too, \
                 Java 21",
                "moodycamel ConcurrentQueue, 3 threads, yielding, C++",
                "moodycamel ConcurrentQueue, producer's thread working too, C++",
                "moodycamel BlockingConcurrentQueue, 3 threads, blocking, C++",
            ],
        ),
    ];
    for (table, expected) in expected {
        let all = contenders(&list, table);
        assert_eq!(all[all.len() - expected.len()..], *expected, "{table}");
        let foreign = all.iter().filter(|name| name.ends_with("Java 21") || name.ends_with("C++"));
        assert_eq!(foreign.count(), expected.len(), "{table}: {all:?}");
    }
}

#[test]
fn each_contender_that_can_run_has_a_row_in_each_busy_figure() {
    let _alone = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
    let tables =
        ["random times, ring of 64", "pool of 2 on two cores", "pipeline of 2 on two cores"];
    let chosen = ["--only", "slipring, poll,slipring, 3 threads,slipring, blocking,Java,C++"];
    let run = |extra: &[&str]| {
        let output = peers().args(tables).args(chosen).args(extra).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let (text, skipped) = run(&["--smoke"]);
    let (list, _) = run(&["--list"]);
    for table in ["busy consumer, events at random times", "busy pool of 2", "busy pipeline of 2"] {
        let rows = text.split(&format!("### {table}")).nth(1).unwrap();
        for name in contenders(&list, table) {
            // The run leaves out a language whose tools are missing, and a queue whose header few
            // systems have. It reports each of these with a line.
            let language = if name.ends_with("C++") { "in C++" } else { "in Java" };
            let left_out = skipped.lines().any(|line| {
                let header = line.contains("<rigtorp/");
                line.contains(language) && (!header || name.starts_with("rigtorp"))
            });
            if name.starts_with("slipring") || !left_out {
                let row =
                    rows.contains(&format!("| {name} ")) || rows.contains(&format!("**{name}**"));
                assert!(row, "{table}: {name}\n{skipped}\n{text}");
            }
        }
    }
}

#[test]
fn a_queue_in_cpp_that_damages_an_event_is_refused() {
    let Some(compiler) = ["g++", "clang++"].into_iter().find(|name| runs(name)) else {
        return eprintln!("skipped: no g++ and no clang++ is on the PATH");
    };
    let program = empty("faulty-cpp").join("queue");
    let mut build = Command::new(compiler);
    build.args(["-std=c++20", "-O1", "-pthread", "-I"]).arg(sources("cpp"));
    output(build.arg("-o").arg(&program).arg(sources("tests/faulty/queue.cpp")), "");
    refused(&output(&mut Command::new(program), REQUESTS));
}

#[test]
fn a_queue_in_java_that_damages_an_event_is_refused() {
    let _alone = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
    // The run builds the jars.
    let built = peers().args(["--smoke", "round trip", "--only", "JCTools"]).output().unwrap();
    let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
    let tool = |name: &str| {
        home.as_ref().map_or(name.into(), |home| Path::new(home).join("bin").join(name))
    };
    let (javac, java): (PathBuf, PathBuf) = (tool("javac"), tool("java"));
    if !built.status.success() || !runs(&javac.to_string_lossy()) {
        return eprintln!("skipped: no JDK and Maven");
    }
    let program = Path::new(env!("CARGO_BIN_EXE_peers"));
    let jars = program.ancestors().nth(2).unwrap().join("foreign/java");
    let classes = empty("faulty-java");
    let all = ["host/host.jar", "host/lib/*", "rings/rings.jar", "rings/lib/*"];
    let path = all.map(|part| jars.join(part)).into_iter().chain([classes.clone()]);
    let path = std::env::join_paths(path).unwrap();
    let mut build = Command::new(javac);
    build.arg("-cp").arg(&path).arg("-d").arg(&classes);
    output(build.arg(sources("tests/faulty/FaultyQueue.java")), "");
    let mut run = Command::new(java);
    run.arg("-cp").arg(&path).arg("slipring.peers.rings.FaultyQueue");
    refused(&output(&mut run, REQUESTS));
}
