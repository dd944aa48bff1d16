//! The machine: all records in memory, net changes to the tables.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ::control::{
    ApiKey, AuditNote, Audited, Bounds, By, Change, ChangeId, Changed, EntryNumber, Field, Group,
    Means, Node, Person, Reason, Recorded, Refused, Revision, RuleList, Stored, Target, UnixMs,
    User,
};
use hashing::{HashMap, HashSet};

use super::audit::Audit;
use super::records::{Record, Records};
use super::rows::{
    self, AUDIT, Counters, GROUP, ID, KEY, MACHINE, NOTED, Noted, PERSON, RULES, Row, USER,
};
use super::{ControlOp, ControlOutlet, ControlReply};
use crate::survey::ensure;
use crate::touched::Touched;
use crate::{
    Changes, Header, Level, LoadError, Machine, NameHash, SlotRange, Slots, Split, Survey, Table,
    TableError, row,
};

/// What replicas agree on; tests reach smaller ones.
const BOUNDS: Bounds = if cfg!(test) {
    Bounds {
        users: 4,
        groups: 3,
        people: 3,
        keys: 3,
        lines: 8,
        bytes: 4_096,
        changes: 4,
        operation_bytes: 16_384,
        audited: 12,
        ids: 6,
    }
} else {
    Bounds::FIXED
};

/// Nodes whose last notes are recognised when they come again.
const NOTED_NODES: usize = if cfg!(test) { 2 } else { 1_024 };

/// The records of the control store, whole on each replica.
#[derive(Debug)]
pub struct ControlMachine {
    records: Records,
    revision: Revision,
    audit: Audit,
    /// Operations that have changed something, as far as they are recognised.
    ids: HashMap<ChangeId, Revision>,
    by_revision: BTreeMap<Revision, ChangeId>,
    /// The last notes of each node, for 1,024 nodes.
    noted: BTreeMap<Node, Noted>,
    touched: Touched<Row>,
    /// There are no tables yet.
    new: bool,
    /// A checkpoint is being handed out.
    collecting: bool,
    /// The counters as they were when the checkpoint began.
    counters: Counters,
}

impl Machine for ControlMachine {
    type Op = ControlOp;
    type Reply = ControlReply;
    type Outlet = dyn ControlOutlet;

    fn load(_: Slots, table: &dyn Table) -> Result<Self, LoadError> {
        let mut machine = Self::empty();
        let Some(value) = table.get(MACHINE)? else {
            return Ok(machine);
        };
        let counters: Counters = row::decode(MACHINE, &value)?;
        counters.check()?;
        machine.new = false;
        machine.revision = counters.revision;
        machine.audit = Audit::load(counters.audit);
        // Groups before those who name them.
        rows::each(table, GROUP, |key, value| {
            let group: Stored<Group> = row::decode(key, value)?;
            let record = Record::Group(rows::name(key)?, Some(Arc::new(group)));
            machine.records.put(record);
            Ok(())
        })?;
        rows::each(table, USER, |key, value| {
            let user: Stored<User> = row::decode(key, value)?;
            let record = Record::User(rows::name(key)?, Some(Arc::new(user)));
            machine.records.put(record);
            Ok(())
        })?;
        rows::each(table, RULES, |key, value| {
            let rules: Stored<RuleList> = row::decode(key, value)?;
            machine.records.put(Record::Rules(Arc::new(rules)));
            Ok(())
        })?;
        rows::each(table, PERSON, |key, value| {
            let person: Stored<Person> = row::decode(key, value)?;
            let record = Record::Person(rows::person(key)?, Some(Arc::new(person)));
            machine.records.put(record);
            Ok(())
        })?;
        rows::each(table, KEY, |key, value| {
            let of: Stored<ApiKey> = row::decode(key, value)?;
            let record = Record::Key(rows::key_id(key)?, Some(Arc::new(of)));
            machine.records.put(record);
            Ok(())
        })?;
        rows::each(table, NOTED, |key, value| {
            let noted: Noted = row::decode(key, value)?;
            machine.noted.insert(Node(rows::number(key)?), noted);
            Ok(())
        })?;
        rows::each(table, ID, |key, value| {
            let revision = Revision(rows::number(key)?);
            let id: ChangeId = row::decode(key, value)?;
            machine.ids.insert(id, revision);
            machine.by_revision.insert(revision, id);
            Ok(())
        })?;
        Ok(machine)
    }

