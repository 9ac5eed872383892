//! The ring over a mapped segment, and the handles that processes take from it.
//!
//! Invariants
//! - I1: the areas of a ring lie in the mapping of its [`Participation`], which each handle keeps.
//! - I2: this process takes a party's seat before it makes the party's handle, and a seat has one
//!   owner. A seat of a dead owner is taken only by the process that holds the proof of its death.

use std::alloc::{Layout as Bytes, alloc_zeroed, dealloc};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use slipring::segment::{
    Areas as Words, AtomicBytes, BlockStart, Declaration, Mapping as Keeps, Needs,
    Participant as Party, Proof, Seat, SegmentLayout, SegmentRing, Strided, begin,
};
use slipring::{Wait, errors::NameLost};

use crate::attach::participant::{Liveness, Participation};
use crate::contents::{Event, stages};
use crate::errors::Problem;
use crate::file::create::Initial;
use crate::file::mapping::Mapping;
use crate::layout::records::ParticipantRecord;
use crate::layout::{Area, Areas, Checked, HEAD, LINE};
use crate::system::lock;

impl Proof for Participation {
    fn is_dead(&self, number: u32) -> bool {
        // If the probe fails, nothing proves the participant's death.
        let attached = self.record(number).is_some_and(ParticipantRecord::is_attached);
        attached && matches!(self.is_held(number), Ok(false))
    }

    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool {
        // Without the lock, this process has no proof of the participant's death.
        let Ok(Some(claim)) = self.claim_dead(number) else { return false };
        settle();
        claim.finish();
        true
    }

    fn pid(&self, number: u32) -> u32 {
        self.record(number).map_or(0, |record| record.pid.load(Relaxed))
    }

    fn lost_name(&self) -> Option<NameLost> {
        self.name().and_then(|name| name.told(self.probe().as_fd()))
    }

    fn is_own_process(&self) -> bool {
        self.mapping().is_ours()
    }
}

/// The declaration that a ring is made from, and the memory that the ring needs.
pub(crate) struct DeclaredRing {
    pub(crate) declaration: Declaration,
    pub(crate) needs: Needs,
}

/// Returns the addresses of a ring's words. `at` returns the address of a file offset.
fn words(
    areas: &Areas,
    needs: &Needs,
    mapping: Keeps,
    at: impl Fn(u64) -> Option<NonNull<u8>>,
) -> Option<Words> {
    let line = |area: u64, index: usize| at(area + index as u64 * LINE);
    let optional = |area: &Area| match area.count {
        0 => Some(NonNull::dangling()),
        _ => at(area.at),
    };
    Some(Words {
        lines: at(areas.lines.at)?,
        queues: at(areas.wait_queues.at)?,
        seats: at(areas.seats.at)?,
        status: at(areas.status.at)?,
        failure: line(areas.status.at, 1)?,
        cells: optional(&areas.cells)?,
        shard_ids: optional(&areas.shard_ids)?,
        counters: at(areas.counters.at)?,
        waited: line(areas.counters.at, needs.counters)?,
        stamps: at(areas.stamps.at)?,
        events: at(areas.events.at)?,
        strides: (areas.stamps.stride as usize, areas.events.stride as usize),
        mapping,
    })
}

/// Zeroed private memory in which the creator of a segment lays out the first words.
struct FirstWords {
    first: NonNull<u8>,
    bytes: Bytes,
}

// SAFETY: the memory is only reached through the words that are laid out in it.
unsafe impl Send for FirstWords {}
// SAFETY: as above.
unsafe impl Sync for FirstWords {}

impl Drop for FirstWords {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and no word refers to it any more.
        unsafe { dealloc(self.first.as_ptr(), self.bytes) }
    }
}

/// Returns the bytes that a new segment has directly behind its head, which are not all zero. The
/// areas that follow these bytes (those with an item for each slot, and the slots) are left out:
/// they begin as zeros, and may be as large as memory.
pub(crate) fn initial(
    declaration: &Declaration,
    needs: &Needs,
    areas: &Areas,
) -> Result<Initial, Problem> {
    let per_slot = [areas.cells.at, areas.shard_ids.at, areas.stamps.at];
    let end = per_slot.into_iter().find(|&at| at != 0).unwrap_or(areas.length);
    let length = usize::try_from(end - HEAD).unwrap_or(usize::MAX);
    let no_memory = || Problem::NoSpace { bytes: length as u64, room: None };
    let bytes = Bytes::from_size_align(length, 4096).map_err(|_| no_memory())?;
    // SAFETY: the size is not 0, because the memory contains the status.
    let first = NonNull::new(unsafe { alloc_zeroed(bytes) }).ok_or_else(no_memory)?;
    let draft = Arc::new(FirstWords { first, bytes });
    let at = |offset: u64| {
        let offset = usize::try_from(offset.checked_sub(HEAD)?).ok()?;
        match offset < length {
            // SAFETY: the offset lies in the draft's memory.
            true => Some(unsafe { draft.first.add(offset) }),
            // `begin` touches no byte behind the draft, so the address is never used.
            false => Some(NonNull::dangling()),
        }
    };
    let words = words(areas, needs, draft.clone(), at).ok_or_else(no_memory)?;
    // SAFETY: the areas have the sizes that the declaration needs, and belong to this call alone.
    unsafe { begin(declaration, &words) }.map_err(Problem::Graph)?;
    drop(words);
    // SAFETY: the draft has `length` bytes, all of which were set by the allocation or by `begin`.
    let bytes = unsafe { std::slice::from_raw_parts(draft.first.as_ptr(), length) }.to_vec();
    Ok(Initial { at: HEAD, bytes })
}

