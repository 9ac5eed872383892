//! Attaching to a segment, leaving it, and probing other participants.
//!
//! Invariants
//! - I1: from `attach` to the drop, the mapping of a [`Participation`] holds byte `number` alone.
//!   No descriptor of that description is open, so the lock ends with the mapping and with nothing
//!   else.
//! - I2: between opening that description and closing it the process does not fork. So no child
//!   holds a copy of the descriptor.
//! - I3: the record of participant `number` is written only by the holder of byte `number`.
//! - I4: no lock is taken through the description `probe`. So a probe through it sees all locks,
//!   including this participant's own. Recoveries lock through a third description, `claims`, and
//!   no child keeps a copy of it. A participant opens all three descriptions when it attaches, and
//!   opens no descriptor later. So even a process that can open no more descriptors learns of
//!   deaths, and recovers the dead.
//! - I5: while byte 0 is held shared and the name refers to the file, no process unlinks the name.
//! - I6: before a process locks the byte of a dead participant, it probes the byte, and notes the
//!   death on the participant's seats ([`note_death`]). The note is needed because the participant
//!   does not look dead while the byte is locked. A producer that leaves meanwhile must still learn
//!   that no other producer stays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::geteuid;

use slipring::segment::{Seat, register_for_barriers};

use crate::errors::{FileProblem, Problem};
use crate::file::descriptor::{self, File, Rights};
use crate::file::mapping::Mapping;
use crate::file::name::AttachedName;
use crate::layout::records::ParticipantRecord;
use crate::layout::{Areas, Checked};
use crate::system::fork::{ForkGuard, UnsharedFd};
use crate::system::lock::{self, GUARD, Held, Hold};
use crate::system::machine::{self, Process, ProcessState};

/// Largest number of sleeps, of a millisecond each, while an attaching or removing process waits
/// for byte 0.
pub(crate) const NAPS: u32 = 1_000;

/// State of a participant's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// The place has no participant.
    Free,
    /// The byte is held: the participant is alive, even if it is stopped.
    Alive,
    /// The byte is free, and the participant has not left: it is dead, and not recovered yet.
    Dead,
    /// The byte is held, but not by the recorded process: the holder is a recoverer, a process that
    /// is attaching, or a child that was not made by `fork`. The participant does not count as
    /// dead.
    HeldByAnother,
    /// A process that only reads the file holds the byte, so the place cannot be recovered.
    HeldByReader,
}

impl Liveness {
    /// Derives a participant's liveness from the result of a probe and the record's words.
    pub(crate) fn of(held: Option<Held>, state: u64, process: &Process) -> Liveness {
        let attached = ParticipantRecord::unpack(state).1 != ParticipantRecord::FREE;
        match held.map(|held| held.hold) {
            None if attached => Liveness::Dead,
            None => Liveness::Free,
            Some(Hold::Shared) => Liveness::HeldByReader,
            Some(Hold::Alone) if attached && process.look() != ProcessState::Gone => {
                Liveness::Alive
            }
            Some(Hold::Alone) => Liveness::HeldByAnother,
        }
    }
}

/// An attached process.
#[derive(Debug)]
pub struct Participation {
    mapping: Mapping,
    checked: Checked,
    number: u32,
    probe: OwnedFd,
    /// Open file description through which recoveries lock bytes, one at a time (I4).
    claims: Mutex<UnsharedFd>,
    /// Name of the file, if it has one.
    name: Option<AttachedName>,
}

/// Result of [`attach`].
#[derive(Debug)]
pub enum Attempt {
    /// The process is attached.
    Attached(Arc<Participation>),
    /// The name no longer refers to the opened file: it refers to another file, or to none.
    Replaced,
}

