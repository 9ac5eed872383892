//! Atomics with the names, sizes and functions of the standard library's, each access of which a
//! running simulation counts, delays and orders.
//!
//! - I1: An atomic of this module is `repr(transparent)` over the standard one, so a line holds
//!   the same words as in the real program.
//! - I2: Between the simulator's permission to make an access and the access itself there is no
//!   other call, so no other virtual thread comes between.

use std::fmt;
use std::panic::Location;
pub use std::sync::atomic::{Ordering, compiler_fence};

use crate::access::{self, Width};

/// A value of an atomic, as the bits that wait in a store buffer.
trait Bits {
    const WIDTH: Width;
    fn into_bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! integer_bits {
    ($($t:ty, $width:ident;)*) => { $(
        impl Bits for $t {
            const WIDTH: Width = Width::$width;
            #[inline]
            fn into_bits(self) -> u64 {
                self as u64
            }
            #[inline]
            fn from_bits(bits: u64) -> Self {
                bits as $t
            }
        }
    )* };
}
integer_bits! {
    u8, One; u16, Two; u32, Four; u64, Eight; usize, Word;
    i8, One; i16, Two; i32, Four; i64, Eight; isize, Word;
}

impl Bits for bool {
    const WIDTH: Width = Width::One;
    #[inline]
    fn into_bits(self) -> u64 {
        u64::from(self)
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
}

impl<T> Bits for *mut T {
    const WIDTH: Width = Width::Pointer;
    #[inline]
    fn into_bits(self) -> u64 {
        self.expose_provenance() as u64
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        std::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

macro_rules! atomic {
    ($name:ident, $real:ty, $t:ty $(, $p:ident)?) => {
        /// The standard library's atomic of this name, with accesses that a simulation counts.
        #[repr(transparent)]
        pub struct $name$(<$p>)?($real);

        impl$(<$p>)? $name$(<$p>)? {
            /// Returns an atomic with the given value.
            #[inline]
            pub const fn new(value: $t) -> Self {
                Self(<$real>::new(value))
            }

            #[inline(always)]
            fn at(&self) -> usize {
                self.0.as_ptr().expose_provenance()
            }

            /// Loads the value: the calling core's own waiting store, or else the word in memory.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $t {
                let own = access::load_value(self.at(), <$t as Bits>::WIDTH, Location::caller());
                match own {
                    Some(bits) => <$t as Bits>::from_bits(bits),
                    None => self.0.load(order),
                }
            }

            /// Stores a value, which the other cores see when its line has arrived. A sequentially
            /// consistent store costs a read-modify-write, as on x86.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $t, order: Ordering) {
                let (at, location) = (self.at(), Location::caller());
                if matches!(order, Ordering::SeqCst) {
                    access::rmw(at, location);
                } else {
                    let bits = <$t as Bits>::into_bits(value);
                    if access::store_value(at, <$t as Bits>::WIDTH, bits, location) {
                        return;
                    }
                }
                self.0.store(value, order);
            }

            /// Replaces the value, and returns the previous one.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $t, order: Ordering) -> $t {
                access::rmw(self.at(), Location::caller());
                self.0.swap(value, order)
            }

            /// Replaces the value if it is `current`. Returns the previous value.
            ///
            /// # Errors
            ///
            /// Returns the value that was there instead. The line was fetched all the same.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $t,
                new: $t,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$t, $t> {
                access::rmw(self.at(), Location::caller());
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Does the same as [`compare_exchange`](Self::compare_exchange): in a simulation, it
            /// never fails without a reason.
            ///
            /// # Errors
            ///
            /// Returns the value that was there instead.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $t,
                new: $t,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$t, $t> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the value by what `change` makes of it. Returns the previous value.
            ///
            /// # Errors
            ///
            /// Returns the value for which `change` returned `None`.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($t) -> Option<$t>,
            ) -> Result<$t, $t> {
                let mut value = self.load(fetch);
                while let Some(new) = change(value) {
                    match self.compare_exchange_weak(value, new, set, fetch) {
                        Ok(previous) => return Ok(previous),
                        Err(other) => value = other,
                    }
                }
                Err(value)
            }

            /// Lends the value to the caller, whose reference is the only one. Stores that wait
            /// for the word's line become visible first.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $t {
                access::settle(self.at(), size_of::<$t>());
                self.0.get_mut()
            }

            /// Returns the value. A store that waits for the word, which this call has moved, is
            /// lost, except if the word was on the stack.
            #[inline]
            pub fn into_inner(self) -> $t {
                self.0.into_inner()
            }

            /// Returns a pointer to the value. The simulation sees nothing of accesses through it.
            #[inline]
            pub const fn as_ptr(&self) -> *mut $t {
                self.0.as_ptr()
            }

            /// Returns the word at `at` as an atomic.
            ///
            /// # Safety
            ///
            /// As for the standard library's function of this name.
            #[inline]
            pub const unsafe fn from_ptr<'a>(at: *mut $t) -> &'a Self {
                // SAFETY: I1: the layout is the standard atomic's, for which the caller vouches.
                unsafe { &*at.cast::<Self>() }
            }
        }

        impl$(<$p>)? fmt::Debug for $name$(<$p>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl$(<$p>)? From<$t> for $name$(<$p>)? {
            fn from(value: $t) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! changes {
    ($name:ident $t:ty: $($change:ident)*) => {
        impl $name {
            $(
                /// Changes the value in one step, as the standard library's function of this
                /// name does. Returns the previous value.
                #[inline]
                #[track_caller]
                pub fn $change(&self, value: $t, order: Ordering) -> $t {
                    access::rmw(self.at(), Location::caller());
                    self.0.$change(value, order)
                }
            )*
        }
    };
}

macro_rules! integers {
    ($($name:ident $t:ty;)*) => { $(
        atomic!($name, std::sync::atomic::$name, $t);
        changes!($name $t: fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max
            fetch_min);
        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    )* };
}
integers! {
    AtomicU8 u8; AtomicU16 u16; AtomicU32 u32; AtomicU64 u64; AtomicUsize usize;
    AtomicI8 i8; AtomicI16 i16; AtomicI32 i32; AtomicI64 i64; AtomicIsize isize;
}
atomic!(AtomicBool, std::sync::atomic::AtomicBool, bool);
changes!(AtomicBool bool: fetch_and fetch_nand fetch_or fetch_xor);
atomic!(AtomicPtr, std::sync::atomic::AtomicPtr<T>, *mut T, T);

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

impl AtomicBool {
    /// Inverts the value, and returns the previous one.
    #[inline]
    #[track_caller]
    pub fn fetch_not(&self, order: Ordering) -> bool {
        self.fetch_xor(true, order)
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

/// Orders memory accesses. A sequentially consistent fence waits until the core's stores are
/// visible; the others cost nothing, as on x86.
///
/// ```
/// use slipring_coherence::sync::{Ordering, fence};
///
/// fence(Ordering::SeqCst);
/// ```
#[inline]
#[track_caller]
pub fn fence(order: Ordering) {
    if matches!(order, Ordering::SeqCst) {
        access::fence(Location::caller());
    }
    std::sync::atomic::fence(order);
}
