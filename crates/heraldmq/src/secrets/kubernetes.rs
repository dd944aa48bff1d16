//! The Secret of a cluster in Kubernetes, made by a pod whose service account may create Secrets.
//!
//! Invariant: a Secret that is there is neither read nor changed.
//!
//! Deliberately absent: any other request to Kubernetes.

use std::env;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use ureq::http::StatusCode;

use super::random;
use crate::failure::Failure;
use crate::http_port;

/// Where a pod finds its service account.
pub(super) const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Creates the Secret in the namespace of the service account, whose folder has `token`, `ca.crt` and `namespace`; `false`: it is
/// there already. The environment says where Kubernetes is, as it does in each pod.
pub(super) fn make(name: &str, account: &Path) -> Result<bool, Failure> {
    let of_pod = |name: &str| {
        env::var(name).map_err(|_| {
            Failure::Usage(format!("{name} is not set: --kubernetes is for pods only"))
        })
    };
    let host = of_pod("KUBERNETES_SERVICE_HOST")?;
    let port = of_pod("KUBERNETES_SERVICE_PORT")?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let read = |file: &str| {
        let path = account.join(file);
        let text = fs::read_to_string(&path);
        text.map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))
    };
    let namespace = read("namespace")?;
    let token = read("token")?;
    let agent = http_port::agent_of(Some(&account.join("ca.crt")))?;
    let url = format!(
        "https://{host}:{port}/api/v1/namespaces/{}/secrets",
        namespace.trim()
    );
    let about = |reason: &dyn std::fmt::Display| Failure::Runtime(format!("{url}: {reason}"));
    let answer = agent
        .post(&url)
        .header("authorization", format!("Bearer {}", token.trim()))
        .content_type("application/json")
        .send(secret(name).to_string());
    let mut answer = answer.map_err(|error| about(&error))?;
    match answer.status() {
        StatusCode::CREATED => Ok(true),
        StatusCode::CONFLICT => Ok(false),
        status => {
            let body = answer.body_mut().read_to_string().unwrap_or_default();
            let status_of = serde_json::from_str::<Value>(&body).ok();
            let said = status_of.as_ref().and_then(|it| it["message"].as_str());
            Err(about(&format!("{status}: {}", said.unwrap_or(&body))))
        }
    }
}

fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name },
        "type": "Opaque",
        "stringData": { "cluster-secret": *random(), "token": *random() },
    })
}
