//! Whether a request may do what it asks for.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::RwLock;

use control::{Address, AuditNote, By, Field, Means};
use control_view::{Standing, View};

use super::first::FirstCode;
use super::gate::Gate;
use super::sessions::{LoginSession, People, Sessions, TokenHash};
use super::standing::{PersonStanding, Source};
use super::{KeyId, Keys, Role, Token, stored};
use crate::backend::ApiChange;
use crate::problem::{Kind, Problem};
use crate::requests::RequestId;
use crate::serve::Peer;
use crate::trail::Often;

/// What somebody may do who has to choose another password.
const OF_EVERYBODY: [&str; 3] = ["/api/v1/me", "/api/v1/own-password", "/api/v1/logout"];

/// What browsers say of the page that a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may do what, as configured now.
#[derive(Debug, Default)]
pub struct Rights {
    configured: RwLock<Configured>,
    sessions: Sessions,
    /// People and keys of the control store.
    view: Arc<View>,
    first: FirstCode,
}

#[derive(Debug, Default)]
struct Configured {
    token: Option<Token>,
    keys: Keys,
    anonymous: Anonymous,
    hosts: Vec<String>,
    people: Option<Arc<dyn People>>,
}

/// What requests without a key may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Anonymous {
    /// Read, from this machine.
    #[default]
    Viewer,
    /// Nothing.
    None,
}

/// Whose a request is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// By what it was told.
    pub who: Who,
    /// What it may do.
    pub role: Role,
    /// Whether it may read the audit, whatever the role.
    pub audits: bool,
    /// Another password has to be chosen before anything else.
    pub must_change: bool,
    /// What knows the owner.
    pub source: Source,
    /// Where it came from.
    pub peer: Option<SocketAddr>,
}

/// By what the owner of a request is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// Nothing was shown.
    Anonymous,
    /// A key of the file or of the store.
    Key {
        /// Which.
        id: KeyId,
        /// What people call it.
        name: String,
    },
    /// The token of `http.tokenFile`.
    Token,
    /// A user who has logged in.
    User(LoginSession),
}

impl Who {
    /// What people call the owner: no two users, but perhaps two keys, are called the same.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Anonymous => "nobody".to_owned(),
            Self::Key { id, name } if name.is_empty() => id.to_string(),
            Self::Key { name, .. } => name.clone(),
            Self::Token => "token-file".to_owned(),
            Self::User(session) => session.user.clone(),
        }
    }
}

impl Caller {
    /// How the caller has shown who it is, as the store says it.
    pub(crate) fn means(&self) -> Means {
        match (&self.who, self.source) {
            (Who::User(_), Source::Store) => Means::Person,
            (Who::User(_), Source::File) => Means::FilePerson,
            (Who::Key { .. }, Source::Store) => Means::Key,
            (Who::Key { .. }, Source::File) => Means::FileKey,
            // Nobody without a key changes anything.
            (Who::Token | Who::Anonymous, _) => Means::Token,
        }
    }

    /// Who asks, as changes say it.
    pub(crate) fn by(&self, node: control::Node) -> By {
        By {
            means: self.means(),
            name: self.who.shown().into(),
            address: self.peer.map(address),
            node,
        }
    }
}

/// Where a request came from, as changes say it.
pub(crate) fn address(peer: SocketAddr) -> Address {
    Address(peer.ip().to_canonical().to_string().into())
}

impl Rights {
    /// Nothing is configured yet. `view`: the people and keys of the control store.
    #[must_use]
    pub fn new(view: Arc<View>) -> Self {
        Self {
            view,
            ..Self::default()
        }
    }

    /// Obeys another configuration from now on. `hosts`: names under which browsers may reach the node without a key,
    /// beside addresses and `localhost`.
    pub fn configure(
        &self,
        token: Option<Token>,
        keys: Keys,
        anonymous: Anonymous,
        hosts: Vec<String>,
        people: Option<Arc<dyn People>>,
    ) {
        *self.configured.write() = Configured {
            token,
            keys,
            anonymous,
            hosts,
            people,
        };
    }

