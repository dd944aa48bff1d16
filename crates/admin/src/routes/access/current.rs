//! Reads that have to see a change: the header `Control-Revision`.
//!
//! Invariant: a request that names a revision is answered from a view that has it, or refused.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use control::Revision;
use control_view::View;
use tokio::time::{Instant, sleep};

use super::asked::wrong_header;
use crate::access::Access;
use crate::api_state::{Api, Turn};
use crate::problem::{Kind, Problem};

const HEADER: HeaderName = HeaderName::from_static("control-revision");

/// How long a request waits for a revision.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a request that waits looks. Changes come over the network, and there are as few such requests as queries.
const PAUSE: Duration = Duration::from_millis(10);

/// The control store, whose view has the revision that the request names, if it names one. Waits for it for 1 s, in a turn.
pub(crate) struct Current(pub(super) Arc<dyn Access>);

impl FromRequestParts<Api> for Current {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let access = api.access();
        let view = access.view();
        let wanted = named(&parts.headers)?.unwrap_or_default();
        if view.revision() >= wanted {
            return Ok(Self(access));
        }
        let _turn = Turn::from_request_parts(parts, api).await?;
        until(&view, wanted).await?;
        Ok(Self(access))
    }
}

/// Waits until the view has a revision, for 1 s at most.
pub(super) async fn until(view: &View, wanted: Revision) -> Result<(), Problem> {
    let deadline = Instant::now() + PATIENCE;
    while view.revision() < wanted {
        if Instant::now() >= deadline {
            let (wanted, found) = (wanted.0, view.revision().0);
            let why = format!(
                "this node has revision {found} of users, groups and rules, and not {wanted} yet"
            );
            return Err(Problem::new(Kind::NotReady, why).with("revision", found));
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// The revision that a request names.
fn named(headers: &HeaderMap) -> Result<Option<Revision>, Problem> {
    let mut all = headers.get_all(&HEADER).iter();
    let (first, second) = (all.next(), all.next());
    let read = |value: &HeaderValue| {
        let digits = value.to_str().ok().filter(|_| second.is_none());
        let digits = digits.filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| wrong_header(&HEADER, "a revision, such as 1841"))?;
        Ok(Revision(number))
    };
    first.map(read).transpose()
}
