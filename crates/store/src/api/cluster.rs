//! What a store hears from other nodes and says about its place among them.
//!
//! Invariant: bytes of another node never panic; what makes no sense is an error for the link.

use std::time::Duration;

use bytes::Bytes;
use store_state::api::{ShardNumber, StoreId};

use crate::api::listener::Listener;
use crate::api::shard_info::ShardInfo;
use crate::api::store::Store;
use crate::kinds::group::shard_of_group;
use crate::leadership::incarnation::adopt_incarnation;
use crate::peers::member::Member;
use crate::peers::message::{Lead, Message};

impl Store {
    /// Whether retained messages have to be asked for.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.known_peers.network.is_some()
    }

    /// The membership has changed, or who of the members can be reached.
    pub fn members(&self, members: Vec<Member>) {
        self.known_peers.set_members(members);
    }

    /// Messages can be sent to a node, or not any more; what was sent before may be lost.
    pub fn linked(&self, node: u64, is_up: bool) {
        self.known_peers.link(node, is_up);
        self.link_changed(node, is_up);
        self.known_peers.tell();
    }

    /// Whether messages can be sent to a node.
    #[must_use]
    pub fn is_linked(&self, node: u64) -> bool {
        self.known_peers.is_linked(node)
    }

    /// What a node has sent to this one may be lost.
    pub fn interrupted(&self, node: u64) {
        self.link_changed(node, self.known_peers.is_linked(node));
    }

    fn link_changed(&self, node: u64, is_open: bool) {
        self.session.link_changed(node, is_open);
        self.inbox.link_changed(node, is_open);
        self.retain.link_changed(node, is_open);
        self.control.link_changed(node, is_open);
    }

    /// A message of the store of another node has come.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn received(
        &self,
        listener: &dyn Listener,
        from: u64,
        message: &[u8],
    ) -> Result<(), String> {
        match Message::decode(message)? {
            Message::Session(work) => {
                let shard = self.session.get(work.shard).ok_or("no such shard")?;
                shard.accept_forwarded(from, work);
            }
            Message::Inbox(work) => {
                let shard = self.inbox.get(work.shard).ok_or("no such shard")?;
                shard.accept_forwarded(from, work);
            }
            Message::Retain(work) => {
                let shard = self.retain.get(work.shard).ok_or("no such shard")?;
                shard.accept_forwarded(from, work);
            }
            Message::Control(work) => {
                let shard = self.control.get(work.shard).ok_or("no such shard")?;
                shard.accept_forwarded(from, work);
            }
            Message::Mail(answers) => match answers.store {
                StoreId::Session => self.session.delivered(listener, answers),
                StoreId::Inbox => self.inbox.delivered(listener, answers),
                StoreId::Retain => self.retain.delivered(listener, answers),
                StoreId::Control => self.control.delivered(listener, answers),
            },
            Message::Leads(leads) => {
                for lead in leads {
                    self.lead(listener, from, lead);
                }
            }
            Message::Health(health) => self.known_peers.heard_health(from, health),
            Message::Loads(loads) => self.known_peers.heard_loads(from, loads),
            Message::Holds(store, shard, holds) => match store {
                StoreId::Session => self.session.holds(from, shard, holds),
                StoreId::Inbox => self.inbox.holds(from, shard, holds),
                StoreId::Retain => self.retain.holds(from, shard, holds),
                StoreId::Control => self.control.holds(from, shard, holds),
            },
        }
        Ok(())
    }

    fn lead(&self, listener: &dyn Listener, from: u64, lead: Lead) {
        if lead.incarnation > self.incarnation() {
            let (folder, known_peers) = (&self.folder, &self.known_peers);
            adopt_incarnation(
                lead.incarnation,
                folder,
                known_peers,
                listener,
                &self.led_shards.all(),
            );
        }
        if lead.store == StoreId::Control {
            listener.control_begun();
        }
        let is_linked = self.known_peers.is_linked(from);
        if self.known_peers.heard(from, lead.clone()) {
            match lead.store {
                StoreId::Session => self.session.lead(from, &lead, is_linked),
                StoreId::Inbox => self.inbox.lead(from, &lead, is_linked),
                StoreId::Retain => self.retain.lead(from, &lead, is_linked),
                StoreId::Control => self.control.lead(from, &lead, is_linked),
            }
        }
    }

    /// A request of the replica of a group on another node; the answer to it, or `None`: there is no
    /// replica here yet.
    pub async fn handle(&self, group: u64, request: Bytes) -> Option<Bytes> {
        let (store, number) = shard_of_group(group)?;
        match store {
            StoreId::Session => self.session.handle(number, request).await,
            StoreId::Inbox => self.inbox.handle(number, request).await,
            StoreId::Retain => self.retain.handle(number, request).await,
            StoreId::Control => self.control.handle(number, request).await,
        }
    }

    /// Who leads each shard, and with which replicas, as far as this node knows.
    #[must_use]
    pub fn leads(&self) -> Vec<(u64, Lead)> {
        self.known_peers.leads()
    }

    /// The node that leads a shard (as [`Lead`] names it), if it can be reached from here.
    #[must_use]
    pub fn leader(&self, store: StoreId, shard: ShardNumber) -> Option<u64> {
        match store {
            StoreId::Session => self.session.leader(shard),
            StoreId::Inbox => self.inbox.leader(shard),
            StoreId::Retain => self.retain.leader(shard),
            StoreId::Control => self.control.leader(shard),
        }
    }

    /// Whether no node has said within `time` that it leads a shard (as [`Lead`] names it), although this one has listened for
    /// as long. On a node that is alone: whether it does not serve the shard.
    #[must_use]
    pub fn lacks_leader(&self, store: StoreId, shard: ShardNumber, time: Duration) -> bool {
        match self.known_peers.network {
            Some(_) => self.known_peers.lacks_lead((store, shard), time),
            None => self.leader(store, shard).is_none(),
        }
    }

    /// Has another voter lead a shard (as [`Lead`] names it) that this node leads.
    ///
    /// # Errors
    /// This node does not lead it, or `to` is no voter.
    pub async fn transfer_leader(
        &self,
        store: StoreId,
        shard: ShardNumber,
        to: u64,
    ) -> Result<(), String> {
        let group = match store {
            StoreId::Session => self.session.group(shard),
            StoreId::Inbox => self.inbox.group(shard),
            StoreId::Retain => self.retain.group(shard),
            StoreId::Control => self.control.group(shard),
        };
        let group = group.ok_or("there is no replica of that shard here")?;
        group
            .transfer_leader(to)
            .await
            .map_err(|error| error.to_string())
    }

    /// The shards of all stores; that of the control store only if it has begun, as far as this node knows.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardInfo> {
        let mut shards = Vec::new();
        self.session.tell(&mut shards, &self.known_peers);
        self.inbox.tell(&mut shards, &self.known_peers);
        self.retain.tell(&mut shards, &self.known_peers);
        self.control.tell(&mut shards, &self.known_peers);
        shards
    }
}