/// Recovers the seats of a dead participant, and returns whether its place may be taken. The
/// arguments are the mapping, the checked head, the participant's number, and a descriptor to probe
/// other participants. The caller holds the participant's byte.
pub type Recover<'a> = &'a mut dyn FnMut(&Mapping, &Checked, u32, BorrowedFd<'_>) -> bool;

/// Attaches to the segment in `file`, whose head is `checked`. `path` is the file's path, if it has
/// one. `name` is the participant's name in reports.
///
pub fn attach(
    file: &File,
    path: Option<&Path>,
    checked: &Checked,
    name: &str,
    recover: Recover<'_>,
) -> Result<Attempt, Problem> {
    // Registering takes milliseconds in a process with threads, so it happens outside of the guard.
    let membarrier = register_for_barriers();
    step!("registered");
    let applicant = Applicant { file, path, checked, name, membarrier };
    for _ in 0..NAPS {
        match applicant.try_attach(recover)? {
            Some(Attempt::Attached(participation)) => {
                step!("attached");
                participation.mapping.populate()?;
                step!("populated");
                return Ok(Attempt::Attached(participation));
            }
            Some(Attempt::Replaced) => return Ok(Attempt::Replaced),
            // The thread sleeps outside of the guard, so that other threads may fork.
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(Problem::Busy)
}

/// The parameters of [`attach`], which describe the process that attaches.
struct Applicant<'a> {
    file: &'a File,
    path: Option<&'a Path>,
    checked: &'a Checked,
    name: &'a str,
    /// Whether the process has registered for membarriers.
    membarrier: bool,
}

impl Applicant<'_> {
    /// Tries to attach once. Returns `None` if a remover holds byte 0.
    fn try_attach(&self, recover: Recover<'_>) -> Result<Option<Attempt>, Problem> {
        let Applicant { file, path, checked, name, membarrier } = *self;
        // Reading `/proc` needs a descriptor for a moment, so `Process::this` runs before this
        // function opens its own descriptors.
        let process = Process::this();
        // 1. Keep other threads from forking until the end (I2).
        let guard =
            ForkGuard::enter().map_err(|error| Problem::system("watching for forks", error))?;
        // 2. Open a new description of the file, lock byte 0, and check the name.
        let own = file.reopen(path, Rights::Write)?;
        step!("opened");
        let fd = own.as_fd();
        let locking = |error| Problem::system("locking a byte of the file", error);
        if !lock::try_lock(fd, lock::byte(GUARD), Hold::Shared).map_err(locking)? {
            return Ok(None);
        }
        step!("guarded");
        if let Some(path) = path
            && !file.is_named(path)?
        {
            // The description has no mapping, so closing it unlocks byte 0.
            return Ok(Some(Attempt::Replaced));
        }
        step!("compared");
        // The file may have been shortened since its head was checked.
        let bytes = descriptor::length(fd)?;
        if bytes < checked.areas.length {
            return Err(FileProblem::TooShort { bytes, expected: checked.areas.length }.into());
        }
        // 3. Map the file. The mapping keeps the description.
        let mapping = Mapping::new(fd, checked.areas.length)?;
        // 4. Lock byte k, the proof of life. Byte 0 is unlocked explicitly, because the mapping
        //    would keep it.
        let number = take_place(&own, &mapping, checked, recover);
        step!("taken");
        lock::unlock(fd, lock::byte(GUARD)).map_err(locking)?;
        step!("unguarded");
        let number = number?;
        let probe = file.reopen(path, Rights::Read)?;
        drop(own);
        step!("closed");
        let claims = UnsharedFd::new(file.reopen(path, Rights::Write)?, &guard).into();
        // 5. Probe byte k through the other description (I4): the lock must have outlived the
        //    descriptor (I1).
        let held = lock::probe(probe.as_fd(), lock::byte(number)).map_err(locking)?;
        if held.is_none() {
            return Err(Problem::LocksLost);
        }
        let file_name = path.map(|path| AttachedName::new(path, file, &checked.header));
        let checked = checked.clone();
        let participation =
            Participation { mapping, checked, number, probe, claims, name: file_name };
        participation.register(name, membarrier, &process);
        Ok(Some(Attempt::Attached(Arc::new(participation))))
    }
}

/// Locks the byte of a free place. If there is none, locks the byte of a dead participant, which
/// `recover` recovers.
fn take_place(
    own: &OwnedFd,
    mapping: &Mapping,
    checked: &Checked,
    recover: Recover<'_>,
) -> Result<u32, Problem> {
    let fd = own.as_fd();
    let locking = |error| Problem::system("locking a byte of the file", error);
    let places = 1..=checked.shape.participants;
    let mut dead = Vec::new();
    let is_free = |number| {
        record(mapping, &checked.areas, number).is_some_and(|record| !record.is_attached())
    };
    for number in places {
        if !is_free(number) {
            dead.push(number); // or alive
        } else if lock::try_lock(fd, lock::byte(number), Hold::Alone).map_err(locking)? {
            if is_free(number) {
                return Ok(number);
            }
            // Another process took the place after the first check, and died.
            dead.push(number);
            lock::unlock(fd, lock::byte(number)).map_err(locking)?;
        }
    }
    let mut left = 0;
    for number in dead {
        let is_held = lock::probe(fd, lock::byte(number)).map_err(locking)?.is_some();
        if is_held {
            continue;
        }
        note_death(mapping, checked, number, fd); // I6
        if lock::try_lock(fd, lock::byte(number), Hold::Alone).map_err(locking)? {
            if is_free(number) || recover(mapping, checked, number, fd) {
                return Ok(number);
            }
            left += 1;
            lock::unlock(fd, lock::byte(number)).map_err(locking)?;
        }
    }
    Err(Problem::Full { participants: checked.shape.participants, dead: left })
}

/// If the byte of participant `number` is free, notes the participant's death on its seats (I6).
/// `fd` is a descriptor whose description does not hold the byte.
pub(crate) fn note_death(mapping: &Mapping, checked: &Checked, number: u32, fd: BorrowedFd<'_>) {
    let Some(record) = record(mapping, &checked.areas, number) else { return };
    let proof = || {
        let is_dead =
            record.is_attached() && matches!(lock::probe(fd, lock::byte(number)), Ok(None));
        is_dead.then(|| record.pid.load(Relaxed))
    };
    for index in 0..checked.areas.seats.count {
        if let Some(seat) = mapping.record::<Seat>(&checked.areas.seats, index) {
            seat.find_dead(number, proof);
        }
    }
}

/// Lends the record of a participant.
fn record<'a>(mapping: &'a Mapping, areas: &Areas, number: u32) -> Option<&'a ParticipantRecord> {
    mapping.record(&areas.participants, u64::from(number.checked_sub(1)?))
}

