//! How a waiting party learns that a process has died, and what the party then does.
//!
//! [`Processes`] says which participants are dead. The methods of this module know the graph. They
//! decide which deaths hold a waiter up, which waiting calls return [`WaitError::PeerDead`], and
//! what must be settled so that the living processes can continue. The module
//! [`recovery`](crate::processes::recovery) settles what the dead left in a ring.

use std::time::Duration;

use crate::base::sync::{Line, twin};
use crate::errors::{Cause, PeerDead, WaitError};
use crate::processes::closing;
use crate::processes::deaths::{Death, DeathChecks, OnDeath, Processes};
use crate::ring::control::Control;
use crate::ring::seat::Seat;
use crate::ring::spec::Delivery;
use crate::ring::task_number::TaskNumber;
use crate::ring::waits::{Place, Waiter, WaitingTask};
use crate::ring::words::ahead;
use crate::ring::world::{Recover, Watched, World};

#[allow(private_interfaces)]
impl World for Processes {
    const SHARED: bool = true;

    type Checks = DeathChecks;

    fn of_heap() -> Processes {
        unreachable!("processes share a ring over a segment's memory, never one on the heap")
    }

    #[inline(always)]
    fn is_due(&self, checks: &mut DeathChecks) -> bool {
        checks.is_due(self.notice)
    }

    fn check_again(checks: &mut DeathChecks) {
        checks.tell_later();
    }

    fn notice(&self) -> Option<Duration> {
        Some(self.notice)
    }

    /// Checks the party that a waiter waits for, and the stages that this party waits for in turn.
    /// Returns the error that ends the wait if one of these parties has died and its [`OnDeath`] is
    /// `Tell`, if the waiter finds damage, or if the segment's name is lost. If the dead party's
    /// [`OnDeath`] is `Fail`, fails the graph instead.
    #[cold]
    fn watch(&self, watched: Watched<'_>, waiter: &Waiter) -> Option<WaitError> {
        let Watched { control, ring, is_damaged } = watched;
        let dead = self.holds_up_dead(control, waiter);
        self.settle_dead_producers(watched);
        // A dead member no longer holds up the parties behind its tap.
        let taps = twin!("dead-members-left": control.plan.taps_before(waiter.party) => &[]);
        taps.iter().for_each(|&tap| self.settle_dead(control, tap, ring));
        self.settle_dead_workers(control, ring);
        if is_damaged() {
            return Some(WaitError::Damaged);
        }
        let lost = self.proof.lost_name().map(|lost| WaitError::NameLost(Box::new(lost)));
        let Some((party, shard, Death { pid, .. })) = dead else { return lost };
        let seq = match party == control.plan.producer_party() {
            true => waiter.at,
            false => control.positions.position(&control.plan, party),
        };
        if self.on_death[party] == OnDeath::Fail {
            control.fail(party, Some(seq), Cause::Died { pid });
            return None;
        }
        let stage = control.plan.name_of(party);
        Some(WaitError::PeerDead(Box::new(PeerDead { stage, shard, pid, seq })))
    }

    /// Checks for deaths on behalf of a call that finds nothing and does not wait. So a loop of
    /// such calls learns of deaths as a waiting call does, and a task that was woken because of a
    /// death learns the reason. Returns the death as an error, if the call must return it. If the
    /// check has failed the graph, returns the graph's failure.
    #[cold]
    fn refuse(
        &self,
        ring: Watched<'_>,
        place: Place,
        task: &TaskNumber,
        due: bool,
    ) -> Option<WaitError> {
        let waiter = Waiter::at(place);
        let noted = task.taken().and_then(|task| self.noted.take(task));
        // Since the error was noted, another process may have taken the dead process's place. Then
        // the error is dropped.
        let passed = |told: &WaitError| {
            matches!(told, WaitError::PeerDead(_))
                && self.holds_up_dead(ring.control, &waiter).is_none()
        };
        if let Some(told) = noted.filter(|told| !passed(told)) {
            return Some(told);
        }
        if !due {
            return None;
        }
        self.watch(ring, &waiter).or_else(|| ring.control.status.stopped())
    }

    fn tell_later(&self, task: &TaskNumber, error: WaitError) {
        if let Some(task) = task.taken() {
            self.noted.note(task, error);
        }
    }

