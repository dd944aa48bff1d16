//! An HTTP/1.1 client with deadlines, limits and verified TLS, and the TLS settings of connections to other servers.
//!
//! Purpose: [`HttpClient`] sends a request to one server, and returns the answer or an error at the deadline.
//! [`read_headers`] reads what goes along from a file, [`retry_after`] when a server wants to be asked again.
//!
//! Deliberately absent: redirects, proxies, retries, and what the requests are about.

mod causes;
mod client;
mod headers;
mod retry_after;
mod tls;

pub use causes::with_causes;
pub use client::{HttpClient, HttpError};
pub use headers::read as read_headers;
pub use retry_after::retry_after;
pub use tls::{authorities, tls_client};
