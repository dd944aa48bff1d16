//! The file of Mosquitto's plugin for dynamic security.
//!
//! Mosquitto asks the roles of a client, the larger priority first, then its groups, the larger priority first, and of each group its
//! roles, the larger priority first. Of equal priorities the first in the file counts. Within a role, those lines that concern
//! the kind of access are asked, the larger priority first, and of a subscription the literal ones before the patterns. What nobody
//! decides, `defaultACLAccess` does.
//!
//! Here the priority belongs to the group, not to the membership, and groups that a group includes have the order of their names.
//! Where that would judge otherwise, the rules of the roles are copied to the user or the group, in their order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::ImportError;
use super::json::{self, Object};
use super::words::{self, Effect, Percent};
use crate::document::{Document, GroupEntry, UserEntry};
use crate::imported::Imported;

/// The groups of a user, and groups that a group includes, that the control store takes.
const MOST: usize = 64;

/// Bytes of a note that the control store takes.
const NOTE: usize = 256;

/// What is added to the priority of a role that clients have beside groups: a priority of Mosquitto is 100,000 at most.
const BEFORE_GROUPS: i32 = 1_000_000;

/// The largest priority of Mosquitto.
const PRIORITY: i64 = 100_000;

/// What rules are about, and whether any of them allows or denies it: two sets of rules between which no order is needed do not
/// contradict each other.
#[derive(Clone, Copy, Default)]
struct Sides {
    allows: u8,
    denies: u8,
}

impl Sides {
    fn contradict(self, other: Self) -> bool {
        self.allows & other.denies != 0 || self.denies & other.allows != 0
    }

    fn with(self, other: Self) -> Self {
        Self {
            allows: self.allows | other.allows,
            denies: self.denies | other.denies,
        }
    }
}

/// A rule without WHO.
struct Rule {
    effect: Effect,
    /// Action and filter.
    rest: String,
}

impl Rule {
    fn line(&self, who: &str) -> String {
        format!("{} {who}{}", self.effect.as_str(), self.rest)
    }
}

struct Role {
    /// Its name here.
    group: String,
    note: String,
    rules: Vec<Rule>,
    sides: Sides,
    /// As the first client has it.
    priority: Option<i64>,
}

struct Group<'a> {
    name: &'a str,
    note: String,
    /// In the order in which they count.
    roles: Vec<&'a str>,
    sides: Sides,
    priority: Option<i64>,
}

/// A role or group that a client or group has, with its priority.
struct Has<'a> {
    name: &'a str,
    priority: i64,
}

/// Reads `dynamic-security.json` as Mosquitto 2.0 and 2.1 write it.
///
/// A client becomes a user, a role becomes a group, and a group a group that includes those of its roles. The list for everybody has
/// the rules of the anonymous group and the default access. Left out and said: rules about unsubscribing and about `$CONTROL`,
/// `allowwildcardsubs`, and members that this version does not know.
///
/// # Errors
/// The text is no JSON, or a member is not what it should be; the place is a path.
pub fn dynsec(text: &str) -> Result<Imported, ImportError> {
    let value = json::parse(text)?;
    let mut root = Object::new("", &value)?;
    let mut imported = Imported::default();
    let mut reading = Reading {
        roles: BTreeMap::new(),
        groups: Vec::new(),
        places: HashMap::new(),
        memberships: BTreeMap::new(),
    };
    let clients = root.objects("clients")?;
    let groups = root.objects("groups")?;
    let mut names = group_names(root.objects("groups")?)?;
    for role in root.objects("roles")? {
        reading.role(role, &mut names, &mut imported)?;
    }
    for group in groups {
        reading.group(group, &mut imported)?;
    }
    let clients = reading.clients(clients, &mut imported)?;
    let has_both = clients
        .iter()
        .any(|client| !client.roles.is_empty() && !client.groups.is_empty());
    let offset = if has_both { BEFORE_GROUPS } else { 0 };

    let mut rules = Vec::new();
    if let Some(name) = root.text("anonymousGroup")?.filter(|name| !name.is_empty()) {
        match reading
            .places
            .get(name)
            .and_then(|place| reading.groups.get(*place))
        {
            Some(group) => rules.extend(reading.rules_of(&group.roles, "anonymous ")),
            None => imported.leave_out("anonymousGroup", format!("there is no group {name:?}")),
        }
    }
    rules.extend(default_access(&mut root, &mut imported)?);

    let users = clients
        .into_iter()
        .map(|client| reading.user(client, offset, &mut imported))
        .collect();
    imported.document = Document {
        groups: reading.into_groups(offset, &mut imported).into(),
        users,
        rules: Some(rules),
        ..Document::default()
    };
    root.rest(&mut imported);
    Ok(imported)
}