impl Participation {
    /// Writes the record of this participant (I3).
    fn register(&self, name: &str, membarrier: bool, process: &Process) {
        let Some(record) = record(&self.mapping, &self.checked.areas, self.number) else { return };
        record.pid.store(process.pid, Relaxed);
        record.uid.store(geteuid().as_raw(), Relaxed);
        record.start_time.store(process.start_time, Relaxed);
        record.pid_namespace.store(process.namespace, Relaxed);
        record.joined.store(machine::now(), Relaxed);
        record.flags.store(if membarrier { ParticipantRecord::MEMBARRIER } else { 0 }, Relaxed);
        record.name.store(name);
        record.attach();
    }

    /// Returns the number of this participant, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether the kernel registered this process for membarriers.
    pub(crate) fn has_membarrier(&self) -> bool {
        let flags = self.record(self.number).map_or(0, |record| record.flags.load(Relaxed));
        flags & ParticipantRecord::MEMBARRIER != 0
    }

    /// Returns the mapping, which stays while this value lives.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the checked head.
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    /// Returns the description for probes (I4).
    pub(crate) fn probe(&self) -> &OwnedFd {
        &self.probe
    }

    /// Returns the description through which recoveries lock bytes (I4).
    pub(crate) fn claims(&self) -> &Mutex<UnsharedFd> {
        &self.claims
    }

    /// Returns the path by which this process attached to the file, if it had one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.name().map(AttachedName::path)
    }

    /// Returns the name by which this process attached to the file, if it had one.
    pub(crate) fn name(&self) -> Option<&AttachedName> {
        self.name.as_ref()
    }

    /// Lends the record of participant `number`, or returns `None` if there is no such place.
    pub fn record(&self, number: u32) -> Option<&ParticipantRecord> {
        record(&self.mapping, &self.checked.areas, number)
    }

    /// Returns whether the byte of participant `number` is held. `false` proves that the
    /// participant is dead or has left. The call takes one system call of less than a microsecond.
    pub fn is_held(&self, number: u32) -> Result<bool, Problem> {
        match lock::probe(self.probe.as_fd(), lock::byte(number)) {
            Ok(held) => Ok(held.is_some()),
            Err(error) => Err(Problem::system("probing a byte of the file", error)),
        }
    }

    /// Returns what is known of participant `number`, for reports.
    pub fn liveness(&self, number: u32) -> Result<Liveness, Problem> {
        let Some(record) = self.record(number) else { return Ok(Liveness::Free) };
        let held = lock::probe(self.probe.as_fd(), lock::byte(number))
            .map_err(|error| Problem::system("probing a byte of the file", error))?;
        let process = Process {
            pid: record.pid.load(Relaxed),
            start_time: record.start_time.load(Relaxed),
            namespace: record.pid_namespace.load(Relaxed),
        };
        Ok(Liveness::of(held, record.load_state(), &process))
    }

    /// Marks the record of participant `number` as free. The caller holds the participant's byte
    /// (I3).
    pub(crate) fn free_record(&self, number: u32) {
        if let Some(record) = self.record(number) {
            record.free();
        }
    }
}

impl Drop for Participation {
    /// Leaves the segment. The record becomes free before the byte does, so no probe ever takes
    /// this participant for dead. In a forked child, dropping does nothing.
    fn drop(&mut self) {
        if self.mapping.is_ours() {
            step!("leaving");
            self.free_record(self.number);
            step!("left");
        }
    }
}
