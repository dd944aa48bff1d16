//! All rows of the inbox tables, and whether they agree.

use std::ops::RangeTo;

use hashing::{HashMap, HashSet};
use mqtt_proto::SubscriptionFilter;

use super::Owed;
use super::calls::CallsRow;
use super::fences::Fence;
use super::name;
use super::queue::ages::Ages;
use super::tables::{
    BODY, BROKERS, BodyRow, BrokersRow, CALLS, COUNT, CountRow, FENCE, INBOX, InboxRow, LEGACY,
    MachineRow, ORIGINS, OWED, OriginsRow, OwedRow, PAGE, PENDING_FILTER, PENDING_OF_CLIENT,
    PageRow, PendingKey, QUEUE, QueueKey, QueueRow, RELEASED, ReleasedRow, count_key, find,
    number_of, page_in,
};
use crate::survey::{ensure, ensure_slot};
use crate::{FullInbox, LoadError, NameHash, SlotRange, Slots, Survey, Table, UnixMs, row};

/// What rows say of others.
struct Claims {
    next_inbox: u64,
    next_body: u64,
    /// Bodies whose counts may be too high.
    bounds: RangeTo<u64>,
    inboxes: HashMap<u64, Inbox>,
    bodies: HashMap<u64, Body>,
}

/// What an inbox's row says of its queue, and what is found of it.
struct Inbox {
    key: Vec<u8>,
    client: Box<str>,
    slot: u16,
    head: u64,
    next: u64,
    released: Vec<u64>,
    oldest: Option<UnixMs>,
    alive: u32,
    bytes: u64,
    found: u32,
    found_bytes: u64,
}

/// How many references to a body there should be, and how many are found.
#[derive(Default)]
struct Body {
    is_there: bool,
    count: Option<CountRow>,
    found: CountRow,
}

/// What the tables of a shard hold, and what is wrong with them.
pub(super) fn survey(slots: Slots, table: &dyn Table) -> Survey {
    let mut survey = Survey::default();
    let mut claims = Claims {
        next_inbox: u64::MAX,
        next_body: u64::MAX,
        bounds: ..0,
        inboxes: HashMap::default(),
        bodies: HashMap::default(),
    };
    survey.machine(table, |key, value| claims.machine(key, value, slots.range));
    survey.each(table, INBOX, "inboxes", |key, value| {
        claims.inbox(key, value, slots)
    });
    survey.each(table, LEGACY, "legacies", |key, value| {
        claims.legacy(key, value, slots)
    });
    survey.each(table, BODY, "shared messages", |key, value| {
        claims.body(key, value)
    });
    survey.each(table, COUNT, "reference counts", |key, value| {
        claims.count(key, value)
    });
    survey.each(table, QUEUE, "queued messages", |key, value| {
        claims.queued(key, value)
    });
    survey.each(table, OWED, "retained messages owed", |key, value| {
        owed(key, value, (slots, table))
    });
    survey.each(table, ORIGINS, "origins", |key, value| {
        origins(key, value, slots.hash)
    });
    let mut subscriber = Subscriber::default();
    survey.each(
        table,
        PENDING_OF_CLIENT,
        "filters owed to clients",
        |key, value| {
            let (client, _) = row::name_and_number(key)?;
            subscriber.owed(key, value, client, (slots, table))
        },
    );
    survey.each(table, PENDING_FILTER, "filters owed", |key, value| {
        let client = claims.owed(key)?;
        subscriber.owed(key, value, client, (slots, table))
    });
    survey.each(table, PAGE, "identifiers not released", |key, value| {
        page(key, value, slots.hash)
    });
    survey.each(table, BROKERS, "origins of the broker", |key, value| {
        of_broker(key, value, slots.hash)
    });
    survey.each(table, RELEASED, "released origins", |key, value| {
        released(key, value, (slots.hash, table))
    });
    survey.each(table, CALLS[0], "loops with calls", |key, value| {
        row::decode::<CallsRow>(key, value).map(drop)
    });
    survey.each(table, FENCE, "fences of publishers", |key, value| {
        row::decode::<Fence>(key, value)?;
        ensure_named(key, row::name(key)?, slots.hash)
    });
    claims.compare(&mut survey);
    let kinds = vec![
        CALLS[0],
        INBOX,
        LEGACY,
        BODY,
        COUNT,
        QUEUE,
        OWED,
        PENDING_OF_CLIENT,
        PENDING_FILTER,
        PAGE,
        BROKERS,
        ORIGINS,
        RELEASED,
        FENCE,
    ];
    survey.finish(table, kinds);
    survey
}

