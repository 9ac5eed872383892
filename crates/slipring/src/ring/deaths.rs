//! How a waiting party hears of deaths, and what it does about them.
//!
//! [`Peers`] says which processes are dead. The methods of this module know the graph: which deaths
//! hold a waiter up, which parties are told, and what is to be settled, so that the others go on.
//! How a ring settles what a dead process left is in [`recovery`](crate::ring::recovery).

use crate::base::sync::{Line, twin};
use crate::errors::{Cause, PeerDead, WaitError};
use crate::ring::control::Control;
use crate::ring::peers::{Checkup, Death, OnDeath, Peers};
use crate::ring::seat::Seat;
use crate::ring::spec::Delivery;
use crate::ring::task_number::TaskNumber;
use crate::ring::waits::Waiter;
use crate::ring::words::ahead;

impl Control {
    /// Checks the party that a waiter waits for, and the stages that this party waits for in turn.
    /// Returns the error of the wait, if that party's process has died and waiters are to be told,
    /// if the waiter finds damage, or if the segment's name is lost. Fails the graph, if the graph
    /// is to fail.
    #[cold]
    pub(super) fn watch(
        &self,
        peers: &Peers,
        waiter: &Waiter,
        Checkup { settle, is_damaged }: Checkup<'_>,
    ) -> Option<WaitError> {
        let dead = self.holds_up_dead(peers, waiter);
        self.settle_dead_producers(settle);
        // A dead member no longer holds up the parties behind its tap.
        let taps = twin!("dead-members-left": self.plan.taps_before(waiter.party) => &[]);
        taps.iter().for_each(|&tap| self.settle_dead(peers, tap, settle));
        self.settle_dead_workers(peers, settle);
        if is_damaged() {
            return Some(WaitError::Damaged);
        }
        let lost = peers.proof.lost_name().map(|lost| WaitError::NameLost(Box::new(lost)));
        let Some((party, shard, Death { pid, .. })) = dead else { return lost };
        let on_death = peers.on_death[party];
        let stage = self.name(party);
        let seq = match party == self.producer_party() {
            true => waiter.at,
            false => self.position(party),
        };
        if on_death == OnDeath::Fail {
            self.fail(party, Some(seq), Cause::Died { pid });
            return None;
        }
        Some(WaitError::PeerDead(Box::new(PeerDead { stage, shard, pid, seq })))
    }

    /// Checks for deaths on behalf of a thread that waits for the answer to the request at `seq`.
    /// Returns the death of a process that holds the request up, if waiters are to be told.
    pub(crate) fn watch_for_request(&self, seq: u64, settle: &dyn Fn(u32)) -> Option<WaitError> {
        let waiter = Waiter::new(self.producer_party(), self.producer_party(), seq);
        let checkup = Checkup { settle, is_damaged: &|| false };
        let death = self.watch(self.peers.as_ref()?, &waiter, checkup)?;
        // A dead process that has passed the request does not hold it up.
        match &death {
            WaitError::PeerDead(dead) if ahead(dead.seq, seq) > 0 => None,
            _ => Some(death),
        }
    }

    /// Checks for deaths on behalf of a waiting task, and notes the error of its next call, if any.
    /// Returns whether there is one.
    pub(crate) fn watch_for_task(
        &self,
        task: u64,
        (party, at): (usize, u64),
        settle: &dyn Fn(u32),
    ) -> bool {
        let Some(peers) = &self.peers else { return false };
        let waiter = Waiter::new(party, party, at);
        let checkup = Checkup { settle, is_damaged: &|| false };
        let death = self.watch(peers, &waiter, checkup);
        death.map(|death| peers.deaths.note(task, death)).is_some()
    }

    /// Has the next refused call of a handle return `error`, which this call cannot return.
    pub(crate) fn tell_later(&self, task: &TaskNumber, error: WaitError) {
        if let Some((peers, task)) = self.peers.as_ref().zip(task.taken()) {
            peers.deaths.note(task, error);
        }
    }

    /// Called where a call of `party`, at the position `at`, found nothing and does not wait. A
    /// loop of such calls hears of deaths as a waiting call does. So does the call of a task that
    /// was woken to hear of a death. `checks`: a check for deaths is due
    /// ([`DeathChecks`](crate::ring::peers::DeathChecks)). Returns the error of the call, if any:
    /// a death of which the caller is to be told, or the end of a graph that the check has failed.
    #[cold]
    pub(crate) fn refused(
        &self,
        (party, at): (usize, u64),
        task: &TaskNumber,
        checks: bool,
        checkup: Checkup<'_>,
    ) -> Option<WaitError> {
        let peers = self.peers.as_ref()?;
        let waiter = Waiter::new(party, party, at);
        let noted = task.taken().and_then(|task| peers.deaths.take(task));
        // Another process may have taken the place of the dead one since.
        let passed = |told: &WaitError| {
            matches!(told, WaitError::PeerDead(_)) && self.holds_up_dead(peers, &waiter).is_none()
        };
        if let Some(told) = noted.filter(|told| !passed(told)) {
            return Some(told);
        }
        if !checks {
            return None;
        }
        self.watch(peers, &waiter, checkup).or_else(|| self.stopped())
    }

    /// Returns the death for which a waiter waits, directly or through other stages, and the dead
    /// participant's party and shard.
    fn holds_up_dead(
        &self,
        peers: &Peers,
        waiter: &Waiter,
    ) -> Option<(usize, Option<usize>, Death)> {
        let mut party = self.slowest(waiter);
        loop {
            if let Some((shard, death)) = self.death_of(peers, party) {
                return Some((party, shard, death));
            }
            party = self.holds_up(party)?;
        }
    }

