//! A producer of the library, with what it says.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use outlets::{KafkaDefinition, KafkaServersDefinition, read_secret};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Bytes of the largest record: a message of MQTT that the broker takes goes in it, with its headers.
const LARGEST_RECORD: usize = 40_000_000;

/// Bytes of the largest batch of one partition, the default of the library.
const LARGEST_BATCH: u64 = 1_000_000;

/// How long the end of the process waits for the library.
const LEAVE: Duration = Duration::from_secs(1);

/// How long one question for a server may take.
const SLICE: Duration = Duration::from_millis(500);

/// What became of a record.
#[derive(Debug)]
pub(crate) struct Told {
    /// Its place in the batch.
    pub(crate) place: usize,
    /// Why it is not there, if it is not.
    pub(crate) error: Option<KafkaError>,
}

/// What the library calls.
pub(crate) struct Context {
    told: UnboundedSender<Told>,
    /// What it last said beside the reports of records.
    said: watch::Sender<Option<Said>>,
}

/// An error of a connection.
#[derive(Clone, Debug)]
struct Said {
    why: String,
    /// Waiting does not help: the server does not let the outlet in, or is none that it trusts.
    is_final: bool,
}

impl ClientContext for Context {
    // The node's log has what the outlet says; the library repeats itself each second.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        // It says only that there is an error, which was said before.
        let code = error.rdkafka_error_code();
        if code != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.said.send_replace(Some(Said {
                why: reason.to_owned(),
                is_final: matches!(
                    code,
                    Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL)
                ),
            }));
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, place: usize) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        // Nobody hears what is told of a producer that was given up.
        let _: Result<_, _> = self.told.send(Told { place, error });
    }
}

/// The library's producer.
pub(crate) type Native = ThreadedProducer<Context, NoCustomPartitioner>;

/// A producer.
pub(crate) struct Producer {
    pub(crate) native: Native,
    /// One for each record that was given to the library and not heard of: those of one batch at most, and one of the topic of positions.
    pub(crate) told: UnboundedReceiver<Told>,
    said: watch::Receiver<Option<Said>>,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl Producer {
    /// Begins one; it connects by itself.
    ///
    /// # Errors
    /// A file cannot be read, or the library does not take a setting.
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, String> {
        let (tell, told) = unbounded_channel();
        let (say, said) = watch::channel(None);
        let context = Context {
            told: tell,
            said: say,
        };
        let native = config.create_with_context(context);
        let native: Native = native.map_err(|error| error.to_string())?;
        Ok(Self { native, told, said })
    }

    /// An error with what the library has said beside it, which often says more.
    pub(crate) fn in_words(&self, what: &str) -> String {
        match &*self.said.borrow() {
            Some(said) => format!("{what}: {}", said.why),
            None => what.to_owned(),
        }
    }

    /// Waits until a server has answered.
    ///
    /// # Errors
    /// None does in time, or one does not let the outlet in.
    pub(crate) async fn connected(&self, time: Duration) -> Result<(), String> {
        let mut said = self.said.clone();
        let (native, is_left) = (self.native.clone(), Arc::new(AtomicBool::new(false)));
        let left = Arc::clone(&is_left);
        let deadline = Instant::now() + time;
        let asking = tokio::task::spawn_blocking(move || {
            while !left.load(Ordering::Relaxed) && Instant::now() < deadline {
                if native.client().fetch_cluster_id(SLICE).is_some() {
                    return true;
                }
            }
            false
        });
        let refused = said.wait_for(|said| said.as_ref().is_some_and(|said| said.is_final));
        tokio::select! {
            answered = asking => match answered {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(self.in_words("no server of Kafka answers in time")),
            },
            Ok(said) = refused => {
                is_left.store(true, Ordering::Relaxed);
                Err(said.as_ref().map(|said| said.why.clone()).unwrap_or_default())
            }
        }
    }

    /// Whether the library gives no more records to Kafka by it.
    pub(crate) fn fatal(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.native.client().fatal_error()
    }
}

/// Gives producers up: the library takes some time to end one that does not reach its server. There is one more for each attempt that
/// fails, at most each second, until the library has ended it.
#[derive(Debug, Default)]
pub(crate) struct Retired(Vec<Receiver<()>>);

impl Retired {
    pub(crate) fn retire(&mut self, producer: Producer) {
        let (sender, ended) = channel::<()>();
        std::thread::spawn(move || {
            drop(producer);
            drop(sender);
        });
        let is_running = |ended: &Receiver<()>| {
            ended.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Timeout)
        };
        self.0.retain(is_running);
        self.0.push(ended);
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        for ended in &self.0 {
            // It ends with the process.
            let _: Result<(), RecvTimeoutError> = ended.recv_timeout(LEAVE);
        }
    }
}

/// The settings of a producer. Reads the files, which may have been replaced.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn settings(
    definition: &KafkaDefinition,
    batch_bytes: u64,
) -> Result<ClientConfig, String> {
    let mut config = connection(&definition.servers)?;
    let milliseconds = definition.servers.timeout.as_millis();
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("compression.type", &definition.compression)
        // That of the clients in Java: what they write with the same key goes to the same partition.
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "5")
        .set("batch.num.messages", "10000")
        // All messages of an outlet's batch go in one of the library's, so that a topic's max.message.bytes can be kept.
        .set(
            "batch.size",
            batch_bytes.clamp(1_000, LARGEST_BATCH).to_string(),
        )
        .set("message.max.bytes", LARGEST_RECORD.to_string())
        .set("queue.buffering.max.messages", "200000")
        .set("queue.buffering.max.kbytes", "1048576")
        .set(
            "request.timeout.ms",
            milliseconds.clamp(1_000, 900_000).to_string(),
        )
        // The target takes messages back before.
        .set(
            "message.timeout.ms",
            (milliseconds * 2 + 10_000).to_string(),
        )
        .set(
            "topic.metadata.propagation.max.ms",
            (milliseconds / 2).clamp(500, 10_000).to_string(),
        );
    Ok(config)
}

/// What tells servers from others.
pub(crate) fn address(servers: &[String]) -> String {
    let mut servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    servers.sort_unstable();
    servers.join(",")
}

/// The settings of each connection. Reads the files.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn connection(definition: &KafkaServersDefinition) -> Result<ClientConfig, String> {
    let text = |path: &std::path::Path| {
        let secret = read_secret(path)?;
        String::from_utf8(secret).map_err(|_| format!("{}: no UTF-8", path.display()))
    };
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", definition.servers.join(","))
        .set("client.id", "heraldmq")
        .set("socket.keepalive.enable", "true")
        .set("socket.connection.setup.timeout.ms", "10000")
        .set("reconnect.backoff.max.ms", "1000")
        .set("enable.metrics.push", "false");
    let protocol = match (definition.tls, &definition.sasl) {
        (false, None) => "plaintext",
        (true, None) => "ssl",
        (false, Some(_)) => "sasl_plaintext",
        (true, Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(sasl) = &definition.sasl {
        config
            .set("sasl.mechanism", &sasl.mechanism)
            .set("sasl.username", &sasl.user)
            .set("sasl.password", text(&sasl.password_file)?);
    }
    if definition.tls {
        match &definition.ca_file {
            Some(path) => config.set("ssl.ca.pem", text(path)?),
            None => config.set("ssl.ca.location", "probe"),
        };
        if let (Some(certificate), Some(key)) = (&definition.cert_file, &definition.key_file) {
            config
                .set("ssl.certificate.pem", text(certificate)?)
                .set("ssl.key.pem", text(key)?);
        }
    }
    Ok(config)
}
