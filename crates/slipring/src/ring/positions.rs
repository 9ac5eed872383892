//! The positions that a ring's handles share. Each is a word on a cache line of its own, which the
//! plan chooses.
//!
//! All accesses to these words go through [`Positions`]. The words lie on the heap, or in memory
//! that other processes map, too ([`MaybeMapped`]). The plan is a parameter of the methods: it
//! never changes, so each process holds a copy of its own.
//!
//! Invariants
//! - I1: a released position only grows. The stage no longer accesses the events before this
//!   position, because it has handled them, skipped them, or passed over them. A thread that
//!   acquires the position may access the slots before it, with the rights of the stage's followers
//!   (`edge::released`).
//! - I2: a pool's frontier is the smallest of its claim word's position and the bounds of workers
//!   that are not idle. A worker stores its bound before it moves the claim word to take a chunk,
//!   and a thread that computes the frontier loads the claim word *first*, and the bounds second.
//!   So that thread sees the bounds that workers stored before they moved the claim word, or later
//!   bounds (`edge::chunk_taken`).
//! - I3: before a party passes a tap, it announces the position up to which it may go, executes a
//!   fence, and loads the bounds of the tap's members. The party goes no further than the announced
//!   position, and no further than the smallest of these bounds (`edge::joined`).
//! - I4: a pool's landmark is a recent position of its claim word, at most 2^32 positions plus one
//!   lap behind it. A worker whose chunk crosses a multiple of 2^32 stores the chunk's end as the
//!   landmark before it releases the chunk, and until that release the claim word stays within one
//!   lap of the chunk's start, not counting a ticket for each seat (`worker::I6`).
//! - I5: the lines stay where they are while the positions live. A handle with a [`ReleaseLine`]
//!   keeps its ring alive, and so the ring's positions.

use std::ptr::NonNull;

use crate::base::edge;
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::sync::{AtomicU64, Line, Relaxed, may_die, twin};
use crate::ring::plan::Plan;
use crate::ring::spec::Delivery;
use crate::ring::stage::{CLAIM_LINE, CURSOR_LINE, Guard, SENTINEL_LINE, Stage};
use crate::ring::words::{ClaimWord, IDLE, PoolWord, SeatedClaim, ahead, bound_ahead};

/// The shared positions of a ring.
pub(crate) struct Positions {
    lines: MaybeMapped<[Line<AtomicU64>]>,
}

/// A direct pointer to the line to which a handle releases. Without it, each release would load the
/// address and the number of the ring's lines, and check the line's index.
pub(crate) struct ReleaseLine {
    index: usize,
    word: NonNull<AtomicU64>,
}

// SAFETY: the pointer is only used as a reference to an atomic word, which any thread may access
// while the ring is alive (I5).
unsafe impl Send for ReleaseLine {}
// SAFETY: as above.
unsafe impl Sync for ReleaseLine {}

impl ReleaseLine {
    /// Returns the line's number in the plan.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns the line's word.
    ///
    /// # Safety
    /// The ring to which the line belongs is alive (I5).
    #[inline(always)]
    pub(crate) unsafe fn word(&self) -> &AtomicU64 {
        // SAFETY: the caller keeps the ring alive.
        unsafe { self.word.as_ref() }
    }
}

impl Positions {
    /// Makes the positions whose words are `lines`.
    pub(crate) fn over(lines: MaybeMapped<[Line<AtomicU64>]>) -> Positions {
        Positions { lines }
    }

    /// Returns the word that line number `line` of a plan holds before the first handle exists. All
    /// positions begin at `start`.
    pub(crate) fn first_word(plan: &Plan, line: usize, start: u64) -> u64 {
        if line == CLAIM_LINE {
            // The first claim word of a segment names a seat that has no claim.
            return match plan.seated_claims {
                true => SeatedClaim::new(start, 0).0,
                false => ClaimWord::open(start).0,
            };
        }
        let Some(stage) = plan.stage_of(line) else { return start };
        let Stage { delivery, line: first, seats, .. } = &plan.stages[stage];
        let seats = 1..=*seats;
        match (delivery, line - first) {
            (Delivery::Pool { .. }, 0) => PoolWord::new(start, 0).0,
            (Delivery::Pool { .. } | Delivery::Tap(_), seat) if seats.contains(&seat) => IDLE,
            (Delivery::Tap(_), _) => 0,
            _ => start,
        }
    }

