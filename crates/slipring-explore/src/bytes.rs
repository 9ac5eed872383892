//! Blocks and messages: bytes that their producer and each reader can tell from the identity.
//!
//! - I1: All virtual threads share one system thread, so no two accesses to a byte happen at once,
//!   even if the library lends its slot twice.

use crate::event::{Parts, Seen, mix, point};

/// Number of parts in which bytes are filled. Between two of them, a process may die.
const PARTS: usize = 3;

/// The byte at an offset of what an identity stands for.
fn byte(id: u64, offset: usize) -> u8 {
    mix(id ^ ((offset as u64 / 8) << 32)).to_le_bytes()[offset % 8]
}

/// Loads a byte that another virtual thread may have changed since the last look.
fn now(byte: &u8) -> u8 {
    // SAFETY: I1: the reference is valid for reads.
    unsafe { std::ptr::read_volatile(byte) }
}

/// Returns the bytes that an identity stands for.
pub fn of(id: u64, len: usize) -> Vec<u8> {
    (0..len).map(|offset| byte(id, offset)).collect()
}

/// Fills bytes, with points between at which a reader would see them torn.
pub fn fill(bytes: &mut [u8], id: u64) {
    let size = bytes.len().div_ceil(PARTS).max(1);
    for (part, bytes) in bytes.chunks_mut(size).enumerate() {
        let place = part * size;
        bytes.iter_mut().enumerate().for_each(|(offset, to)| *to = byte(id, place + offset));
        point();
    }
    if flaw(bytes, id).is_some() {
        slipring_coherence::give_up("two producers have the same slot");
    }
}

/// Returns how bytes differ from those that an identity stands for.
fn flaw(bytes: &[u8], id: u64) -> Option<String> {
    let mut all = bytes.iter().enumerate();
    let (offset, found) = all.find(|(offset, found)| now(found) != byte(id, *offset))?;
    let (found, len) = (now(found), bytes.len());
    Some(format!("a torn event {id:x}: byte {offset} of {len} is {found:x}"))
}

/// A block: the parts of an event, and bytes behind them.
pub struct Block<'a>(pub &'a [u8]);

impl Block<'_> {
    /// Length of the parts, in bytes.
    pub const PARTS: usize = size_of::<Parts>();
}

impl Seen for Block<'_> {
    fn parts(&self) -> &Parts {
        assert!(self.0.len() >= Block::PARTS && self.0.as_ptr().cast::<Parts>().is_aligned());
        // SAFETY: the bytes are enough, and aligned. Any bytes form a `Parts`.
        unsafe { &*self.0.as_ptr().cast() }
    }
    fn flaw(&self) -> Option<String> {
        flaw(&self.0[Block::PARTS..], self.parts().id())
    }
}

/// Returns the parts of a block that is lent or claimed for writing.
pub fn parts_mut(block: &mut [u8]) -> &mut Parts {
    assert!(block.len() >= Block::PARTS && block.as_ptr().cast::<Parts>().is_aligned());
    // SAFETY: as in `Block::parts`; the caller's reference excludes others.
    unsafe { &mut *block.as_mut_ptr().cast() }
}

/// Fills a block.
pub fn fill_block(block: &mut [u8], id: u64) {
    parts_mut(block).fill(id);
    fill(&mut block[Block::PARTS..], id);
}

/// A message, whose kind is its identity.
pub struct Text<'a> {
    parts: Parts,
    bytes: &'a [u8],
    /// The length that its producer gave it.
    len: usize,
}

impl<'a> Text<'a> {
    /// Returns the message with this kind and these bytes, which has to be `len` bytes long.
    pub fn new(kind: u32, bytes: &'a [u8], len: usize) -> Text<'a> {
        Text { parts: Parts::of(kind.into()), bytes, len }
    }
}

impl Seen for Text<'_> {
    fn parts(&self) -> &Parts {
        &self.parts
    }
    fn flaw(&self) -> Option<String> {
        let (id, len) = (self.parts.id(), self.bytes.len());
        let other = || format!("event {id:x} with {len} bytes in place of {}", self.len);
        if len == self.len { flaw(self.bytes, id) } else { Some(other()) }
    }
}
