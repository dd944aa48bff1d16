//! TLS, the server's side, in front of WebSocket: whatever comes in place of a handshake, it does not panic, and
//! nothing of it is taken for MQTT.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use transport::{Layers, ServerOptions};

use crate::{Input, Target};

pub(crate) const TARGET: Target = Target {
    name: "tls",
    run,
    seeds,
};

fn server() -> Arc<rustls::ServerConfig> {
    static CONFIG: OnceLock<Arc<rustls::ServerConfig>> = OnceLock::new();
    let make = || {
        let names = vec!["localhost".to_owned()];
        let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let certificate = CertificateDer::from(certified.cert.der().to_vec());
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("the key fits");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    };
    CONFIG.get_or_init(make).clone()
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let piece = usize::from(input.byte()).max(1);
    let options = ServerOptions {
        tls: Some(server().into()),
        ..ServerOptions::default()
    };
    let mut layers = Layers::accept(&options).expect("there is a layer");
    let (mut inner, mut answer) = (Vec::new(), Vec::new());
    for piece in input.0.chunks(piece) {
        let end = layers.receive(piece, &mut inner).is_err();
        layers.take_output(&mut answer);
        if end {
            break;
        }
    }
    assert!(inner.is_empty() && !layers.is_established());
}

fn seeds() -> Vec<Vec<u8>> {
    let mut hello = b"\xff\x16\x03\x01\0\x4d\x01\0\0\x49\x03\x03".to_vec();
    hello.extend([7; 32]);
    // Cipher suites, compression, supported versions, a group without a share.
    hello.extend(b"\0\0\x04\x13\x01\xc0\x2b\x01\0\0\x1c\0\x2b\0\x05\x04\x03\x04\x03\x03\0\x0a\0\x04\0\x02\0\x17\0\x0d\0\x04\0\x02\x04\x03\0\0");
    vec![
        hello,
        b"\x03\x15\x03\x03\0\x02\x01\0".to_vec(),
        b"\x05\x16\x03\x01\x40\0\x01".to_vec(),
    ]
}
