use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::authenticator::Asked;

/// Says always the same, and counts how often.
#[derive(Debug)]
struct Fixed {
    opinion: fn() -> Opinion,
    asked: Arc<AtomicUsize>,
}

impl Authenticator for Fixed {
    fn name(&self) -> &str {
        "fixed (1)"
    }

    fn authenticate<'a>(&'a self, _: &'a Credentials) -> Asked<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready((self.opinion)()))
    }
}

/// What a chain of such authenticators answers, and how many of them were asked.
async fn ask(opinions: &[fn() -> Opinion]) -> (Verdict, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let members = opinions.iter().map(|opinion| {
        Member::new(Box::new(Fixed {
            opinion: *opinion,
            asked: Arc::clone(&asked),
        }))
    });
    let chain = Chain {
        members: members.collect(),
        ..Chain::default()
    };
    let verdict = chain.ask(&credentials()).await;
    (verdict, asked.load(Ordering::Relaxed))
}

fn credentials() -> Credentials {
    Credentials {
        client_id: "c".into(),
        username: None,
        password: None,
        address: None,
        certificate_name: None,
    }
}

fn allow() -> Opinion {
    Opinion::Allow(Box::default())
}

fn deny() -> Opinion {
    Opinion::Deny(Denial::WrongPassword)
}

fn ignore() -> Opinion {
    Opinion::Ignore
}

fn fail() -> Opinion {
    Opinion::Failed("out of order".to_owned())
}

#[tokio::test]
async fn the_first_that_allows_or_denies_decides() {
    let (verdict, asked) = ask(&[ignore, allow, deny]).await;
    assert!(matches!(verdict, Verdict::Allow(_)), "{verdict:?}");
    assert_eq!(asked, 2);

    let (verdict, asked) = ask(&[ignore, deny, allow]).await;
    assert!(matches!(verdict, Verdict::Deny(Denial::WrongPassword)));
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn whom_nobody_knows_is_denied() {
    for opinions in [&[][..], &[ignore as fn() -> Opinion, ignore]] {
        let (verdict, _) = ask(opinions).await;
        assert!(matches!(verdict, Verdict::Deny(Denial::UnknownUser)));
    }
}

#[tokio::test]
async fn a_failure_denies_without_asking_the_next() {
    let (verdict, asked) = ask(&[fail, allow]).await;
    assert!(matches!(verdict, Verdict::Deny(Denial::Unavailable)));
    assert_eq!(asked, 1);
}

#[test]
fn only_files_of_users_tell_whether_a_user_exists() {
    /// A file of its own with one user.
    #[derive(Debug)]
    struct Of(&'static str);

    impl Authenticator for Of {
        fn name(&self) -> &str {
            "of (1)"
        }

        fn has_user(&self, username: &str) -> bool {
            username == self.0
        }

        fn authenticate<'a>(&'a self, _: &'a Credentials) -> Asked<'a> {
            Box::pin(std::future::ready(Opinion::Ignore))
        }
    }

    let chain = Chain {
        members: ["ann", "bob"]
            .map(|name| Member::new(Box::new(Of(name))))
            .into(),
        ..Chain::default()
    };
    let has = |source, name| !matches!(chain.user_now(source, name), UserNow::Gone);
    for name in ["ann", "bob"] {
        assert!(has(Source::PasswordFile, name));
        assert!(!has(Source::ScramFile, name));
    }
    assert!(!has(Source::PasswordFile, "eve"));
    assert!(has(Source::Other, "eve"));
}
