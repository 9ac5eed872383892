//! The checks of each state.

use super::super::scenario::{B, Model, Twin};
use super::step::name;
use super::{Phase, World};

impl World {
    /// Checks the state. If the state is wrong, returns the reason.
    pub(in super::super) fn check(&self, model: &Model) -> Result<(), String> {
        let (mut end, mut incarnation, mut writer) = (0, 0, 0);
        for stored in &self.log {
            // A sink that begins behind a loss may continue at another position than the log's end.
            let begins = !stored.begins() || (model.twin == Twin::None && self.gone == 0);
            if begins && (stored.after != end || stored.first != end) {
                return Err(format!("{stored} is stored behind position {end}"));
            }
            if stored.incarnation < incarnation
                || (stored.incarnation == incarnation && stored.writer != writer)
            {
                return Err(format!(
                    "{stored} is stored behind the begin message of its successor"
                ));
            }
            (incarnation, writer) = (stored.incarnation, stored.writer);
            end = if self.gone == 0 { end.max(stored.end()) } else { stored.end() };
        }
        self.check_positions()?;
        if self.log.len() > model.longest() {
            return Err(format!("the stream has {} messages", self.log.len()));
        }
        for (at, sink) in self.sinks.iter().enumerate() {
            let epoch = model.epoch(at);
            let mut released = sink.events.0..self.acknowledged(at);
            let stored = |position: u8| {
                self.log.iter().any(|stored| {
                    (stored.first..stored.end()).contains(&position) && stored.epoch == epoch
                })
            };
            if let Some(position) = released.find(|&position| !stored(position)) {
                let name = name(at);
                return Err(format!("{name} released position {position}, which is not stored"));
            }
            self.check_quiet(model, at, usize::from(writer))?;
        }
        Ok(())
    }

    /// Checks that under one journal number, no position has two events. Messages that are gone
    /// count as well, because a source may have read them.
    fn check_positions(&self) -> Result<(), String> {
        let mut events = std::collections::BTreeMap::new();
        for stored in &self.log {
            for position in stored.first..stored.end() {
                let first = events.entry((stored.ring, position)).or_insert(stored.epoch);
                if *first != stored.epoch {
                    return Err(format!("{stored} replaces the event of position {position}"));
                }
            }
        }
        Ok(())
    }

    /// If no message and no reply of a sink is under way, checks that the sink does not wait for
    /// one. Held-back messages do not count, because they may never arrive.
    fn check_quiet(&self, model: &Model, at: usize, newest: usize) -> Result<(), String> {
        let sink = &self.sinks[at];
        match sink.phase {
            Phase::Fenced if at == newest || (model.one_ring && at == B) => {
                Err(format!("the newest sink {} is fenced", name(at)))
            }
            Phase::Beginning(_) if sink.current.is_empty() && sink.replies.is_empty() => {
                Err(format!("{} waits for ever to begin", name(at)))
            }
            Phase::Running(_) if sink.current.is_empty() && sink.replies.is_empty() => {
                let all = self.acknowledged(at) == sink.events.1 || self.is_gone(model, at);
                if all && sink.window.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{} waits for ever for an acknowledgement", name(at)))
                }
            }
            _ => Ok(()),
        }
    }

    /// Returns four flags: whether a sink is fenced, has lost its place, has stored all events, and
    /// has ended because of a loss.
    pub(in super::super) fn ends(&self, sink: usize) -> [bool; 4] {
        let state = &self.sinks[sink];
        let all =
            matches!(state.phase, Phase::Running(_)) && self.acknowledged(sink) == state.events.1;
        let lost = state.phase == Phase::Lost;
        [state.phase == Phase::Fenced, state.phase == Phase::Gone, all, lost]
    }
}
