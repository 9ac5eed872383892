//! The options of a source.

use std::time::Duration;

use crate::frame::Id;
use crate::nats::Server;

/// The options of a source.
#[derive(Clone)]
pub struct SourceSettings {
    pub server: Server,
    pub stream: String,
    pub until_end: bool,
    pub fail_after: Option<Duration>,
    pub journal: Option<Id>,
    pub wait: Duration,
}
