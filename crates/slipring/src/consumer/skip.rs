//! Skipping the event at which a stage failed (policy::I2).

use crate::base::sync::twin;
use crate::consumer::position::ConsumerPosition;
use crate::ring::slots::Layout;

/// Passes over what a seat failed at, and notes it (I2).
pub(crate) fn skip<E, L: Layout>(position: &mut impl ConsumerPosition<E, L>, len: u64) {
    let first = position.next();
    let marks = position.state().plan().policy.marks.clone();
    let mark = || marks.iter().for_each(|marks| marks.mark(first, len));
    twin!("marked-before-release": mark() => ());
    position.advance(len, len);
    let state = position.state_mut();
    // A step may skip a quarter of the ring.
    state.counts.skipped = state.counts.skipped.wrapping_add(len);
    state.skipped = true;
    twin!("marked-before-release": () => {
        position.release();
        mark();
    });
}
