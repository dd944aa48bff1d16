//! The code that makes the first administrator, in the log of a node where nobody can change anything yet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::control_requests;
use crate::node::Node;

/// How often a node that does not know its cluster yet looks whether it does.
const AGAIN: Duration = Duration::from_millis(200);

/// Writes the code to the log, once, if it is good when the node has heard of its cluster. `port`: the HTTP port, and whether it
/// speaks TLS.
pub(crate) async fn tell(node: &Arc<Node>, (address, is_tls): (SocketAddr, bool)) {
    // A node that has just joined may not know yet that there are people.
    while node.store().control_store.begun_by().is_none() {
        sleep(AGAIN).await;
    }
    let rights = &node.rim.rights;
    if let Some(code) = rights.first_code()
        && control_requests::level(node).has_people()
    {
        let scheme = if is_tls { "https" } else { "http" };
        tracing::warn!(
            code,
            "nobody can change anything over HTTP yet: sign in at {scheme}://{address}/ with this code to become the first administrator"
        );
    }
}