    fn is_lowered(level: Level) -> bool {
        !level.has_people()
    }

    fn lowered(&self, op: ControlOp, level: Level) -> Option<ControlOp> {
        op.lowered(level)
    }

    fn slot(_: &ControlOp, _: NameHash) -> Option<u16> {
        None
    }

    fn apply_part(
        &mut self,
        header: &Header,
        op: &ControlOp,
        table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<Option<ControlReply>, TableError> {
        let (id, by, changes) = match op {
            ControlOp::Change { id, by, changes } => (id, by, changes),
            ControlOp::NodeUp { .. } => {
                let revision = self.revision;
                return Ok(Some(ControlReply::Changed { revision }));
            }
            ControlOp::Note { id, notes } => {
                return self.note(*id, notes, table).map(Some);
            }
        };
        if let Some(revision) = self.ids.get(id) {
            let revision = *revision;
            return Ok(Some(ControlReply::Changed { revision }));
        }
        if let Err(refused) = ::control::check(by, changes, &BOUNDS) {
            return Ok(Some(ControlReply::Refused(refused)));
        }
        let before = match self.change(by.means, changes) {
            Ok(before) => before,
            Err(refused) => return Ok(Some(ControlReply::Refused(refused))),
        };
        if before.is_empty() {
            let revision = self.revision;
            return Ok(Some(ControlReply::Changed { revision }));
        }
        let revision = self.next_revision();
        self.touch(Row::Counters, 0);
        self.revision = revision;
        self.remember(*id);
        let mut changed = Changed {
            revision,
            ..Changed::default()
        };
        for record in before {
            self.add_audited(&record, by, UnixMs(header.now_ms), table)?;
            match self.records.get(&record.target()) {
                Record::User(name, user) => changed.users.push((name, user)),
                Record::Group(name, group) => changed.groups.push((name, group)),
                Record::Rules(rules) => changed.rules = Some(rules),
                Record::Person(name, person) => changed.people.push((name, person)),
                Record::Key(id, key) => changed.keys.push((id, key)),
            }
        }
        outlet.changed(changed);
        Ok(Some(ControlReply::Changed { revision }))
    }

    fn unsaved_bytes(&self) -> usize {
        self.touched.bytes()
    }

    fn collect_part(&mut self, rows: usize, changes: &mut Changes) -> bool {
        if !std::mem::replace(&mut self.collecting, true) {
            if std::mem::take(&mut self.new) {
                self.touched.touch(Row::Counters, false, 0);
            }
            self.touched.begin();
            self.audit.begin();
            self.counters = self.counters();
        }
        let mut touched = std::mem::replace(&mut self.touched, Touched::new());
        let is_all = touched.collect_part(rows, changes, |row| self.row(row));
        self.touched = touched;
        is_all
    }

    fn saved_part(&mut self, _: usize) -> bool {
        self.collecting = false;
        self.touched.saved();
        self.audit.saved();
        true
    }

    fn survey(_: Slots, table: &dyn Table) -> Survey {
        let mut survey = Survey::default();
        let mut counters = None;
        survey.machine(table, |key, value| {
            let found: Counters = row::decode(key, value)?;
            counters = Some(found);
            found.check()
        });
        let mut groups = Vec::new();
        survey.each(table, GROUP, "groups", |key, value| {
            let name = rows::name(key)?;
            let group: Stored<Group> = row::decode(key, value)?;
            let checked = group.record.check(&name);
            groups.push(name);
            checked.map_err(|invalid| row::damaged(key, &invalid.to_string()))
        });
        survey.each(table, USER, "users", |key, value| {
            let user: Stored<User> = row::decode(key, value)?;
            let checked = user.record.check(&rows::name(key)?);
            checked.map_err(|invalid| row::damaged(key, &invalid.to_string()))?;
            let names = &user.record.groups;
            let are_known = names.iter().all(|name| groups.binary_search(name).is_ok());
            ensure(are_known, key, "it is in a group that is not there")
        });
        survey.each(table, RULES, "rules", |key, value| {
            let rules: Stored<RuleList> = row::decode(key, value)?;
            let checked = rules.record.check();
            checked.map_err(|invalid| row::damaged(key, &invalid.to_string()))
        });
        survey.each(table, PERSON, "people", |key, value| {
            let person: Stored<Person> = row::decode(key, value)?;
            let checked = person.record.check(&rows::person(key)?);
            checked.map_err(|invalid| row::damaged(key, &invalid.to_string()))
        });
        survey.each(table, KEY, "keys", |key, value| {
            rows::key_id(key)?;
            let of: Stored<ApiKey> = row::decode(key, value)?;
            let checked = of.record.check();
            checked.map_err(|invalid| row::damaged(key, &invalid.to_string()))
        });
        survey.each(table, NOTED, "nodes with notes", |key, value| {
            rows::number(key)?;
            row::decode::<Noted>(key, value).map(drop)
        });
        let mut ids = 0;
        survey.each(table, ID, "operations", |key, value| {
            rows::number(key)?;
            ids += 1;
            let id = row::decode::<ChangeId>(key, value);
            id.and_then(|_| {
                ensure(
                    ids <= BOUNDS.ids,
                    key,
                    "more operations than are recognised",
                )
            })
        });
        let mut last: Option<(EntryNumber, ::control::ChainHash)> = None;
        survey.each(table, AUDIT, "audited changes", |key, value| {
            let number = EntryNumber(rows::number(key)?);
            let entry: Recorded = row::decode(key, value)?;
            let before = last.replace((number, entry.hash));
            if before.is_none() {
                let first = counters.map(|counters| counters.audit.first);
                ensure(first == Some(number), key, "the audit begins elsewhere")?;
            }
            let follows = before.is_none_or(|(before, hash)| {
                before.next() == number && hash.then(&entry.bytes) == entry.hash
            });
            ensure(follows, key, "the chain of the audit is broken here")
        });
        if let (Some(counters), Some((number, head))) = (counters, last) {
            let ends = (counters.audit.next, counters.audit.head) == (number.next(), head);
            let what = "the audit ends elsewhere";
            if let Err(error) = ensure(ends, MACHINE, what) {
                survey.note(error);
            }
        }
        survey.finish(
            table,
            vec![GROUP, USER, RULES, PERSON, KEY, NOTED, ID, AUDIT],
        );
        survey
    }
}

impl Split for ControlMachine {
    fn split_off(&mut self, _: u16) -> Self {
        unreachable!("the one shard of the control store is never split");
    }