    #[inline(always)]
    pub(crate) fn line(&self, line: usize) -> &AtomicU64 {
        &self.lines[line]
    }

    /// Returns line number `index` for a handle that releases to this line.
    pub(crate) fn release_line(&self, index: usize) -> ReleaseLine {
        ReleaseLine { index, word: NonNull::from(self.line(index)) }
    }

    /// Returns the line of the claim word, which only rings with many producers use.
    #[inline(always)]
    pub(crate) fn claim(&self) -> &AtomicU64 {
        &self.lines[CLAIM_LINE]
    }

    /// Loads the claim word of a ring in which several processes produce. Other producers may swap
    /// it at any time.
    #[inline(always)]
    pub(crate) fn last_claim(&self) -> SeatedClaim {
        SeatedClaim(edge::intended::see_claim(self.claim()))
    }

    /// Called if several processes produce. Closes the ring to claims, and returns the claim word,
    /// whose position is the end of the stream.
    pub(crate) fn close_claims(&self) -> SeatedClaim {
        may_die!();
        let close = || self.claim().fetch_or(SeatedClaim::CLAIMS_CLOSED, Relaxed); // no data goes with it
        let last = twin!("claims-unclosed": close() => self.claim().load(Relaxed));
        SeatedClaim(last | SeatedClaim::CLAIMS_CLOSED)
    }

    /// Returns all 64 bits of a claim word's position. The result is right even if other producers
    /// have claimed any number of positions since the caller loaded `lower_bound`.
    ///
    /// A claim word holds only the low 63 bits of a position. A claimed position is at most a lap
    /// ahead of a stage's frontier. So of the two values of the highest bit, the method takes the
    /// one whose position is nearer to that frontier. The fast path of a claim does not call this
    /// method, which loads a stage's line.
    pub(crate) fn claim_at(&self, plan: &Plan, word: ClaimWord, lower_bound: u64) -> u64 {
        word.seq(self.near_claims(plan, lower_bound))
    }

    /// Returns a position near the claim word's position; see [`Positions::claim_at`].
    fn near_claims(&self, plan: &Plan, lower_bound: u64) -> u64 {
        // A model's producers claim only a few positions, so the claimed position is within 2^62 of
        // `lower_bound`. A load of a stage's line would multiply the states of the model.
        if cfg!(slipring_loom) {
            return lower_bound;
        }
        let required = |stage: &Stage| !matches!(stage.delivery, Delivery::Tap(_));
        match plan.stages.iter().position(required) {
            Some(stage) => self.position(plan, stage),
            // If the graph has no stage except taps, the claim word is at most a lap ahead of the
            // sentinel.
            None => self.lines[SENTINEL_LINE].load(Relaxed),
        }
    }

    /// Returns the claim word's position, and whether the ring is closed to claims. Only rings with
    /// many producers use the claim word.
    pub(crate) fn claimed(&self, plan: &Plan, lower_bound: u64) -> (u64, bool) {
        let (word, near) = (self.claim().load(Relaxed), self.near_claims(plan, lower_bound));
        if plan.seated_claims {
            let word = SeatedClaim(word);
            return (word.seq(near), word.is_closed());
        }
        (ClaimWord(word).seq(near), ClaimWord(word).is_closed())
    }

    // Frontiers.

    /// Returns the frontier of stage `number`: the position before which it has released all
    /// events. The frontier is at least `lower_bound`.
    #[inline]
    pub(crate) fn frontier(&self, plan: &Plan, number: usize, lower_bound: u64) -> u64 {
        let stage = &plan.stages[number];
        match stage.delivery {
            Delivery::Each => edge::released::see(self.line(stage.line)),
            Delivery::Pool { .. } => self.pool_frontier(stage, lower_bound),
            Delivery::Shards(shards) => self.least_passed(stage.line, shards, lower_bound),
            Delivery::Tap(_) => {
                let (up, _) = self.upstream(plan, number, lower_bound);
                let free = ahead(up, lower_bound).min(self.held(stage, lower_bound));
                lower_bound.wrapping_add(free.max(0) as u64)
            }
        }
    }

