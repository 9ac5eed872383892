//! Tests of handles that use positions instead of leases, and of producers at a full ring.

#[path = "../common/mod.rs"]
mod common;

mod full_ring;
mod own_ring;
mod positions;
