//! Logins of people, and their sessions at other nodes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admin::cluster::NodeId;
use admin::page::MissingReason;
use admin::problem::{Kind, Problem};
use admin::{LoginAttempt, LoginSession, Often, People, Role, SessionQuestion, Source};
use authentication::fits;
use control::{Address, AuditNote, By, Means, UnixMs};
use control_view::Standing;
use guard::{Attempt, NotNow, Shown};
use inspection::{Answer, Question};
use tokio::time::{Instant, sleep};

use super::gather;
use super::state::Inspect;
use super::wire::{ToApi as _, ToWire as _};
use crate::node::Node;
use crate::refused_logins::HttpCause;

/// How soon a login is begun again that has not its turn yet.
const AGAIN: Duration = Duration::from_millis(50);

/// How long a login waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// The role of a user who shows the right password. Failures count as those of MQTT clients do, at loopback addresses as well.
pub(super) async fn log_in(inspect: &Arc<Inspect>, attempt: LoginAttempt) -> Result<Role, Problem> {
    let node = &inspect.node;
    let people = node.rim.rights.people();
    let view = Arc::clone(&node.rim.control.view);
    // Whoever is in the file can log in; by a copy of the store that may be old nobody can, whether it has the name or not.
    let is_of_file = |people: &Arc<dyn People>| people.role(&attempt.user).is_some();
    let is_old = view.is_refused() || view.standing() == Standing::Unconfirmed;
    if is_old && !people.as_ref().is_some_and(is_of_file) {
        let why = "this node does not know whether its copy of the people is current: log in at another node, or again in a moment";
        return Err(Problem::new(Kind::NotReady, why));
    }
    if people.is_none() && view.people().is_empty() {
        let why = "nobody can log in, because there are no people: neither in the store nor in http.userFile";
        return Err(Problem::new(Kind::LoginFailed, why));
    }
    let turn = turn(node, &attempt).await?;
    let check = inspect.password_checks.acquire().await;
    let check = check.expect("nobody closes this semaphore");
    let began = Instant::now();
    let (user, peer) = (attempt.user.clone(), attempt.peer);
    let standing = node.rim.rights.person(&user);
    let stored = view.person(&user);
    let checked = tokio::task::spawn_blocking(move || {
        let password = attempt.password.as_bytes();
        let is_right = match (people, standing.map(|standing| standing.source)) {
            (Some(people), Some(Source::File)) => people.has_password(&attempt.user, password),
            _ => {
                let person = stored.filter(|_| standing.is_some());
                let hash = person
                    .as_ref()
                    .and_then(|person| person.record.hash.as_deref());
                fits(hash, password)
            }
        };
        match standing {
            Some(standing) if is_right => Ok(standing.role),
            Some(_) => Err(HttpCause::WrongPassword),
            None => Err(HttpCause::UnknownUser),
        }
    });
    let role = checked.await.map_err(|error| {
        tracing::error!(%error, "a login was not checked");
        Problem::new(Kind::Internal, "the login could not be checked")
    })?;
    let shown_peer = peer.map(tracing::field::display);
    let shown = broker_core::excerpt(&user);
    match role {
        Ok(role) => {
            turn.succeeded();
            let means = match standing.map(|standing| standing.source) {
                Some(Source::Store) => Means::Person,
                Some(Source::File) | None => Means::FilePerson,
            };
            note_login(node, &user, means, peer);
            tracing::info!(
                user = &*shown,
                role = role.name(),
                peer = shown_peer,
                "api.login"
            );
            Ok(role)
        }
        Err(cause) => {
            let now_ms = node.rim.clock.now_ms();
            turn.failed(now_ms);
            // One entry a minute, whoever tries: strangers must not push others out of the audit. The list of refused logins has who.
            node.rim.audit_notes.handle_often(Often {
                action: "login.failed".to_owned(),
                name: String::new(),
                means: Means::Node,
                address: None,
            });
            tell_refused(node, peer, &user, cause);
            if let Some(left_out) = node.lines.refusals.take(now_ms) {
                tracing::warn!(
                    user = &*shown,
                    peer = shown_peer,
                    left_out,
                    "a login to the API failed"
                );
            }
            // Those who guess take half of a core at most.
            sleep(began.elapsed()).await;
            drop(check);
            let why = "the user name or the password is wrong";
            Err(Problem::new(Kind::LoginFailed, why))
        }
    }
}