    /// Returns the frontier of a pool (I2).
    #[inline]
    fn pool_frontier(&self, stage: &Stage, lower_bound: u64) -> u64 {
        let claim = self.line(stage.line);
        // I2: the claim word is loaded before the bounds.
        let word = PoolWord(edge::chunk_taken::see_for_frontier(claim));
        let bounds = self.least_bound(stage, lower_bound);
        let word = twin!("frontier-word-last": word => PoolWord(edge::chunk_taken::see_for_frontier(claim)));
        let least = bounds.min(ahead(word.seq(lower_bound), lower_bound));
        // A worker that lost a race for a chunk may show an old bound for a moment, and the least
        // bound may then be below `lower_bound`. The frontier never is.
        lower_bound.wrapping_add(least.max(0) as u64)
    }

    /// Returns the distance from `lower_bound` to the smallest bound of a pool's workers or a tap's
    /// members, in events. Returns `i64::MAX` if all workers or members are idle.
    #[inline(always)]
    fn least_bound(&self, stage: &Stage, lower_bound: u64) -> i64 {
        let mut least = i64::MAX;
        for bound in &self.lines[stage.bound_line(0)..stage.bound_line(stage.seats)] {
            let bound = edge::released::see_bound(bound);
            if bound & IDLE == 0 {
                least = least.min(bound_ahead(bound, lower_bound));
            }
        }
        least
    }

    /// Returns the smallest position among the shards of a stage, or `lower_bound` if that is
    /// greater.
    fn least_passed(&self, line: usize, shards: usize, lower_bound: u64) -> u64 {
        let shards = twin!("one-shard-gates": shards => 1);
        let passed = |shard| ahead(edge::released::see_shard(self.line(line + shard)), lower_bound);
        lower_bound.wrapping_add((0..shards).map(passed).min().unwrap_or(0).max(0) as u64)
    }

    /// Returns the smallest frontier of the stages in `stages`, and the slowest party: the party
    /// whose progress would raise the smallest frontier. Each of the given stages has released all
    /// events before `lower_bound`.
    #[inline]
    pub(crate) fn least_frontier(
        &self,
        plan: &Plan,
        stages: &[usize],
        lower_bound: u64,
    ) -> (u64, usize) {
        let (mut least, mut slowest) = (i64::MAX, 0);
        for &stage in stages {
            let distance = ahead(self.frontier(plan, stage, lower_bound), lower_bound);
            if distance < least {
                (least, slowest) = (distance, stage);
            }
        }
        // The slowest stage may be a tap whose members hold no events back. Such a tap only waits
        // for the slowest party before it, so the result names that party.
        if let Some(tap) = plan.stages.get(slowest)
            && matches!(tap.delivery, Delivery::Tap(_))
            && self.held(tap, lower_bound) > least
        {
            slowest = self.upstream(plan, slowest, lower_bound).1;
        }
        (lower_bound.wrapping_add(least.max(0) as u64), slowest)
    }

    /// Returns the cursor of a single producer: the position before which all events are published.
    #[inline]
    pub(crate) fn cursor(&self) -> u64 {
        edge::cursor_moved::see(self.cursor_word())
    }

    /// Returns the word of the producer's cursor, which stays where it is (`maybe_mapped::I1`). Its
    /// accesses are those of `edge::cursor_moved`.
    pub(crate) fn cursor_word(&self) -> &AtomicU64 {
        &self.lines[CURSOR_LINE]
    }

    /// Stores `end` as the producer's cursor; the producer has written the events before `end`.
    #[inline(always)]
    pub(crate) fn move_cursor(&self, end: u64) {
        edge::cursor_moved::move_to(self.cursor_word(), end);
    }

    /// Returns the sentinel's line.
    #[inline(always)]
    pub(crate) fn sentinel(&self) -> &AtomicU64 {
        &self.lines[SENTINEL_LINE]
    }

