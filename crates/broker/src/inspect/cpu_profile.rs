//! A CPU profile of this process, as the API has it.
//!
//! Invariant: nothing is sampled while nobody asks; whoever drops a profile in the making ends it.
//!
//! Deliberately absent: symbols, which the program reads (`OwnProcess`).

use std::collections::BTreeMap;
use std::time::Duration;

use admin::api::{Amount, CpuProfile, ProfiledModule, ProfiledStack, ProfiledThread};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use host::Process;
use profiler::{CpuSampling, Frame, Hertz, Refused};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::memory::failed;

/// No divisor of what the broker does each 10 ms or second, so that this is not seen too often or never.
const HERTZ: Hertz = Hertz(199);

/// How often samples are taken from the handler.
const GATHER: Duration = Duration::from_millis(100);

/// Begins a CPU profile of this process, which belongs to the node with this identifier and name. What it gives is the profile, when the time is over;
/// whoever drops it ends the profile.
pub(super) async fn begin(
    node: (NodeId, String),
    lasts: Duration,
) -> Result<BoxFuture<'static, Result<CpuProfile, Problem>>, Problem> {
    let begun = spawn_blocking(|| CpuSampling::begin(HERTZ)).await;
    let sampling = begun.map_err(failed)?.map_err(|refused| match refused {
        Refused::Busy => Problem::new(Kind::Conflict, refused),
        Refused::System(error) => failed(error),
    })?;
    tracing::info!(seconds = lasts.as_secs(), "a CPU profile begins");
    Ok(sample(node, sampling, lasts).boxed())
}

async fn sample(
    node: (NodeId, String),
    mut sampling: CpuSampling,
    lasts: Duration,
) -> Result<CpuProfile, Problem> {
    let cpu = || Process::own().cpu().unwrap_or_default();
    let before = cpu();
    let ends = Instant::now() + lasts;
    while Instant::now() < ends {
        sleep_until(ends.min(Instant::now() + GATHER)).await;
        sampling.gather();
    }
    let used = cpu() - before;
    // Thousands of stacks are not put in order where other nodes are answered.
    let made = spawn_blocking(move || profile(node, sampling.end(), used.total()));
    made.await.map_err(failed)
}

/// As the API says it.
fn profile(
    (node, node_name): (NodeId, String),
    sampled: profiler::CpuProfile,
    used: Duration,
) -> CpuProfile {
    let mut numbers: BTreeMap<Frame, usize> = BTreeMap::new();
    let mut places = Vec::new();
    let mut number = |frame: &Frame| {
        *numbers.entry(*frame).or_insert_with(|| {
            places.push(place(frame));
            places.len() - 1
        })
    };
    let stacks = sampled.stacks.iter().map(|stack| ProfiledStack {
        thread: stack.thread,
        count: Amount(stack.count.0),
        places: stack.frames.iter().map(&mut number).collect(),
    });
    let stacks = stacks.collect();
    let threads = sampled.threads.into_iter().map(|thread| ProfiledThread {
        id: Amount(thread.id.0.into()),
        name: thread.name,
    });
    let modules = sampled.modules.into_iter().map(|module| ProfiledModule {
        path: module.path.to_string_lossy().into_owned(),
        build_id: module.build_id.as_deref().map(hexadecimal),
        is_program: module.is_program,
    });
    CpuProfile {
        node,
        node_name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hertz: Amount(sampled.hertz.0.into()),
        lasted_ms: ms(sampled.lasted),
        cpu_ms: ms(used),
        samples: Amount(sampled.samples.0),
        lost: Amount(sampled.lost.0),
        threads: threads.collect(),
        modules: modules.collect(),
        places,
        functions: None,
        stacks,
    }
}

fn place(frame: &Frame) -> String {
    let address = frame.address.0;
    match frame.module {
        Some(module) => format!("{module}:{address:x}"),
        None => format!(":{address:x}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ms(time: Duration) -> Amount {
    Amount(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_its_module_and_the_address_in_it() {
        let address = profiler::Address(0x1a2b);
        let of = |module| place(&Frame { module, address });
        assert_eq!((of(Some(3)), of(None)), ("3:1a2b".into(), ":1a2b".into()));
    }
}