impl Claims {
    fn machine(&mut self, key: &[u8], value: &[u8], range: SlotRange) -> Result<(), LoadError> {
        let (row, recount_below) = row::decode_with::<MachineRow, u64>(key, value)?;
        let is_half = row.range != range;
        let below = recount_below.filter(|_| !is_half);
        self.bounds = match below {
            Some(below) => ..below,
            None if is_half => ..row.next_body,
            None => ..0,
        };
        self.next_inbox = row.next_inbox;
        self.next_body = row.next_body;
        ensure(row.range.covers(range), key, "it is of other slots")?;
        ensure(
            self.bounds.end <= row.next_body,
            key,
            "it tells of bodies that were never made",
        )
    }

    fn inbox(&mut self, key: &[u8], value: &[u8], slots: Slots) -> Result<(), LoadError> {
        let client = row::name(key)?;
        self.queue_of(key, client, row::decode(key, value)?, slots)
    }

    /// A session has ended, and nothing is left of it but its queue.
    fn legacy(&mut self, key: &[u8], value: &[u8], slots: Slots) -> Result<(), LoadError> {
        let (client, number) = row::name_and_number(key)?;
        let row: InboxRow = row::decode(key, value)?;
        let is_named = row.number == number;
        let is_queue = row.alive > 0
            && row.attached.is_none()
            && row.subscriptions.is_empty()
            && row.released.is_empty();
        self.queue_of(key, client, row, slots)?;
        ensure(is_named, key, "its key has the number of another inbox")?;
        ensure(is_queue, key, "it is empty, or more than a queue")
    }

    fn queue_of(
        &mut self,
        key: &[u8],
        client: &str,
        row: InboxRow,
        slots: Slots,
    ) -> Result<(), LoadError> {
        let queue = row.check_queue(key);
        let ages = Ages::load(row.rest.marks);
        let oldest = ages.and_then(|ages| ages.since(row.head));
        let inbox = Inbox {
            oldest: oldest.map(|oldest| UnixMs(oldest.0)),
            key: key.to_vec(),
            client: client.into(),
            slot: slots.hash.slot_of(client),
            head: row.head,
            next: row.next,
            released: row.released,
            alive: row.alive,
            bytes: row.bytes,
            found: 0,
            found_bytes: 0,
        };
        let is_ascending = inbox.released.is_sorted_by(|a, b| a < b);
        let is_released_sent = inbox.released.last().is_none_or(|last| *last <= row.sent);
        let is_new = self.inboxes.insert(row.number, inbox).is_none();
        ensure_slot(key, client, slots)?;
        ensure(is_new, key, "another inbox has its number")?;
        ensure(
            row.number < self.next_inbox,
            key,
            "its number was never given",
        )?;
        ensure(
            row.incarnation <= row.epoch,
            key,
            "its session began after its last connection",
        )?;
        queue?;
        ensure(
            is_ascending && is_released_sent,
            key,
            "PUBREL is owed for what was never sent",
        )?;
        let filters = || row.subscriptions.iter().map(|of| &*of.filter);
        ensure(
            filters().is_sorted_by(|a, b| a < b)
                && filters().all(|filter| SubscriptionFilter::parse(filter).is_ok()),
            key,
            "its subscriptions are out of order, or no topic filters",
        )
    }

