//! Requirements of types whose values lie in a segment.
//!
//! Invariants
//! - I1: any bytes are a value of an [`Event`], which has neither padding nor a destructor. So an
//!   event that another process has half-written is a wrong value, and never an invalid one.

use std::ops::Range;
use std::ptr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::system::limits::{SLOTS_ALIGN, TYPE_NAME};

/// Plain data that processes share: any bytes form a valid value, and no byte is padding.
///
/// The derives of `zerocopy` check this. The type has no destructor, at least one byte, and an
/// alignment of at most 4,096. Making or opening a segment with another type does not compile.
///
/// ```
/// use slipring_shm::Event;
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Reading {
///     sensor: u32,
///     value: f32,
/// }
///
/// impl Event for Reading {
///     const NAME: &'static str = "plant/Reading";
///     const VERSION: u32 = 1;
/// }
/// ```
pub trait Event: FromBytes + IntoBytes + Immutable + KnownLayout + Send + Sync + 'static {
    /// Name of the type in all programs that share segments of it: 1 to 64 bytes, without control
    /// characters.
    const NAME: &'static str;
    /// Version of the type. Programs with different versions refuse each other's segments.
    const VERSION: u32;
}

/// Returns the range of the event's bytes that the reference returned by `of` covers. Returns
/// `None` if it covers no bytes, or bytes outside of the event.
pub(crate) fn part<E: Event, K: ?Sized>(of: impl FnOnce(&E) -> &K) -> Option<Range<usize>> {
    // The zeros lie on the heap, because an event may be larger than the stack.
    let zeros = E::new_box_zeroed().ok()?;
    let part = of(&zeros);
    let start = ptr::from_ref(part).addr().checked_sub(ptr::from_ref(&*zeros).addr())?;
    let end = start.checked_add(size_of_val(part))?;
    (start < end && end <= size_of::<E>()).then_some(start..end)
}

/// Implements [`Event`] for number types, for programs that share plain numbers.
macro_rules! numbers {
    ($($number:ident)*) => {
        $(impl Event for $number {
            const NAME: &'static str = stringify!($number);
            const VERSION: u32 = 1;
        })*
    };
}

numbers!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// Checks at compile time the requirements of [`Event`] that its bounds do not express.
pub(crate) const fn check<E: Event>() {
    assert!(!std::mem::needs_drop::<E>(), "an event of a segment has no destructor");
    assert!(size_of::<E>() > 0, "an event of a segment has at least one byte");
    assert!(
        align_of::<E>() as u64 <= SLOTS_ALIGN,
        "an event of a segment is aligned to at most 4,096"
    );
    let name = E::NAME.as_bytes();
    assert!(!name.is_empty() && name.len() <= TYPE_NAME, "`Event::NAME` has 1 to 64 bytes");
    let mut at = 0;
    while at < name.len() {
        assert!(name[at] >= b' ' && name[at] != 0x7f, "`Event::NAME` has no control characters");
        at += 1;
    }
}
