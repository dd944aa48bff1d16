//! What must hold, whatever happens: each in a file of its own.

mod acknowledged;
mod calm;
mod once;
mod ordered;
mod owners;
pub(crate) mod quiet;
mod replicas;
mod retained;
mod routes;
mod wills;

use crate::world::World;

/// What is checked now and then while things go wrong.
pub(crate) fn check(world: &World) -> Result<(), String> {
    if let Some(wrong) = world.history.wrong.first() {
        return Err(wrong.clone());
    }
    calm::check(&world.history)?;
    routes::check(world)?;
    replicas::check(world)
}

/// What is checked when all is quiet.
pub(crate) fn check_all(world: &World) -> Result<(), String> {
    check(world)?;
    acknowledged::check(&world.history)?;
    once::check(&world.history)?;
    ordered::check(&world.history)?;
    owners::check(&world.history)?;
    wills::check(&world.history)?;
    retained::check(&world.history)
}
