//! A machine as data: no file is read here.

pub(crate) mod cpu_set;
pub(crate) mod machine;
pub(crate) mod parts;
