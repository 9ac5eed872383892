//! Evicts a participant that is alive but makes no progress: kills its process, and recovers its
//! places.
//!
//! Invariants
//! - I1: a signal is sent through a pidfd only. The process behind the pidfd has the pid, the start
//!   time and the pid namespace of the participant's record. The record and the seat's owner are
//!   read again after that check, and once more before the signal. So the signal reaches neither a
//!   later process with the same pid, nor a successor at the place.
//! - I2: no place is recovered before this process has locked the participant's byte. The kill
//!   alone proves nothing.
//! - I3: a participant's record has another generation or state once the participant has left or
//!   was recovered. So an evictor that finds such a change is done, and leaves a later participant
//!   of the same number alone.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use slipring::segment::Seat;
use slipring::stages::PRODUCER;

use crate::attach::participant::note_death;
use crate::attach::recover::LockedByte;
use crate::attach::ring::settle_unattached;
use crate::errors::EvictProblem;
use crate::errors::{Problem, SegmentError};
use crate::file::descriptor::{File, Rights};
use crate::file::location::Location;
use crate::file::mapping::Mapping;
use crate::file::open::read_head;
use crate::layout::Checked;
use crate::layout::records::{ParticipantRecord, Record, text};
use crate::system::lock::{self, Hold};
use crate::system::machine::{Pinned, Process, Unpinned};

/// Number of attempts, a millisecond apart, to read a place whose words are changing.
const LOOKS: u32 = 64;
/// How long [`evict`] waits for the process to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A process that has a place of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupant {
    /// Number of the participant.
    pub participant: u32,
    /// Pid of the process, in its own pid namespace.
    pub pid: u32,
    /// Effective user id of the process.
    pub uid: u32,
    /// Name that the participant gave itself.
    pub name: String,
    /// Names of all places that the participant has. A producer's place is named `producer`.
    pub places: Vec<String>,
    /// Whether the process is dead already, so that only its places need recovery.
    pub dead: bool,
    /// Whether the process is stopped, by a signal or a debugger.
    pub stopped: bool,
    /// Whether the places are recovered and free. They are not if a word of the segment contradicts
    /// its head. In that case, the next process that waits for these places, or takes one of them,
    /// recovers them.
    pub recovered: bool,
}

/// Words of a place and of its participant that must not change before a kill (I1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FoundOwner {
    participant: u32,
    /// Generation and state of the participant's record.
    state: u64,
    process: Process,
}

/// A process that was found at a place and can be killed. Finding it changes nothing.
///
/// The example starts a second process, which takes a place and then hangs:
///
/// ```standalone_crate
/// use std::io::{BufRead, BufReader};
/// use std::process::{Command, Stdio};
/// use std::time::Duration;
/// use slipring_shm::{Segment, summaries::Eviction};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// if let Ok(name) = std::env::var("HANGS_AT") {
///     // SAFETY: both processes are this program, which stores numbers only.
///     let attached = unsafe { Segment::<u64>::open(&name)?.attach()? };
///     let _sum = attached.reader("sum")?;
///     println!("attached");
///     loop {
///         std::thread::park();
///     }
/// }
/// let name = format!("eviction-{}", std::process::id());
/// let segment = Segment::<u64>::create(&name).capacity(8).reader("sum").build()?;
/// let mut second = Command::new(std::env::current_exe()?)
///     .env("HANGS_AT", &name)
///     .stdout(Stdio::piped())
///     .spawn()?;
/// let lines = BufReader::new(second.stdout.take().ok_or("no output")?).lines();
/// assert!(lines.map_while(Result::ok).any(|line| line == "attached"));
///
/// let eviction = Eviction::find(&name, "sum", None)?;
/// assert_eq!(eviction.occupant().pid, second.id());
/// assert_eq!(eviction.occupant().places, ["sum"]);
/// let killed = eviction.kill(Duration::from_secs(10))?;
/// assert!(killed.recovered);
///
/// // SAFETY: as above.
/// let attached = unsafe { segment.attach()? };
/// let sum = attached.reader("sum")?; // the place is free again
/// second.wait()?;
/// # drop((sum, attached));
/// # slipring_shm::remove(&name)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Eviction {
    location: Location,
    file: File,
    checked: Checked,
    stage: String,
    /// Index of the seat.
    seat: u64,
    found: FoundOwner,
    /// The process, or `None` if it is dead already.
    pinned: Option<Pinned>,
    occupant: Occupant,
}

