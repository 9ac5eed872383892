//! The role of a reader that joined a tap.

use crate::base::sync::Relaxed;
use crate::consumer::position::{ConsumerState, Role};
use crate::errors::WaitError;
use crate::ring::control::Control;
use crate::ring::slots::Layout;

/// The role of a member: the graph does without it.
pub struct MemberRole {
    pub(crate) seat: usize,
    pub(crate) ticket_line: usize,
    pub(crate) ticket: u64,
}

impl Role for MemberRole {
    const MIDWAY: bool = true;
    #[inline(always)]
    fn refused(&self, control: &Control) -> Option<WaitError> {
        // No data goes with it; whoever waits is rung.
        (control.line(self.ticket_line).load(Relaxed) != self.ticket).then_some(WaitError::Left)
    }
    fn goes<E, L: Layout>(&self, state: &ConsumerState<E, L>, _next: u64) {
        state.control().release_member(state.stage, self.seat);
    }
}
