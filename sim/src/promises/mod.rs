//! What must hold, whatever happens (DESIGN, promises): each in a file of its own.

mod calm;
pub(crate) mod control;
mod p01_acknowledged_is_kept;
mod p03_routes;
mod p04_in_order;
pub(crate) mod p04_once;
mod p06_wills;
pub(crate) mod quiet;
mod ranges;
mod replicas;
pub(crate) mod retained;
mod retention;
mod splits;

use crate::node::{seen, stores};
use crate::world::World;

/// What is checked now and then while things go wrong.
pub(crate) fn check(world: &World) -> Result<(), String> {
    if let Some(wrong) = world.history.wrong.first() {
        return Err(wrong.clone());
    }
    p04_once::check(&world.history)?;
    p04_in_order::check(&world.history)?;
    p06_wills::check_order(&world.history)?;
    calm::check(&world.history)?;
    retention::check(&world.history)?;
    p03_routes::check(world)?;
    ranges::check(&stores(&world.nodes))?;
    control::check(&seen(&world.nodes))?;
    replicas::check(world)
}

/// What is checked when all is quiet.
pub(crate) fn check_all(world: &World) -> Result<(), String> {
    check(world)?;
    p01_acknowledged_is_kept::check(&world.history)?;
    p06_wills::check(&world.history)?;
    control::check_all(&seen(&world.nodes), &world.operators.changes)?;
    retained::check(&world.history)
}
