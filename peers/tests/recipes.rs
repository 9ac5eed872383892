//! The incumbents beside the recipes print the same lines as the recipes do.
#![cfg(unix)]

#[allow(dead_code, reason = "each test file uses only some items")]
mod common;
#[path = "../../recipes/tests/promise/mod.rs"]
mod promise;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use promise::promised;

/// The recipes, each with its incumbent in Rust.
const PAIRS: &[(&str, &str)] = &[
    ("compression", "compression_pariter"),
    ("fan_out", "fan_out_tokio"),
    ("group_commit", "group_commit_condvar"),
    ("log_library", "log_library_crossbeam"),
    ("market_data", "market_data_iceoryx2"),
    ("request_answer", "request_answer_crossbeam"),
    ("telemetry_agent", "telemetry_agent_tokio"),
];

/// The recipes whose incumbent is written in Java.
const JAVA: &[(&str, &str)] = &[("dead_letters", "DeadLetters"), ("order_gateway", "OrderGateway")];

fn prints_as_promised(recipe: &str, program: &mut Command) {
    let output = program.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "beside {recipe}: {errors}");
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recipes");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        promised(&recipes, recipe),
        "{recipe}: {errors}"
    );
}

/// Returns the path of an incumbent. The first call builds all, because cargo does not build them
/// for a single test.
fn incumbent(name: &str) -> PathBuf {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--examples", "--target-dir"]);
        build.arg(profile.parent().unwrap());
        build.args(profile.ends_with("release").then_some("--release"));
        assert!(build.status().unwrap().success(), "cannot build the incumbents");
        profile.join("examples")
    });
    FOLDER.join(name)
}

#[test]
fn incumbents_do_the_same_work() {
    for (recipe, beside) in PAIRS {
        prints_as_promised(recipe, &mut Command::new(incumbent(beside)));
    }
}

#[test]
fn incumbents_in_java_do_the_same_work() {
    let has = |tool: &str| {
        Command::new(tool).arg("-version").output().is_ok_and(|out| out.status.success())
    };
    if !["java", "javac", "mvn"].into_iter().all(has) {
        return println!("skipping the incumbents in Java: install a JDK and Maven");
    }
    let output = common::empty("java-recipes");
    let package = |offline: Option<&str>| {
        let mut command = Command::new("mvn");
        command.args(["-q", "-B", "package", "-f", "java/recipes/pom.xml"]).args(offline);
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        command.arg(format!("-Dpeers.target={}", output.display())).output().unwrap()
    };
    // Maven first works offline: that is quick, and the libraries are usually there.
    let built = package(Some("-o"));
    let built = if built.status.success() { built } else { package(None) };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stdout));
    let classes = format!("{0}/recipes.jar:{0}/lib/*", output.join("recipes").display());
    for (recipe, class) in JAVA {
        prints_as_promised(recipe, Command::new("java").args(["-cp", &classes, class]));
    }
    // The program with which MIGRATING.md begins.
    let page = include_str!("../../crates/slipring/src/MIGRATING.md");
    let (_, block) = page.split_once("```java\n").expect("no program");
    let (program, _) = block.split_once("```\n").expect("the program has no end");
    let source = output.join("Prices.java");
    fs::write(&source, program).unwrap();
    let run = Command::new("java").args(["-cp", &classes]).arg(source).output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.stdout, b"1000 prices, total 499500\n", "{errors}");
}