    fn keeps(_: &[u8], _: SlotRange) -> bool {
        true
    }
}

impl ControlMachine {
    fn empty() -> Self {
        let audit = Audit::default();
        Self {
            records: Records::default(),
            revision: Revision(0),
            counters: Counters {
                revision: Revision(0),
                audit: audit.chain,
            },
            audit,
            ids: HashMap::default(),
            by_revision: BTreeMap::new(),
            noted: BTreeMap::new(),
            touched: Touched::new(),
            new: true,
            collecting: false,
        }
    }

    /// The last operation that has changed something.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// A copy of all records. Shares them; allocates for each name.
    #[must_use]
    pub fn records(&self) -> ::control::Records {
        ::control::Records {
            revision: self.revision,
            users: self.records.users.clone(),
            groups: Arc::new(self.records.groups.clone()),
            rules: Arc::clone(&self.records.rules),
            people: Arc::new(self.records.people.clone()),
            keys: Arc::new(self.records.keys.clone()),
        }
    }

    /// How many users there are.
    #[must_use]
    pub fn user_count(&self) -> usize {
        self.records.users.len()
    }

    /// A user.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<Stored<User>>> {
        self.records.users.get(name)
    }

    /// The users behind a name, in order; `None`: from the first.
    pub fn users(&self, after: Option<&str>) -> impl Iterator<Item = (&str, &Arc<Stored<User>>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let users = self.records.users.range::<str, _>((from, Bound::Unbounded));
        users.map(|(name, user)| (&**name, user))
    }

