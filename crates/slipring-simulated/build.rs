//! Chooses the simulator's backend of the library's `base/sync.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=slipring_coherence");
}
