//! An HTTP/1.1 client with deadlines, limits and verified TLS, and the TLS settings of connections to other servers.
//!
//! Purpose: [`HttpClient`] sends a request to one server, and returns the answer or an error at the deadline.
//!
//! Deliberately absent: redirects, proxies, retries, and what the requests are about.

mod causes;
mod client;
mod tls;

pub use causes::with_causes;
pub use client::{HttpClient, HttpError};
pub use tls::{authorities, tls_client};