/// Adds a login to the audit.
fn note_login(node: &Node, user: &str, means: Means, peer: Option<SocketAddr>) {
    let address = peer.map(|peer| Address(peer.ip().to_canonical().to_string().into()));
    node.rim.audit_notes.handle_note(AuditNote {
        at: UnixMs(node.rim.clock.now_ms()),
        by: By {
            means,
            name: user.into(),
            address,
            node: control::Node(node.store().node()),
        },
        action: "login".into(),
        target: "".into(),
        fields: [].into(),
    });
}

fn tell_refused(node: &Node, peer: Option<SocketAddr>, user: &str, cause: HttpCause) {
    let ip = peer.map(|peer| peer.ip());
    let now_ms = node.rim.clock.now_ms();
    let refused = &node.rim.refused_logins;
    refused.handle_person(ip, user, cause, now_ms);
}

async fn turn(node: &Arc<Node>, attempt: &LoginAttempt) -> Result<Attempt, Problem> {
    // A loopback address may be that of a proxy, which passes on the guesses of anybody.
    let source = attempt.peer.map(|peer| guard::Source {
        ip: peer.ip(),
        is_proxied: true,
    });
    let wait = |why: &str| Problem::new(Kind::TooManyRequests, why).with("limit", "logins");
    let ends = Instant::now() + PATIENCE;
    loop {
        let now_ms = node.rim.clock.now_ms();
        let (ip, user) = (source.map(|source| source.ip), attempt.user.as_str());
        if node.guard.is_banned(ip, Some(user), "", now_ms) {
            tell_refused(node, attempt.peer, user, HttpCause::Banned);
            return Err(wait("the address or the user is banned"));
        }
        let shown = Shown {
            username: Some(user),
            password: Some(attempt.password.as_bytes()),
        };
        match node.guard.begin_login(source, shown, now_ms) {
            Ok(attempt) => return Ok(attempt),
            Err(NotNow::Refused(_)) => {
                tell_refused(node, attempt.peer, user, HttpCause::FailedLogins);
                return Err(wait(
                    "too many logins of this user from this address have failed; try again later (abuse.failedLogins)",
                ));
            }
            Err(NotNow::Later) if Instant::now() >= ends => {
                return Err(wait(
                    "other logins of the same address or user are being checked",
                ));
            }
            Err(NotNow::Later) => sleep(AGAIN).await,
        }
    }
}

/// What this node answers of its sessions.
pub(super) fn session_here(
    node: &Node,
    question: inspection::SessionQuestion,
) -> Option<inspection::LoginSession> {
    let rights = &node.rim.rights;
    match question {
        inspection::SessionQuestion::Find { hash, is_use } => {
            rights.session(&hash.to_api(), is_use).to_wire()
        }
        inspection::SessionQuestion::End { hash } => {
            rights.end_session(&hash.to_api());
            None
        }
    }
}

/// Asks the node where a session began, if that is another one.
///
/// # Errors
/// It is a member and does not answer.
pub(super) async fn session_of(
    inspect: &Arc<Inspect>,
    node: NodeId,
    question: SessionQuestion,
    budget: Duration,
) -> Result<Option<LoginSession>, Problem> {
    let own = inspect.node.store().node();
    let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
    let question = question.to_wire();
    let question = |_| Question::ApiSession(question.clone());
    let asked: Vec<NodeId> = Some(node)
        .filter(|node| node.0 != own)
        .into_iter()
        .collect();
    let answers = gather::some(inspect, &nodes, &asked, question, budget).await;
    match answers.into_iter().next().map(|of_node| of_node.answer) {
        // Whoever is no member knows no session, and those of a node that is gone are gone: people log in again.
        None | Some(Err(MissingReason::Down)) => Ok(None),
        Some(Ok(Answer::ApiSession(session))) => Ok(session.to_api()),
        Some(answer) => {
            let reason = answer.err().map_or("failed", |reason| reason.name());
            let why = format!("node {node}, where the session began, has not answered: {reason}");
            Err(Problem::new(Kind::NodeSilent, why).with("nodes", vec![node.to_string()]))
        }
    }
}