/// The names of groups, which roles must not get.
fn group_names(groups: Vec<Object<'_>>) -> Result<HashSet<String>, ImportError> {
    let names = groups.into_iter().map(|mut group| group.name("groupname"));
    names.map(|name| name.map(str::to_owned)).collect()
}

/// The last lines of the list for everybody.
fn default_access(
    root: &mut Object<'_>,
    imported: &mut Imported,
) -> Result<[String; 3], ImportError> {
    let empty = serde_json::Value::Object(serde_json::Map::new());
    let value = root.get("defaultACLAccess").unwrap_or(&empty);
    let mut access = Object::new("defaultACLAccess", value)?;
    let mut line = |name, action| {
        // As Mosquitto does: what the file does not say is denied.
        let allows = access.flag(name)?.unwrap_or(false);
        Ok(format!("{} all {action}", Effect::of(allows).as_str()))
    };
    let lines = [
        line("publishClientSend", "publish")?,
        line("publishClientReceive", "receive")?,
        line("subscribe", "subscribe-only")?,
    ];
    if access.flag("unsubscribe")? == Some(false) {
        imported.leave_out(access.place("unsubscribe"), UNSUBSCRIBE);
    }
    access.rest(imported);
    Ok(lines)
}

const UNSUBSCRIBE: &str = "clients may always unsubscribe";

struct Client<'a> {
    at: String,
    entry: UserEntry,
    /// In the order in which they count.
    roles: Vec<&'a str>,
    /// Places in the list of groups, in the order in which they count.
    groups: Vec<usize>,
}

struct Reading<'a> {
    roles: BTreeMap<&'a str, Role>,
    groups: Vec<Group<'a>>,
    /// Of each group, in the list.
    places: HashMap<&'a str, usize>,
    /// Of each user, as groups say: places in the list of groups, with priorities.
    memberships: BTreeMap<&'a str, Vec<(usize, i64)>>,
}

impl<'a> Reading<'a> {
    fn role(
        &mut self,
        mut role: Object<'a>,
        names: &mut HashSet<String>,
        imported: &mut Imported,
    ) -> Result<(), ImportError> {
        let name = role.name("rolename")?;
        if self.roles.contains_key(name) {
            imported.leave_out(role.at, format!("there is a role {name:?} already"));
            return Ok(());
        }
        let mut group = name.to_owned();
        while !names.insert(group.clone()) {
            group.insert_str(0, "role-");
        }
        let note = note(&mut role)?;
        if role.flag("allowwildcardsubs")? == Some(false) {
            let why = "clients may subscribe with wildcards wherever a rule allows the filter";
            imported.leave_out(role.place("allowwildcardsubs"), why);
        }
        let (rules, sides) = rules(role.objects("acls")?, imported)?;
        role.rest(imported);
        let role = Role {
            group,
            note,
            rules,
            sides,
            priority: None,
        };
        self.roles.insert(name, role);
        Ok(())
    }

