//! A key set behind an address.

use std::{future::Future, pin::Pin, time::Duration};

use http_body_util::Full;
use http_client::HttpClient;
use hyper::{Request, StatusCode};
use tokio::time::Instant;

use super::key_server::KeyServer;

/// The largest key set that is read.
const MAX_SET_BYTES: usize = 1024 * 1024;

/// Time for the whole request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What reads the set at an address, http or https.
pub(super) fn published_at(url: &str) -> Result<Box<dyn KeyServer>, String> {
    let client = HttpClient::open(url, None, MAX_SET_BYTES)
        .map_err(|reason| format!("jwt.jwksUrl: {reason}"))?;
    Ok(Box::new(Published { client }))
}

#[derive(Debug)]
struct Published {
    client: HttpClient,
}

impl KeyServer for Published {
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + '_>> {
        Box::pin(self.get())
    }
}

impl Published {
    async fn get(&self) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + TIMEOUT;
        let response = self
            .client
            .send(Request::new(Full::default()), deadline)
            .await
            .map_err(|error| error.to_string())?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body().into()),
            status => Err(format!("the server answers {status}")),
        }
    }
}
