//! TLS against rustls' own buffered client.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use herald_transport::{
    ClientAuth, ClientTls, Identity, Layers, MinimumVersion, ServerOptions, ServerTls, Tickets,
    TransportError,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion,
    RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, Tls12CipherSuite,
    Tls13CipherSuite,
};

use crate::authority::{Authority, SERVER};

/// A listener: its files and what is kept across a reload.
struct Listener {
    files: ServerTls,
    tickets: Tickets,
    options: ServerOptions,
}

impl Listener {
    fn new(files: ServerTls) -> Self {
        let mut listener = Self {
            files,
            tickets: Tickets::default(),
            options: ServerOptions::default(),
        };
        listener.reload();
        listener
    }

    fn reload(&mut self) {
        let config = self.files.load(&self.tickets).expect("loads");
        self.options.tls = Some(config.into());
    }
}

/// What a handshake led to.
struct Outcome {
    client: ClientConnection,
    server: Box<Layers>,
    /// Why the server ended it.
    error: Option<TransportError>,
    /// Why the client did.
    client_error: Option<rustls::Error>,
}

impl Outcome {
    fn established(self) -> Self {
        assert!(self.error.is_none(), "{:?}", self.error);
        assert!(self.client_error.is_none(), "{:?}", self.client_error);
        assert!(!self.client.is_handshaking() && self.server.is_established());
        self
    }

    /// The alert that the client received.
    fn refused(self) -> AlertDescription {
        assert!(matches!(self.error, Some(TransportError::Tls(_))));
        match self.client_error {
            Some(rustls::Error::AlertReceived(alert)) => alert,
            other => panic!("no alert, but {other:?}"),
        }
    }
}

fn handshake(config: &Arc<ClientConfig>, listener: &Listener) -> Outcome {
    let name = SERVER.try_into().expect("a name");
    let mut outcome = Outcome {
        client: ClientConnection::new(config.clone(), name).expect("a valid configuration"),
        server: Layers::accept(&listener.options).expect("there are layers"),
        error: None,
        client_error: None,
    };
    let mut inner = Vec::new();
    while outcome.client.wants_write() || outcome.server.has_output() {
        let mut bytes = Vec::new();
        while outcome.client.wants_write() {
            outcome.client.write_tls(&mut bytes).expect("memory");
        }
        if let Err(error) = outcome.server.receive(&bytes, &mut inner) {
            outcome.error.get_or_insert(error);
        }
        let mut bytes = Vec::new();
        outcome.server.take_output(&mut bytes);
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            outcome.client.read_tls(&mut bytes).expect("memory");
            if let Err(error) = outcome.client.process_new_packets() {
                outcome.client_error.get_or_insert(error);
            }
        }
    }
    outcome
}

fn client(authority: &Authority) -> Arc<ClientConfig> {
    authority.client().load().expect("loads")
}

fn client_with(authority: &Authority, name: &str, serial: u8) -> Arc<ClientConfig> {
    let files = ClientTls {
        certificate: Some(authority.certificate(name, serial)),
        ..authority.client()
    };
    files.load().expect("loads")
}

/// A client of one version only.
fn client_of(
    version: &'static SupportedProtocolVersion,
    authority: &Authority,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let file = authority.path("authority.pem");
    let certificate = CertificateDer::from_pem_file(file).expect("a certificate");
    roots.add(certificate).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .expect("a valid version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[test]
fn both_versions_are_spoken_and_the_lower_can_be_refused() {
    let authority = Authority::new();
    let mut listener = Listener::new(authority.server(ClientAuth::None));
    for (version, name) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let outcome = handshake(&client_of(version, &authority), &listener).established();
        assert_eq!(outcome.client.protocol_version(), Some(name));
    }
    listener.files.minimum_version = MinimumVersion::V1_3;
    listener.reload();
    handshake(&client_of(&TLS13, &authority), &listener).established();
    let alert = handshake(&client_of(&TLS12, &authority), &listener).refused();
    assert_eq!(alert, AlertDescription::ProtocolVersion);
}

#[test]
fn an_application_protocol_is_agreed_on_but_not_demanded() {
    let authority = Authority::new();
    let mut files = authority.server(ClientAuth::None);
    for websocket in [false, true] {
        files.websocket = websocket;
        let listener = Listener::new(files.clone());
        let protocol: &[u8] = if websocket { b"http/1.1" } else { b"mqtt" };
        let mut config = client_of(&TLS13, &authority);
        let outcome = handshake(&config, &listener).established();
        assert_eq!(outcome.client.alpn_protocol(), None);
        Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec(), protocol.to_vec()];
        let outcome = handshake(&config, &listener).established();
        assert_eq!(outcome.client.alpn_protocol(), Some(protocol));
    }
}