    fn group(&mut self, mut group: Object<'a>, imported: &mut Imported) -> Result<(), ImportError> {
        let name = group.name("groupname")?;
        if self.places.contains_key(name) {
            imported.leave_out(group.at, format!("there is a group {name:?} already"));
            return Ok(());
        }
        let place = self.groups.len();
        self.places.insert(name, place);
        for mut client in group.objects("clients")? {
            let user = client.name("username")?;
            let priority = priority(&mut client)?;
            client.rest(imported);
            self.memberships
                .entry(user)
                .or_default()
                .push((place, priority));
        }
        let roles = self.roles_of(&mut group, imported)?;
        let sides = roles.iter().filter_map(|role| self.roles.get(role.name));
        self.groups.push(Group {
            name,
            note: note(&mut group)?,
            sides: sides.fold(Sides::default(), |sides, role| sides.with(role.sides)),
            roles: roles.into_iter().map(|role| role.name).collect(),
            priority: None,
        });
        group.rest(imported);
        Ok(())
    }

    /// The roles of a client or group, in the order in which they count.
    fn roles_of(
        &self,
        holder: &mut Object<'a>,
        imported: &mut Imported,
    ) -> Result<Vec<Has<'a>>, ImportError> {
        let mut roles: Vec<Has<'a>> = Vec::new();
        let mut seen = HashSet::new();
        for mut role in holder.objects("roles")? {
            let name = role.name("rolename")?;
            let priority = priority(&mut role)?;
            if !self.roles.contains_key(name) {
                imported.leave_out(role.place("rolename"), format!("there is no role {name:?}"));
            } else if seen.insert(name) {
                roles.push(Has { name, priority });
            }
            role.rest(imported);
        }
        roles.sort_by_key(|role| Reverse(role.priority));
        Ok(roles)
    }

    fn clients(
        &mut self,
        clients: Vec<Object<'a>>,
        imported: &mut Imported,
    ) -> Result<Vec<Client<'a>>, ImportError> {
        let mut read = Vec::new();
        let mut names = HashSet::new();
        for mut client in clients {
            let name = client.name("username")?;
            if !names.insert(name) {
                imported.leave_out(client.at, format!("there is a client {name:?} already"));
                continue;
            }
            let roles = self.roles_of(&mut client, imported)?;
            for Has { name, priority } in &roles {
                if let Some(role) = self.roles.get_mut(name) {
                    role.priority.get_or_insert(*priority);
                }
            }
            let mut groups = self.memberships.remove(name).unwrap_or_default();
            for mut group in client.objects("groups")? {
                let name = group.name("groupname")?;
                let priority = priority(&mut group)?;
                match self.places.get(name) {
                    Some(place) => groups.push((*place, priority)),
                    None => imported.leave_out(
                        group.place("groupname"),
                        format!("there is no group {name:?}"),
                    ),
                }
                group.rest(imported);
            }
            let mut seen = HashSet::new();
            groups.retain(|(place, _)| seen.insert(*place));
            groups.sort_by_key(|(_, priority)| Reverse(*priority));
            for (place, priority) in &groups {
                self.groups[*place].priority.get_or_insert(*priority);
            }
            read.push(Client {
                at: client.at.clone(),
                entry: entry(name, &mut client, imported)?,
                roles: roles.into_iter().map(|role| role.name).collect(),
                groups: groups.into_iter().map(|(place, _)| place).collect(),
            });
            client.rest(imported);
        }
        for (user, _) in std::mem::take(&mut self.memberships) {
            imported.leave_out(
                "groups",
                format!("there is no client {user:?} that groups name"),
            );
        }
        read.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        Ok(read)
    }

    /// Lines of rules of roles, in their order.
    fn rules_of(&self, roles: &[&str], who: &str) -> Vec<String> {
        let roles = roles.iter().filter_map(|role| self.roles.get(role));
        let rules = roles.flat_map(|role| &role.rules);
        rules.map(|rule| rule.line(who)).collect()
    }

    fn user(&self, client: Client<'_>, offset: i32, imported: &mut Imported) -> UserEntry {
        let mut user = client.entry;
        let roles = client.roles.iter().filter_map(|role| self.roles.get(role));
        let groups = client
            .groups
            .iter()
            .filter_map(|place| self.groups.get(*place));
        let wanted: Vec<Member<'_>> = roles
            .map(|role| Member::of_role(role, offset))
            .chain(groups.clone().map(Member::of_group))
            .collect();
        if wanted.len() <= MOST
            && is_kept(&wanted, |member| (Reverse(member.priority), member.name))
        {
            user.groups = sorted(wanted.iter().map(|member| member.name));
            return user;
        }
        let mut seen = HashSet::new();
        let mut names = client.roles;
        names.extend(groups.flat_map(|group| &group.roles));
        names.retain(|role| seen.insert(*role));
        user.rules = self.rules_of(&names, "");
        let why = format!(
            "the rules of the roles of {:?} are copied to the user, in their order, and it is in no group: as its groups they would count \
             in another order, or be more than {MOST}",
            user.name
        );
        imported.leave_out(client.at, why);
        user
    }

    fn into_groups(self, offset: i32, imported: &mut Imported) -> Vec<GroupEntry> {
        let mut groups: Vec<GroupEntry> = Vec::new();
        for group in &self.groups {
            let roles = group.roles.iter().filter_map(|role| self.roles.get(role));
            let wanted: Vec<Member<'_>> = roles.map(|role| Member::of_role(role, 0)).collect();
            let mut entry = GroupEntry {
                name: group.name.to_owned(),
                priority: Member::of_group(group).priority,
                note: group.note.clone(),
                ..GroupEntry::default()
            };
            if wanted.len() <= MOST && is_kept(&wanted, |member| member.name) {
                entry.includes = sorted(wanted.iter().map(|member| member.name));
            } else {
                entry.rules = self.rules_of(&group.roles, "");
                let why = format!(
                    "the rules of its roles are copied to the group, in their order: included in it they would count in the order of names, \
                     or be more than {MOST}"
                );
                imported.leave_out(format!("group {:?}", group.name), why);
            }
            groups.push(entry);
        }
        let roles = self.roles.into_values().map(|role| GroupEntry {
            priority: Member::of_role(&role, offset).priority,
            rules: role.rules.iter().map(|rule| rule.line("")).collect(),
            name: role.group,
            note: role.note,
            ..GroupEntry::default()
        });
        groups.extend(roles);
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }
}

