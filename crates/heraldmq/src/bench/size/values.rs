//! The answer as values of the Helm chart.

use sizing::{Cluster, Demand, Needs, Resource, Slopes, USED_MOST};

const MIB: f64 = (1_u64 << 20) as f64;
/// A pod has so much memory at least, in MiB, and so much CPU, in thousandths of a core.
const MEMORY_LEAST: f64 = 512.0;
const CPU_LEAST: f64 = 250.0;

/// Values for `helm install --values`, with the reasons as comments. The pods are those of `cluster`, which need less than its
/// machines have.
pub(super) fn values(title: &str, demand: &Demand, slopes: &Slopes, cluster: &Cluster) -> String {
    let needs = Needs::of(demand, slopes, cluster.nodes);
    let left = cluster.nodes - demand.may_fail;
    let of_pod = |resource| needs.sum(resource) / left;
    let (cores, bytes) = (of_pod(Resource::Cores), of_pod(Resource::Memory));
    let cpu = rounded_up(cores * 1000.0 / USED_MOST, 50.0).max(CPU_LEAST);
    let memory = rounded_up(bytes / MIB / USED_MOST, 64.0).max(MEMORY_LEAST);
    let used_most = USED_MOST * 100.0;
    let spare = match demand.may_fail {
        0.0 => "all pods are up".to_owned(),
        pods => format!("{left} of them are up, as {pods} may be down"),
    };
    format!(
        "# Values of the Helm chart for {title}.
# A pod uses {used_most:.0} % of what it requests at most, while {spare}.

# As many {} machines as the cheapest cluster has; see the output without --values.
replicas: {}

resources:
  requests:
    # {cores:.2} cores used.
    cpu: {cpu:.0}m
    # {:.0} MiB used.
    memory: {memory:.0}Mi
  # No limit of CPU: it would stop event loops for parts of each 100 ms.
  limits:
    # As requested: nobody else can take it away.
    memory: {memory:.0}Mi

storage:
  # {:.2} GiB used; tables are written anew beside the former ones.
  size: {}Gi
",
        cluster.machine.name,
        cluster.nodes,
        bytes / MIB,
        of_pod(Resource::Disk) / MIB / 1024.0,
        cluster.disk_gib,
    )
}

fn rounded_up(value: f64, step: f64) -> f64 {
    (value / step).ceil() * step
}
