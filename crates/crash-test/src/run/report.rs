//! What a run says: new violations after each drain, figures in the end.

use std::collections::BTreeMap;
use std::io;

use super::{Run, Summary};
use crate::model::Origin;
use crate::verify::{Kind, verify};

/// Violations of a kind that are told with their history; the rest are counted.
const TOLD: usize = 3;

impl Run<'_> {
    pub(super) fn report(&mut self) -> io::Result<()> {
        let mut fresh: BTreeMap<Kind, usize> = BTreeMap::new();
        for violation in verify(&self.model) {
            if !self.reported.insert(violation.clone()) {
                continue;
            }
            *fresh.entry(violation.kind).or_default() += 1;
            let total = self.summary.violations.entry(violation.kind).or_default();
            *total += 1;
            if *total <= TOLD {
                let seed = self.options.seed;
                let text = violation.describe(&self.model);
                write!(self.out, "VIOLATION, seed {seed}: {text}")?;
            }
        }
        writeln!(
            self.out,
            "round {}: {} messages, {} connected sessions; {}",
            self.round,
            self.model.messages.len(),
            self.model
                .clients
                .iter()
                .filter(|client| client.session.is_some())
                .count(),
            if fresh.is_empty() {
                "all right".to_owned()
            } else {
                format!("{fresh:?}")
            },
        )
    }

    pub(super) fn summarise(self) -> Summary {
        let published = |message: &&crate::model::Message| message.origin != Origin::Will;
        let messages = self.model.messages.iter().filter(published);
        Summary {
            messages: messages.clone().count(),
            acknowledged: messages
                .filter(|message| message.acknowledged().is_some())
                .count(),
            receipts: self
                .model
                .clients
                .iter()
                .map(|client| client.receipts.len())
                .sum(),
            ..self.summary
        }
    }
}
