//! The claim by which a process becomes the recoverer of a dead participant.
//!
//! Invariants
//! - I1: a [`LockedByte`] holds the byte of a participant alone, on a description that holds no
//!   other byte, and no thread can fork while it lives. So the participant is dead, no other
//!   process or thread recovers it, and no child keeps the lock if this process dies.
//! - I2: the byte is unlocked explicitly before the description is closed or used again. So a copy
//!   of the descriptor, in a child that was made by other means than `fork`, does not keep the byte
//!   locked.
//!
//! A participant recovers others through a description that it opened when it attached, so it opens
//! no descriptor while it waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{MutexGuard, TryLockError};

use crate::attach::participant::{Participation, note_death};
use crate::errors::Problem;
use crate::layout::records::ParticipantRecord;
use crate::system::fork::{ForkGuard, OwnerProcess, UnsharedFd};
use crate::system::lock::{self, Hold};

/// The locked byte of a participant that is dead or has left (I1). A thread of this process that
/// calls `fork` waits until the value is dropped.
pub(crate) struct LockedByte<F: AsFd> {
    number: u32,
    own: F,
    owner: OwnerProcess,
    /// The last field, so that the guard is dropped only after the byte is unlocked and the
    /// descriptor is closed.
    _guard: ForkGuard,
}

impl<F: AsFd> LockedByte<F> {
    /// Locks byte `number` of the file. Returns `None` if another process or claim holds the byte.
    ///
    /// `own` returns the descriptor to lock with, or `None` if another claim uses it. The
    /// descriptor is writable, its description holds no lock, and no child has a copy of it. If the
    /// byte is free, the call runs `note`, which notes the death before the byte is locked
    /// (`participant::I6`). `note` gets the descriptor through which the byte will be locked.
    pub(crate) fn try_new(
        own: impl FnOnce() -> Result<Option<F>, Problem>,
        number: u32,
        note: impl FnOnce(BorrowedFd<'_>) -> Result<(), Problem>,
    ) -> Result<Option<LockedByte<F>>, Problem> {
        let guard =
            ForkGuard::enter().map_err(|error| Problem::system("watching for forks", error))?;
        let Some(own) = own()? else { return Ok(None) };
        step!("claim-opened");
        let owner = OwnerProcess::this();
        match lock::probe(own.as_fd(), lock::byte(number)) {
            Ok(None) => note(own.as_fd())?,
            Ok(Some(_)) => return Ok(None),
            Err(error) => return Err(Problem::system("probing a byte of the file", error)),
        }
        step!("claim-noted");
        match lock::try_lock(own.as_fd(), lock::byte(number), Hold::Alone) {
            Ok(true) => Ok(Some(LockedByte { number, own, owner, _guard: guard })),
            Ok(false) => Ok(None),
            Err(error) => Err(Problem::system("locking a byte of the file", error)),
        }
    }
}

impl<F: AsFd> AsFd for LockedByte<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

impl<F: AsFd> Drop for LockedByte<F> {
    fn drop(&mut self) {
        // A copy of this value in a child shares the description, and must not unlock the byte.
        if self.owner.is_this() {
            let _ = lock::unlock(self.own.as_fd(), lock::byte(self.number));
            step!("unclaimed");
        }
    }
}

/// The participant's open file description for recoveries, while one claim uses it.
struct InUse<'a>(MutexGuard<'a, UnsharedFd>);

impl AsFd for InUse<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The right to recover a dead participant (I1).
pub struct DeadClaim<'a> {
    participation: &'a Participation,
    byte: LockedByte<InUse<'a>>,
}

impl Participation {
    /// Claims the byte of participant `number`. Returns `None` if the participant is alive, another
    /// recoverer has the byte, or this process has another claim. The call opens no descriptor.
    ///
    /// # Errors
    /// Fails if the kernel refuses the lock for lack of memory.
    pub fn claim_dead(&self, number: u32) -> Result<Option<DeadClaim<'_>>, Problem> {
        if number == self.number() || self.record(number).is_none() {
            return Ok(None);
        }
        let note = |fd: BorrowedFd<'_>| {
            note_death(self.mapping(), self.checked(), number, fd);
            Ok(())
        };
        let own = || match self.claims().try_lock() {
            Ok(own) => Ok(Some(InUse(own))),
            Err(TryLockError::Poisoned(own)) => Ok(Some(InUse(own.into_inner()))),
            // This thread itself has another claim. If another thread had one, this thread would
            // have waited for it, because a claim holds the fork guard.
            Err(TryLockError::WouldBlock) => Ok(None),
        };
        let byte = LockedByte::try_new(own, number, note)?;
        step!("claimed");
        Ok(byte.map(|byte| DeadClaim { participation: self, byte }))
    }
}

impl DeadClaim<'_> {
    /// Returns the number of the dead participant.
    pub fn number(&self) -> u32 {
        self.byte.number
    }

    /// Returns whether the place still has a dead participant. If not, the participant has left, or
    /// another participant has recovered it.
    pub fn needs_recovery(&self) -> bool {
        let record = self.participation.record(self.byte.number);
        record.is_some_and(ParticipantRecord::is_attached)
    }

    /// Ends the recovery: marks the participant's record as free, and then unlocks the byte. The
    /// caller has already freed all of the participant's seats.
    pub fn finish(self) {
        self.participation.free_record(self.byte.number);
        step!("recovered");
    }
}
