//! What was changed in the control store is kept, once, and every node knows it; the audit is one chain, and somebody can change
//! everything from the first administrator on.

use std::collections::{BTreeMap, BTreeSet};

use control::{Audited, ChainHash, EntryNumber, Records, Subject};
use control_view::Standing;
use store::AuditPart;
use store_state::api::StoreId;

use crate::control::{ACTION, Changes, FIRST, GIVEN, Seen, TWINS, made, name_of, target_of};

/// A node's view is what its replica holds, the audit of each node is the beginning of that of any other which has more, and the last
/// administrator has stayed.
pub(super) fn check(nodes: &[Seen<'_>]) -> Result<(), String> {
    let replicas = nodes.iter().flat_map(|node| {
        let replicas = node.store.replicas().into_iter();
        let of_store = replicas.filter(|replica| replica.store == StoreId::Control);
        of_store.map(move |replica| (node, replica))
    });
    for (node, replica) in replicas {
        let view = node.view.records();
        if !replica.content.starts_with(&format!("{view:?} ")) {
            return Err(format!(
                "the view of node {} is {view:?}, and its replica {}",
                node.store.node(),
                replica.content
            ));
        }
        check_administrators(&view)
            .map_err(|why| format!("by the view of node {}, {why}", node.store.node()))?;
    }
    check_heads(nodes)
}

/// From the first administrator on there is one, and nobody has become the first one twice.
fn check_administrators(records: &Records) -> Result<(), String> {
    let noted = |note: &str| {
        let users = records.users.values();
        users.filter(|user| &*user.record.note == note).count()
    };
    let firsts = noted(FIRST);
    if firsts > 1 {
        return Err(format!("there were {firsts} first administrators"));
    }
    let people = records.people.values().map(|of| of.record.administers());
    let keys = records.keys.values().map(|of| of.record.administers());
    let is_administered = people.chain(keys).any(|administers| administers);
    match firsts + noted(GIVEN) > 0 && !is_administered {
        true => Err("the last administrator is gone".to_owned()),
        false => Ok(()),
    }
}

/// After as many entries the chain has the same hash at all nodes.
fn check_heads(nodes: &[Seen<'_>]) -> Result<(), String> {
    let parts = nodes.iter().filter_map(|node| {
        let part = part(node, EntryNumber(0), 0)?;
        Some((node, part))
    });
    let parts: Vec<(&Seen<'_>, AuditPart)> = parts.collect();
    let longest = parts.iter().max_by_key(|(_, part)| part.kept.end);
    let hash = |number| {
        let (longest, _) = longest?;
        let read = part(longest, number, 1)?;
        Some(read.entries.first()?.1.hash)
    };
    for (node, AuditPart { kept, head, .. }) in &parts {
        let last = kept.end.0.checked_sub(1).map(EntryNumber);
        let expected = last.map_or(Some(ChainHash::EMPTY), hash);
        if expected != Some(*head) {
            return Err(format!(
                "before entry {} the audit of node {} is not that of another node",
                kept.end.0,
                node.store.node()
            ));
        }
    }
    Ok(())
}

fn part(node: &Seen<'_>, from: EntryNumber, limit: usize) -> Option<AuditPart> {
    node.store.control_store.audit(from, limit)
}

/// Each batch of notes is in the audit once, if at all, and each that was answered is. Entries that say the same have different
/// hashes, as what is before them is different.
fn check_audit(node: &Seen<'_>, changes: &Changes) -> Result<(), String> {
    let part = part(node, EntryNumber(0), usize::MAX);
    let entries = part.map(|part| part.entries).unwrap_or_default();
    let (mut hashes, mut found) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    let mut before = ChainHash::EMPTY;
    for (EntryNumber(number), entry) in entries {
        let is_new = hashes.insert(entry.hash.0.0);
        if !is_new || before.then(&entry.bytes) != entry.hash {
            return Err(format!("the hash of entry {number} is not that of a chain"));
        }
        before = entry.hash;
        let audited = Audited::read(&entry.bytes);
        let audited = audited.map_err(|error| format!("entry {number}: {error}"))?;
        if let Subject::Act { action, target } = audited.subject
            && &*action == ACTION
        {
            *found.entry(target.into()).or_default() += 1;
        }
    }
    let wrong = found.iter().find(|(_, count)| **count != TWINS);
    if let Some((target, count)) = wrong {
        return Err(format!(
            "the audit has each note about {target} so often: {count} of {TWINS}"
        ));
    }
    let is_lost = |number: &&_| !found.contains_key(&target_of(**number));
    match changes.noted.iter().find(is_lost) {
        Some(lost) => Err(format!("the audit lacks the notes {lost:?}")),
        None => Ok(()),
    }
}

/// All nodes have all changes that were answered, each once, and their audits all notes.
pub(super) fn check_all(nodes: &[Seen<'_>], changes: &Changes) -> Result<(), String> {
    for node in nodes.iter().filter(|node| !node.leaves) {
        let records = node.view.records();
        let acknowledged = &changes.acknowledged;
        let lost = acknowledged
            .iter()
            .find(|count| !records.users.contains_key(&*name_of(**count)));
        if let Some(lost) = lost {
            return Err(format!(
                "node {} lacks the change {lost:?}",
                node.store.node()
            ));
        }
        let made = made(&records);
        if records.revision.0 != made {
            return Err(format!(
                "node {}: {made} changes were made, and the revision is {:?}",
                node.store.node(),
                records.revision
            ));
        }
        check_audit(node, changes).map_err(|why| format!("node {}: {why}", node.store.node()))?;
    }
    Ok(())
}

/// Whether all nodes have the same, and know that they do; else, which does not.
pub(crate) fn is_quiet(nodes: &[Seen<'_>]) -> Result<(), String> {
    let following = nodes.iter().filter(|node| !node.leaves);
    let views = following.map(|node| (node.view.revision(), node.view.standing()));
    let views: Vec<_> = views.collect();
    let is_used = views
        .iter()
        .any(|(_, standing)| *standing != Standing::Unused);
    let last = views.iter().map(|(revision, _)| *revision).max();
    let is_late = |(revision, standing): &&(control::Revision, Standing)| {
        Some(*revision) != last || *standing != Standing::Confirmed
    };
    match views.iter().find(is_late).filter(|_| is_used) {
        Some(late) => Err(format!("a view is at {late:?}, and another at {last:?}")),
        None => Ok(()),
    }
}
