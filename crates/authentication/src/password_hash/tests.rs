use super::*;

/// From the reference implementation of Argon2: "password", salt "somesalt", 256 KiB, 2 passes.
const ARGON2ID: &str =
    "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
/// By libxcrypt: "secret".
const BCRYPT_2B: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
const BCRYPT_2Y: &str = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
/// By mosquitto_passwd 2.0: "secret".
const MOSQUITTO: &str = "$7$101$saTKLWIKvAGnPEEu$g1lWDhVVY7qL0rPXpO8itxNIg0RFRuKOYplSc/L5NKacfqC4yafvivZtiJwWz9r/eHhTzoTQbWzcrVSMO/CPsQ==";
/// By the values of RFC 7677 §3: "pencil".
const SCRAM: &str = "$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
/// By the formula of EMQX, for the salt "de1024f462fb83910fd13151bd4bd235": the values are those of Python's hashlib, for "secret".
const SHA256_PREFIX: &str = "$sha256-prefix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$7woebZO6e9vHx0mmBiN3xNjHqSj+RYozlaZn7Pj5r8w=";
const SHA256_SUFFIX: &str = "$sha256-suffix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$pcUvyUgNJfawwW6eYRYhQSltlRGI7srAaOn3DNYaPec=";
const SHA512_PREFIX: &str = "$sha512-prefix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$gkiISG77u92n+lxF40jGgZdrlIHbcPxNIdkJSlFwUNUcY2ED/UmriwlVKHMhROKJ/GfqU8xAemFLaLx/diWJgg==";
const SHA512_SUFFIX: &str = "$sha512-suffix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$83huSNPKC2Xz96PxGldi9skAP0FJRc4wdTlImdpfZZLxOFSfNarMh3DF0DPKjgdHewYzAh7UwL2UnRhQ4Ycq2Q==";
/// By the formula of mosquitto_passwd 1.6 (SHA-512 of password and salt), by hashlib: "secret".
const MOSQUITTO_1_6: &str = "$6$ZGVmZ2hpamtsbW5v$rLIBC1ysDVQ7Z72YOSCBKKwBABRhqeB6uyB6B/p8d0VxccgtAbPrBNp5JhdaQHBIFn7Tr/QaCO+mzhhzl9AaqQ==";
const WEAK: [&str; 5] = [
    SHA256_PREFIX,
    SHA256_SUFFIX,
    SHA512_PREFIX,
    SHA512_SUFFIX,
    MOSQUITTO_1_6,
];
/// By hashlib: "secret", the salt of above.
const PBKDF2_SHA256: &str = "$pbkdf2-sha256$4096$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU$aQ2B4fz6GSXtBnTfa0dHZrgfgxN3QArz2DWcT6Dr8KE";
const PBKDF2_SHA512: &str = "$pbkdf2-sha512$4096$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU$hYhd49aYKoDqPJ2QWPlnSC32Ld0W0fO23ERSUGIBsEepUp.auECV4njDx.nne0gxQChriF1Qqtry5gaAhz7jtw";

fn error(text: &str) -> HashError {
    match PasswordHash::parse(text) {
        Ok(_) => panic!("{text} is taken"),
        Err(error) => error,
    }
}

#[test]
fn hashes_of_other_programs_are_understood() {
    for (text, password) in [
        (ARGON2ID, "password"),
        (BCRYPT_2B, "secret"),
        (BCRYPT_2Y, "secret"),
        (MOSQUITTO, "secret"),
        (SCRAM, "pencil"),
        (PBKDF2_SHA256, "secret"),
        (PBKDF2_SHA512, "secret"),
    ] {
        let hash = PasswordHash::parse(text).expect(text);
        assert!(hash.fits(password.as_bytes()), "{text}");
        assert!(!hash.fits(b"Password"), "{text}");
        assert!(!hash.fits(b""), "{text}");
    }
}

#[test]
fn a_new_hash_is_what_owasp_recommends() {
    let text = hash_by_argon2id(b"secret").expect("hashed");
    assert!(
        text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
        "{text}"
    );
    let hash = PasswordHash::parse(&text).expect("own format");
    assert!(hash.fits(b"secret"));
    assert!(!hash.fits(b"Secret"));
}

#[test]
fn plain_passwords_and_weak_formats_are_refused() {
    for text in [
        "",
        "secret",
        "$",
        "$$",
        "$1$salt$hash",
        "$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR",
    ] {
        assert_eq!(error(text), HashError::Unknown, "{text}");
    }
}

