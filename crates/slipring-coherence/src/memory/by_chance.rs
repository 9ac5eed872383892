//! Store buffers in a run by a schedule: no line is transferred, and chance says when a store
//! becomes visible.
//!
//! - I1: Stores of a core become visible in their order (total store order): only the oldest
//!   waiting store is written.

use super::{Memory, Value, Waiting, Width, cores};

impl Memory {
    /// Makes the oldest waiting store of some core visible that is not `held`, in a run by a
    /// schedule.
    pub(crate) fn commit_one(&mut self, chance: u64, held: u64) {
        let able = self.buffering & !held;
        let number = chance.checked_rem(able.count_ones().into()).unwrap_or(0) as usize;
        if let Some(core) = cores(able).nth(number) {
            self.commit_oldest(core);
        }
    }

    fn commit_oldest(&mut self, core: usize) {
        let buffer = &mut self.cores[core].buffer;
        if let Some(value) = buffer.pop_front().and_then(|oldest| oldest.value) {
            value.write();
        }
        if buffer.is_empty() {
            self.buffering &= !(1 << core);
        }
    }

    /// Makes all waiting stores of a core visible, in a run by a schedule.
    #[inline]
    pub(crate) fn commit_own(&mut self, core: usize) {
        while self.buffering >> core & 1 == 1 {
            self.commit_oldest(core);
        }
    }

    /// Makes the stores of all cores visible, in a run by a schedule.
    pub(crate) fn commit_everywhere(&mut self) {
        cores(self.buffering).for_each(|core| self.commit_own(core));
    }

    /// Stores a word in a run by a schedule: late, if the core's stores can be.
    #[inline]
    pub(crate) fn store_by_chance(
        &mut self,
        me: usize,
        late: bool,
        at: usize,
        width: Width,
        bits: u64,
    ) {
        let value = Value { at, width, bits };
        if !late {
            return value.write();
        }
        if self.is_on_stack(at) {
            // I3, and the stores before it become visible first.
            self.commit_own(me);
            return value.write();
        }
        if self.cores[me].buffer.len() as u64 >= self.costs.buffer {
            self.commit_oldest(me);
        }
        let waiting = Waiting { done: 0, arrives: 0, line: 0, value: Some(value) };
        self.cores[me].buffer.push_back(waiting);
        self.buffering |= 1 << me;
    }
}