#[test]
fn names_that_are_not_known_are_passed_over() {
    let authority = Authority::new();
    let mut files = authority.server(ClientAuth::None);
    for (version, websocket) in [
        (&TLS12, false),
        (&TLS12, true),
        (&TLS13, false),
        (&TLS13, true),
    ] {
        files.websocket = websocket;
        let listener = Listener::new(files.clone());
        let mut config = client_of(version, &authority);
        let mut kinds = Vec::new();
        for names in [
            &[b"x-amzn-mqtt-ca".as_slice()][..],
            &[b"mqttv3.1", b"h2"],
            &[b"mqttv3.1"],
        ] {
            let names = names.iter().map(|name| name.to_vec());
            Arc::make_mut(&mut config).alpn_protocols = names.collect();
            let outcome = handshake(&config, &listener).established();
            assert_eq!(outcome.client.alpn_protocol(), None);
            kinds.push(outcome.client.handshake_kind());
        }
        let resumed = Some(HandshakeKind::Resumed);
        assert_eq!(kinds, [Some(HandshakeKind::Full), resumed, resumed]);
        // A session that was begun without a name is resumed with one, too.
        let known: &[u8] = if websocket { b"http/1.1" } else { b"mqtt" };
        Arc::make_mut(&mut config).alpn_protocols = vec![known.to_vec()];
        let outcome = handshake(&config, &listener).established();
        assert_eq!(outcome.client.handshake_kind(), resumed);
        assert_eq!(outcome.client.alpn_protocol(), Some(known));
    }
}

#[test]
fn http_2_alone_is_refused_where_websocket_is_spoken() {
    let authority = Authority::new();
    let mut files = authority.server(ClientAuth::None);
    let mut config = client_of(&TLS13, &authority);
    Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
    handshake(&config, &Listener::new(files.clone())).established();
    files.websocket = true;
    let alert = handshake(&config, &Listener::new(files)).refused();
    assert_eq!(alert, AlertDescription::NoApplicationProtocol);
}

#[test]
fn sessions_are_resumed_in_both_versions_also_after_a_reload() {
    let authority = Authority::new();
    let mut listener = Listener::new(authority.server(ClientAuth::None));
    for version in [&TLS12, &TLS13] {
        let config = client_of(version, &authority);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let outcome = handshake(&config, &listener).established();
            assert_eq!(outcome.client.handshake_kind(), Some(expected));
        }
        let (certificate, key) = authority.certificate(SERVER, 9);
        (listener.files.certificate, listener.files.key) = (certificate, key);
        listener.reload();
        let outcome = handshake(&config, &listener).established();
        let kind = outcome.client.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Resumed));
    }
}

