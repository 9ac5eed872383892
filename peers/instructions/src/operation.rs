//! An operation whose instructions are counted, and its laps.

/// Number of slots of each ring, and of events in a lap.
pub const RING: usize = 1024;
/// Number of calls of each counted function. A step that a ring makes once, such as the first look
/// for room, hardly shows in their mean.
pub const LAPS: u64 = 64;

/// An operation whose instructions are counted.
pub struct Operation {
    /// Name of the operation in the table of budgets.
    pub name: &'static str,
    /// Symbol of the function whose instructions are counted.
    pub symbol: &'static str,
    /// Number of units that one call of the function handles.
    pub units: usize,
    /// The unit.
    pub unit: &'static str,
    /// Description of the operation.
    pub what: &'static str,
    /// The operation of slipring that this one is compared with; `None` for slipring's own.
    pub beside: Option<&'static str>,
    /// Builds the ring, makes all laps and checks the results.
    pub run: fn(),
}

/// Makes the laps of an operation. The events of a lap are 0, 1, 2 and so on, and `lap` returns the
/// sum of those that it has read.
pub fn laps(mut lap: impl FnMut() -> u64) {
    let sum = (0..LAPS).map(|_| lap()).sum::<u64>();
    assert_eq!(sum, LAPS * (0..RING as u64).sum::<u64>(), "the sum of the events that were read");
}
