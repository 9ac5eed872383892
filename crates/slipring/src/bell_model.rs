//! Quiet bells (bell::I4) on a machine whose cores keep stores back: every state that it can reach, for the model checker of the other models knows no barrier
//! that one thread makes in another.
//!
//! The machine is x86-TSO (Sewell et al., 2010): a store goes to its core's buffer and to memory some time later, a load sees its own core's buffer first,
//! a fence or a locked operation waits until the buffer is empty. A barrier in all threads empties every core's buffer, one after the other, at any time between its beginning
//! and its end. Each step of a model is one step of `bell.rs`; what the steps are *on* is two words: progress, and the bell's.
//!
//! Every model ends when all is published, so a sleeper that is left asleep then has lost its wake-up.

use std::collections::HashSet;

const QUIET: u8 = 0;
const FENCED: u8 = 1;
const SLEEPER: u8 = 2;

const RINGERS: usize = 2;
const SLEEPERS: usize = 2;
/// Publications of a ringer: enough for a bell to fall quiet, to be woken, and to fall quiet again between them.
const PUBLICATIONS: u8 = 3;

/// A step done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    None,
    /// Whoever announces itself at a quiet bell trusts the ringers' fences.
    NoBarrier,
    /// It looks first, and bars after.
    LateBarrier,
    /// A ringer that finds the bell fenced does not fence.
    NoFence,
    /// The bell falls quiet by a store, whoever has announced itself meanwhile.
    QuietByStore,
    /// The bell falls quiet when sleepers go, not when ringers find nobody: the next ringer has not fenced, and no barrier comes.
    QuietWhenAwake,
    /// The lock is let go while the barrier is made, and the bell is fenced before: another sleeper trusts fences that nobody has made.
    BarrierUnlocked,
    /// A ringer wakes without the lock.
    WakeUnlocked,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Ringing {
    Publish,
    Glance,
    Fence,
    Look,
    CalmDown,
    Wake,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Sleeping {
    Lock,
    Announce,
    /// The buffers of ringers from this one on are still to be emptied.
    Bar(u8),
    Fenced,
    Look,
    /// As `Bar`, but after the look, which found this.
    BarLate(u8, bool),
    /// As `Bar`, without the lock.
    BarUnlocked(u8),
    Relock,
    FallAsleep,
    Asleep,
    Withdraw,
    Unlock(bool),
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    /// What of each ringer's publications has reached memory.
    progress: [u8; RINGERS],
    /// What it has published; the difference is in its core's buffer.
    published: [u8; RINGERS],
    word: u8,
    locked: bool,
    ringers: [Ringing; RINGERS],
    sleepers: [Sleeping; SLEEPERS],
}

impl State {
    fn sees_all(&self) -> bool {
        self.progress.iter().all(|&progress| progress == PUBLICATIONS)
    }

    fn empty(&self, ringer: usize) -> bool {
        self.progress[ringer] == self.published[ringer]
    }

    fn next_publication(&mut self, ringer: usize) {
        self.ringers[ringer] = if self.published[ringer] == PUBLICATIONS { Ringing::Done } else { Ringing::Publish };
    }

    /// What this ringer may do next, if it may do anything.
    fn ring(&self, ringer: usize, twin: Twin) -> Option<State> {
        let mut next = self.clone();
        let to = &mut next.ringers[ringer];
        match self.ringers[ringer] {
            Ringing::Publish => {
                next.published[ringer] += 1;
                *to = Ringing::Glance;
            }
            Ringing::Glance if self.word == QUIET => next.next_publication(ringer),
            Ringing::Glance => *to = if twin == Twin::NoFence { Ringing::Look } else { Ringing::Fence },
            Ringing::Fence if self.empty(ringer) => *to = Ringing::Look,
            Ringing::Fence => return None,
            Ringing::Look if self.word >= SLEEPER => *to = Ringing::Wake,
            Ringing::Look if self.word == FENCED => *to = Ringing::CalmDown,
            Ringing::Look => next.next_publication(ringer),
            // A locked operation, so the buffer is empty; it was before, or is by now.
            Ringing::CalmDown => {
                if twin == Twin::QuietByStore || self.word == FENCED {
                    next.word = QUIET;
                }
                if !self.empty(ringer) {
                    return None;
                }
                next.next_publication(ringer);
            }
            // Taking the lock is a locked operation too.
            Ringing::Wake if (self.locked && twin != Twin::WakeUnlocked) || !self.empty(ringer) => return None,
            Ringing::Wake => {
                for sleeper in &mut next.sleepers {
                    if *sleeper == Sleeping::Asleep {
                        *sleeper = Sleeping::Relock;
                        next.word = next.word.wrapping_sub(SLEEPER);
                    }
                }
                next.next_publication(ringer);
            }
            Ringing::Done => return None,
        }
        Some(next)
    }

    fn sleep(&self, sleeper: usize, twin: Twin) -> Option<State> {
        let mut next = self.clone();
        let to = &mut next.sleepers[sleeper];
        match self.sleepers[sleeper] {
            Sleeping::Lock if self.locked => return None,
            Sleeping::Lock => {
                next.locked = true;
                *to = Sleeping::Announce;
            }
            Sleeping::Announce => {
                next.word = next.word.wrapping_add(SLEEPER);
                *to = match twin {
                    _ if self.word != QUIET => Sleeping::Look,
                    Twin::NoBarrier | Twin::LateBarrier => Sleeping::Fenced,
                    Twin::BarrierUnlocked => {
                        next.word |= FENCED;
                        next.locked = false;
                        Sleeping::BarUnlocked(0)
                    }
                    _ => Sleeping::Bar(0),
                };
            }
            Sleeping::Bar(ringer) | Sleeping::BarLate(ringer, _) | Sleeping::BarUnlocked(ringer) => {
                next.progress[ringer as usize] = next.published[ringer as usize];
                let last = ringer as usize + 1 == RINGERS;
                *to = match self.sleepers[sleeper] {
                    Sleeping::Bar(_) if last => Sleeping::Fenced,
                    Sleeping::Bar(_) => Sleeping::Bar(ringer + 1),
                    Sleeping::BarLate(_, true) if last => Sleeping::Withdraw,
                    Sleeping::BarLate(_, false) if last => Sleeping::FallAsleep,
                    Sleeping::BarLate(_, found) => Sleeping::BarLate(ringer + 1, found),
                    _ if !last => Sleeping::BarUnlocked(ringer + 1),
                    _ if self.locked => return None,
                    _ => {
                        next.locked = true;
                        Sleeping::Look
                    }
                };
            }
            Sleeping::Fenced => {
                next.word |= FENCED;
                *to = Sleeping::Look;
                if twin == Twin::LateBarrier {
                    *to = Sleeping::BarLate(0, self.sees_all());
                }
            }
            Sleeping::Look => *to = if self.sees_all() { Sleeping::Withdraw } else { Sleeping::FallAsleep },
            // Falling asleep and letting the lock go are one.
            Sleeping::FallAsleep => {
                next.locked = false;
                *to = Sleeping::Asleep;
            }
            Sleeping::Asleep => return None,
            Sleeping::Relock if self.locked => return None,
            // Whoever woke it has withdrawn it.
            Sleeping::Relock => {
                next.locked = true;
                *to = Sleeping::Unlock(self.sees_all());
            }
            Sleeping::Withdraw => {
                next.word = next.word.wrapping_sub(SLEEPER);
                if twin == Twin::QuietWhenAwake && next.word == FENCED {
                    next.word = QUIET;
                }
                *to = Sleeping::Unlock(self.sees_all());
            }
            Sleeping::Unlock(found) => {
                next.locked = false;
                *to = if found { Sleeping::Done } else { Sleeping::Lock };
            }
            Sleeping::Done => return None,
        }
        Some(next)
    }

    /// The buffer of this ringer's core lets one store go.
    fn drain(&self, ringer: usize) -> Option<State> {
        let mut next = self.clone();
        next.progress[ringer] += u8::from(!self.empty(ringer));
        (next != *self).then_some(next)
    }
}

/// How many states there are; `Err`: one in which nobody can go on, and somebody is left asleep.
fn explore(twin: Twin) -> Result<usize, State> {
    let first = State {
        progress: [0; RINGERS],
        published: [0; RINGERS],
        word: FENCED,
        locked: false,
        ringers: [Ringing::Publish; RINGERS],
        sleepers: [Sleeping::Lock; SLEEPERS],
    };
    let mut known = HashSet::from([first.clone()]);
    let mut left = vec![first];
    while let Some(state) = left.pop() {
        let rings = (0..RINGERS).filter_map(|ringer| state.ring(ringer, twin));
        let drains = (0..RINGERS).filter_map(|ringer| state.drain(ringer));
        let sleeps = (0..SLEEPERS).filter_map(|sleeper| state.sleep(sleeper, twin));
        let mut stuck = true;
        for next in rings.chain(drains).chain(sleeps) {
            stuck = false;
            if known.insert(next.clone()) {
                left.push(next);
            }
        }
        if stuck && state.sleepers.iter().any(|sleeper| *sleeper != Sleeping::Done) {
            return Err(state);
        }
    }
    Ok(known.len())
}

#[test]
#[cfg_attr(miri, ignore = "an hour's worth of states, and nothing in them that is unsafe")]
fn nobody_sleeps_through_what_a_quiet_bell_does_not_tell() {
    let states = explore(Twin::None).unwrap_or_else(|stuck| panic!("left asleep: {stuck:?}"));
    assert!(states > 30_000, "{states} states");
}

#[test]
#[cfg_attr(miri, ignore = "an hour's worth of states, and nothing in them that is unsafe")]
fn every_step_of_a_quiet_bell_is_needed() {
    for twin in [Twin::NoBarrier, Twin::LateBarrier, Twin::NoFence, Twin::QuietByStore, Twin::BarrierUnlocked, Twin::WakeUnlocked] {
        let stuck = explore(twin).err().unwrap_or_else(|| panic!("{twin:?} is not caught"));
        assert!(stuck.sleepers.contains(&Sleeping::Asleep), "{twin:?}: {stuck:?}");
    }
    // No step of ours, but one that suggests itself: it is right, because the next sleeper finds the bell quiet and bars.
    assert!(explore(Twin::QuietWhenAwake).is_ok());
}
