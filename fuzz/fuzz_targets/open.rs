//! `cargo +nightly fuzz run open` runs this target, whose work is in `bodies/open.rs`.
#![no_main]

#[path = "../bodies/open.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