    fn arm(
        &self,
        control: &Control,
        task: WaitingTask<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let ready = &mut || ready() || self.noted.has(task.number);
        let Control { plan, waits, .. } = control;
        if !plan.parks(task.place.party) {
            return waits.arm(plan, task, ready);
        }
        self.reactors.arm(waits.queue_of(plan, task.place.party), task, ready)
    }

    /// An error that was noted for the task stays: the handle's next call that finds nothing
    /// returns it.
    fn disarm(&self, control: &Control, party: usize, number: u64) {
        // A forked child must not take the lock: another thread of the parent may have held it
        // during the fork.
        if control.is_own_process() {
            self.reactors.disarm(control.waits.queue_of(&control.plan, party), number);
        }
    }

    fn end(&self, control: &Control) {
        // A forked child has neither the threads nor the segment.
        if control.is_own_process() {
            self.reactors.stop(control.waits.queues());
        }
    }

    /// Leaves the place of the only producer to another process.
    fn producer_left(&self, control: &Control) {
        let seat = &control.seats_of(control.plan.producer_party())[0];
        seat.free(control.membership.participant); // SYNC[seated]: last
    }

    fn is_end(control: &Control, at: u64) -> bool {
        closing::is_end(control, at)
    }

    /// Settles what dead producers left, so that the stages and the other producers can continue.
    /// Does nothing in a ring with a single producer, unless the ring closes when that producer
    /// dies.
    fn settle_dead_producers(&self, Watched { control, ring, .. }: Watched<'_>) {
        if control.plan.many_producers || self.closes_at_death(control) {
            self.settle_dead(control, control.plan.producer_party(), ring);
        }
    }

    fn closes_at_death(&self, control: &Control) -> bool {
        self.on_death[control.plan.producer_party()] == OnDeath::Close
    }

    fn is_staying(&self, seat: &Seat) -> bool {
        // A process notes the owner's death before it recovers the owner. So the seat is loaded
        // first, and the note last.
        twin!("note-seen-early":
            !self.find_dead(seat) && seat.is_staying() => seat.is_staying() && !self.find_dead(seat)
        )
    }
}

impl Processes {
    /// Checks for deaths on behalf of a thread that waits for the answer to the request at `seq`.
    /// If a dead process holds the request up, returns the error that ends the wait.
    pub(crate) fn watch_for_request(&self, ring: Watched<'_>, seq: u64) -> Option<WaitError> {
        let place = Place { party: ring.control.plan.producer_party(), at: seq };
        let death = self.watch(ring, &Waiter::at(place))?;
        // A dead process that has passed the request does not delay the answer.
        match &death {
            WaitError::PeerDead(dead) if ahead(dead.seq, seq) > 0 => None,
            _ => Some(death),
        }
    }

    /// Checks for deaths on behalf of a waiting task. If the task's next call must return an error,
    /// notes the error and returns `true`.
    pub(crate) fn watch_for_task(&self, ring: Watched<'_>, task: u64, place: Place) -> bool {
        let death = self.watch(ring, &Waiter::at(place));
        death.map(|death| self.noted.note(task, death)).is_some()
    }

    /// Returns the death that holds a waiter up, directly or through other stages. Also returns the
    /// dead participant's party and, if that party is sharded, the number of the participant's
    /// shard.
    fn holds_up_dead(
        &self,
        control: &Control,
        waiter: &Waiter,
    ) -> Option<(usize, Option<usize>, Death)> {
        let mut party = slowest(control, waiter);
        loop {
            if let Some((shard, death)) = self.death_in(control, party) {
                return Some((party, shard, death));
            }
            party = holds_up(control, party)?;
        }
    }