#[test]
fn a_client_that_keeps_no_tickets_resumes_nothing() {
    let authority = Authority::new();
    let listener = Listener::new(authority.server(ClientAuth::None));
    let forgetful = ClientTls {
        resumes: false,
        ..authority.client()
    };
    let config = forgetful.load().expect("loads");
    for _ in 0..2 {
        let outcome = handshake(&config, &listener).established();
        let kind = outcome.client.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
}

#[test]
fn a_client_certificate_is_asked_for_as_the_listener_says() {
    let authority = Authority::new();
    let other = Authority::new();
    let mut files = authority.server(ClientAuth::None);
    let with = client_with(&authority, "device-7", 7);
    let without = client(&authority);
    let stranger = ClientTls {
        certificate: Some(other.certificate("device-7", 7)),
        ..authority.client()
    };
    let stranger = stranger.load().expect("loads");

    let listener = Listener::new(files.clone());
    let outcome = handshake(&with, &listener).established();
    assert_eq!(outcome.server.certificate(), None);

    files.client_auth = ClientAuth::Optional;
    let listener = Listener::new(files.clone());
    let outcome = handshake(&without, &listener).established();
    assert_eq!(outcome.server.certificate(), None);
    let outcome = handshake(&with, &listener).established();
    assert!(outcome.server.certificate().is_some());
    handshake(&stranger, &listener).refused();

    files.client_auth = ClientAuth::Required;
    let listener = Listener::new(files);
    let alert = handshake(&without, &listener).refused();
    assert_eq!(alert, AlertDescription::CertificateRequired);
    handshake(&stranger, &listener).refused();
    let outcome = handshake(&with, &listener).established();
    let certificate = outcome.server.certificate().map(<[u8]>::to_vec);
    let certificate = certificate.expect("the client's certificate");
    let name = Identity::from_certificate(&certificate, "%cn-%serial");
    assert_eq!(name.as_deref(), Some("device-7-07"));

    // A resumed session is that of the same client.
    let outcome = handshake(&with, &listener).established();
    let kind = outcome.client.handshake_kind();
    assert_eq!(kind, Some(HandshakeKind::Resumed));
    assert_eq!(outcome.server.certificate(), Some(&certificate[..]));
}

#[test]
fn a_revoked_certificate_is_refused_after_a_reload_also_if_its_session_could_be_resumed() {
    let authority = Authority::new();
    let mut files = authority.server(ClientAuth::Required);
    files.revocation_lists = Some(authority.revoke(&[8]));
    let loaded = files.load_with_facts(&Tickets::default());
    let (_, facts) = loaded.expect("good files");
    let next_update = facts.and_then(|facts| facts.next_update);
    // 2100-01-01, as the list says.
    assert_eq!(next_update.map(|at| at.as_secs()), Some(4_102_444_800));
    let mut listener = Listener::new(files);
    let revoked = client_with(&authority, "device-8", 8);
    let alert = handshake(&revoked, &listener).refused();
    assert_eq!(alert, AlertDescription::CertificateRevoked);

    let valid = client_with(&authority, "device-7", 7);
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let outcome = handshake(&valid, &listener).established();
        assert_eq!(outcome.client.handshake_kind(), Some(expected));
    }
    authority.revoke(&[7, 8]);
    handshake(&valid, &listener).established();
    listener.reload();
    let alert = handshake(&valid, &listener).refused();
    assert_eq!(alert, AlertDescription::CertificateRevoked);
}

#[test]
fn a_session_of_a_listener_that_asks_for_less_is_not_resumed() {
    let authority = Authority::new();
    let mut listener = Listener::new(authority.server(ClientAuth::None));
    let config = client(&authority);
    handshake(&config, &listener).established();
    // The same tickets, as another listener would have them.
    listener.files = authority.server(ClientAuth::Required);
    listener.reload();
    let alert = handshake(&config, &listener).refused();
    assert_eq!(alert, AlertDescription::CertificateRequired);
}

#[test]
fn a_client_refuses_a_server_of_another_authority_unless_it_is_insecure() {
    let authority = Authority::new();
    let listener = Listener::new(authority.server(ClientAuth::None));
    let outcome = handshake(&client(&Authority::new()), &listener);
    let error = outcome.client_error.expect("refuses");
    assert!(
        matches!(error, rustls::Error::InvalidCertificate(_)),
        "{error}"
    );
    let told = outcome.error;
    assert!(matches!(
        told,
        Some(TransportError::Tls(rustls::Error::AlertReceived(_)))
    ));

    let insecure = ClientTls {
        insecure: true,
        ..ClientTls::default()
    };
    handshake(&insecure.load().expect("loads"), &listener).established();
}

#[test]
fn something_else_than_tls_gets_an_alert() {
    let authority = Authority::new();
    let listener = Listener::new(authority.server(ClientAuth::None));
    let mut server = Layers::accept(&listener.options).expect("there are layers");
    let mut inner = Vec::new();
    let error = server.receive(b"\x10\x0C\x00\x04MQTT\x04\x02", &mut inner);
    assert!(matches!(error, Err(TransportError::NotTls(_))));
    let mut output = Vec::new();
    server.take_output(&mut output);
    assert_eq!(output.first(), Some(&21), "an alert: {output:?}");
    let error = server.receive(b"more", &mut inner);
    assert!(matches!(error, Err(TransportError::Closed)));
}