/// Kills the process that has the place `stage` of the segment `name`, waits up to ten seconds
/// until it is gone, and recovers all places that its participant had. This is for a process that
/// is stopped or hangs: it is alive, so no other process can take its places.
///
/// The next process at the place continues where the killed process stopped, as after any death.
/// The segment's other processes react to the death as the segment's creator declared
/// ([`OnDeath`]). Pass [`PRODUCER`] as `stage` to evict the producer.
///
/// A process that attached several times is several participants, and the call recovers the places
/// of only one of them. The others die with the process: the next process that waits for them, or
/// takes their places, recovers them.
///
/// [`Eviction::find`] finds the process without killing it.
///
/// Example: [`Eviction`], whose two calls this function makes.
///
/// # Errors
/// - [`Problem::Name`]: the name is not allowed.
/// - [`Problem::Missing`]: there is no such segment.
/// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
/// - [`Problem::NoStage`]: the segment has no stage of this name.
/// - [`Problem::Evict`]: there is no process to evict, it cannot be evicted, or it has not ended in
///   time.
/// - [`Problem::Busy`]: the participant at the place was leaving at each look.
/// - [`Problem::System`]: a system call failed.
///
/// [`OnDeath`]: crate::OnDeath
pub fn evict(name: impl AsRef<OsStr>, stage: &str) -> Result<Occupant, SegmentError> {
    Eviction::find(name, stage, None)?.kill(TIMEOUT)
}

