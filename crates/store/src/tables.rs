//! Tables on fjall.

/// The tables of one store.
#[derive(Debug)]
pub struct Tables;

/// The table of one shard.
#[derive(Debug)]
pub struct ShardTable;