#[test]
fn an_error_names_the_file() {
    let authority = Authority::new();
    let good = authority.server(ClientAuth::Required);
    let (_, other_key) = authority.certificate(SERVER, 2);
    let empty = authority.write("empty.pem", "nothing\n");
    let missing = authority.path("missing.pem");
    let broken = authority.path("broken.pem");
    let text = fs::read_to_string(&good.certificate).expect("is there");
    fs::write(&broken, text.replace("MII", "MIJ")).expect("writes");
    let list = authority.path("authority.pem");
    let list = fs::read_to_string(list).expect("is there");
    let list = authority.write("list.pem", &list.replace("CERTIFICATE", "X509 CRL"));

    type Change<'a> = &'a dyn Fn(&mut ServerTls);
    let cases: [(Change<'_>, &Path, &str); 10] = [
        (
            &|tls| tls.certificate = missing.clone(),
            &missing,
            "No such file",
        ),
        (
            &|tls| tls.certificate = empty.clone(),
            &empty,
            "no certificate",
        ),
        (
            &|tls| tls.certificate = broken.clone(),
            &broken,
            "certificate",
        ),
        (&|tls| tls.key = missing.clone(), &missing, "No such file"),
        (&|tls| tls.key = empty.clone(), &empty, "no private key"),
        (
            &|tls| tls.key = other_key.clone(),
            &other_key,
            "is not the key of",
        ),
        (
            &|tls| tls.authorities = Some(empty.clone()),
            &empty,
            "no certificate",
        ),
        (
            &|tls| tls.authorities = Some(broken.clone()),
            &broken,
            "certificate",
        ),
        (
            &|tls| tls.revocation_lists = Some(empty.clone()),
            &empty,
            "no revocation list",
        ),
        (
            &|tls| tls.revocation_lists = Some(list.clone()),
            &list,
            "CRL",
        ),
    ];
    for (change, path, reason) in cases {
        let mut files = good.clone();
        change(&mut files);
        let error = files.load(&Tickets::default()).expect_err(reason);
        assert_eq!(error.path, path, "{reason}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let unset = ServerTls {
        authorities: None,
        ..good
    };
    let error = unset.load(&Tickets::default()).expect_err("no authorities");
    assert!(error.to_string().contains("authorities"), "{error}");
}

/// The usual ciphers, whose keys are used up after 8 records.
fn soon_exhausted() -> CryptoProvider {
    let mut provider = default_provider();
    for suite in &mut provider.cipher_suites {
        *suite = match *suite {
            SupportedCipherSuite::Tls12(suite) => {
                let mut suite = Tls12CipherSuite {
                    common: CipherSuiteCommon { ..suite.common },
                    ..*suite
                };
                suite.common.confidentiality_limit = 8;
                SupportedCipherSuite::Tls12(Box::leak(Box::new(suite)))
            }
            SupportedCipherSuite::Tls13(suite) => {
                let mut suite = Tls13CipherSuite {
                    common: CipherSuiteCommon { ..suite.common },
                    ..*suite
                };
                suite.common.confidentiality_limit = 8;
                SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
            }
        };
    }
    provider
}

#[test]
fn keys_that_are_used_up_are_changed_or_end_the_connection() {
    let authority = Authority::new();
    let mut listener = Listener::new(authority.server(ClientAuth::None));
    let certificate = CertificateDer::from_pem_file(&listener.files.certificate);
    let key = PrivateKeyDer::from_pem_file(&listener.files.key);
    let config = ServerConfig::builder_with_provider(Arc::new(soon_exhausted()))
        .with_protocol_versions(&[&TLS12, &TLS13])
        .expect("valid versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.expect("a certificate")],
            key.expect("a key"),
        )
        .expect("a valid certificate");
    listener.options.tls = Some(Arc::new(config).into());

    for (version, is_closed) in [(&TLS13, false), (&TLS12, true)] {
        let config = client_of(version, &authority);
        let mut outcome = handshake(&config, &listener).established();
        let mut sent = 0;
        let mut closed = false;
        while sent < 20 && !closed {
            let mut bytes = Vec::new();
            outcome.server.send(b"message!", &mut bytes);
            let mut bytes = &bytes[..];
            assert!(!bytes.is_empty(), "neither a message nor an end");
            while !bytes.is_empty() {
                outcome.client.read_tls(&mut bytes).expect("memory");
                let state = outcome.client.process_new_packets().expect("is valid");
                closed = state.peer_has_closed();
            }
            sent += 1;
        }
        assert_eq!(closed, is_closed);
        assert!(closed || sent == 20);
    }
}