/// Makes the ring of an attached process, whose handles lend events.
///
/// # Safety
/// The caller keeps the contract of `Segment::attach`. Also, `made` was read from the head of the
/// segment of `participation`, and the slots of this segment hold events of type `E` in the layout
/// `L`.
pub(crate) unsafe fn over<E: Send + Sync + 'static, L: SegmentLayout>(
    participation: &Arc<Participation>,
    made: &DeclaredRing,
    wait: Wait,
) -> Result<SegmentRing<E, L>, Problem> {
    let (words, party) = parts(participation, made, wait)?;
    // SAFETY: `stages::declaration` has checked that the areas have the sizes that the declaration
    // needs. The creator has stored their first words. The caller promises the rest.
    unsafe { SegmentRing::over(&made.declaration, &words, &party) }.map_err(Problem::Graph)
}

/// Makes the ring of an attached process, whose handles copy events. `made` was read from the head
/// of the participation's segment, whose events have the type `E`.
pub(crate) fn over_copies<E: Event>(
    participation: &Arc<Participation>,
    made: &DeclaredRing,
    wait: Wait,
) -> Result<SegmentRing<AtomicBytes<E>>, Problem> {
    let (words, party) = parts(participation, made, wait)?;
    // SAFETY: the checked areas lie in the mapping, are aligned, and have the sizes that the
    // declaration needs, as `stages::declaration` compared. `Participation` keeps them mapped. This
    // process accesses them by atomic words only (I1 of `records`, I2 of `slipring`'s `shared`), or
    // as a user of the unsafe `attach` has promised. Other processes may store any value there.
    unsafe { SegmentRing::over_copies(&made.declaration, &words, &party) }.map_err(Problem::Graph)
}

/// Returns the addresses of the ring's words in the participation's mapping, and the `Party` that
/// describes this process.
fn parts(
    participation: &Arc<Participation>,
    DeclaredRing { needs, .. }: &DeclaredRing,
    wait: Wait,
) -> Result<(Words, Party), Problem> {
    let checked = participation.checked();
    let mapping = participation.mapping();
    let at = |offset: u64| mapping.address(offset, 0);
    let words = words(&checked.areas, needs, participation.clone(), at);
    let length = mapping.length() as u64;
    let words = words.ok_or(Problem::NoSpace { bytes: length, room: None })?;
    let party = Party {
        number: participation.number(),
        proof: participation.clone(),
        notice: Duration::from_millis(checked.header.notice_ms.into()),
        always_fences: !participation.has_membarrier(),
        wait: wait.clone(),
        producer_wait: wait,
    };
    Ok((words, party))
}

/// Proves deaths for a process that is not attached, and so has no [`Participation`] to probe with.
struct Unattached {
    /// The descriptor that the caller of [`settle_unattached`] lends. It is not duplicated, because
    /// that would fail in a process that has no descriptor left.
    fd: RawFd,
    /// For each place: whether it had a participant when the recovery began, and the pid of that
    /// participant.
    places: Vec<(bool, u32)>,
}

impl Unattached {
    fn new(fd: BorrowedFd<'_>, mapping: &Mapping, checked: &Checked) -> Unattached {
        let area = &checked.areas.participants;
        let places =
            (0..area.count).filter_map(|index| mapping.record::<ParticipantRecord>(area, index));
        let place = |record: &ParticipantRecord| (record.is_attached(), record.pid.load(Relaxed));
        Unattached { places: places.map(place).collect(), fd: fd.as_raw_fd() }
    }

    fn place(&self, number: u32) -> Option<(bool, u32)> {
        self.places.get(number.checked_sub(1)? as usize).copied()
    }
}

impl Proof for Unattached {
    fn is_dead(&self, number: u32) -> bool {
        let attached = self.place(number).is_some_and(|place| place.0);
        // SAFETY: `settle_unattached` drops the proof before it returns, and so before the lent
        // descriptor is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        attached && matches!(lock::probe(fd, lock::byte(number)), Ok(None))
    }

    fn recover(&self, _number: u32, _settle: &mut dyn FnMut()) -> bool {
        false
    }

    fn pid(&self, number: u32) -> u32 {
        self.place(number).map_or(0, |place| place.1)
    }
}