    /// Returns the position up to which `stage` may go, and the slowest party before `stage`. A
    /// stage that reads stamps uses only the party, because the stamps show how far the stage may
    /// go. If the plan has a sentinel, the caller first moves it (see `Core::upstream`).
    #[inline]
    pub(crate) fn upstream(&self, plan: &Plan, stage: usize, lower_bound: u64) -> (u64, usize) {
        match &plan.stages[stage].after[..] {
            [] if plan.sentinel => {
                (edge::sentinel::see_behind(self.sentinel()), plan.producer_party())
            }
            [] => (self.cursor(), plan.producer_party()),
            after => self.least_frontier(plan, after, lower_bound),
        }
    }

    /// Returns the position before which a handle has released all events. `line` is the handle's
    /// line: that of a stage that sees every event, or that of one shard.
    pub(crate) fn released(&self, line: usize) -> u64 {
        edge::released::see_position(self.line(line))
    }

    /// Like [`Positions::frontier`], but finds a lower bound itself.
    pub(crate) fn position(&self, plan: &Plan, number: usize) -> u64 {
        let stage = &plan.stages[number];
        let a_lap_before = |seq: u64| stage.a_lap_before(seq, plan.capacity);
        match stage.delivery {
            Delivery::Each => self.released(stage.line),
            Delivery::Pool { .. } => {
                self.frontier(plan, number, a_lap_before(self.landmark(stage)))
            }
            // No shard is more than a lap ahead of another.
            Delivery::Shards(_) => {
                self.frontier(plan, number, a_lap_before(self.line(stage.line).load(Relaxed)))
            }
            Delivery::Tap(_) => self.frontier(plan, number, self.announced(stage)),
        }
    }

    /// Returns whether stage `number` has released the event at `seq`; for a tap, whether each of
    /// its members has. A tap's position also tells how far other parties have announced to go,
    /// which none does any more at the end of the stream.
    pub(crate) fn has_released(&self, plan: &Plan, number: usize, seq: u64) -> bool {
        let stage = &plan.stages[number];
        match stage.delivery {
            Delivery::Tap(_) => self.held(stage, seq) > 0,
            _ => ahead(self.position(plan, number), seq) > 0,
        }
    }

    /// Returns a pool's landmark: a recent position of the pool's claim word (I4).
    pub(crate) fn landmark(&self, pool: &Stage) -> u64 {
        self.line(pool.landmark_line()).load(Relaxed) // no data goes with it: a position only
    }

    /// Returns whether `stage` waits for an event at `seq`: the stage has released every event
    /// before `seq`. A pool waits if its workers have taken all these events. A tap waits if one of
    /// its members waits, or if a stage that follows the tap does.
    ///
    /// The result is only a hint, so the loads are relaxed. Another thread may change the result
    /// during the call.
    #[inline]
    pub(crate) fn waits_at(&self, plan: &Plan, stage: usize, seq: u64) -> bool {
        let stage = &plan.stages[stage];
        let word = |line: usize| self.line(line).load(Relaxed);
        match stage.delivery {
            Delivery::Each => word(stage.line) == seq,
            Delivery::Pool { .. } => ahead(PoolWord(word(stage.line)).seq(seq), seq) >= 0,
            Delivery::Shards(shards) => (0..shards).any(|shard| word(stage.line + shard) == seq),
            Delivery::Tap(room) => {
                (0..room).any(|seat| word(stage.bound_line(seat)) == seq << 1)
                    || stage.followers.iter().any(|&stage| self.waits_at(plan, stage, seq))
            }
        }
    }

    // Taps.

    /// Returns the furthest position that a follower of `tap` has announced.
    pub(crate) fn announced(&self, tap: &Stage) -> u64 {
        let mut furthest = None;
        for &line in twin!("announced-by-first": &tap.announced[..] => &tap.announced[..1]) {
            let announced = self.line(line).load(Relaxed);
            let is_further = |furthest| twin!("announced-least": ahead(announced, furthest) > 0 => ahead(announced, furthest) < 0);
            if furthest.is_none_or(is_further) {
                furthest = Some(announced);
            }
        }
        furthest.expect("a stage or the producers come after every tap")
    }

