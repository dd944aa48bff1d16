use super::*;

/// RFC 7677 §3: "pencil".
const SALT: &[u8] = &[
    0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81,
];

fn derived(mechanism: Mechanism, password: &str) -> ScramKeys {
    let iterations = NonZero::new(4_096).expect("not 0");
    ScramKeys::derive(mechanism, iterations, SALT.to_vec(), password.as_bytes())
}

#[test]
fn keys_are_derived_as_the_standard_says() {
    assert_eq!(
        derived(Mechanism::Sha256, "pencil").to_text(),
        "$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    );
}

#[test]
fn new_keys_fit_their_password_and_have_a_salt_of_their_own() {
    for mechanism in Mechanism::ALL {
        let keys = ScramKeys::new(mechanism, b"secret").expect("random numbers");
        assert!(keys.fit(b"secret"));
        assert!(!keys.fit(b"Secret"));
        let others = ScramKeys::new(mechanism, b"secret").expect("random numbers");
        assert_ne!(keys.salt, others.salt);
    }
}

#[test]
fn passwords_are_prepared_as_clients_do_it() {
    // RFC 4013 §3: SOFT HYPHEN maps to nothing, ROMAN NUMERAL NINE to "IX".
    for (written, prepared) in [("I\u{ad}X", "IX"), ("\u{2168}", "IX")] {
        assert!(derived(Mechanism::Sha256, prepared).fit(written.as_bytes()));
    }
    // What cannot be prepared is taken as it is.
    assert!(derived(Mechanism::Sha256, "\u{7}").fit(b"\x07"));
}

#[test]
fn debug_output_shows_no_key() {
    let keys = derived(Mechanism::Sha512, "pencil");
    assert_eq!(format!("{keys:?}"), "ScramKeys(Sha512)");
}