    /// What a person may do. Who is in a file counts, whatever the store says. `None`: nobody of this name can log in.
    #[must_use]
    pub fn person(&self, user: &str) -> Option<PersonStanding> {
        let of_file = |role| PersonStanding {
            role,
            audits: false,
            must_change: false,
            since: control::Revision(0),
            source: Source::File,
        };
        let people = self.people();
        match people.and_then(|people| people.role(user)) {
            Some(role) => Some(of_file(role)),
            None if self.view.standing() == Standing::Confirmed => stored::person(&self.view, user),
            None => None,
        }
    }

    /// The code that makes the first administrator, while it is good: nobody can change everything, as far as this node knows.
    #[must_use]
    pub fn first_code(&self) -> Option<&str> {
        self.is_first().then(|| self.first.text())
    }

    /// Whether this is the code that makes the first administrator, and it is good.
    pub(crate) fn is_first_code(&self, shown: &str) -> bool {
        self.first.is(shown) && self.is_first()
    }

    pub(crate) fn is_first(&self) -> bool {
        let is_known = !self.view.is_off() && self.view.standing() != Standing::Unconfirmed;
        is_known && !self.configured.read().is_administered() && !self.view.is_administered()
    }

    /// The keys of the file.
    pub(crate) fn keys_of_file(&self) -> Vec<super::Key> {
        self.configured.read().keys.iter().cloned().collect()
    }

    /// The users of the file, if there is one.
    pub fn people(&self) -> Option<Arc<dyn People>> {
        self.configured.read().people.clone()
    }

    /// Those who have logged in on this node.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// A session of this node. `is_use`: it is used now.
    pub fn session(&self, hash: &TokenHash, is_use: bool) -> Option<LoginSession> {
        let sessions = &self.sessions;
        sessions.find(hash, is_use, |user| self.person(user), Instant::now())
    }

    /// Ends a session of this node.
    pub fn end_session(&self, hash: &TokenHash) {
        self.sessions.end(hash);
    }

    /// Whose a request is.
    ///
    /// # Errors
    /// What was shown is no key, or nothing was shown where a key is needed.
    pub fn caller(&self, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Caller, Problem> {
        let configured = self.configured.read();
        // While there is no key, what is shown cannot be one: who shows something is as good as who shows nothing.
        if let Some(shown) = headers.get(header::AUTHORIZATION)
            && (configured.has_keys() || self.has_stored())
        {
            return configured.known(shown.as_bytes(), &self.view, peer);
        }
        let needs_key = |why: &str| Problem::new(Kind::NotAuthenticated, why);
        if configured.anonymous == Anonymous::None {
            return Err(needs_key(
                "this needs the header `Authorization: Bearer` with a key",
            ));
        }
        if !peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
            return Err(needs_key(
                "from other machines this needs the header `Authorization: Bearer` with a key; \
                 `heraldmq api-key add` makes one",
            ));
        }
        if headers.keys().any(|name| is_of_proxy(name.as_str())) {
            return Err(needs_key(
                "a request that a proxy passes on needs the header `Authorization: Bearer` with a key",
            ));
        }
        if is_of_other_page(headers) {
            let why = "requests from pages of other origins need a key";
            return Err(Problem::new(Kind::OriginNotAllowed, why));
        }
        if let Some(host) = headers.get(header::HOST)
            && !host.to_str().is_ok_and(|host| configured.is_own(host))
        {
            let why = "without a key, the Host header must be an IP address, localhost, or a name in http.hosts";
            return Err(Problem::new(Kind::HostNotAllowed, why));
        }
        Ok(Caller {
            who: Who::Anonymous,
            role: Role::Viewer,
            audits: false,
            must_change: false,
            source: Source::File,
            peer,
        })
    }