    /// Adds the member at `seat` to the word of the tap's members. The caller then executes the
    /// member's fence.
    pub(crate) fn add_member(&self, tap: &Stage, seat: usize) {
        let members = self.line(tap.line);
        may_die!();
        if tap.delivery.has_member_bits() {
            members.fetch_or(1 << seat, Relaxed); // SYNC[joined]: before the fence
        } else {
            members.fetch_add(1, Relaxed); // SYNC[joined]: before the fence
        }
    }

    /// Removes the member at `seat`, whose bound is idle, from the word of the tap's members.
    pub(crate) fn remove_member(&self, tap: &Stage, seat: usize) {
        let members = self.line(tap.line);
        if tap.delivery.has_member_bits() {
            edge::left::clear(members, 1 << seat);
        } else {
            edge::left::count_out(members);
        }
    }

    /// Returns the number of a tap's members. Members may join or leave at any time.
    pub(crate) fn members(&self, tap: &Stage) -> usize {
        let members = self.line(tap.line).load(Relaxed);
        match tap.delivery.has_member_bits() {
            true => members.count_ones() as usize,
            false => members as usize,
        }
    }

    /// Returns how far the members of a tap let other parties go: the distance from `lower_bound`,
    /// in events. Returns `i64::MAX` if the tap has no member.
    #[inline]
    pub(crate) fn held(&self, tap: &Stage, lower_bound: u64) -> i64 {
        let members = edge::left::see(self.line(tap.line));
        if members == 0 {
            return i64::MAX;
        }
        if tap.delivery.has_member_bits() {
            self.least_of_members(tap, members, lower_bound)
        } else {
            self.least_bound(tap, lower_bound)
        }
    }

    /// Like [`Positions::least_bound`], but only for the seats whose bits are set in `members`.
    /// Another process may have set bits for which the tap has no seats.
    fn least_of_members(&self, tap: &Stage, members: u64, lower_bound: u64) -> i64 {
        let room = tap.delivery.room() as u32;
        let mut members = members & u64::MAX >> u64::BITS.saturating_sub(room);
        let mut least = i64::MAX;
        while members != 0 {
            let seat = members.trailing_zeros() as usize;
            members &= members - 1;
            let bound = edge::released::see_bound(self.line(tap.bound_line(seat)));
            if bound & IDLE == 0 {
                least = least.min(bound_ahead(bound, lower_bound));
            }
        }
        least
    }

    /// Returns the position up to which the taps in `guard` let a party go (I3): at least
    /// `lower_bound` and at most `to`.
    #[inline(always)]
    pub(crate) fn secure(
        &self,
        plan: &Plan,
        guard: &Option<Guard>,
        to: u64,
        lower_bound: u64,
    ) -> u64 {
        match guard {
            None => to,
            Some(guard) => self.pass_taps(plan, guard, to, lower_bound),
        }
    }

    fn pass_taps(&self, plan: &Plan, guard: &Guard, to: u64, lower_bound: u64) -> u64 {
        if ahead(to, lower_bound) <= 0 {
            return lower_bound;
        }
        let line = self.line(guard.line);
        let look = || {
            let taps = twin!("one-tap-asked": &guard.taps[..] => &guard.taps[..1]);
            let held = |&tap: &usize| self.held(&plan.stages[tap], lower_bound);
            let least = taps.iter().map(|tap| twin!("unasked": held(tap) => i64::MAX)).min();
            let free = ahead(to, lower_bound).min(least.unwrap_or(i64::MAX));
            lower_bound.wrapping_add(free.max(0) as u64)
        };
        twin!("high-word-unfenced": () => if ahead(to, line.load(Relaxed)) <= 0 { return look() });
        twin!("unannounced": announce(line, to) => ());
        edge::joined::fence_passer();
        look()
    }
}

/// Raises the announced position of a party to `to`.
#[inline(always)]
fn announce(line: &AtomicU64, to: u64) {
    let mut announced = line.load(Relaxed);
    while ahead(to, announced) > 0 {
        may_die!();
        let raised = twin!("announced-stored": line.compare_exchange(announced, to, Relaxed, Relaxed) => {
            line.store(to, Relaxed);
            Ok(announced)
        });
        match raised {
            Ok(_) => break,
            Err(other) => announced = other,
        }
    }
}
