//! Runs the targets of `cargo fuzz` (the folder `fuzz`) without a fuzzer. Each target gets all
//! inputs of its corpus, and a bounded number of inputs that a generator with a fixed seed makes
//! from them.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::path::Path;

use common::watched;

#[path = "../../../fuzz/bodies/live.rs"]
mod live;
#[path = "../../../fuzz/bodies/open.rs"]
mod open;

/// Returns the inputs of a corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "the corpus of `{target}` is gone");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Makes a new input from other inputs.
fn mutated(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=input.len());
        match random.u8(..5) {
            0 => input.insert(at, random.u8(..)),
            1 if at < input.len() => _ = input.remove(at),
            2 if at < input.len() => input[at] = random.u8(..),
            3 if at < input.len() => input[at] ^= 1 << random.u32(..8),
            _ => {
                let other = &corpus[random.usize(..corpus.len())];
                let from = random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input.truncate(300);
    input
}

/// Runs a target, with fifty times as many inputs if `SLIPRING_SOAK=1` is set.
fn run(target: &str, body: fn(&[u8]), inputs: usize) {
    let corpus = corpus(target);
    corpus.iter().for_each(|input| body(input));
    let times = if std::env::var_os("SLIPRING_SOAK").is_some() { 50 } else { 1 };
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..inputs * times {
        let input = mutated(&corpus, &mut random);
        let run = std::panic::catch_unwind(|| body(&input));
        if let Err(panic) = run {
            eprintln!("input {number} of `{target}`: {input:?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn damaged_files_are_an_error_at_most() {
    let _watched = watched();
    run("open", open::run, 4_000);
}

#[test]
fn words_that_change_at_any_time_are_an_error_at_most() {
    let _watched = watched();
    run("live", live::run, 2_000);
}