    /// Whether the metrics are for the one who asks: a browser of this machine may have been sent here by another site under a name
    /// of that site (DNS rebinding). Who asks from another machine, or shows a key, or comes through a proxy that says so with
    /// `Via`, which no page can set, is no such browser.
    ///
    /// # Errors
    /// The header `Host` does not name this node.
    pub(crate) fn check_host(
        &self,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> Result<(), Problem> {
        let configured = self.configured.read();
        let is_here = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
        let shows_key = || {
            let shown = headers.get(header::AUTHORIZATION);
            shown.is_some_and(|shown| {
                let known = configured.known(shown.as_bytes(), &self.view, peer);
                known.is_ok()
            })
        };
        let host = match headers.get(header::HOST) {
            Some(host) if is_here && !headers.contains_key(header::VIA) => host.to_str(),
            _ => return Ok(()),
        };
        // A machine may find its own name at a loopback address.
        let is_of_machine = |host: &str| {
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            let uname = rustix::system::uname();
            uname
                .nodename()
                .to_str()
                .is_ok_and(|own| own.eq_ignore_ascii_case(name))
        };
        if host.is_ok_and(|host| configured.is_own(host) || is_of_machine(host)) || shows_key() {
            return Ok(());
        }
        let why = "from this machine, the Host header must be an IP address, localhost, the name of the machine, or a name in http.hosts";
        Err(Problem::new(Kind::HostNotAllowed, why))
    }

    /// Whether anybody can have the right to change something.
    fn can_change(&self) -> bool {
        self.configured.read().can_change() || self.has_stored()
    }

    /// Whether the store has people or keys, or may have: a node that does not know it yet lets nobody in by being asked with any key.
    fn has_stored(&self) -> bool {
        match self.view.standing() {
            Standing::Unused => false,
            Standing::Unconfirmed => true,
            Standing::Confirmed => !self.view.keys().is_empty() || !self.view.people().is_empty(),
        }
    }
}

impl Configured {
    fn has_keys(&self) -> bool {
        self.token.is_some() || !self.keys.is_empty()
    }

    fn can_change(&self) -> bool {
        self.has_keys() || self.people.is_some()
    }

    /// Whether somebody in the files can change everything.
    fn is_administered(&self) -> bool {
        let is_administrator = |role: &Role| *role == Role::Administrator;
        let now = SystemTime::now();
        let mut keys = self.keys.iter().filter(|key| !key.has_ended(now));
        let people = self.people.as_ref().map(|people| people.all());
        let mut people = people.iter().flatten().map(|(_, role)| role);
        self.token.is_some()
            || keys.any(|key| is_administrator(&key.role))
            || people.any(is_administrator)
    }

    fn known(
        &self,
        header: &[u8],
        view: &View,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Problem> {
        let caller = |who, role, audits, source| Caller {
            who,
            role,
            audits,
            must_change: false,
            source,
            peer,
        };
        let wrong = || {
            let why = "the Authorization header must be `Bearer` followed by a key that this node knows and that has not expired";
            Problem::new(Kind::NotAuthenticated, why)
        };
        let (scheme, shown) = header.split_at_checked("Bearer ".len()).ok_or_else(wrong)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(wrong());
        }
        let shown = shown.trim_ascii();
        if self.token.as_ref().is_some_and(|token| token.is(shown)) {
            return Ok(caller(Who::Token, Role::Administrator, false, Source::File));
        }
        let text = std::str::from_utf8(shown).map_err(|_| wrong())?;
        let now = SystemTime::now();
        if let Some(key) = self.keys.find(text, now) {
            let who = Who::Key {
                id: key.id.clone(),
                name: key.name.clone(),
            };
            return Ok(caller(who, key.role, false, Source::File));
        }
        if view.standing() != Standing::Unused && !stored::is_usable(view) {
            let why = "this node does not know yet whether its copy of the keys is current: ask another node, or again in a moment";
            return Err(Problem::new(Kind::NotReady, why));
        }
        let found = stored::key(view, text, now).ok_or_else(wrong)?;
        let who = Who::Key {
            id: found.id,
            name: found.name,
        };
        Ok(caller(who, found.role, found.audits, Source::Store))
    }

    /// Whether a browser that was sent here by another site would not name this host (DNS rebinding).
    fn is_own(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((address, _)) => address,
                None => return false,
            },
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let is_listed = |listed: &String| listed.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(is_listed)
    }
}

