//! For a cluster whose majority is gone for good: one of the nodes that are left goes on alone.

use std::path::PathBuf;

use consensus::{Log, LogOptions, Mark};
use store_state::api::{PerStore, ShardNumber, StoreId};
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;

use crate::api::error::{OpenError, because};
use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::storage::folder::Folder;
use crate::storage::map::ShardMap;
use crate::storage::tables::{Tables, TablesOptions};

/// A shard that its node decides on alone from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// `false`: the node had no replica of it, and it is lost.
    pub is_here: bool,
}

/// Makes the node of a data folder that no broker uses the only voter of every shard that it has a replica
/// of. Its next start leads them.
///
/// What the lost nodes had acknowledged without this one is lost, and what was never acknowledged may become
/// valid. The lost nodes must never come back with their folders.
///
/// # Errors
/// The folder cannot be used; some shards may have been recovered by then, and it can be tried again.
pub fn recover(
    folder: &Folder,
    folders: &PerStore<Option<PathBuf>>,
) -> Result<Vec<Recovered>, OpenError> {
    let log = Log::open(&LogOptions::new(folder.log())).map_err(because("the log"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(because("a runtime"))?;
    runtime.block_on(async {
        let mut recovered = Vec::new();
        recover_store::<SessionMachine>(folder, folders, &log, &mut recovered).await?;
        recover_store::<InboxMachine>(folder, folders, &log, &mut recovered).await?;
        recover_store::<RetainMachine>(folder, folders, &log, &mut recovered).await?;
        Ok(recovered)
    })
}

async fn recover_store<M: Kind>(
    folder: &Folder,
    folders: &PerStore<Option<PathBuf>>,
    log: &Log,
    recovered: &mut Vec<Recovered>,
) -> Result<(), OpenError> {
    let path = folder.store(M::NAME, folders[M::STORE].as_deref())?;
    let Some(map) = ShardMap::read(&path, folder.name_hash()).map_err(because("the shard map"))?
    else {
        return Ok(());
    };
    let tables = Tables::open(&path, TablesOptions::default()).map_err(because(M::NAME))?;
    for shard in 0..map.len() {
        let group = group_of::<M>(shard);
        let is_here = log.has_replica(group);
        if is_here {
            let table = tables.shard(u64::from(shard)).map_err(because(M::NAME))?;
            let mark = table.mark().map_err(because(M::NAME))?;
            let mark = mark.map(|bytes| Mark::decode(&bytes)).transpose();
            let mark = mark.map_err(because(M::NAME))?.unwrap_or_default();
            let written = log.make_sole_voter(group, folder.node(), &mark).await;
            written.map_err(because("the log"))?;
        }
        recovered.push(Recovered {
            store: M::STORE,
            shard,
            is_here,
        });
    }
    Ok(())
}