impl Eviction {
    /// Finds the process that has the place `stage` of the segment `name`, and checks that it can
    /// be evicted. Nothing is mapped, locked or signalled. If several processes have places of the
    /// stage, `pid` chooses one.
    ///
    /// ```
    /// use slipring_shm::{Segment, errors::{EvictProblem, Problem}, summaries::Eviction};
    /// let name = format!("evict-{}", std::process::id());
    /// let segment = Segment::<u64>::create(&name).capacity(8).reader("sum").build()?;
    /// let error = Eviction::find(&name, "sum", None).unwrap_err();
    /// assert!(matches!(error.problem(), Problem::Evict(EvictProblem::Free { .. })));
    /// // SAFETY: no other program opens the segment.
    /// let attached = unsafe { segment.attach()? };
    /// let sum = attached.reader("sum")?;
    /// let error = Eviction::find(&name, "sum", std::process::id()).unwrap_err();
    /// assert!(matches!(error.problem(), Problem::Evict(EvictProblem::OwnProcess)));
    /// # drop((sum, attached));
    /// # slipring_shm::remove(&name)?;
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    ///
    /// # Errors
    /// - [`Problem::Name`]: the name is not allowed.
    /// - [`Problem::Missing`]: there is no such segment.
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Evict`]: there is no process to evict there, or it cannot be evicted.
    /// - [`Problem::Busy`]: the participant at the place was leaving at each look.
    /// - [`Problem::System`]: a system call failed.
    pub fn find(
        name: impl AsRef<OsStr>,
        stage: &str,
        pid: impl Into<Option<u32>>,
    ) -> Result<Eviction, SegmentError> {
        Eviction::find_location(Location::named(name)?, stage, pid.into())
    }

    /// Finds the process as [`Eviction::find`] does, in the segment at `path`.
    ///
    /// Example: [`Eviction::find`].
    ///
    /// # Errors
    /// - [`Problem::Missing`]: there is no such segment.
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Evict`]: there is no process to evict there, or it cannot be evicted.
    /// - [`Problem::Busy`]: the participant at the place was leaving at each look.
    /// - [`Problem::System`]: a system call failed.
    pub fn find_at(
        path: impl Into<PathBuf>,
        stage: &str,
        pid: impl Into<Option<u32>>,
    ) -> Result<Eviction, SegmentError> {
        Eviction::find_location(Location::Path(path.into()), stage, pid.into())
    }

    fn find_location(
        location: Location,
        stage: &str,
        pid: Option<u32>,
    ) -> Result<Eviction, SegmentError> {
        let failed = |problem: Problem| SegmentError::at(&location, problem);
        let path = location.path().unwrap_or(Path::new(""));
        let file = File::open(path, Rights::Read).map_err(failed)?;
        let checked = read_head(&file).map_err(failed)?;
        let seats = seats_of(&checked, stage).map_err(failed)?;
        let seat = seat_of(&file, &checked, stage, seats, pid).map_err(failed)?;
        let (found, pinned) = pin(&file, &checked, stage, seat).map_err(failed)?;
        let occupant = occupant(&file, &checked, &found, pinned.is_none()).map_err(failed)?;
        let stage = stage.to_owned();
        Ok(Eviction { location, file, checked, stage, seat, found, pinned, occupant })
    }

    /// Returns the process that was found.
    ///
    /// Example: [`Eviction`].
    pub fn occupant(&self) -> &Occupant {
        &self.occupant
    }

    /// Kills the process (SIGKILL), waits until the kernel has freed its lock, and recovers the
    /// places of its participant. If the process is dead already, the call only recovers.
    ///
    /// If another process has taken the place since it was found, the call signals no process. If
    /// another process recovers the participant first, the call succeeds as well. If the call sends
    /// the signal and then fails, the next process that takes the places recovers them.
    ///
    /// Example: [`Eviction`].
    ///
    /// # Errors
    /// - [`Problem::Evict`] with [`EvictProblem::Changed`]: another process has taken the place
    ///   since.
    /// - [`Problem::Evict`] with [`EvictProblem::NotPermitted`]: the caller may not signal the
    ///   process.
    /// - [`Problem::Evict`], after `timeout`: [`EvictProblem::NotEnded`],
    ///   [`EvictProblem::HeldByAnother`] or [`EvictProblem::HeldByReader`].
    /// - [`Problem::System`], [`Problem::File`]: the system refuses a call, or to open or map the
    ///   file.
    ///
    /// # Cost
    /// The call makes a few system calls each millisecond until the process is gone. If the file is
    /// shortened meanwhile, SIGBUS ends the calling process.
    pub fn kill(mut self, timeout: Duration) -> Result<Occupant, SegmentError> {
        match self.try_kill(timeout) {
            Ok(recovered) => {
                self.occupant.recovered = recovered;
                Ok(self.occupant)
            }
            Err(problem) => Err(SegmentError::at(&self.location, problem)),
        }
    }

    /// Kills the process unless it is already dead, and recovers its places. Returns whether they
    /// were recovered.
    fn try_kill(&self, timeout: Duration) -> Result<bool, Problem> {
        if let Some(pinned) = &self.pinned {
            step!("evict-found");
            if look(&self.file, &self.checked, &self.stage, self.seat)? != Some(self.found) {
                return Err(EvictProblem::Changed { stage: self.stage.clone() }.into());
            }
            step!("evict-checked");
            let Occupant { pid, uid, .. } = self.occupant;
            match pinned.kill() {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    return Err(EvictProblem::NotPermitted { pid, uid }.into());
                }
                Err(error) => return Err(Problem::system("killing the process", error)),
            }
            step!("evict-killed");
        }
        let began = Instant::now();
        loop {
            if self.state()? != self.found.state {
                // Another process has recovered the participant (I3).
                return Ok(true);
            }
            let held = probe(&self.file, self.found.participant)?;
            if held.is_none()
                && let Some(recovered) = self.recover()?
            {
                return Ok(recovered);
            }
            if began.elapsed() >= timeout {
                return Err(self.late(held, timeout)?.into());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the reason why the participant's byte did not become free in time.
    fn late(&self, held: Option<Hold>, waited: Duration) -> Result<EvictProblem, Problem> {
        let FoundOwner { participant, process: Process { pid, .. }, .. } = self.found;
        if held == Some(Hold::Shared) {
            return Ok(EvictProblem::HeldByReader { participant });
        }
        let ended = match &self.pinned {
            Some(pinned) => pinned.has_ended(),
            None => Ok(true),
        };
        match ended.map_err(|error| Problem::system("waiting for the process", error))? {
            true => Ok(EvictProblem::HeldByAnother { participant, pid }),
            false => Ok(EvictProblem::NotEnded { pid, waited }),
        }
    }

    /// Locks the participant's byte, and recovers the participant. Returns whether that succeeded,
    /// or `None` if another process holds the byte.
    fn recover(&self) -> Result<Option<bool>, Problem> {
        let (number, areas) = (self.found.participant, &self.checked.areas);
        // A new mapping needs a fork guard. `try_new` holds one while it calls `note`.
        let mut mapping = None;
        let note = |fd: BorrowedFd<'_>| {
            let made = mapping.insert(Mapping::new(fd, areas.length)?);
            note_death(made, &self.checked, number, fd);
            Ok(())
        };
        let own = || self.file.reopen(self.location.path(), Rights::Write).map(Some);
        let byte = LockedByte::try_new(own, number, note)?;
        let (Some(byte), Some(mapping)) = (byte, mapping) else { return Ok(None) };
        step!("evict-claimed");
        let index = u64::from(number - 1);
        let record = mapping.record::<ParticipantRecord>(&areas.participants, index);
        // The byte was free, so whichever process had this number last is dead. If a seat cannot be
        // recovered here, a dead participant still has it.
        let recovered =
            record.is_some() && settle_unattached(&mapping, &self.checked, number, byte.as_fd());
        record.filter(|_| recovered).inspect(|record| record.free());
        step!("evict-recovered");
        Ok(Some(recovered))
    }

    /// Reads the generation and the state of the participant's record.
    fn state(&self) -> Result<u64, Problem> {
        Ok(record(&self.file, &self.checked, self.found.participant)?.map_or(0, |r| r.state))
    }
}

