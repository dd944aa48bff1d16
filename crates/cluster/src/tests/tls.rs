//! Mutual TLS.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::node::{Net, Node, Stranger, all_reach_all, eventually};
use crate::protocol::handshake::Purpose;
use crate::state::tls::check_own_name;
use crate::{Channel, Options, TlsFiles};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Files of a node, in a folder; `signs` has signed its certificate, `trusted` is what it trusts.
fn files(folder: &Path, host: &str, signs: &Authority, trusted: &Authority) -> TlsFiles {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, signs).unwrap();
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: write("cert.pem", certificate.pem()),
        key: write("key.pem", key.serialize_pem()),
        authorities: write("ca.pem", trusted.pem()),
    }
}

fn with_tls(net: Net, node: u64, authority: &Authority) -> impl FnOnce(&mut Options) {
    let host = net.host(node);
    move |options| {
        let files = files(&options.folder, &host, authority, authority);
        options.security.tls = Some(files);
    }
}

#[test]
fn nodes_with_certificates_of_one_authority_form_a_cluster() {
    let net = Net(40);
    let authority = authority();
    let nodes: Vec<_> = (1..=2)
        .map(|node| Node::start_with(net, node, with_tls(net, node, &authority)))
        .collect();
    all_reach_all(&nodes);
    let messages: Vec<_> = (0..1000)
        .map(|number: u32| bytes::Bytes::from(number.to_string()))
        .collect();
    for message in &messages {
        assert!(nodes[0].cluster.send(2, Channel::Data, message.clone()));
    }
    eventually("all messages", || {
        nodes[1].recorder.messages(1, Channel::Data) == messages
    });
}

#[test]
fn a_certificate_of_a_foreign_authority_is_refused() {
    let net = Net(41);
    let (ours, foreign) = (authority(), authority());
    let node = Node::start_with(net, 1, with_tls(net, 1, &ours));
    let folder = tempfile::tempdir().unwrap();
    // It trusts the node, but the node does not trust it; and the other way round.
    for (signs, trusted) in [(&foreign, &ours), (&ours, &foreign)] {
        let mut options = net.options(9, folder.path());
        options.security.tls = Some(files(folder.path(), &net.host(9), signs, trusted));
        let failure = Stranger::new(options).failure(net.address(1), Purpose::Join);
        assert_eq!(failure.name(), "io", "{failure}");
    }
    eventually("counted", || node.cluster.refusals().get("io") == Some(&2));
    // Without TLS nothing is understood.
    let plain = Stranger::new(net.options(9, folder.path()));
    let failure = plain.failure(net.address(1), Purpose::Join);
    assert!(["io", "malformed"].contains(&failure.name()), "{failure}");
}

#[test]
fn without_a_certificate_there_is_no_connection() {
    let net = Net(42);
    let authority = authority();
    let node = Node::start_with(net, 1, with_tls(net, 1, &authority));
    let mut roots = RootCertStore::empty();
    let pem = authority.pem();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"heraldmq-link".to_vec()];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let result = runtime.block_on(async {
        let tcp = TcpStream::connect(net.address(1)).await.unwrap();
        let name = ServerName::try_from(net.host(1)).unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await?;
        stream.read_u8().await
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
    eventually("counted", || node.cluster.refusals().get("io") == Some(&1));
}

#[test]
fn a_certificate_is_good_for_one_host() {
    let net = Net(63);
    let authority = authority();
    let node = Node::start_with(net, 1, with_tls(net, 1, &authority));
    let folder = tempfile::tempdir().unwrap();
    let mut options = net.options(9, folder.path());
    let of_another = files(folder.path(), &net.host(8), &authority, &authority);
    let own = check_own_name(&of_another, &net.host(9)).unwrap_err();
    assert!(own.to_string().contains(&net.host(9)), "{own}");
    assert!(check_own_name(&of_another, &net.host(8)).is_ok());
    options.security.tls = Some(of_another);
    let failure = Stranger::new(options).failure(net.address(1), Purpose::Join);
    assert_eq!(failure.name(), "io", "{failure}");
    eventually("counted", || node.cluster.refusals().get("io") == Some(&1));
}
