//! Options of authentication, authorization, and the defence against abuse.

use std::{num::NonZero, path::PathBuf, time::Duration};

use crate::{declare::options, listed::Listed, setting::choice};

const U32: u64 = u32::MAX as u64;

options! {
    /// Who may connect. Without authenticators, and without users in the control store, `allowAnonymous` alone decides.
    pub struct AuthenticationConfig {
        /// Authenticators, asked in this order until one allows or denies. One object, or a list of them.
        live "chain" => chain: Vec<AuthenticatorConfig>;
        /// Logins that may be under way at once. Further CONNECT packets wait unread.
        // Limit: logins under way | {authentication.maxPending} | further CONNECT packets wait unread
        fixed "maxPending" => max_pending: u32 = 10_000, range 1..=1_000_000;
        /// What a client gets whose client identifier has a session of another user: CONNACK 0x87 (before 5.0:
        /// 5), or a new session, whereby the other one ends.
        live "sessionOfAnotherUser" => session_of_another_user: SessionOfAnotherUser = SessionOfAnotherUser::Refuse;
        /// How often a user of `postgres` is looked up again while a client of the user is connected: a user without a row
        /// is disconnected, and changed rules count. 0: never.
        // Limit: users of PostgreSQL that are looked up again | one at a time on a node, for each event loop one that
        // waits; each user once in {authentication.recheckSeconds} | the round takes longer
        live "recheckSeconds" => recheck: Option<Duration> = Some(Duration::from_secs(600)), unit Seconds;
        /// Threads that compute password hashes. 0: one per core.
        fixed "hashThreads" => hash_threads: Option<NonZero<u16>>, range 0..=256;
    }

    /// Users, groups and rules that change while the cluster runs (docs/operate/access.md).
    pub struct ControlConfig {
        /// What says who may do what: the store and files, or the files of this node alone. With `file`, changes are refused at this node, and what
        /// the store has does not count here. Set the same on all nodes.
        fixed "mode" => mode: ControlMode = ControlMode::Store;
        /// A node that has not heard the leader of the control store for this time refuses new logins by users of the store,
        /// because its copy may be out of date. Clients that are connected stay. 0: never.
        live "refuseStaleAfterSeconds" => refuse_stale_after: Option<Duration> = None, unit Seconds;
    }

    /// One authenticator. `kind` says which; of the groups only that of the kind counts.
    /// Each says allow, deny, or that it does not know the client: then the next is asked. A client that
    /// all do not know is denied. One that cannot be asked denies.
    pub struct AuthenticatorConfig {
        /// What it is.
        live "kind" => kind: AuthenticatorKind = AuthenticatorKind::PasswordFile;
        /// Users and their password hashes, as `heraldmq passwd` writes them; for `passwordFile` and `scram`.
        live "file" => file: Option<PathBuf>;
        group "jwt" => jwt: JwtConfig;
        group "http" => http: HttpAuthenticatorConfig;
        group "postgres" => postgres: PostgresConfig;
    }

    /// JSON Web Tokens (RFC 7519).
    pub struct JwtConfig {
        /// Where the token stands in CONNECT.
        live "from" => from: JwtFrom = JwtFrom::Password;
        /// Algorithms that are taken. Unset: those that the keys are for.
        live "algorithms" => algorithms: Listed<String>;
        /// Secret of the HMAC algorithms: the content of this file, without a line break at its end.
        live "secretFile" => secret_file: Option<PathBuf>;
        /// Public key of the other algorithms, PEM.
        live "publicKeyFile" => public_key_file: Option<PathBuf>;
        /// Key set (RFC 7517), a file.
        live "jwksFile" => jwks_file: Option<PathBuf>;
        /// Key set, from a server.
        live "jwksUrl" => jwks_url: Option<String>;
        /// How often the key set is read again. A token with an unknown key has it read at once, at most
        /// every ten seconds.
        live "jwksRefreshSeconds" => jwks_refresh: Duration = Duration::from_secs(300), unit Seconds, range 1..=U32;
        /// The `iss` that tokens must have. Unset: any.
        live "issuer" => issuer: Option<String>;
        /// The `aud` that tokens must have. Unset: any.
        live "audience" => audience: Option<String>;
        /// Claim with the user name that the token is for. Unset: it is not looked at.
        /// A client that says another in CONNECT is denied.
        live "usernameClaim" => username_claim: Option<String>;
        /// Claim with the client identifier that the token is for. Unset: it is not looked at.
        live "clientIdClaim" => client_id_claim: Option<String>;
        /// Claim with rules of authorization.
        live "aclClaim" => acl_claim: String = "acl".to_owned();
        /// Claim with the name of one of `clientClasses`, of which the client is then whatever else it matches. Unset: it is not
        /// looked at.
        live "classClaim" => class_claim: Option<String>;
        /// How far clocks may be apart.
        live "leewaySeconds" => leeway: Duration = Duration::from_secs(60), unit Seconds, range 0..=3600;
        /// Whether a client is disconnected (0x87) when its token expires.
        live "disconnectAtExpiry" => disconnect_at_expiry: bool = true;
    }

    /// A server that is asked by HTTP POST.
    pub struct HttpAuthenticatorConfig {
        /// Address of the request, http or https.
        live "url" => url: Option<String>;
        /// Bearer token that is sent along: the content of this file.
        live "tokenFile" => token_file: Option<PathBuf>;
        /// Authorities that sign the server's certificate, PEM. Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// Time for the whole request.
        live "timeoutMs" => timeout: Duration = Duration::from_secs(5), unit Milliseconds, range 1..=60_000;
        /// Requests at once.
        live "maxConcurrent" => max_concurrent: NonZero<u16> = at_least_one(64);
        /// How long an answer is remembered. 0: not at all. A server can say less by Cache-Control.
        live "cacheSeconds" => cache: Option<Duration>, unit Seconds;
        /// Answers that are remembered at most.
        // Limit: remembered answers of an HTTP authenticator | {authentication.chain.http.cacheEntries} | the least
        // wanted are forgotten
        live "cacheEntries" => cache_entries: u32 = 10_000, range 1..=10_000_000;
        /// Failures in a row after which the server is not asked for a while.
        live "breakerFailures" => breaker_failures: NonZero<u16> = at_least_one(5);
        /// How long it is not asked then.
        live "breakerSeconds" => breaker_pause: Duration = Duration::from_secs(10), unit Seconds, range 1..=3600;
    }

    /// A PostgreSQL database.
    pub struct PostgresConfig {
        /// Where it is, as a connection URI or keywords and values of libpq. A password in it is refused.
        live "connection" => connection: Option<String>;
        /// Password for the database: the content of this file.
        live "passwordFile" => password_file: Option<PathBuf>;
        /// Authorities that sign the server's certificate, PEM, for `sslmode=require` in `connection`.
        /// Unset: those of the system.
        live "caFile" => ca_file: Option<PathBuf>;
        /// Query for a user, with `$1` for the user name, `$2` for the client identifier and `$3` for the
        /// peer's address as text. Columns: `password_hash`; if present `is_superuser`, and `class`, the name of one of
        /// `clientClasses`.
        live "query" => query: String = "SELECT password_hash, is_superuser FROM mqtt_user WHERE username = $1".to_owned();
        /// Query for a user's rules, with the same parameters. Columns: `permission`, `action`, `topic`,
        /// in the order in which they count. Unset: no rules.
        live "aclQuery" => acl_query: Option<String>;
        /// Connections to the database.
        // Limit: connections to PostgreSQL | {authentication.chain.postgres.poolSize};
        // {authorization::login::MAX_LOGIN_RULES} rules of a user | logins wait, for
        // {authentication.chain.postgres.timeoutMs}; the login fails
        live "poolSize" => pool_size: NonZero<u16> = at_least_one(8);
        /// Time for a login's queries, waiting for a connection included.
        live "timeoutMs" => timeout: Duration = Duration::from_secs(5), unit Milliseconds, range 1..=60_000;
    }

    /// What clients may publish and subscribe to.
    pub struct AuthorizationConfig {
        /// File with rules; docs/operate/security.md describes it. Unset: none.
        live "file" => file: Option<PathBuf>;
        /// What happens if no rule of the file or of the client's own says otherwise.
        live "noMatch" => no_match: Permission = Permission::Allow;
        /// What a client of MQTT 3.1 or 3.1.1 gets for a publication that is denied: an acknowledgement as
        /// if it were accepted (`ignore`), or the end of its connection (`disconnect`).
        live "denyPublishV3" => deny_publish_v3: DenyPublishV3 = DenyPublishV3::Ignore;
        /// Decisions that each event loop remembers.
        fixed "cacheEntries" => cache_entries: u32 = 65_536, range 1..=16_777_216;
    }

    /// Defence against abuse. Loopback addresses are not counted unless `includeLoopback` is set. The
    /// addresses of a /64 network of IPv6 count as one.
    pub struct AbuseConfig {
        /// Connections that one address may have open. More are closed when accepted. 0: no limit.
        // Limit: connections of one address, and new ones in a second | {abuse.connectionsPerAddress},
        // {abuse.connectionsPerSecondPerAddress} | closed when accepted
        live "connectionsPerAddress" => connections_per_address: Option<NonZero<u32>>;
        /// New connections of one address per second. More are closed when accepted. 0: no limit.
        live "connectionsPerSecondPerAddress" => connections_per_second_per_address: Option<NonZero<u32>>;
        /// Failed logins for one user name at one address after which that user name must wait there before the next is
        /// looked at; the wait doubles with each further one. What was tried before is no further one, but waits for
        /// itself. 0: no limit.
        // Limit: logins of one address for one user name that are judged at the same time | {abuse.failedLogins},
        // less the guesses that have failed; doubled by each success up to {abuse.loginsPerAddress}, until one fails
        // | wait
        //
        // Limit: logins for one user name, from all addresses that it has not logged in from, that are judged at the
        // same time | {abuse.failedLogins}, less the guesses that have failed; doubled by each success without an
        // upper limit, until one fails | wait
        live "failedLogins" => failed_logins: Option<NonZero<u16>> = NonZero::new(5);
        /// Failed logins of one address a minute, over all user names that have not logged in from there: so many of names
        /// that have failed there before, and as many of others, of which 1,200 may fail at once. Further logins
        /// wait for their turn. 0: no limit.
        // Limit: failed logins of an address, of user names that have not logged in there |
        // {abuse.failedLoginsPerMinutePerAddress} | wait
        live "failedLoginsPerMinutePerAddress" => failed_logins_per_minute_per_address: Option<NonZero<u32>> = NonZero::new(60);
        /// Logins of one address that are judged at the same time; more wait for their turn. For one user name there
        /// `failedLogins` of them are at first; each login that succeeds doubles that number up to this limit, a login that
        /// fails takes it back. 0: no limit.
        // Limit: logins of one address that are judged at the same time | {abuse.loginsPerAddress} | wait
        live "loginsPerAddress" => logins_per_address: Option<NonZero<u32>> = NonZero::new(256);
        /// The longest such wait.
        live "failedLoginWaitSeconds" => failed_login_wait: Duration = Duration::from_secs(60), unit Seconds, range 1..=86_400;
        /// Connections of one client identifier within `flappingWindowSeconds` after which it is banned.
        /// 0: no limit.
        live "flappingConnections" => flapping_connections: Option<NonZero<u16>>;
        /// See `flappingConnections`.
        live "flappingWindowSeconds" => flapping_window: Duration = Duration::from_secs(60), unit Seconds, range 1..=3600;
        /// For how long it is banned then.
        live "flappingBanSeconds" => flapping_ban: Duration = Duration::from_secs(300), unit Seconds, range 1..=604_800;
        /// Whether loopback addresses are counted as well.
        live "includeLoopback" => include_loopback: bool = false;
        /// Addresses, logins and client identifiers that are remembered at once, of each kind; beyond that
        /// the least recently seen are forgotten.
        // Limit: what is remembered of strangers | {abuse.trackedEntries} of each kind | the least recently seen is
        // forgotten
        fixed "trackedEntries" => tracked_entries: u32 = 100_000, range 1..=10_000_000;
        /// File with bans. Unset: `bans.json` in `dataDir`.
        fixed "banFile" => ban_file: Option<PathBuf>;
    }
}

