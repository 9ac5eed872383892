//! Faults. Whatever is killed, cut, held back or removed, each position is stored once and in
//! order.

mod common;
#[path = "faults/support.rs"]
mod support;

#[path = "faults/clusters.rs"]
mod clusters;
#[path = "faults/contents.rs"]
mod contents;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "faults/kills.rs"]
mod kills;
#[path = "faults/network.rs"]
mod network;
#[path = "faults/rings.rs"]
mod rings;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[path = "faults/roles.rs"]
mod roles;
#[path = "faults/servers.rs"]
mod servers;
#[path = "faults/singles.rs"]
mod singles;
#[path = "faults/takeovers.rs"]
mod takeovers;

/// The child processes of these tests run only this test. In the parent process the test does
/// nothing.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn plays_a_role() {
    let _watched = common::watched();
    roles::play();
}
