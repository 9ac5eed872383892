//! The vocabulary of experiments and records: values of parameters, and metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of a parameter that is known when the program is compiled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fixed {
    Number(u64),
    Text(&'static str),
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(u64),
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Text(text) => text.fmt(f),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as u64)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<Fixed> for Value {
    fn from(fixed: Fixed) -> Value {
        match fixed {
            Fixed::Number(number) => Value::Number(number),
            Fixed::Text(text) => Value::from(text),
        }
    }
}

/// A measured quantity.
#[derive(Debug)]
pub struct Metric {
    /// Name in records, tables and plots.
    pub name: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

/// The direction in which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Less,
    More,
    /// Neither direction is better, for example for the number of cores in use.
    Neither,
}