/// Headers that say that somebody else has sent the request on.
fn is_of_proxy(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

/// Whether a browser says that a page of another origin has sent the request. A program that is no browser says nothing of the kind.
fn is_of_other_page(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let is_cross_site = text(FETCH_SITE) == Some("cross-site");
    let is_foreign = headers.contains_key(header::ORIGIN) && {
        let page = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
        let own = text(header::HOST);
        page.zip(own)
            .is_none_or(|((_, page), own)| !page.eq_ignore_ascii_case(own))
    };
    is_cross_site || is_foreign
}

/// Lets a request for the metrics through whose `Host` names this node.
pub(crate) async fn check_host(
    State(rights): State<Arc<Rights>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    match rights.check_host(request.headers(), peer) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// What a path needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needed {
    /// A role.
    Role(Role),
    /// The right to read the audit, or the role administrator.
    Audit,
}

/// Lets a request through whose caller may make it, and logs each that changes something.
pub(crate) async fn authorize(
    State((gate, needed)): State<(Gate, Needed)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let caller = gate.caller(request.method(), request.headers(), peer);
    let caller = match caller.await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let (needed, is_auditor) = match needed {
        Needed::Role(role) => (role, false),
        Needed::Audit => (Role::Administrator, caller.audits),
    };
    if caller.role < needed && !is_auditor {
        gate.trail().count(often("refused", &caller));
        return refuse(gate.rights(), &caller, needed).into_response();
    }
    if caller.must_change && !OF_EVERYBODY.contains(&request.uri().path()) {
        let why = "another password has to be chosen first: POST /api/v1/own-password";
        return Problem::new(Kind::NoRight, why)
            .with("reason", "password_change")
            .into_response();
    }
    let changes = needed > Role::Viewer && request.method() != Method::GET;
    request.extensions_mut().insert(gate.clone());
    if !changes {
        let matched = request.extensions().get::<MatchedPath>();
        let is_noted = matched.is_some_and(|matched| matched.as_str() == MEMORY_PROFILE);
        let noted = is_noted.then(|| (caller.clone(), request.uri().path().to_owned()));
        request.extensions_mut().insert(caller);
        let response = next.run(request).await;
        if let Some((caller, path)) = noted
            && response.status().is_success()
        {
            let (trail, action) = (gate.trail(), "nodes.profile.memory".to_owned());
            trail.note(note(action, &caller, trail.node(), &path, &response));
        }
        return response;
    }
    let id = request.extensions().get::<RequestId>().cloned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(caller.clone());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let target = response.extensions().get::<Target>();
    log(&caller, &method, &path, target, &response, id.as_ref());
    let is_untold = response.extensions().get::<Untold>().is_some();
    if response.status().is_success() && !is_untold {
        gate.broker().tell_change(&ApiChange {
            user: caller.who.shown(),
            peer: caller.peer,
            method: method.to_string(),
            path: path.clone(),
            target: target.map(|target| target.0.clone()),
        });
    }
    if response.status().is_success()
        && let Some(matched) = matched
        && let Some(action) = action_of(&method, matched.as_str())
    {
        let trail = gate.trail();
        match is_untold {
            // Messages may be many.
            true if action.starts_with("publish") => trail.count(often(&action, &caller)),
            true => {}
            false => trail.note(note(
                action,
                &caller,
                trail.node(),
                target.map_or(&path, |target| &target.0),
                &response,
            )),
        }
    }
    response
}

/// A request that changes nothing, and that the audit has all the same: it costs the node some work.
const MEMORY_PROFILE: &str = "/api/v1/nodes/{node}/profile/memory";

/// What a request does, as the audit says it: `nodes.drain`, `bans.add`. `None`: the audit has it with the change of a record.
fn action_of(method: &Method, matched: &str) -> Option<String> {
    let path = matched.strip_prefix("/api/v1/")?;
    let first = path.split('/').next()?;
    if ["users", "groups", "rules", "people", "keys", "control"].contains(&first) {
        return None;
    }
    let names = path.split('/').filter(|name| !name.starts_with('{'));
    let mut action = names.collect::<Vec<_>>().join(".");
    let ends_with_name = path.ends_with('}');
    match *method {
        Method::DELETE => action.push_str(".remove"),
        Method::PUT => action.push_str(".put"),
        _ if ["bans"].contains(&path) => action.push_str(".add"),
        _ if ends_with_name => action.push_str(".change"),
        _ => {}
    }
    Some(action)
}

/// Something that somebody does often.
fn often(action: &str, caller: &Caller) -> Often {
    let address = caller.peer.map(|peer| peer.ip().to_canonical().to_string());
    Often {
        action: action.to_owned(),
        name: caller.who.shown(),
        means: caller.means(),
        address,
    }
}

/// The longest target in the audit, in bytes.
const LONGEST_TARGET: usize = 1_024;

fn note(
    action: String,
    caller: &Caller,
    node: control::Node,
    target: &str,
    response: &Response,
) -> AuditNote {
    let result = Field {
        name: "result".into(),
        before: None,
        after: Some(response.status().as_u16().to_string().into()),
    };
    let target = target.strip_prefix("/api/v1/").unwrap_or(target);
    AuditNote {
        at: stored::unix_ms(SystemTime::now()),
        by: caller.by(node),
        action: action.into(),
        target: target[..target.floor_char_boundary(LONGEST_TARGET)].into(),
        fields: [result].into(),
    }
}

/// What a request acts on, for the log, if its path does not say.
#[derive(Clone, Debug)]
pub(crate) struct Target(pub(crate) String);

/// What is in a response if those who watch are not told: nothing was changed, or messages were published, which may be
/// many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untold;

/// Why a caller may not do what needs a role that it does not have.
pub(crate) fn refuse(rights: &Rights, caller: &Caller, needed: Role) -> Problem {
    if caller.who != Who::Anonymous {
        let why = format!(
            "this needs the role {needed}, and the caller has {}",
            caller.role
        );
        return Problem::new(Kind::NoRight, why).with("needs", needed.name());
    }
    if rights.can_change() {
        let why = format!(
            "this needs the header `Authorization: Bearer` with a key of the role {needed}, or the session of such a user"
        );
        return Problem::new(Kind::NotAuthenticated, why).with("needs", needed.name());
    }
    let why = "nothing can be changed by HTTP: neither http.tokenFile nor http.keyFile has a key, http.userFile names no users, and the store has neither; the log of each node shows a code that makes the first administrator";
    Problem::new(Kind::NoRight, why).with("needs", needed.name())
}

fn log(
    caller: &Caller,
    method: &Method,
    path: &str,
    target: Option<&Target>,
    response: &Response,
    id: Option<&RequestId>,
) {
    let (key, name) = match &caller.who {
        Who::Anonymous => ("none".to_owned(), ""),
        Who::Key { id, name } => (id.to_string(), name.as_str()),
        Who::Token => ("token-file".to_owned(), ""),
        Who::User(session) => ("session".to_owned(), session.user.as_str()),
    };
    tracing::info!(
        key,
        name,
        role = caller.role.name(),
        peer = caller.peer.map(tracing::field::display),
        method = method.as_str(),
        path,
        target = target.map(|target| target.0.as_str()),
        result = response.status().as_u16(),
        request = id.map(|id| id.0.as_str()),
        "api.change"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(anonymous: Anonymous) -> Rights {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        let rights = Rights::default();
        let token = Token::read(file.path()).unwrap();
        let hosts = vec!["mq.example.com".to_owned()];
        rights.configure(Some(token), Keys::default(), anonymous, hosts, None);
        rights
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn who_may_read_without_a_key() {
        use Kind::{HostNotAllowed, NotAuthenticated, OriginNotAllowed};
        let here = "127.0.0.1:5000";
        type Case<'a> = (&'a str, &'a [(&'static str, &'a str)], Option<Kind>);
        let cases: [Case<'_>; 30] = [
            (here, &[], None),
            (here, &[("host", "localhost:8091")], None),
            (here, &[("host", "LOCALHOST")], None),
            (here, &[("host", "127.0.0.1:8091")], None),
            (here, &[("host", "[::1]:8091")], None),
            (here, &[("host", "10.0.0.1")], None),
            (here, &[("host", "mq.example.com:8091")], None),
            ("[::1]:1", &[], None),
            ("[::ffff:127.0.0.1]:1", &[], None),
            ("10.0.0.1:5000", &[], Some(NotAuthenticated)),
            ("[2001:db8::1]:1", &[], Some(NotAuthenticated)),
            (here, &[("host", "evil.example.com")], Some(HostNotAllowed)),
            (
                here,
                &[("host", "localhost.evil.com")],
                Some(HostNotAllowed),
            ),
            (here, &[("host", "[::1")], Some(HostNotAllowed)),
            (here, &[("host", "")], Some(HostNotAllowed)),
            (
                here,
                &[("x-forwarded-for", "1.2.3.4")],
                Some(NotAuthenticated),
            ),
            (
                here,
                &[("x-forwarded-anything", "1")],
                Some(NotAuthenticated),
            ),
            (here, &[("forwarded", "for=1")], Some(NotAuthenticated)),
            (here, &[("x-real-ip", "1.2.3.4")], Some(NotAuthenticated)),
            (
                here,
                &[("authorization", "Bearer wrong")],
                Some(NotAuthenticated),
            ),
            (
                here,
                &[("authorization", "Basic c2VjcmV0")],
                Some(NotAuthenticated),
            ),
            (here, &[("authorization", "")], Some(NotAuthenticated)),
            (here, &[("sec-fetch-site", "same-origin")], None),
            (here, &[("sec-fetch-site", "none")], None),
            (
                here,
                &[("sec-fetch-site", "cross-site")],
                Some(OriginNotAllowed),
            ),
            (
                here,
                &[
                    ("host", "localhost:8091"),
                    ("origin", "http://LOCALHOST:8091"),
                ],
                None,
            ),
            (
                here,
                &[
                    ("host", "localhost:8091"),
                    ("origin", "http://localhost:3000"),
                ],
                Some(OriginNotAllowed),
            ),
            (
                here,
                &[
                    ("host", "localhost"),
                    ("origin", "https://evil.example.com"),
                ],
                Some(OriginNotAllowed),
            ),
            (
                here,
                &[("host", "localhost"), ("origin", "null")],
                Some(OriginNotAllowed),
            ),
            (here, &[("origin", "http://a")], Some(OriginNotAllowed)),
        ];
        let rights = rights(Anonymous::Viewer);
        for (peer, sent, expected) in cases {
            let caller = rights.caller(&headers(sent), peer.parse().ok());
            let found = caller.as_ref().map(|caller| caller.role);
            match expected {
                None => assert_eq!(found, Ok(Role::Viewer), "{peer} {sent:?}"),
                Some(kind) => assert_eq!(caller.unwrap_err().kind, kind, "{peer} {sent:?}"),
            }
        }
        assert!(rights.caller(&HeaderMap::new(), None).is_err());
    }

    #[test]
    fn the_metrics_are_for_those_who_know_the_name_of_the_node() {
        let here = "127.0.0.1:5000";
        let uname = rustix::system::uname();
        let own = uname.nodename().to_str().unwrap();
        type Case<'a> = (&'a str, &'a [(&'static str, &'a str)], bool);
        let cases: [Case<'_>; 10] = [
            (here, &[], true),
            (here, &[("host", "localhost:8091")], true),
            (here, &[("host", "192.0.2.1:8091")], true),
            (here, &[("host", "mq.example.com:8091")], true),
            (here, &[("host", own)], true),
            (here, &[("host", "evil.example.com:8091")], false),
            (
                here,
                &[("host", "evil.example.com"), ("x-forwarded-for", "1.2.3.4")],
                false,
            ),
            (
                here,
                &[("host", "proxy.example.com"), ("via", "1.1 Caddy")],
                true,
            ),
            (
                here,
                &[("host", "x.com"), ("authorization", "Bearer secret")],
                true,
            ),
            (
                "10.0.0.1:5000",
                &[("host", "broker-1.example.com:8091")],
                true,
            ),
        ];
        let rights = rights(Anonymous::Viewer);
        for (peer, sent, expected) in cases {
            let checked = rights.check_host(&headers(sent), peer.parse().ok());
            assert_eq!(checked.is_ok(), expected, "{peer} {sent:?}");
        }
    }

    #[test]
    fn a_key_counts_from_everywhere_and_nothing_else_does_if_so_configured() {
        let rights = rights(Anonymous::None);
        let here: Option<SocketAddr> = "127.0.0.1:1".parse().ok();
        let shown = [
            ("authorization", "bearer secret"),
            ("host", "evil.example.com"),
            ("x-forwarded-for", "1.2.3.4"),
        ];
        let caller = rights.caller(&headers(&shown), here).unwrap();
        assert_eq!((caller.who, caller.role), (Who::Token, Role::Administrator));
        let nobody = rights.caller(&HeaderMap::new(), here).unwrap_err();
        assert_eq!(nobody.kind, Kind::NotAuthenticated);
    }
}