/// Returns the indices of the seats of a stage or of the producers.
fn seats_of(checked: &Checked, stage: &str) -> Result<Range<u64>, Problem> {
    let stages = &checked.stages;
    if let Some(record) = stages.iter().find(|record| record.name() == stage) {
        return Ok(
            u64::from(record.first_seat)..u64::from(record.first_seat) + u64::from(record.seats)
        );
    }
    if stage == PRODUCER && !stages.is_empty() {
        let first = stages.iter().map(|stage| u64::from(stage.seats)).sum::<u64>();
        return Ok(first..first + u64::from(checked.header.producers.max(1)));
    }
    let known = stages.iter().map(|record| record.name());
    let known = known.chain((!stages.is_empty()).then(|| PRODUCER.to_owned())).collect();
    Err(Problem::NoStage { asked: stage.into(), known })
}

/// Returns the one of `seats` that a participant has, or the first one if all are free. If several
/// participants have such seats, `pid` chooses between them.
fn seat_of(
    file: &File,
    checked: &Checked,
    stage: &str,
    seats: Range<u64>,
    pid: Option<u32>,
) -> Result<u64, Problem> {
    let (mut seat, mut participants, mut pids) = (seats.start, Vec::new(), Vec::new());
    for index in seats {
        let Some(participant) = owner(file, checked, index)? else { continue };
        let of = record(file, checked, participant)?.map_or(0, |record| record.process.pid);
        if pid.is_none_or(|pid| pid == of) && !participants.contains(&participant) {
            seat = index;
            participants.push(participant);
        }
        pids.push(of);
    }
    let stage = stage.into();
    match (participants.len(), pid) {
        (0, Some(pid)) if !pids.is_empty() => {
            Err(EvictProblem::Elsewhere { stage, pid, pids }.into())
        }
        (0 | 1, _) => Ok(seat),
        _ => Err(EvictProblem::Several { stage, pids }.into()),
    }
}

