//! The retained messages of the broker's own topics (`$SYS`), in memory. Those of clients are in the
//! store.

use std::ops::ControlFlow;
use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use parking_lot::RwLock;
use store_state::retain::PageBudget;
use topic_router::{Cursor, RetainedIndex};

/// At most one message per topic. The topics are a fixed number.
#[derive(Debug, Default)]
pub(crate) struct Retained(RwLock<RetainedIndex<Arc<ApplicationMessage>>>);

impl Retained {
    /// Keeps a message as the one of its topic.
    pub(crate) fn set(&self, message: &Arc<ApplicationMessage>) {
        // [MQTT-3.3.1-5] replaces the message of the same topic
        self.0
            .write()
            .insert(message.body.topic(), Arc::clone(message));
    }

    /// Messages whose topics match, from where the last page ended, until `budget` is spent; and where the
    /// next page begins; `None`: there is none. What they weigh does not matter: they are short.
    pub(crate) fn page(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        budget: &mut PageBudget,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<Cursor>) {
        let mut page = Vec::new();
        let PageBudget { messages, work, .. } = budget;
        let next = self.0.read().page(filter, after, work, |_, message| {
            page.push(Arc::clone(message));
            *messages = messages.saturating_sub(1);
            match *messages {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        (page, next)
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;

    fn message(topic: &str, payload: &[u8]) -> Arc<ApplicationMessage> {
        Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, payload),
            qos: QoS::AtMostOnce,
            retain: true,
            publisher: 1,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        })
    }

    #[test]
    fn a_topic_has_its_last_message() {
        let retained = Retained::default();
        for (topic, payload) in [("$SYS/a", b"1"), ("$SYS/b", b"2"), ("$SYS/a", b"3")] {
            retained.set(&message(topic, payload));
        }
        let mut one = PageBudget {
            messages: 1,
            ..PageBudget::UNLIMITED
        };
        let (first, next) = retained.page("$SYS/#", None, &mut one);
        assert_eq!(first[0].body.payload(), b"3");
        let mut rest = PageBudget::UNLIMITED;
        let (second, end) = retained.page("$SYS/#", next.as_ref(), &mut rest);
        assert_eq!(second[0].body.payload(), b"2");
        assert!(end.is_none());
    }
}