#[test]
fn malformed_hashes_are_refused() {
    for text in [
        "$argon2id$",
        "$argon2id$v=19$m=256,t=2,p=1",
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ",
        "$argon2id$v=19$m=0,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR",
        "$2b$04$abc",
        "$2b$03$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        "$7$101$saTKLWIKvAGnPEEu",
        "$7$0$saTKLWIKvAGnPEEu$g1lW",
        "$7$101$saTKLWIKvAGnPEEu$g1lW",
        "$7$101$$g1lW",
        "$pbkdf2-sha256$4096$ZGUx",
        "$pbkdf2-sha256$0$ZGUx$aQ2B4fz6GSXtBnTfa0dHZrgfgxN3QArz2DWcT6Dr8KE",
        "$pbkdf2-sha256$4096$$aQ2B4fz6GSXtBnTfa0dHZrgfgxN3QArz2DWcT6Dr8KE",
        "$pbkdf2-sha256$4096$ZGUx$aQ2B",
        "$pbkdf2-sha256$4096$ZGUx$aQ2B4fz6GSXtBnTfa0dHZrgfgxN3QArz2DWcT6Dr8KE$",
        "$scram-sha-256$4096",
        "$scram-sha-256$4095$W22Z$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        "$scram-sha-256$4096$W22Z$WG5d$wfPL",
    ] {
        assert_eq!(error(text), HashError::Malformed, "{text}");
    }
}

#[test]
fn what_a_hash_may_cost_is_limited() {
    for text in [
        "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$argon2id$v=19$m=256,t=1000,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
        "$2b$31$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        "$7$4000000000$saTKLWIKvAGnPEEu$g1lW",
        "$scram-sha-256$4000000000$W22Z$WG5d$wfPL",
    ] {
        assert_eq!(error(text), HashError::TooExpensive, "{text}");
    }
}

#[test]
fn debug_output_shows_nothing_of_a_hash() {
    let hash = PasswordHash::parse(MOSQUITTO).expect("a hash");
    assert_eq!(format!("{hash:?}"), "PasswordHash");
}

#[test]
fn a_hash_says_what_it_can_be_used_for() {
    for text in [ARGON2ID, BCRYPT_2B, MOSQUITTO] {
        assert_eq!(stored_as(text), Ok(StoredAs::Password));
    }
    assert_eq!(stored_as(SCRAM), Ok(StoredAs::Scram));
    let why = stored_as("my plain password").expect_err("no hash");
    assert!(!why.contains("my plain"), "{why}");
}

#[test]
fn weak_hashes_are_read_only_where_they_are_accepted() {
    for text in WEAK {
        assert_eq!(error(text), HashError::Weak, "{text}");
        assert!(stored_as(text).unwrap_err().contains("weak"), "{text}");
        assert_eq!(
            stored_as_with(text, WeakHashes::Accept),
            Ok(StoredAs::Password)
        );
        let hash = PasswordHash::parse_with(text, WeakHashes::Accept).expect(text);
        assert!(hash.fits(b"secret"), "{text}");
        assert!(!hash.fits(b"Secret"), "{text}");
        assert!(!hash.fits(b""), "{text}");
    }
}

#[test]
fn the_example_of_emqx_is_understood() {
    // The user myuser3 of its documentation.
    let text = "$sha256-prefix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$tsdDVFp4F66Mj2JDcdX18DcyNLsP82uP+/Gbzg4Gq3U=";
    let hash = PasswordHash::parse_with(text, WeakHashes::Accept).expect("a hash");
    assert!(hash.fits(b"mypassword3"));
}

#[test]
fn malformed_weak_hashes_are_refused() {
    for text in [
        "$6$salt$hash",
        "$6$",
        "$6$ZGVm",
        "$6$ZGVm$",
        // Of crypt(3).
        "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjlO/O817G3uBnIFNjnQJuesI68OTLiBFdcbYEdFCoEOfaS35inz1",
        "$sha256-suffix$$pcUvyUgNJfawwW6eYRYhQSltlRGI7srAaOn3DNYaPec=",
        "$sha512-suffix$ZGVm$pcUvyUgNJfawwW6eYRYhQSltlRGI7srAaOn3DNYaPec=",
        "$sha256-suffix$ZGVm$pcUvyUgNJfawwW6eYRYhQSltlRGI7srAaOn3DNYaPec=$",
    ] {
        let found = stored_as_with(text, WeakHashes::Accept);
        assert_eq!(found, Err(HashError::Malformed.to_string()), "{text}");
    }
    for text in ["$sha1-suffix$ZGVm$ZGVm", "$sha256$ZGVm$ZGVm", "secret"] {
        let found = stored_as_with(text, WeakHashes::Accept);
        assert_eq!(found, Err(HashError::Unknown.to_string()), "{text}");
    }
}
