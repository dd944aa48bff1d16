//! A round: the broker starts, clients work, and the fault comes at any instant.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::{Fault, Run, RunError, Unsynced, pace};
use crate::cast::behaviour;
use crate::faults::{Survivors, lose_power};
use crate::model::{At, FullDisk};
use crate::visitor::Visitor;

/// How long a visitor waits for an answer.
pub(super) const VISIT: Duration = Duration::from_secs(3);

/// How long it may take until something is acknowledged when the disk has space again.
const RECOVERY: Duration = Duration::from_secs(10);

/// How much longer a sync takes while clients with wills disconnect.
const SLOW_SYNC_MS: u32 = 20;

impl Run<'_> {
    pub(super) fn play_round(&mut self, round: u32) -> Result<(), RunError> {
        self.round = round;
        self.began = Instant::now();
        self.set_time();
        self.start_broker()?;
        let can_die_at_start = round > 1 && !matches!(self.options.fault, Fault::Cut | Fault::Stop);
        if can_die_at_start && self.chance.once_in(10) {
            std::thread::sleep(Duration::from_millis(self.chance.among(0..60)));
            return self.crash();
        }
        self.await_broker()?;
        if self.chance.once_in(4) {
            self.read_retained()?;
        }
        self.connect_some();
        // Often the fault comes while clients still connect.
        let longest_ms = if self.chance.once_in(6) { 30 } else { 800 };
        self.work(0..longest_ms)?;
        match self.options.fault {
            Fault::Full => self.fill_disk()?,
            Fault::Fsync => {
                let from = self.model.tick();
                self.break_syncs()?;
                self.model.doubt_withdrawals(from);
            }
            Fault::Leave => self.leave()?,
            Fault::Kill | Fault::Power | Fault::Stop | Fault::Cut => {}
        }
        self.crash()
    }

    fn connect_some(&mut self) {
        let server = self.subject.address();
        for client in self.cast.regulars() {
            if !self.chance.once_in(5) {
                // A broker that has just ended refuses; the round then goes on without.
                let _ = client.connect(server, behaviour(&mut self.chance), &mut self.model);
            }
        }
    }

    /// Clients work for some of these milliseconds, or until the broker has ended.
    fn work(&mut self, milliseconds: Range<u64>) -> Result<(), RunError> {
        let end = Instant::now() + Duration::from_millis(self.chance.among(milliseconds));
        while Instant::now() < end {
            self.step()?;
            if let Some(status) = self.ended()? {
                if self.options.fault != Fault::Fsync {
                    self.note_exit(status);
                }
                break;
            }
        }
        Ok(())
    }

    /// Takes what has come, and does what it is time for.
    fn step(&mut self) -> Result<(), RunError> {
        self.turn_all()?;
        if !self.pace.is_due(Instant::now()) {
            return Ok(());
        }
        self.cast.publish(&mut self.model, &mut self.chance);
        self.cast.change(&mut self.model, &mut self.chance);
        let server = self.subject.address();
        for client in self.cast.regulars() {
            if client.is_up() && self.chance.once_in(400) {
                client.disconnect(&mut self.model);
            } else if !client.is_connected() && self.chance.once_in(60) {
                let _ = client.connect(server, behaviour(&mut self.chance), &mut self.model);
            }
        }
        Ok(())
    }

    pub(super) fn turn_all(&mut self) -> Result<(), RunError> {
        pace::await_any(self.cast.all().filter_map(|client| client.socket()))?;
        self.set_time();
        for client in self.cast.all() {
            client.turn(&mut self.model, &mut self.chance);
        }
        Ok(())
    }

    /// The end of a round.
    fn crash(&mut self) -> Result<(), RunError> {
        match (self.options.fault, &mut self.broker) {
            (Fault::Cut, _) | (_, None) => {}
            (Fault::Stop, _) => self.stop_broker()?,
            (_, Some(broker)) => broker.process.kill()?,
        }
        self.set_time();
        for client in self.cast.all() {
            client.lose(&mut self.model);
        }
        self.take_power()?;
        if self.options.fault != Fault::Cut {
            self.broker = None;
            for client in self.cast.all() {
                client.has_been_heard();
            }
        }
        Ok(())
    }

    fn take_power(&mut self) -> Result<(), RunError> {
        let before = self
            .broker
            .as_ref()
            .and_then(|broker| broker.before.as_ref());
        let (Some(shim), Some(before)) = (&self.shim, before) else {
            return Ok(());
        };
        self.summary.refused += shim.refused_writes()? + shim.refused_syncs()?;
        let is_torn = match self.options.unsynced {
            Unsynced::Lost => false,
            Unsynced::Torn => true,
            Unsynced::Either => self.chance.once_in(2),
        };
        let survivors = if is_torn {
            Survivors::Some(self.chance.split())
        } else {
            Survivors::Nothing
        };
        let lost = lose_power(before, shim, self.options.filesystem, survivors)?;
        self.summary.taken_back += lost.writes + lost.names;
        Ok(())
    }

    /// The disk takes nothing for a while. Clients without a session must be served, and when there is
    /// space again, so must all.
    fn fill_disk(&mut self) -> Result<(), RunError> {
        // While it starts, a broker serves nobody.
        Visitor::connect(self.subject.address(), RECOVERY).map_err(RunError::Visit)?;
        self.set_disk_full(true)?;
        let from = self.model.tick();
        self.work(200..500)?;
        let served = Visitor::connect(self.subject.address(), VISIT)
            .and_then(|mut visitor| visitor.is_served())
            .is_ok();
        self.work(100..300)?;
        let to = self.model.tick();
        self.set_disk_full(false)?;
        let deadline = Instant::now() + RECOVERY;
        while !self.has_acknowledged_since(to)
            && Instant::now() < deadline
            && self.ended()?.is_none()
        {
            self.step()?;
        }
        let recovered = self.has_acknowledged_since(to);
        self.model.full_disks.push(FullDisk {
            from,
            to,
            served,
            recovered,
        });
        Ok(())
    }

    fn set_disk_full(&self, is_full: bool) -> Result<(), RunError> {
        if let Some(shim) = &self.shim {
            shim.set_disk_full(is_full)?;
        }
        Ok(())
    }

    /// Whether a message that was first sent since is acknowledged.
    fn has_acknowledged_since(&self, at: At) -> bool {
        let recent = self.model.messages.iter().rev();
        recent
            .take_while(|message| message.first_sent() > at)
            .any(|message| message.acknowledged().is_some())
    }

    /// Clients with wills disconnect. Returns when the broker has closed one of their connections: the fault then
    /// comes right after the broker has confirmed that this client's will is withdrawn. Syncs take long, so that a
    /// confirmation that does not wait for them is found.
    fn leave(&mut self) -> Result<(), RunError> {
        if let Some(shim) = &self.shim {
            shim.delay_syncs(SLOW_SYNC_MS)?;
        }
        for client in &mut self.cast.mourned {
            client.disconnect(&mut self.model);
        }
        let leaving = |run: &Self| run.cast.mourned.iter().filter(|c| c.is_leaving()).count();
        let at_first = leaving(self);
        let deadline = Instant::now() + VISIT;
        while at_first > 0 && leaving(self) == at_first && Instant::now() < deadline {
            self.turn_all()?;
        }
        Ok(())
    }

    fn break_syncs(&mut self) -> Result<(), RunError> {
        if let Some(shim) = &self.shim {
            shim.fail_sync(self.chance.among(1..6) as u32)?;
        }
        self.work(50..400)?;
        if self.ended()?.is_some() {
            let last = self.subject.last_words();
            writeln!(
                self.out,
                "round {}: syncs failed, the broker ended: {last}",
                self.round
            )?;
        }
        Ok(())
    }
}