/// A group of the document, as one of those of a user or of another group.
struct Member<'a> {
    name: &'a str,
    priority: i32,
    sides: Sides,
}

impl<'a> Member<'a> {
    fn of_role(role: &'a Role, offset: i32) -> Self {
        let priority = role
            .priority
            .map_or(0, |priority| offset + limited(priority));
        Self {
            name: &role.group,
            priority,
            sides: role.sides,
        }
    }

    fn of_group(group: &'a Group<'_>) -> Self {
        Self {
            name: group.name,
            priority: group.priority.map_or(0, limited),
            sides: group.sides,
        }
    }
}

fn limited(priority: i64) -> i32 {
    priority.clamp(-PRIORITY, PRIORITY) as i32
}

/// Whether all that contradict each other have the order that they are wanted in when they are sorted by a key.
fn is_kept<'a, K: Ord>(wanted: &'a [Member<'a>], key: impl Fn(&'a Member<'a>) -> K) -> bool {
    wanted.iter().enumerate().all(|(n, first)| {
        let mut later = wanted[n + 1..].iter();
        later.all(|second| !first.sides.contradict(second.sides) || key(first) < key(second))
    })
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The user of a client, without its groups.
fn entry(
    name: &str,
    client: &mut Object<'_>,
    imported: &mut Imported,
) -> Result<UserEntry, ImportError> {
    let mut user = UserEntry {
        name: name.to_owned(),
        enabled: !client.flag("disabled")?.unwrap_or(false),
        note: note(client)?,
        ..UserEntry::default()
    };
    match client.text("clientid")? {
        Some(id) if id.contains('*') => imported.leave_out(
            client.place("clientid"),
            "`*` stands for any text in a pattern of client identifiers; the user may connect with any identifier",
        ),
        id => user.client_ids = id.map(str::to_owned),
    }
    let encoded = client.text("encoded_password")?;
    let hash = client.text("password")?;
    let salt = client.text("salt")?;
    let iterations = client.number("iterations")?;
    match (encoded, hash, salt, iterations) {
        (Some(encoded), ..) if encoded.starts_with('$') => user.hashes = vec![encoded.to_owned()],
        (Some(_), ..) => {
            return Err(ImportError::new(
                client.place("encoded_password"),
                "this is no hash: plain passwords are not accepted",
            ));
        }
        (None, Some(hash), Some(salt), Some(iterations)) => {
            user.hashes = vec![format!("$7${iterations}${salt}${hash}")];
        }
        (None, None, None, None) => {}
        _ => imported.leave_out(
            client.at.clone(),
            "it has not all of password, salt and iterations, so the user has no password",
        ),
    }
    Ok(user)
}

/// Name and description for people, cut to what a note may have.
fn note(object: &mut Object<'_>) -> Result<String, ImportError> {
    let parts = [object.text("textname")?, object.text("textdescription")?];
    let parts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    let mut note = parts.join(": ");
    note.truncate(note.floor_char_boundary(NOTE));
    Ok(note)
}

fn priority(object: &mut Object<'_>) -> Result<i64, ImportError> {
    let priority = object.number("priority")?.unwrap_or(0);
    Ok(priority.clamp(-PRIORITY, PRIORITY))
}

/// The kinds of access, in the order in which a subscription is judged, and their actions here.
const KINDS: [(&str, &str); 4] = [
    ("publishClientSend", "publish"),
    ("publishClientReceive", "receive"),
    ("subscribeLiteral", "subscribe-only"),
    ("subscribePattern", "subscribe-only"),
];

/// The rules of a role in the order in which they count.
fn rules(
    acls: Vec<Object<'_>>,
    imported: &mut Imported,
) -> Result<(Vec<Rule>, Sides), ImportError> {
    let mut found: Vec<(usize, Reverse<i64>, Rule)> = Vec::new();
    let mut sides = Sides::default();
    let mut seen = HashSet::new();
    for mut acl in acls {
        let word = acl.name("acltype")?;
        let topic = acl.name("topic")?;
        let priority = priority(&mut acl)?;
        let effect = Effect::of(acl.flag("allow")?.unwrap_or(false));
        let at = acl.at.clone();
        acl.rest(imported);
        if word.to_ascii_lowercase().starts_with("unsubscribe") {
            imported.leave_out(at, format!("{word} {topic:?}: {UNSUBSCRIBE}"));
            continue;
        }
        let kind = KINDS
            .iter()
            .position(|(name, _)| name.eq_ignore_ascii_case(word));
        let Some((kind, (name, action))) = kind.and_then(|kind| Some((kind, KINDS.get(kind)?)))
        else {
            let why = format!("the kind of access {word:?} is not known to this version");
            imported.leave_out(at, effect.left_out(&why));
            continue;
        };
        if topic.starts_with("$CONTROL/") {
            let why = format!(
                "{name} {topic:?}: there are no such topics, the HTTP API takes their place"
            );
            imported.leave_out(at, why);
            continue;
        }
        if !seen.insert((kind, topic)) {
            imported.leave_out(at, format!("{name} {topic:?} stands above already"));
            continue;
        }
        let filter = match *name {
            "subscribeLiteral" => words::exact(topic, Percent::Names),
            _ => words::filter(topic, Percent::Names),
        };
        match filter {
            Ok(filter) => {
                let bit = 1 << kind.min(2);
                match effect {
                    Effect::Allow => sides.allows |= bit,
                    Effect::Deny => sides.denies |= bit,
                }
                let rest = format!("{action} {filter}");
                found.push((kind, Reverse(priority), Rule { effect, rest }));
            }
            Err(why) => imported.leave_out(at, effect.left_out(&why)),
        }
    }
    found.sort_by_key(|(kind, priority, _)| (*kind, *priority));
    Ok((found.into_iter().map(|(.., rule)| rule).collect(), sides))
}
