//! Fetches a cache line before the instruction that needs it.
//!
//! Invariants
//! - I1: a prefetch changes no value, and fails at no address. The instruction is executed only if
//!   the processor says that it has this instruction: a [`FetchForStore`] is made only then.

/// Asks the processor to fetch the cache line of `place` for a store, and does not wait for the
/// line. Other cores lose the line, so a caller must soon store to it, and no other core should be
/// likely to use the line meanwhile. If the processor has no such instruction, the call does
/// nothing.
///
/// A plain store that misses the cache waits in the store buffer, while the thread continues. So a
/// prefetch helps only atomic swaps, for which the thread waits until the line arrives, and threads
/// whose stores fill the store buffer.
#[inline(always)]
pub(crate) fn for_store<T>(place: *const T) {
    if let Some(fetch) = FetchForStore::known() {
        fetch.line_of(place);
    }
}

/// The knowledge that the processor has the instruction of [`for_store`] (I1). A caller that keeps
/// it does not ask at each fetch: a publication that asked took 1.04 times as long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchForStore(());

impl FetchForStore {
    /// Returns `None` if the processor does not have the instruction.
    #[inline(always)]
    pub(crate) fn known() -> Option<FetchForStore> {
        #[cfg(all(target_arch = "x86_64", not(any(miri, slipring_loom, slipring_coherence))))]
        let has_instruction = x86::has_instruction();
        #[cfg(not(all(
            target_arch = "x86_64",
            not(any(miri, slipring_loom, slipring_coherence))
        )))]
        let has_instruction = cfg!(slipring_coherence);
        has_instruction.then_some(FetchForStore(()))
    }

    /// Like [`for_store`].
    #[inline(always)]
    pub(crate) fn line_of<T>(self, place: *const T) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, slipring_loom, slipring_coherence))))]
        // SAFETY: I1.
        unsafe {
            std::arch::asm!(
                "prefetchw [{}]",
                in(reg) place,
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(slipring_coherence)]
        slipring_coherence::prefetch_for_store(place.cast());
        #[cfg(any(not(target_arch = "x86_64"), miri, slipring_loom))]
        let _ = place;
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, slipring_loom, slipring_coherence))))]
mod x86 {
    use std::arch::x86_64::__cpuid;
    use std::sync::OnceLock;

    /// The leaf of CPUID that reports PREFETCHW: bit 8 of its ECX is set if the processor has this
    /// instruction (AMD64 Architecture Programmer's Manual, volume 3, E.4.2; Intel SDM, volume 2,
    /// PREFETCHW).
    const EXTENDED: u32 = 0x8000_0001;

    #[inline(always)]
    pub(super) fn has_instruction() -> bool {
        static KNOWN: OnceLock<bool> = OnceLock::new();
        *KNOWN.get_or_init(look)
    }

    #[cold]
    #[allow(unused_unsafe)] // A safe call by newer compilers.
    fn look() -> bool {
        // SAFETY: every processor of this architecture has the instruction CPUID.
        let highest = unsafe { __cpuid(EXTENDED & 0x8000_0000) }.eax;
        // SAFETY: as above.
        highest >= EXTENDED && unsafe { __cpuid(EXTENDED) }.ecx & (1 << 8) != 0
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_prefetch_changes_nothing_wherever_it_points() {
        let value = 7u64;
        for_store(&raw const value);
        for_store(std::ptr::null::<u64>());
        for_store(std::ptr::without_provenance::<u64>(usize::MAX));
        assert_eq!(value, 7);
    }
}