choice! {
    /// What says who may do what.
    pub enum ControlMode {
        /// The control store, and files.
        Store = "store",
        /// Files.
        File = "file",
    }

    /// Kinds of authenticators.
    pub enum AuthenticatorKind {
        /// User name and password, looked up in a file.
        PasswordFile = "passwordFile",
        /// A verified client certificate.
        TlsIdentity = "tlsIdentity",
        /// A signed token.
        Jwt = "jwt",
        /// A server of the operator's own.
        Http = "http",
        /// A table of users.
        Postgres = "postgres",
        /// SCRAM-SHA-256 and SCRAM-SHA-512 by enhanced authentication of MQTT 5.0.
        Scram = "scram",
        /// Users of the control store, which administrators change while the cluster runs. Without a chain this one counts
        /// as soon as there is such a user.
        Control = "control",
    }

    /// What a client gets whose client identifier has a session of another user.
    pub enum SessionOfAnotherUser {
        /// A refusal; the session stays as it is.
        Refuse = "refuse",
        /// A session of its own; the other one ends.
        NewSession = "newSession",
    }

    /// Where a token stands in CONNECT.
    pub enum JwtFrom {
        /// In the password.
        Password = "password",
        /// In the user name.
        Username = "username",
    }

    /// Whether something is allowed.
    pub enum Permission {
        /// It is.
        Allow = "allow",
        /// It is not.
        Deny = "deny",
    }

    /// What clients of old versions get for a publication that is denied.
    pub enum DenyPublishV3 {
        /// An acknowledgement; the message is dropped and counted.
        Ignore = "ignore",
        /// The end of the connection.
        Disconnect = "disconnect",
    }
}

/// For defaults, so that a zero among them does not compile into anything.
const fn at_least_one(number: u16) -> NonZero<u16> {
    match NonZero::new(number) {
        Some(number) => number,
        None => panic!("a default that must not be zero is zero"),
    }
}
