//! Programs as users write them, without type annotations. Names and signatures of the library may
//! improve; no call here may become harder to write.

#[path = "../common/mod.rs"]
mod common;

mod borrowing;
mod shapes;