    /// A group.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Arc<Stored<Group>>> {
        self.records.groups.get(name)
    }

    /// All groups, in order.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Arc<Stored<Group>>)> {
        let groups = self.records.groups.iter();
        groups.map(|(name, group)| (&**name, group))
    }

    /// The rules that hold for everybody.
    #[must_use]
    pub fn rules(&self) -> &Arc<Stored<RuleList>> {
        &self.records.rules
    }

    /// The audited changes that are kept: the number of the first, and that of the next one to come.
    #[must_use]
    pub fn audited(&self) -> std::ops::Range<EntryNumber> {
        self.audit.chain.first..self.audit.chain.next
    }

    /// The hash of the last audited change.
    #[must_use]
    pub fn audit_head(&self) -> ::control::ChainHash {
        self.audit.chain.head
    }

    /// An audited change by its number; `None`: it is not kept.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn audit(
        &self,
        number: EntryNumber,
        table: &dyn Table,
    ) -> Result<Option<Arc<Recorded>>, TableError> {
        match self.audited().contains(&number) {
            true => self.audit.get(number, table),
            false => Ok(None),
        }
    }

    /// Bytes of all texts, as [`Bounds`] counts them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.records.bytes()
    }

    fn next_revision(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    fn counters(&self) -> Counters {
        Counters {
            revision: self.revision,
            audit: self.audit.chain,
        }
    }

    /// Makes all changes, or none: the records that were there before, each once and in the order of the changes.
    fn change(&mut self, means: Means, changes: &[Change]) -> Result<Vec<Record>, Refused> {
        let revision = self.next_revision();
        let administrators = self.records.administrators();
        if means == Means::FirstCode && administrators > 0 {
            let why = Reason::NotFirst;
            return Err(Refused { which: 0, why });
        }
        let mut before: Vec<Record> = Vec::new();
        let mut changed: HashSet<Target> = HashSet::default();
        for (which, change) in changes.iter().enumerate() {
            let made = self.records.made(change.expect, &change.put, revision);
            let admitted = made.and_then(|record| {
                self.records.admits(&record, &BOUNDS)?;
                Ok(record)
            });
            match admitted {
                Ok(record) => {
                    let was = self.records.get(&record.target());
                    if was == record {
                        continue;
                    }
                    if changed.insert(was.target()) {
                        before.push(was);
                    }
                    self.put(record);
                }
                Err(why) => {
                    self.undo(before);
                    return Err(Refused { which, why });
                }
            }
        }
        let is_last = administrators > 0 && self.records.administrators() == 0;
        if is_last && !means.is_of_files() {
            let takes_away = |change: &Change| !change.is_before_people();
            let which = changes.iter().rposition(takes_away).unwrap_or_default();
            self.undo(before);
            let why = Reason::LastAdministrator;
            return Err(Refused { which, why });
        }
        before.retain(|was| {
            let is = self.records.get(&was.target());
            is != *was
        });
        Ok(before)
    }

    /// Puts back what was there, the last first.
    fn undo(&mut self, mut before: Vec<Record>) {
        while let Some(record) = before.pop() {
            self.put(record);
        }
    }

    fn put(&mut self, record: Record) {
        self.touch(Row::Record(record.target()), record.bytes());
        self.records.put(record);
    }

    /// A row is about to change.
    fn touch(&mut self, row: Row, bytes: usize) {
        let exists = match &row {
            Row::Counters => !self.new,
            Row::Record(target) => self.records.get(target).exists(),
            Row::Id(revision) => self.by_revision.contains_key(revision),
            Row::Audit(number) => self.audited().contains(number),
            Row::Noted(node) => self.noted.contains_key(node),
        };
        let mut touched = std::mem::replace(&mut self.touched, Touched::new());
        touched.settle(&row, |row| self.row(row));
        touched.touch(row, exists, bytes);
        self.touched = touched;
    }

    /// A row as it is now.
    fn row(&self, row: &Row) -> (Vec<u8>, Option<Vec<u8>>) {
        let value = match row {
            Row::Counters if self.collecting => Some(row::encode(&self.counters)),
            Row::Counters => Some(row::encode(&self.counters())),
            Row::Record(target) => match self.records.get(target) {
                Record::User(_, user) => user.map(|user| row::encode(&*user)),
                Record::Group(_, group) => group.map(|group| row::encode(&*group)),
                Record::Rules(rules) if rules.revision == Revision(0) => None,
                Record::Rules(rules) => Some(row::encode(&*rules)),
                Record::Person(_, person) => person.map(|person| row::encode(&*person)),
                Record::Key(_, key) => key.map(|key| row::encode(&*key)),
            },
            Row::Id(revision) => self.by_revision.get(revision).map(row::encode),
            Row::Noted(node) => self.noted.get(node).map(row::encode),
            Row::Audit(number) => {
                let is_kept = self.audited().contains(number);
                let entry = self.audit.in_memory(*number).filter(|_| is_kept);
                entry.map(|entry| row::encode(&**entry))
            }
        };
        (row.key(), value)
    }

    /// The operation that has just changed something is recognised from now on.
    fn remember(&mut self, id: ChangeId) {
        self.touch(Row::Id(self.revision), size_of::<ChangeId>());
        self.ids.insert(id, self.revision);
        self.by_revision.insert(self.revision, id);
        while self.by_revision.len() > BOUNDS.ids {
            if let Some((revision, id)) = self.by_revision.first_key_value() {
                let (revision, id) = (*revision, *id);
                self.touch(Row::Id(revision), 0);
                self.by_revision.remove(&revision);
                self.ids.remove(&id);
            }
        }
    }

    /// Adds notes of a node to the audit, unless they are there.
    fn note(
        &mut self,
        id: ChangeId,
        notes: &[AuditNote],
        table: &dyn Table,
    ) -> Result<ControlReply, TableError> {
        let is_there = |noted: &Noted| *noted >= Noted(id.incarnation, id.count);
        let revision = self.revision;
        if self.noted.get(&id.node).is_some_and(is_there) {
            return Ok(ControlReply::Changed { revision });
        }
        if let Err(refused) = ::control::check_notes(notes, &BOUNDS) {
            return Ok(ControlReply::Refused(refused));
        }
        self.touch(Row::Counters, 0);
        self.touch(Row::Noted(id.node), size_of::<Noted>());
        self.noted.insert(id.node, Noted(id.incarnation, id.count));
        let other = |of: &Self| of.noted.keys().find(|node| **node != id.node).copied();
        while self.noted.len() > NOTED_NODES
            && let Some(other) = other(self)
        {
            self.touch(Row::Noted(other), 0);
            self.noted.remove(&other);
        }
        for note in notes {
            self.append(&Audited::of_note(note, revision), table)?;
        }
        Ok(ControlReply::Changed { revision })
    }

    /// Adds what has become of a record to the audit.
    fn add_audited(
        &mut self,
        before: &Record,
        by: &By,
        at: UnixMs,
        table: &dyn Table,
    ) -> Result<(), TableError> {
        let target = before.target();
        let fields = match (before, self.records.get(&target)) {
            (Record::User(_, before), Record::User(_, after)) => Field::of_users(
                before.as_ref().map(|of| &of.record),
                after.as_ref().map(|of| &of.record),
            ),
            (Record::Group(_, before), Record::Group(_, after)) => Field::of_groups(
                before.as_ref().map(|of| &of.record),
                after.as_ref().map(|of| &of.record),
            ),
            (Record::Rules(before), Record::Rules(after)) => {
                Field::of_rules(&before.record, &after.record)
            }
            (Record::Person(_, before), Record::Person(_, after)) => Field::of_people(
                before.as_ref().map(|of| &of.record),
                after.as_ref().map(|of| &of.record),
            ),
            (Record::Key(_, before), Record::Key(_, after)) => Field::of_keys(
                before.as_ref().map(|of| &of.record),
                after.as_ref().map(|of| &of.record),
            ),
            _ => unreachable!("a target has records of one kind"),
        };
        let entry = Audited {
            revision: self.revision,
            at,
            by: by.clone(),
            subject: target.into(),
            fields,
        };
        self.append(&entry, table)
    }

    /// Adds an entry to the audit, and cuts what is too much.
    fn append(&mut self, entry: &Audited, table: &dyn Table) -> Result<(), TableError> {
        let next = self.audit.chain.next;
        self.touch(Row::Audit(next), 0);
        self.audit.add(entry);
        while let Some(first) = self.audit.too_many(BOUNDS.audited) {
            self.touch(Row::Audit(first), 0);
            self.audit.cut(table)?;
        }
        Ok(())
    }
}
