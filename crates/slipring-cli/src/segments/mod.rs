//! The commands that show and remove segments, `ls`, `rm` and `evict`, and the words that they
//! share with `top`.

pub mod evict;
pub mod ls;
pub mod rm;
pub mod words;