/// Finds the process at a seat, and opens a pidfd for it unless it is dead.
fn pin(
    file: &File,
    checked: &Checked,
    stage: &str,
    seat: u64,
) -> Result<(FoundOwner, Option<Pinned>), Problem> {
    let look = || look(file, checked, stage, seat);
    let mut problem = Problem::Busy;
    for _ in 0..LOOKS {
        let Some(found) = look()? else {
            return Err(EvictProblem::Free { stage: stage.into() }.into());
        };
        let FoundOwner { participant, process: Process { pid, .. }, state, .. } = found;
        let attached = ParticipantRecord::unpack(state).1 != ParticipantRecord::FREE;
        let pinned = match probe(file, participant)? {
            // The participant is leaving, or another process is about to free its seat.
            None if !attached => Err(Problem::Busy),
            None => Ok(None),
            Some(Hold::Shared) => Err(EvictProblem::HeldByReader { participant }.into()),
            Some(Hold::Alone) if found.process.is_this() => Err(EvictProblem::OwnProcess.into()),
            Some(Hold::Alone) => found.process.pin().map(Some).map_err(|why| match why {
                Unpinned::OtherNamespace => EvictProblem::OtherNamespace { pid }.into(),
                Unpinned::Unidentified => EvictProblem::Unidentified { pid }.into(),
                // The process is gone, but a recoverer may hold the byte for a moment.
                Unpinned::Gone => EvictProblem::HeldByAnother { participant, pid }.into(),
                Unpinned::Unsupported => EvictProblem::NoPidfd.into(),
                Unpinned::System(step, error) => Problem::system(step, error),
            }),
        };
        // The result counts only if the place has not changed while the process was pinned.
        let unchanged = look()? == Some(found);
        match pinned {
            _ if !unchanged => {}
            Ok(pinned) => return Ok((found, pinned)),
            Err(passing @ (Problem::Evict(EvictProblem::HeldByAnother { .. }) | Problem::Busy)) => {
                problem = passing;
            }
            Err(problem) => return Err(problem),
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(problem)
}

/// Reads which participant has a seat, and which process that participant is. Returns `None` if the
/// seat is free.
fn look(
    file: &File,
    checked: &Checked,
    stage: &str,
    seat: u64,
) -> Result<Option<FoundOwner>, Problem> {
    let Some(participant) = owner(file, checked, seat)? else { return Ok(None) };
    let damaged = || EvictProblem::Seat { stage: stage.into(), participant };
    let record = record(file, checked, participant)?.ok_or_else(damaged)?;
    Ok(Some(FoundOwner { participant, state: record.state, process: record.process }))
}

/// Reads the owner of a seat, or returns `None` if the seat is free.
fn owner(file: &File, checked: &Checked, seat: u64) -> Result<Option<u32>, Problem> {
    let Some(at) = checked.areas.seats.item(seat) else { return Ok(None) };
    let bytes = file.read(at, Seat::WORDS * 8)?;
    let mut words = [0; Seat::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[i]));
    }
    Ok(Seat::copied(words).owner())
}

/// Copy of a participant's record, as one read of the file returned it.
struct CopiedRecord {
    state: u64,
    process: Process,
    uid: u32,
    name: String,
}

/// Reads the record of a participant, or returns `None` if there is no such place.
fn record(file: &File, checked: &Checked, number: u32) -> Result<Option<CopiedRecord>, Problem> {
    let index = number.checked_sub(1).map(u64::from);
    let Some(at) = index.and_then(|index| checked.areas.participants.item(index)) else {
        return Ok(None);
    };
    let mut bytes = file.read(at, ParticipantRecord::STRIDE as usize)?;
    bytes.resize(ParticipantRecord::STRIDE as usize, 0);
    let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let u64_at = |at: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[at + i]));
    Ok(Some(CopiedRecord {
        state: u64_at(0),
        process: Process { pid: u32_at(8), start_time: u64_at(16), namespace: u64_at(24) },
        uid: u32_at(12),
        name: text(&bytes[48..112]),
    }))
}

fn probe(file: &File, participant: u32) -> Result<Option<Hold>, Problem> {
    let held = lock::probe(file.as_fd(), lock::byte(participant));
    let held = held.map_err(|error| Problem::system("probing a byte of the file", error))?;
    Ok(held.map(|held| held.hold))
}

/// Describes the process that was found, for the caller of [`Eviction::occupant`].
fn occupant(
    file: &File,
    checked: &Checked,
    found: &FoundOwner,
    dead: bool,
) -> Result<Occupant, Problem> {
    let FoundOwner { participant, process, .. } = *found;
    let record = record(file, checked, participant)?;
    let (uid, name) = record.map_or((0, String::new()), |record| (record.uid, record.name));
    let mut places = Vec::new();
    for seat in 0..checked.areas.seats.count {
        if owner(file, checked, seat)? == Some(participant) {
            let seats =
                |first: u32, count: u32| u64::from(first)..u64::from(first) + u64::from(count);
            let of = checked.stages.iter();
            let of = of.clone().find(|stage| seats(stage.first_seat, stage.seats).contains(&seat));
            let place = of.map_or_else(|| PRODUCER.to_owned(), |stage| stage.name());
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    let stopped = !dead && process.is_stopped();
    let pid = process.pid;
    Ok(Occupant { participant, pid, uid, name, places, dead, stopped, recovered: false })
}