    /// Looks for a dead participant that has a place of `party`. Returns its death, as
    /// [`Processes::death_of`] does, and the number of its shard, if the party is sharded. Returns
    /// `None` if no participant of the party has died, or if waiting calls must not return the
    /// death. The death of a pool's worker, or of one of several producers, counts only once the
    /// party has no living participant.
    fn death_in(&self, control: &Control, party: usize) -> Option<(Option<usize>, Death)> {
        if matches!(self.on_death.get(party)?, OnDeath::Wait | OnDeath::Close) {
            return None;
        }
        if let Some(Delivery::Shards(shards)) = control.plan.stages.get(party).map(|it| it.delivery)
        {
            let (shard, death) = self.dead_shard(control, party, shards)?;
            return Some((Some(shard), death));
        }
        let seats = control.seats_of(party);
        let lives = |seat: &Line<Seat>| seat.owner().is_some_and(|it| !self.proof.is_dead(it));
        if seats.len() > 1 && seats.iter().any(lives) {
            return None;
        }
        let death = || seats.iter().filter_map(|seat| self.death_of(seat)).max();
        // A closing ring needs no producer. If the last producer dies after it has begun to leave,
        // the ring closes all the same. The end is asked for after the death, because a producer
        // may end the stream and then die. The seats are asked first: a dead leaver's seat shows
        // that it was leaving until a recovery frees it, and before that closes the ring.
        let leaves = || seats.iter().any(|seat| seat.is_leaving());
        let is_closing = || control.status.is_closing();
        let ends =
            || twin!("closing-seen-early": leaves() || is_closing() => is_closing() || leaves());
        let is_needless =
            || party == control.plan.producer_party() && twin!("leaver-told": ends() => false);
        let death = twin!("end-asked-early":
            death().filter(|_| !is_needless()) => if is_needless() { None } else { death() }
        )?;
        Some((None, death))
    }

    /// Returns the number of a dead shard that holds a stage up, and the death of its owner. If
    /// several dead shards hold the stage up, prefers one whose death is not settled yet. The other
    /// shards cannot do the work of a dead shard.
    fn dead_shard(&self, control: &Control, stage: usize, shards: usize) -> Option<(usize, Death)> {
        let (line, position) =
            (control.plan.stages[stage].line, control.positions.position(&control.plan, stage));
        let dead = |shard: usize| {
            let holds_up = control.positions.released(line + shard) == position;
            let seat = &control.seats_of(stage)[shard];
            if holds_up { Some((shard, self.death_of(seat)?)) } else { None }
        };
        (0..shards).filter_map(dead).max_by_key(|&(_, death)| death)
    }

    /// Settles what dead workers of all pools left. The living workers of each pool then finish the
    /// dead workers' chunks.
    fn settle_dead_workers(&self, control: &Control, ring: &dyn Recover) {
        for (pool, stage) in control.plan.stages.iter().enumerate() {
            if matches!(stage.delivery, Delivery::Pool { .. }) {
                self.settle_dead(control, pool, ring);
            }
        }
    }

    /// Settles what dead owners of a party's seats left.
    fn settle_dead(&self, control: &Control, party: usize, ring: &dyn Recover) {
        for seat in control.seats_of(party) {
            if let Some(owner) = seat.owner()
                && owner != control.membership.participant
                && self.proof.is_dead(owner)
            {
                self.recover(&control.membership.seats, owner, ring);
            }
        }
    }
}

/// Returns the party for which a waiter waits now. The party may change during a wait.
fn slowest(control: &Control, waiter: &Waiter) -> usize {
    if let Some(stage) = waiter.only {
        return stage;
    }
    if waiter.party == control.plan.producer_party() {
        let lower_bound = waiter.at.wrapping_sub(control.plan.capacity as u64);
        return control
            .positions
            .least_frontier(&control.plan, &control.plan.gating, lower_bound)
            .1;
    }
    control.positions.upstream(&control.plan, waiter.party, waiter.at).1
}

/// Returns the stage for which `party` waits now, or `None` if the party has events to handle, or
/// waits for a publication. Stages form no circle, so a walk from stage to stage ends.
fn holds_up(control: &Control, party: usize) -> Option<usize> {
    let stage = control.plan.stages.get(party).filter(|stage| !stage.after.is_empty())?;
    let position = control.positions.position(&control.plan, party);
    let (frontier, upstream) = control.positions.upstream(&control.plan, party, position);
    (ahead(frontier, position) <= 0 && stage.after.contains(&upstream)).then_some(upstream)
}

/// Forgets the deaths of a party's former handles. Called when another handle joins the party, and
/// before a worker leaves its seat (`seat::I4`).
pub(crate) fn forget_deaths(control: &Control, party: usize) {
    control.seats_of(party).iter().for_each(|seat| seat.forget_death());
}
