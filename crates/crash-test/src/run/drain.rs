//! A drain: everybody comes, everything arrives, the broker ends in order.

use std::time::Instant;

use super::round::VISIT;
use super::{Fault, Run, RunError};
use crate::client::Behaviour;
use crate::model::{Origin, Outcome, Reading};
use crate::verify::missing;
use crate::visitor::Visitor;

impl Run<'_> {
    /// Afterwards nothing is connected, and the model has all that can be known.
    pub(super) fn drain(&mut self) -> Result<(), RunError> {
        self.start_broker()?;
        self.await_broker()?;
        // Their wills are due when they stay away.
        for client in &mut self.cast.mourned {
            client.await_will(&mut self.model);
        }
        let mut probes = Vec::new();
        self.settle(&mut probes)?;
        probes = self.cast.topics();
        self.settle(&mut probes)?;
        self.read_retained()?;
        for client in self.cast.all() {
            client.note_unfinished(&mut self.model);
        }
        self.part()?;
        self.undrained = self.model.messages.len();
        Ok(())
    }

    /// Until all is done and has arrived, or nothing has happened for long.
    fn settle(&mut self, probes: &mut Vec<String>) -> Result<(), RunError> {
        let mut last = (self.model.now().tick, Instant::now());
        while last.1.elapsed() < self.options.patience {
            self.connect_working();
            self.turn_all()?;
            self.cast.probe(probes, &mut self.model);
            let tick = self.model.now().tick;
            if tick != last.0 {
                last = (tick, Instant::now());
            } else if probes.is_empty() && self.is_settled() {
                break;
            }
        }
        Ok(())
    }

    /// Brings back whoever publishes or receives and has no connection.
    fn connect_working(&mut self) {
        let server = self.subject.address();
        let cast = &mut self.cast;
        let working = cast.publishers.iter_mut().chain(&mut cast.receivers);
        for client in working.chain([&mut cast.prober]) {
            if !client.is_connected() {
                // Refused, it comes again.
                let _ = client.connect(server, Behaviour::PROMPT, &mut self.model);
            }
        }
    }

    fn is_settled(&mut self) -> bool {
        let is_idle = self.cast.all().all(|client| client.is_idle());
        is_idle && missing(&self.model, self.undrained).is_empty()
    }

    /// Notes what is retained. It is read by a client that has never been there.
    pub(super) fn read_retained(&mut self) -> Result<(), RunError> {
        let expected = self.retained_topics();
        let from = self.model.tick();
        let values = Visitor::connect(self.subject.address(), VISIT)
            .and_then(|mut visitor| visitor.retained("keep/#", expected))
            .map_err(RunError::Visit)?;
        let to = self.model.tick();
        self.model.readings.push(Reading { from, to, values });
        Ok(())
    }

    /// How many topics hold something for sure: all that was ever sent to them is acknowledged, and the
    /// last is not a removal.
    fn retained_topics(&self) -> usize {
        let mut topics = std::collections::HashMap::new();
        for message in &self.model.messages {
            if message.origin == Origin::Load && message.retain {
                let is_known = matches!(message.outcome, Outcome::Acknowledged(_));
                topics.insert(&message.topic, is_known && !message.clears);
            }
        }
        topics.values().filter(|holds| **holds).count()
    }

    /// All disconnect, and the broker ends in order: what was acknowledged before must not come again.
    fn part(&mut self) -> Result<(), RunError> {
        for client in self.cast.all() {
            client.disconnect(&mut self.model);
        }
        let began = Instant::now();
        while self.cast.all().any(|client| client.is_connected())
            && began.elapsed() < self.options.patience
        {
            self.turn_all()?;
        }
        for client in self.cast.all() {
            client.lose(&mut self.model);
        }
        if self.options.fault != Fault::Cut {
            self.stop_broker()?;
        }
        for client in self.cast.all() {
            client.has_been_heard();
        }
        let at = self.model.tick();
        self.model.settled.push(at);
        Ok(())
    }
}
