//! Marker types that say where a chain's next stage is declared: outside of any fan-out, inside a
//! fan-out, or inside a branch.

/// Marks a [`Chain`](crate::Chain) outside of any fan-out: each stage comes after all stages that
/// were declared earlier.
pub struct Sequential(());
/// Marks a [`Chain`](crate::Chain) inside of [`fan_out`](crate::Chain::fan_out): each stage comes
/// after the stages before the fan-out, and runs in parallel with the other stages inside the
/// fan-out.
pub struct FanOut(());
/// Marks a [`Chain`](crate::Chain) inside of [`branch`](crate::Chain::branch): each stage comes
/// after the previous stage of the branch, and runs in parallel with the other branches.
pub struct Branch(());

pub(super) mod sealed {
    /// The part of a chain in which the next stage is declared.
    pub trait ChainScope {
        /// Whether successive declarations declare parallel stages.
        const SIDE_BY_SIDE: bool;
    }
    impl ChainScope for super::Sequential {
        const SIDE_BY_SIDE: bool = false;
    }
    impl ChainScope for super::FanOut {
        const SIDE_BY_SIDE: bool = true;
    }
    impl ChainScope for super::Branch {
        const SIDE_BY_SIDE: bool = false;
    }
}

/// Marks the places where a stage may write; all these places are outside of any fan-out.
#[diagnostic::on_unimplemented(
    message = "a stage that updates events cannot stand beside other stages",
    label = "everything inside `fan_out` runs side by side on the same events, so it may only read",
    note = "put the updating stage before or after the `fan_out`"
)]
pub trait MayUpdate {}
#[diagnostic::do_not_recommend]
impl MayUpdate for Sequential {}
