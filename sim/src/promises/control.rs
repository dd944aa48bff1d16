//! What was changed in the control store is kept, once, and every node knows it.

use control_view::Standing;
use store_state::api::StoreId;

use crate::control::{Changes, Seen, made, name_of};

/// A node's view is what its replica holds.
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
    }
    Ok(())
}

/// All nodes have all changes that were answered, each once.
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
