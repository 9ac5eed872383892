//! `cargo +nightly fuzz run live` runs this target, whose work is in `bodies/live.rs`.
#![no_main]

#[path = "../bodies/live.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
