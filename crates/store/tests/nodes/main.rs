//! The store of a node, in real folders, as event loops use it.

mod checkpoints;
mod cluster;
mod cluster_splits;
mod compare;
mod control;
mod damage;
mod folders;
mod full;
mod hub;
mod node;
mod order;
mod purge;
mod restart;
mod scrub;
mod shards;
mod splits;
