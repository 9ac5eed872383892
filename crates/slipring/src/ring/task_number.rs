//! Numbers of the tasks that wait through one handle.

use std::num::NonZeroU64;

use crate::ring::control::Control;

/// What a handle's tasks are known by at a bell; drawn when one waits first.
#[derive(Default)]
pub(crate) struct TaskNumber(Option<NonZeroU64>);

impl TaskNumber {
    pub(crate) fn get(&mut self, control: &Control) -> u64 {
        self.0.get_or_insert_with(|| control.next_task()).get()
    }
    pub(crate) fn taken(&self) -> Option<u64> {
        self.0.map(NonZeroU64::get)
    }
}
