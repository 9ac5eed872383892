//! Reasons why a participant is not evicted.
//!
//! Invariants
//! - I1: [`EvictProblem::NotEnded`], [`EvictProblem::HeldByAnother`] and
//!   [`EvictProblem::HeldByReader`] may be returned after the signal. All others are returned
//!   before a signal is sent, and leave the process as it was.

use std::time::Duration;

use super::texts;

/// Reason why a participant was not evicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvictProblem {
    /// No process has the place.
    #[error("no process has the place `{stage}`, so there is nothing to evict: start its program")]
    Free {
        /// Name of the stage, or `producer` for the producer.
        stage: String,
    },
    /// Several participants have places of the stage, and none was chosen.
    #[error(
        "several processes have places of `{stage}` ({}): choose one by its number (`--pid`)",
        texts::numbers(.pids)
    )]
    Several {
        /// Name of the stage, or `producer` for the producers.
        stage: String,
        /// Pids of the participants' processes, each in its own pid namespace.
        pids: Vec<u32>,
    },
    /// The chosen process has no place of the stage.
    #[error("process {pid} has no place of `{stage}`; these have: {}", texts::numbers(.pids))]
    Elsewhere {
        /// Name of the stage, or `producer` for the producers.
        stage: String,
        /// Pid of the chosen process.
        pid: u32,
        /// Pids of the processes that have a place, each in its own pid namespace.
        pids: Vec<u32>,
    },
    /// The place names a participant that the segment cannot have.
    #[error(
        "the place `{stage}` names participant {participant}, which the segment does not have: its words are damaged; end its processes, remove it and make it anew"
    )]
    Seat {
        /// Name of the stage, or `producer` for the producer.
        stage: String,
        /// Number of the participant that the place names.
        participant: u32,
    },
    /// The calling process itself has the place.
    #[error(
        "the place is that of the calling process, which does not kill itself: drop the handle instead"
    )]
    OwnProcess,
    /// The process belongs to another pid namespace.
    #[error(
        "process {pid} belongs to another pid namespace, where its number means another process than here: run `slipring evict` there, or end the process from its container"
    )]
    OtherNamespace {
        /// Pid of the process, in its own pid namespace.
        pid: u32,
    },
    /// Neither the participant's record nor `/proc` identifies the process for certain.
    #[error(
        "the start time or pid namespace of process {pid} is not known, so the number may mean another process by now: mount /proc for both programs, see that it has a descriptor left when it attaches, or end the process by hand"
    )]
    Unidentified {
        /// Pid of the process, as the record states it.
        pid: u32,
    },
    /// The recorded process is gone, but another process holds the participant's lock.
    #[error(
        "process {pid} of participant {participant} is gone, but another process holds its lock: a recoverer that is stopped, or a child that was not made by `fork`; find it (/proc/locks, `lsof`) and end it"
    )]
    HeldByAnother {
        /// Number of the participant.
        participant: u32,
        /// Pid of the process that is gone.
        pid: u32,
    },
    /// A process that only reads the file holds the participant's lock.
    #[error(
        "a process that only reads the file holds the lock of participant {participant}, and keeps the place from being recovered: find it (/proc/locks) and end it"
    )]
    HeldByReader {
        /// Number of the participant.
        participant: u32,
    },
    /// The place changed hands after it was inspected and before the kill. No process was
    /// signalled.
    #[error(
        "the process at `{stage}` has left or died since it was looked at, and no process was killed: look again (`slipring ls`)"
    )]
    Changed {
        /// Name of the stage, or `producer` for the producer.
        stage: String,
    },
    /// The calling process may not signal the process.
    #[error(
        "this user may not kill process {pid}, which acts for user {uid}: run `slipring evict` as that user or as root"
    )]
    NotPermitted {
        /// Number of the process.
        pid: u32,
        /// Effective user id of the process, as its record states it.
        uid: u32,
    },
    /// The kernel has no pidfds, and without one a signal could reach another process.
    #[error(
        "this kernel or sandbox has no pidfds (Linux 5.3), without which a signal may reach another process: end the process by hand"
    )]
    NoPidfd,
    /// The process has not ended in time after SIGKILL was sent to it.
    #[error(
        "process {pid} was sent SIGKILL and has not ended within {waited:?}: it writes a core dump, waits inside of the kernel, is held by a debugger, or is the first of its pid namespace; wait, and evict it again"
    )]
    NotEnded {
        /// Number of the process.
        pid: u32,
        /// Time that the caller allowed.
        waited: Duration,
    },
}
