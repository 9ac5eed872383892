//! The number that identifies one handle's tasks in a wait queue.

use std::num::NonZeroU64;

use crate::ring::membership::Membership;

/// The number by which a wait queue identifies the tasks of one handle. The handle draws its number
/// when a task of the handle first waits.
#[derive(Default)]
pub(crate) struct TaskNumber(Option<NonZeroU64>);

impl TaskNumber {
    pub(crate) fn get(&mut self, membership: &Membership) -> u64 {
        self.0.get_or_insert_with(|| membership.next_task()).get()
    }
    pub(crate) fn taken(&self) -> Option<u64> {
        self.0.map(NonZeroU64::get)
    }
}
