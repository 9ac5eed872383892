//! Beginning anew: a sink divides its frames after the server or the stream has lowered its size
//! limit.
//!
//! Invariants
//! - I1: before the sink divides frames that it has sent, it sends begin messages of its own next
//!   incarnation, and waits until these are acknowledged. The divided frames follow them. The sink
//!   sends as many begin messages as it may have frames in flight, so they make the condition of
//!   every earlier frame false (resume::I2).
//! - I2: after its begin messages, the sink sends nothing until they are acknowledged. Otherwise
//!   another sink could take their sequences, and this sink's frames would be stored behind the
//!   other sink's begin messages.

use tokio::time::Instant;

use super::{SinkRun, in_time};
use crate::errors::Error;
use crate::frame::{Events, HEADER, Header, LENGTH};
use crate::nats::Fault;
use crate::nats::publish::Body;
use crate::resume::{self, Point};
use crate::sink::open::BEGIN;
use crate::sink::stage::Stage;
use crate::sink::units::{MESSAGE_HEADERS, Unit};

impl<S: Stage> SinkRun<S> {
    /// Adopts the current size limit, and divides unsent frames that exceed it. Returns whether
    /// frames in flight exceed it, too.
    pub(super) fn fit(&mut self, max_message: u64) -> Result<bool, Error> {
        self.opened.learn_limit(max_message)?;
        let limit = self.opened.max_frame;
        self.filling.limit(limit);
        self.window.iter().chain(&self.ready).try_for_each(|unit| check(unit, limit))?;
        let is_long = |unit: &Unit| matches!(&unit.body, Body::Frame(frame) if frame.len() > limit);
        if self.ready.iter().any(is_long) || self.filling.is_long() {
            let units = self.unsent();
            self.divide(units, self.begun.sent)?;
        }
        Ok(self.window.iter().any(is_long))
    }

    /// Sends begin messages of the next incarnation. Once these are acknowledged, the frames in
    /// flight may be divided (I1).
    pub(super) async fn begin_anew(&mut self, point: &Point) -> Result<(), Fault> {
        let point = resume::anew(point, self.opened.window);
        let begin = self.opened.begin_message(&point);
        self.window.iter_mut().for_each(|unit| unit.sent = Instant::now());
        self.anew = Some(point); // I2
        let (publisher, connection) = (&self.opened.publisher, &self.opened.connection);
        in_time(publisher.send(connection, BEGIN, &begin, point.expected)).await?;
        step!("sink-begin-again-sent");
        Ok(())
    }

    /// Divides the events of all frames anew. Called once the sink's begin messages of this
    /// incarnation are stored.
    pub(super) fn began_anew(&mut self, incarnation: u64) -> Result<(), Error> {
        step!("sink-begun-again");
        (self.anew, self.begun.incarnation) = (None, incarnation);
        self.opened.point.incarnation = incarnation;
        self.shared.change(|counters| {
            counters.incarnation = incarnation;
            counters.in_flight = 0;
        });
        let mut units: Vec<Unit> = std::iter::from_fn(|| self.window.pop()).collect();
        units.extend(self.unsent());
        self.begun.sent = self.begun.acknowledged;
        let after = self.begun.acknowledged;
        self.divide(units, twin!("divided-behind-sent": after => after + 1))
    }

    /// Takes the unsent units.
    fn unsent(&mut self) -> Vec<Unit> {
        if !self.filling.is_empty() {
            self.ready.push_back(self.filling.seal());
        }
        self.ready.drain(..).collect()
    }

    /// Divides the frames of `units` behind position `after`. Units without events are left out: a
    /// hole at the ring's end is declared again once all events are stored.
    fn divide(&mut self, units: Vec<Unit>, after: u64) -> Result<(), Error> {
        let (template, limit) = (self.opened.template(), self.opened.max_frame);
        self.filling.begin_again(template, after);
        for unit in units {
            check(&unit, limit)?;
            let frame = match unit.body {
                Body::Frame(frame) => frame,
                Body::Batch(_) if unit.events > 0 => {
                    self.ready.push_back(unit); // has one message for each event
                    continue;
                }
                Body::Batch(_) => continue,
            };
            let damaged = |bad| Error::Server { why: format!("a frame of this sink is {bad:?}") };
            let (header, payload) = Header::read(&frame).map_err(damaged)?;
            for (event, seq) in Events::of(&header, payload).zip(header.first..) {
                let (event, is_plain) = (event.map_err(damaged)?, header.event_size > 0);
                let is_full = match is_plain {
                    true => self.filling.room(event.len()) == 0,
                    false => self.filling.is_full_for(event.len()),
                };
                if !self.filling.is_empty() && (is_full || self.filling.is_behind_hole(seq)) {
                    self.ready.push_back(self.filling.seal());
                }
                match is_plain {
                    true => self.filling.plain(seq).extend_from_slice(event),
                    false => self.filling.varied(seq, event),
                }
            }
        }
        Ok(())
    }
}

/// Refuses a unit with an event that does not fit into a message of `limit` bytes.
fn check(unit: &Unit, limit: usize) -> Result<(), Error> {
    let fits = |needs: usize| match needs <= limit {
        true => Ok(()),
        false => Err(Error::TooLarge { needs: needs as u64, limit: limit as u64 }),
    };
    match &unit.body {
        Body::Frame(frame) if frame.len() > limit => {
            let Ok((header, payload)) = Header::read(frame) else { return Ok(()) };
            let length = if header.event_size > 0 { 0 } else { LENGTH };
            let mut events = Events::of(&header, payload).flatten();
            events.try_for_each(|event| fits(HEADER + length + event.len()))
        }
        Body::Batch(list) if unit.events > 0 => {
            list.iter().try_for_each(|single| fits(single.payload.len() + MESSAGE_HEADERS))
        }
        _ => Ok(()),
    }
}
