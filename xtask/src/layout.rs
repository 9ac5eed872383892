//! Where the project keeps the files that the checks know by name.

use std::path::Path;

/// The folder of the library's package.
pub const LIBRARY: &str = "crates/slipring";
/// The workspaces beside the main one, whose crates measure it.
pub const BESIDE: [&str; 5] =
    ["peers", "peers/instructions", "peers/simulated", "peers/simulated/unchanged", "peers/nats"];
/// The crates below `crates` that only other crates of the project call.
pub const INTERNAL: [&str; 3] =
    ["crates/slipring-exchange", "crates/slipring-nats-server", "crates/slipring-support"];
/// The crates whose rooms `ARCHITECTURE.md` names with their files.
pub const MAPPED: [&str; 2] = [LIBRARY, "crates/slipring-shm"];
/// The folder of the library's source.
pub const SOURCE: &str = "crates/slipring/src";
/// The page that explains every synchronisation edge.
pub const PROTOCOL: &str = "crates/slipring/src/PROTOCOL.md";
/// The page that describes segments to other languages.
pub const SEGMENT: &str = "crates/slipring-shm/SEGMENT.md";
/// The programs that once failed, and those that fail with a twin.
pub const CASES: [&str; 2] =
    ["crates/slipring-explore/regressions.jsonl", "crates/slipring-explore/twins.jsonl"];
/// The tests whose budgets catch planted defects.
pub const BUDGETS: &str = "crates/slipring-simulated/tests/budgets";
/// The tables of [`SEGMENT`] that the check compares with the code.
pub const SEGMENT_TABLES: [&str; 21] = [
    "layout: crates/slipring-shm/src/layout/head.rs Header",
    "layout: crates/slipring-shm/src/layout/head.rs StageRecord",
    "constants: crates/slipring-shm/src/system/limits.rs",
    "constants: crates/slipring-shm/src/layout/head.rs",
    "constants: crates/slipring/src/ring/stage.rs",
    "layout: crates/slipring-shm/src/layout/records.rs ParticipantRecord",
    "constants: crates/slipring-shm/src/layout/records.rs",
    "layout: crates/slipring/src/ring/seat.rs Seat",
    "constants: crates/slipring/src/ring/seat.rs",
    "layout: crates/slipring/src/ring/status.rs StatusWords",
    "layout: crates/slipring/src/ring/status.rs FailureRecord",
    "constants: crates/slipring/src/ring/status.rs",
    "layout: crates/slipring/src/wait/queue_state.rs QueueState",
    "constants: crates/slipring/src/wait/queue_state.rs",
    "constants: crates/slipring/src/wait/queue.rs",
    "layout: crates/slipring/src/ring/counters.rs Party",
    "constants: crates/slipring/src/ring/stamp.rs",
    "constants: crates/slipring/src/ring/words.rs",
    "constants: crates/slipring-shm/src/system/lock.rs",
    "constants: crates/slipring/src/consumer/worker.rs LANDMARK_BITS",
    "constants: crates/slipring/src/ring/membership.rs LEAVE NEXT_BADGE",
];
/// The folders whose tests wait for other threads.
pub const WAITING_TESTS: [&str; 5] = [
    "crates/slipring/tests",
    "crates/slipring-eventfd/tests",
    "crates/slipring-nats/tests",
    "crates/slipring-nats-server/tests",
    "crates/slipring-shm/tests",
];
/// The file of [`WAITING_TESTS`] whose tests wait for the compiler alone.
pub const COMPILING_TESTS: &str = "crates/slipring/tests/must_fail.rs";
/// The name of the module that chooses between the processor's and the model checker's atomics.
const ATOMICS: &str = "sync";
/// The file of the library that calls the operating system.
const SYSTEM: &str = "base/system.rs";
/// The name of the modules of edges; each inner module holds the operations of one edge.
pub const EDGES: &str = "edge";
/// The files of the wait queue, relative to [`SOURCE`]. No model sees their compiler fences.
const WAIT_QUEUE: [&str; 3] = ["wait/queue.rs", "wait/shared_queue.rs", "base/edge/announced.rs"];
/// Parts of the names of the wait queue's tests.
pub const WAIT_QUEUE_TESTS: &[&str] = &["queue_tests::", "queue_model::", "shared_queue"];

/// Returns whether `file` of the library belongs to the module of the atomics.
pub fn is_atomics(file: &Path) -> bool {
    is_module(file, ATOMICS)
}

/// Returns whether `file` of the library may name the standard library's threads, locks,
/// thread-locals and clock.
pub fn is_shim(file: &Path) -> bool {
    is_atomics(file) || file == Path::new(SYSTEM)
}

/// Returns whether `file` of the library belongs to a module of edges.
pub fn is_edges(file: &Path) -> bool {
    is_module(file, EDGES)
}

/// Returns whether `file` of the library belongs to the wait queue.
pub fn is_wait_queue(file: &Path) -> bool {
    WAIT_QUEUE.iter().any(|own| file == Path::new(own))
}

/// Returns whether `file` holds tests or models, judged by its path relative to the library's
/// source.
pub fn is_test_file(file: &Path) -> bool {
    file.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        ["tests", "loom", "model"].iter().any(|word| name.contains(word))
    })
}

/// Returns whether `file` is the module `name` or lies in its folder.
fn is_module(file: &Path, name: &str) -> bool {
    file.with_extension("").components().any(|part| part.as_os_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_in_any_room() {
        let atomics = |path: &str| is_atomics(Path::new(path));
        assert!(atomics("sync.rs") && atomics("base/sync.rs") && atomics("base/sync/fast.rs"));
        assert!(!atomics("asynchronous.rs") && !is_edges(Path::new("ring/edges.rs")));
        assert!(is_edges(Path::new("ring/edge.rs")) && is_edges(Path::new("base/edge/slot.rs")));
    }

    #[test]
    fn test_files_are_known_by_name() {
        for test in ["queue_tests.rs", "loom_models/tap.rs", "wait/queue_model/machine.rs"] {
            assert!(is_test_file(Path::new(test)), "{test}");
        }
        assert!(!is_test_file(Path::new("ring/slots.rs")));
    }
}