    /// The client of the inbox that is owed a filter.
    fn owed(&self, key: &[u8]) -> Result<&str, LoadError> {
        let place = PendingKey::from_bytes(key)
            .ok_or_else(|| row::damaged(key, "the key is of another length"))?;
        let inbox = self.inboxes.get(&place.inbox.number.0);
        let inbox = inbox.filter(|inbox| inbox.slot == place.inbox.slot.0);
        let client = inbox.map(|inbox| &*inbox.client);
        client.ok_or_else(|| row::damaged(key, "there is no such inbox"))
    }

    fn body(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let number = number_of(key).ok_or_else(|| row::damaged(key, "the key has no number"))?;
        self.bodies.entry(number).or_default().is_there = true;
        row::decode::<BodyRow>(key, value)?;
        let is_given = 0 < number && number < self.next_body;
        ensure(is_given, key, "its number was never given")
    }

    fn count(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let number = number_of(key).ok_or_else(|| row::damaged(key, "the key has no number"))?;
        let count = row::decode(key, value)?;
        let body = self.bodies.entry(number).or_default();
        body.count = Some(count);
        ensure(body.is_there, key, "there is no such message")
    }

    fn queued(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let place = QueueKey::from_bytes(key)
            .ok_or_else(|| row::damaged(key, "the key is of another length"))?;
        let row: QueueRow = row::decode(key, value)?;
        let weight = row.weight();
        let body_is_there = match weight.body {
            0 => true,
            number => {
                let body = self.bodies.entry(number).or_default();
                body.found += 1;
                body.is_there
            }
        };
        let Some(inbox) = self.inboxes.get_mut(&place.inbox) else {
            return Err(row::damaged(key, "there is no such inbox"));
        };
        inbox.found += 1;
        inbox.found_bytes += u64::from(weight.bytes);
        ensure(body_is_there, key, "the message it refers to is missing")?;
        ensure(
            row.is_whole(),
            key,
            "it has a message and refers to one, or neither",
        )?;
        ensure(
            place.slot == inbox.slot,
            key,
            "its slot is not that of its inbox",
        )?;
        ensure(
            inbox.released.binary_search(&place.sequence).is_err(),
            key,
            "it is queued and released",
        )?;
        ensure(
            inbox.head <= place.sequence && place.sequence < inbox.next,
            key,
            "its sequence is not one of the queue's",
        )
    }

    /// Compares what rows say of others with these.
    fn compare(&self, survey: &mut Survey) {
        let mut inboxes: Vec<&Inbox> = self.inboxes.values().collect();
        inboxes.sort_unstable_by_key(|inbox| (inbox.slot, &inbox.client, &inbox.key));
        for inbox in inboxes {
            survey.note_inbox(FullInbox {
                client: inbox.client.to_string(),
                messages: inbox.found.into(),
                bytes: inbox.found_bytes,
                oldest_ms: inbox.oldest,
            });
            if (inbox.alive, inbox.bytes) != (inbox.found, inbox.found_bytes) {
                let what = format!(
                    "it has {} messages of {} bytes queued, and there are {} of {}",
                    inbox.alive, inbox.bytes, inbox.found, inbox.found_bytes
                );
                survey.note(row::damaged(&inbox.key, &what));
            }
        }
        let mut bodies: Vec<_> = self.bodies.iter().collect();
        bodies.sort_unstable_by_key(|(number, _)| **number);
        for (number, body) in bodies {
            // What is missing has been noted where it is referred to.
            let is_right = match body.count {
                Some(count) if self.bounds.contains(number) => body.found <= count,
                count => count == Some(body.found),
            };
            if body.is_there && !is_right {
                let count = body.count.unwrap_or(0);
                let what = format!("{} queued messages refer to it, not {count}", body.found);
                survey.note(row::damaged(&count_key(*number), &what));
            }
        }
    }
}

/// The session whose filters are being looked at. They stand together, so that its row is read once.
#[derive(Default)]
struct Subscriber {
    client: Option<Box<str>>,
    filters: HashSet<Box<str>>,
}

