//! What holds of each state.

use super::{B, Model, Phase, Twin, World, name};

impl World {
    /// Checks the state. Returns the reason if it is wrong.
    pub(in super::super) fn check(&self, model: &Model) -> Result<(), String> {
        let (mut end, mut incarnation, mut writer) = (0, 0, 0);
        for stored in &self.log {
            let begins = model.twin == Twin::None || !stored.begins();
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
            end = end.max(stored.end());
        }
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

    /// Checks a sink that waits for nothing. Messages that are held back may arrive later or never.
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

    /// Returns whether a sink ended as fenced, ended without its place, or has all events stored.
    pub(in super::super) fn ends(&self, sink: usize) -> [bool; 3] {
        let state = &self.sinks[sink];
        let all =
            matches!(state.phase, Phase::Running(_)) && self.acknowledged(sink) == state.events.1;
        [state.phase == Phase::Fenced, state.phase == Phase::Gone, all]
    }
}
