//! The layouts of slots that lie in a segment.

use std::marker::PhantomData;

use crate::processes::deaths::Processes;
use crate::ring::slots::{Layout, sealed};

/// The layout `L` for slots that lie in a segment, which processes share.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct InSegment<L>(PhantomData<L>);

impl<L: Layout> sealed::Sealed for InSegment<L> {}

impl<L: Layout> Layout for InSegment<L> {
    type Storage<E> = L::Storage<E>;
    type World = Processes;
    const ALIAS: &'static str = L::ALIAS;
    const CURSOR: bool = L::CURSOR;
}