impl Subscriber {
    fn owed(
        &mut self,
        key: &[u8],
        value: &[u8],
        client: &str,
        (slots, table): (Slots, &dyn Table),
    ) -> Result<(), LoadError> {
        let owed: Owed = row::decode(key, value)?;
        if self.client.as_deref() != Some(client) {
            let key = row::key(INBOX, slots.hash.slot_of(client), client);
            let inbox: Option<InboxRow> = find(table, &key)?;
            let subscriptions = inbox.map_or_else(Vec::new, |inbox| inbox.subscriptions);
            self.filters = subscriptions.into_iter().map(|of| of.filter).collect();
            self.client = Some(client.into());
        }
        ensure_slot(key, client, slots)?;
        // Each is there once: what is owed twice would be sent twice.
        let is_subscribed = self.filters.remove(&owed.filter);
        ensure(
            is_subscribed,
            key,
            "there is no such subscription, or it is owed twice",
        )
    }
}

fn owed(key: &[u8], value: &[u8], of: (Slots, &dyn Table)) -> Result<(), LoadError> {
    let client = row::name(key)?;
    let owed: OwedRow = row::decode(key, value)?;
    let (slots, table) = of;
    let inbox: Option<InboxRow> =
        find(table, &row::key(INBOX, slots.hash.slot_of(client), client))?;
    let subscriptions = inbox.map_or_else(Vec::new, |inbox| inbox.subscriptions);
    let has = |filter: &str| subscriptions.iter().any(|of| *of.filter == *filter);
    ensure_slot(key, client, slots)?;
    ensure(
        !owed.is_empty() && owed.iter().all(|owed| has(&owed.filter)),
        key,
        "there is no such subscription, or none",
    )
}

fn released(key: &[u8], value: &[u8], of: (NameHash, &dyn Table)) -> Result<(), LoadError> {
    let (hash, table) = of;
    let publisher = row::name(key)?;
    let released: ReleasedRow = row::decode(key, value)?;
    let key_of_entries = row::key(ORIGINS, hash.slot_of(publisher), publisher);
    let entries: OriginsRow = find(table, &key_of_entries)?.unwrap_or_default();
    let is_known = |of: u64| entries.iter().any(|entry| (entry.0, entry.1) == (of, 0));
    ensure_named(key, publisher, hash)?;
    ensure(
        !released.is_empty() && released.iter().all(|(of, _)| is_known(*of)),
        key,
        "there is no such origin, or none",
    )
}

/// Publishers may have their slots anywhere.
fn page(key: &[u8], value: &[u8], hash: NameHash) -> Result<(), LoadError> {
    let (publisher, _, page) = page_in(key)?;
    let row: PageRow = row::decode(key, value)?;
    ensure_named(key, publisher, hash)?;
    let is_of_page = |(id, _): &(u16, u64)| *id != 0 && id.to_be_bytes()[0] == page;
    ensure(
        !row.is_empty() && row.is_sorted_by(|a, b| a < b) && row.iter().all(is_of_page),
        key,
        "its identifiers are out of order, of another page, or none",
    )
}

fn of_broker(key: &[u8], value: &[u8], hash: NameHash) -> Result<(), LoadError> {
    let (publisher, _) = row::name_and_number(key)?;
    let row: BrokersRow = row::decode(key, value)?;
    ensure_named(key, publisher, hash)?;
    ensure(
        !row.parts.is_empty() && row.parts.is_sorted_by(|a, b| a < b),
        key,
        "its parts are out of order, or none",
    )
}

/// Of the layout before this one.
fn origins(key: &[u8], value: &[u8], hash: NameHash) -> Result<(), LoadError> {
    let publisher = row::name(key)?;
    let entries: OriginsRow = row::decode(key, value)?;
    ensure_named(key, publisher, hash)?;
    ensure(
        !entries.is_empty() && entries.is_sorted_by(|a, b| a < b),
        key,
        "its entries are out of order, or none",
    )
}

/// The slot of a publisher, by its identifier or name. It may be one of any shard.
fn ensure_named(key: &[u8], publisher: &str, hash: NameHash) -> Result<(), LoadError> {
    let slot = name::slot_of(publisher, hash).to_be_bytes();
    let is_own = key.get(1..3) == Some(&slot[..]);
    ensure(is_own, key, "its key has the slot of another name")
}
