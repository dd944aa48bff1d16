//! Every option of the broker: name, unit, default and documentation, declared once in
//! `options.rs`, and how a [`Config`] is put together from file, environment and command line.
//!
//! Invariant: a [`Config`] that was loaded is complete and consistent. All foreign input passes
//! through limits and ends in a value or in a [`ConfigError`] that names each problem; nothing
//! panics.
//!
//! Deliberately absent: global state, reading the process environment, resolving host names,
//! opening anything but the configuration file. The caller does these.
//!
//! Where to read next: `options.rs` for the options, `declare.rs` for how they are declared,
//! `load.rs` for precedence.

mod address;
mod attributes;
mod catalog;
mod check;
mod cpu_share;
mod declare;
mod generated;
mod listed;
mod listener;
mod listing;
mod load;
mod nearest;
mod network;
mod node;
mod node_name;
mod options;
mod origin;
mod overriding;
mod private;
mod problem;
mod reload;
mod setting;

pub use address::{Endpoint, Endpoints, Host, Hosts};
pub use attributes::Attributes;
pub use cpu_share::CpuShare;
pub use generated::{example, reference};
pub use listed::Listed;
pub use listener::{ListenerView, Place, WebSocketView};
pub use listing::{Listing, OptionRow};
pub use load::{Loaded, MAX_FILE_BYTES};
pub use network::{Network, Networks};
pub use node_name::NodeName;
pub use options::{
    AbuseConfig, AfterLeave, AttentionConfig, AuthenticationConfig, AuthenticatorConfig,
    AuthenticatorKind, AuthorizationConfig, ClassLimitsConfig, ClassMatchConfig, ClientAuth,
    ClientClassConfig, ClusterConfig, ClusterSslConfig, Config, ConnectionLimits, ControlConfig,
    ControlMode, DEFAULT_CLASS, DeadLetterConfig, Deliver, DenyPublishV3, FileTargetConfig,
    ForwardedConfig, ForwardedHeader, HttpAnonymous, HttpAuthenticatorConfig, HttpBody, HttpConfig,
    HttpMethod, HttpTargetConfig, InboxConfig, InboxQos0, InletConfig, InletSourceConfig,
    JwtConfig, JwtFrom, KafkaCompression, KafkaSaslConfig, KafkaSourceConfig, KafkaTargetConfig,
    LARGEST_PACKET, Limits, LogConfig, LogFormat, MaximumQos, MqttConfig, MqttServerConfig,
    MqttSourceConfig, MqttTargetConfig, NatsSourceConfig, NatsTargetConfig, NodeLimits, OtlpConfig,
    OutletBatchConfig, OutletConfig, OutletSourceConfig, OutletTargetConfig, Permission,
    PostgresColumnConfig, PostgresConfig, PostgresTargetConfig, ProxyConfig, ProxyUserName,
    ProxyVersion, QueueFull, RetainConfig, RetainRuleConfig, SaslMechanism, SessionLimits,
    SessionOfAnotherUser, SplitPolicy, SpreadAtConnect, SslConfig, StopConfig, StoreConfig,
    SysConfig, TcpListenerConfig, TelemetryConfig, TlsListenerConfig, TlsVersion, TopicLimits,
    UnixListenerConfig, WsListenerConfig, WssListenerConfig,
};
pub use origin::WebOrigin;
pub use overriding::Override;
pub use private::is_private;
pub use problem::{ConfigError, Nearest, Origin, Problem, Violation};
pub use reload::ReloadDiff;

#[cfg(test)]
mod tests;
