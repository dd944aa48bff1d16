use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use jsonwebtoken::{Algorithm, EncodingKey, jwk::Jwk};
use serde_json::json;

use super::*;

/// Publishes a set, and counts how often it is asked.
#[derive(Clone, Debug)]
struct Fake {
    set: Arc<RwLock<Result<Vec<u8>, String>>>,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    fn new(set: Result<Vec<u8>, String>) -> Self {
        Self {
            set: Arc::new(RwLock::new(set)),
            asked: Arc::default(),
        }
    }

    fn publish(&self, set: Result<Vec<u8>, String>) {
        *self.set.write() = set;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl KeyServer for Fake {
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + '_>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let set = self.set.read().clone();
        Box::pin(async {
            sleep(Duration::from_secs(1)).await;
            set
        })
    }
}

fn set(ids: &[&str]) -> Result<Vec<u8>, String> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("generated");
    let private = pair.to_pkcs8v1().expect("encoded");
    let private = EncodingKey::from_ec_der(private.as_ref());
    let mut jwk = Jwk::from_encoding_key(&private, Algorithm::ES256).expect("a key");
    let keys: Vec<Jwk> = ids
        .iter()
        .map(|id| {
            jwk.common.key_id = Some((*id).to_owned());
            jwk.clone()
        })
        .collect();
    Ok(json!({ "keys": keys }).to_string().into_bytes())
}

async fn has(keys: &ServedKeys, id: &str) -> bool {
    let keys = keys.keys_for(Some(id)).await.expect("a set");
    is_known(&keys, Some(id))
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_has_the_set_read_at_most_every_ten_seconds() {
    let server = Fake::new(set(&["a"]));
    let keys = ServedKeys::new(Box::new(server.clone()));
    assert!(has(&keys, "a").await);
    assert!(has(&keys, "a").await);
    assert_eq!(server.asked(), 1);

    server.publish(set(&["b"]));
    assert!(!has(&keys, "b").await);
    assert_eq!(server.asked(), 1);
    sleep(RETRY_INTERVAL).await;
    assert!(has(&keys, "b").await);
    assert!(!has(&keys, "a").await);
    assert!(!has(&keys, "c").await);
    assert_eq!(server.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn logins_at_the_same_time_ask_once() {
    let server = Fake::new(set(&["a"]));
    let keys = ServedKeys::new(Box::new(server.clone()));
    let both = tokio::join!(has(&keys, "a"), has(&keys, "a"));
    assert_eq!(both, (true, true));
    assert_eq!(server.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_set_stays_when_it_cannot_be_read_again() {
    let server = Fake::new(set(&["a"]));
    let keys = ServedKeys::new(Box::new(server.clone()));
    assert!(has(&keys, "a").await);
    for failure in [Err("gone".to_owned()), Ok(b"nonsense".to_vec())] {
        server.publish(failure);
        sleep(RETRY_INTERVAL).await;
        assert!(!has(&keys, "b").await);
        assert!(has(&keys, "a").await);
    }
    assert_eq!(server.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_was_never_read_is_a_failure() {
    let server = Fake::new(Err("gone".to_owned()));
    let keys = ServedKeys::new(Box::new(server.clone()));
    for _ in 0..2 {
        let error = keys.keys_for(None).await.expect_err("no set");
        assert_eq!(error, "gone");
    }
    assert_eq!(server.asked(), 1);
    server.publish(set(&["a"]));
    sleep(RETRY_INTERVAL).await;
    assert!(has(&keys, "a").await);
}

#[tokio::test(start_paused = true)]
async fn a_set_is_read_again_and_shared_while_it_is_in_use() {
    let server = Fake::new(set(&["a"]));
    let sets = KeySets::default();
    let refresh = Duration::from_secs(300);
    let get = || {
        let server = server.clone();
        let open = move || Ok(Box::new(server) as Box<dyn KeyServer>);
        sets.get("https://a/", refresh, &Handle::current(), open)
            .expect("opened")
    };
    let (first, second) = (get(), get());
    assert!(Arc::ptr_eq(&first, &second));
    sleep(Duration::from_secs(650)).await;
    assert_eq!(server.asked(), 3);
    drop((first, second));
    sleep(Duration::from_secs(3_000)).await;
    assert_eq!(server.asked(), 3);
}