/// Recovers the seats of a dead participant, and returns whether it recovered all of them. The
/// caller is not attached: it is either about to take the participant's number, or evicting the
/// participant. It holds the participant's byte. `fd` is a descriptor of the file, whose
/// description holds no byte of a living participant.
///
/// The function does not need the events' type: a dead participant leaves claims and chunks, whose
/// words do not lie in the events.
pub(crate) fn settle_unattached(
    mapping: &Mapping,
    checked: &Checked,
    dead: u32,
    fd: BorrowedFd<'_>,
) -> bool {
    let proof = Unattached::new(fd, mapping, checked);
    let Ok(declared) = stages::untyped_declaration(checked) else { return false };
    let Some((declaration, needs)) = declared else {
        bury(mapping, checked, dead);
        return true;
    };
    let at = |offset: u64| mapping.address(offset, 0);
    // The caller lends the mapping, so the ring is dropped before the mapping.
    let Some(words) = words(&checked.areas, &needs, Arc::new(()), at) else { return false };
    let party = Party {
        number: dead,
        proof: Arc::new(proof),
        notice: Duration::from_millis(checked.header.notice_ms.into()),
        always_fences: true,
        wait: Wait::default(),
        producer_wait: Wait::default(),
    };
    // SAFETY: as in `over_copies`: a recovery accesses no event, and the events of this ring have
    // no size. The ring does not leave this function, and the mapping outlives it.
    let ring = unsafe { SegmentRing::<BlockStart, Strided>::over(&declaration, &words, &party) };
    ring.is_ok_and(|ring| {
        settle(&ring, dead);
        true
    })
}

/// Counts a death at the seats of a dead participant, and frees them.
fn bury(mapping: &Mapping, checked: &Checked, dead: u32) {
    for index in 0..checked.areas.seats.count {
        if let Some(seat) = mapping.record::<Seat>(&checked.areas.seats, index) {
            seat.bury(dead);
            step!("buried");
        }
    }
}

/// Recovers the seats of a dead participant. The caller holds the proof of its death.
fn settle<E, L: SegmentLayout>(ring: &SegmentRing<E, L>, dead: u32) {
    for seat in 0..ring.seats() {
        ring.settle_seat(seat, dead);
        step!("buried");
    }
}

/// Takes a seat for this process (I2). If its owner is dead, recovers that participant first.
pub(crate) fn take<E, L: SegmentLayout>(
    participation: &Participation,
    ring: &SegmentRing<E, L>,
    seat: usize,
    stage: &str,
) -> Result<(), Problem> {
    let own = participation.number();
    // The loop repeats only after an owner has died or left.
    for _ in 0..64 {
        step!("taking");
        let Err(owner) = ring.seat(seat).take(own) else {
            step!("seated");
            return Ok(());
        };
        let taken = || Problem::Taken { stage: stage.into(), pid: participation.pid(owner) };
        if owner == own {
            return Err(taken());
        }
        let Some(claim) = participation.claim_dead(owner)? else {
            match participation.liveness(owner)? {
                Liveness::Alive | Liveness::HeldByReader => return Err(taken()),
                // Another process has locked the byte: it is recovering the owner, or is about to
                // take the owner's number.
                _ => thread::sleep(Duration::from_millis(1)),
            }
            continue;
        };
        settle(ring, owner);
        claim.finish();
    }
    Err(Problem::Busy)
}

/// Takes one of several seats for this process (I2): a free seat, or else a seat whose worker left
/// a chunk. If there is neither, the call recovers the dead owners and tries again.
pub(crate) fn take_any<E, L: SegmentLayout>(
    participation: &Participation,
    ring: &SegmentRing<E, L>,
    seats: Range<usize>,
    stage: &str,
) -> Result<usize, Problem> {
    let own = participation.number();
    // The loop repeats only after an owner has died or left.
    for _ in 0..64 {
        step!("taking");
        let free = seats.clone().find(|&seat| ring.seat(seat).take(own).is_ok());
        // If no seat is free, the worker takes a seat at which another worker left a chunk.
        let orphan = || seats.clone().find(|&seat| ring.seat(seat).adopt_chunk(own));
        if let Some(seat) = free.or_else(orphan) {
            step!("seated");
            return Ok(seat);
        }
        let (mut pids, mut changes) = (Vec::new(), false);
        for owner in seats.clone().map(|seat| ring.seat(seat).owner()) {
            let Some(owner) = owner else {
                changes = true;
                continue;
            };
            if let Some(claim) = participation.claim_dead(owner)? {
                settle(ring, owner);
                claim.finish();
                changes = true;
                continue;
            }
            match participation.liveness(owner)? {
                Liveness::Alive | Liveness::HeldByReader => pids.push(participation.pid(owner)),
                // Another process has locked the byte: it is recovering the owner, or is about to
                // take the owner's number.
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
        if !changes && pids.len() == seats.len() {
            let (stage, places) = (stage.into(), seats.len() as u32);
            return Err(Problem::AllTaken { stage, places, pids });
        }
    }
    Err(Problem::Busy)
}