    /// Returns the party for which a waiter waits now. The party may change during a wait.
    fn slowest(&self, waiter: &Waiter) -> usize {
        if waiter.party == self.producer_party() {
            let lower_bound = waiter.at.wrapping_sub(self.plan.capacity as u64);
            return self.least_frontier(&self.plan.gating, lower_bound).1;
        }
        self.upstream(waiter.party, waiter.at).1
    }

    /// Returns the stage for which a stage waits now; `None`: it has events to handle, or it waits
    /// for a publication. Stages form no circle, so a walk along these stages ends.
    fn holds_up(&self, party: usize) -> Option<usize> {
        let stage = self.plan.stages.get(party).filter(|stage| !stage.after.is_empty())?;
        let position = self.positions.position(&self.plan, party);
        let (frontier, upstream) = self.upstream(party, position);
        (ahead(frontier, position) <= 0 && stage.after.contains(&upstream)).then_some(upstream)
    }

    /// Returns the death of a participant that has a place of `party`, as [`Peers::death_of`] does,
    /// and the number of its shard. `None`: there is none, or no party is to hear of it. Of several
    /// producers, and of a pool's workers, the others hear once none lives.
    fn death_of(&self, peers: &Peers, party: usize) -> Option<(Option<usize>, Death)> {
        if matches!(peers.on_death.get(party)?, OnDeath::Wait | OnDeath::Close) {
            return None;
        }
        if let Some(Delivery::Shards(shards)) = self.plan.stages.get(party).map(|it| it.delivery) {
            let (shard, death) = self.dead_shard(peers, party, shards)?;
            return Some((Some(shard), death));
        }
        let seats = self.seats_of(party);
        let lives = |seat: &Line<Seat>| seat.owner().is_some_and(|it| !peers.proof.is_dead(it));
        if seats.len() > 1 && seats.iter().any(lives) {
            return None;
        }
        // A closing ring needs no producer. The last producer that has said that it leaves closes,
        // also if it dies before it has.
        let leaves = |seat: &Line<Seat>| seat.is_leaving();
        let ends = || self.status.is_closing() || seats.iter().any(leaves);
        if party == self.producer_party() && twin!("leaver-told": ends() => false) {
            return None;
        }
        let death = seats.iter().filter_map(|seat| peers.death_of(seat)).max()?;
        Some((None, death))
    }

    /// Returns the number of a shard that holds a stage up, and the death of its owner. Of several
    /// such shards, one that is not settled yet comes first. The other shards cannot do its work.
    fn dead_shard(&self, peers: &Peers, stage: usize, shards: usize) -> Option<(usize, Death)> {
        let (line, position) = (self.plan.stages[stage].line, self.position(stage));
        let dead = |shard: usize| {
            let holds_up = self.positions.released(line + shard) == position;
            let seat = &self.seats_of(stage)[shard];
            if holds_up { Some((shard, peers.death_of(seat)?)) } else { None }
        };
        (0..shards).filter_map(dead).max_by_key(|&(_, death)| death)
    }

    /// Has `settle` settle what dead producers left, in a ring of several processes that produce,
    /// or one that closes when the producer dies. The stages and the other producers then go on.
    pub(crate) fn settle_dead_producers(&self, settle: &dyn Fn(u32)) {
        let settles = self.plan.many_producers || self.closes_at_death();
        if let Some(peers) = self.peers.as_ref().filter(|_| settles) {
            self.settle_dead(peers, self.producer_party(), settle);
        }
    }

    /// Has `settle` settle what dead workers left. The other workers of a pool then finish the
    /// chunks of the dead.
    fn settle_dead_workers(&self, peers: &Peers, settle: &dyn Fn(u32)) {
        for (pool, stage) in self.plan.stages.iter().enumerate() {
            if matches!(stage.delivery, Delivery::Pool { .. }) {
                self.settle_dead(peers, pool, settle);
            }
        }
    }

    /// Has `settle` settle what the dead among the owners of a party's seats left.
    fn settle_dead(&self, peers: &Peers, party: usize, settle: &dyn Fn(u32)) {
        for seat in self.seats_of(party) {
            if let Some(owner) = seat.owner()
                && owner != self.membership.participant
                && peers.proof.is_dead(owner)
            {
                peers.recover(&self.membership.seats, owner, settle);
            }
        }
    }

    /// Returns whether a living producer owns a seat of the producers, and has not begun to leave.
    pub(crate) fn is_staying(&self, seat: &Seat) -> bool {
        // A process that recovers the owner has noted its death, so the note is loaded last.
        let find_dead = || self.peers.as_ref().is_some_and(|peers| peers.find_dead(seat));
        twin!("note-seen-early":
            !find_dead() && seat.is_staying() => seat.is_staying() && !find_dead()
        )
    }

    /// Returns whether the death of the last producer closes the ring.
    pub(crate) fn closes_at_death(&self) -> bool {
        let on_death = |peers: &Peers| peers.on_death[self.producer_party()] == OnDeath::Close;
        self.peers.as_ref().is_some_and(on_death)
    }

    /// Forgets the deaths of former handles of a party, for a handle that joins it (`seat::I4`).
    pub(crate) fn forget_deaths(&self, party: usize) {
        self.seats_of(party).iter().for_each(|seat| seat.forget_death());
    }
}
