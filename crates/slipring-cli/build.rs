//! Tells the program which compiler it was built with, because records of measurements name the
//! compiler.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(compiler).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=SLIPRING_RUSTC={}", version.as_deref().unwrap_or("unknown rustc"));
}
