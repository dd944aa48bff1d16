//! A stream of NATS as a source: a durable pull consumer with explicit acknowledgements.
//!
//! Messages are asked for in batches of [`BATCH`]; the next batch is asked for when the last one is there, and there is room. What the
//! inlet has and has not acknowledged, it names to the server every [`PROGRESS`], so that the server gives it to nobody again. What it
//! has not acknowledged when it takes leave, it gives back; what it has not when it dies, comes again after [`ACK_WAIT`].
//!
//! Deliberately absent: the order of messages that come again. The server gives them behind later ones.

mod consumer;
mod message;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use self::consumer::{ACK_WAIT, Made, Progress, Sequence};
use super::definition::NatsSourceDefinition;
use super::source::{Arrival, Intake, Source, Token};
use crate::lines::now;
use crate::nats::{Link, Servers};

/// Messages of a batch at most.
const BATCH: usize = 200;

/// Bytes of a batch at most, with headers. A message that is larger comes in a batch of its own.
const BATCH_BYTES: usize = 8 << 20;

/// How long the server keeps a request for a batch open.
const EXPIRES: Duration = Duration::from_secs(30);

/// How much later than that the server may say that the request is over.
const LATE: Duration = Duration::from_secs(10);

/// How often the server is told which messages the inlet still has.
const PROGRESS: Duration = Duration::from_secs(10);

/// What the server says of a batch that ends as the next message is larger than the rest of [`BATCH_BYTES`].
const BATCH_COMPLETED: &str = "Batch Completed";

/// What it says if the first one is larger.
const TOO_LARGE: &str = "Message Size Exceeds MaxBytes";

/// A stream, and its consumer.
#[derive(Clone, Debug)]
pub(crate) struct NatsSource {
    definition: NatsSourceDefinition,
    servers: Servers,
    address: String,
    /// Of all connections of this process.
    progress: Arc<Mutex<Option<Progress>>>,
}

/// A connection with its consumer.
struct NatsIntake {
    link: Link,
    consumer: PullConsumer,
    inbox: String,
    messages: Subscriber,
    /// Of the request for a batch that was made last.
    number: BatchNumber,
    batch: Option<Batch>,
    /// The next message is larger than a batch.
    is_large: bool,
    is_told: bool,
    next: Token,
    /// Of the messages that are not acknowledged, in their order.
    open: VecDeque<Open>,
    /// Of messages whose acknowledgement is to be sent.
    acknowledged: VecDeque<Subject>,
    /// Messages the server is still to be told of that the inlet has them.
    held: VecDeque<Subject>,
    tells_at: Instant,
    progress: Arc<Mutex<Option<Progress>>>,
}

/// A request for a batch, from 1.
#[derive(Clone, Copy, Debug)]
struct BatchNumber(u64);

/// A batch that is on its way.
struct Batch {
    /// Messages that are still to come.
    left: usize,
    until: Instant,
}

/// A message that is not acknowledged.
struct Open {
    token: Token,
    sequence: Sequence,
    reply: Subject,
}

impl NatsSource {
    /// # Errors
    /// A URL that is none; a file that cannot be read; more than one way to log in.
    pub(crate) fn new(definition: &NatsSourceDefinition) -> Result<Self, String> {
        let servers = Servers::new(&definition.servers)?;
        Ok(Self {
            address: servers.address(),
            definition: definition.clone(),
            servers,
            progress: Arc::default(),
        })
    }

    async fn stream(&self, link: &Link) -> Result<Stream, String> {
        let name = &self.definition.stream;
        let found = link.context.get_stream(name).await;
        found.map_err(|error| format!("the stream {name}: {error}"))
    }

    async fn connected(&self) -> Result<NatsIntake, String> {
        let mut link = self.servers.connect().await?;
        // What is not allowed gets no answer: the server says so beside it.
        let mut said = link.said.clone();
        let made = async {
            let stream = self.stream(&link).await?;
            let made = Made(stream.cached_info().created.unix_timestamp_nanos());
            let start = {
                let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                if !progress
                    .as_ref()
                    .is_some_and(|progress| progress.is_of(made))
                {
                    *progress = Some(Progress::new(made));
                }
                progress.as_ref().and_then(Progress::start)
            };
            let consumer = consumer::consumer(&stream, &self.definition, start).await?;
            let inbox = link.client.new_inbox();
            let messages = link.client.subscribe(format!("{inbox}.*")).await;
            let messages = messages.map_err(|error| error.to_string())?;
            Ok::<_, String>((consumer, inbox, messages))
        };
        let (consumer, inbox, messages) = tokio::select! {
            biased;
            made = made => made?,
            why = told(&mut said) => return Err(why),
        };
        link.said.mark_unchanged();
        Ok(NatsIntake {
            link,
            consumer,
            inbox,
            messages,
            number: BatchNumber(0),
            batch: None,
            is_large: false,
            is_told: false,
            next: Token::default(),
            open: VecDeque::new(),
            acknowledged: VecDeque::new(),
            held: VecDeque::new(),
            tells_at: Instant::now() + PROGRESS,
            progress: Arc::clone(&self.progress),
        })
    }

    async fn reached(&self) -> Result<String, String> {
        let link = self.servers.connect().await?;
        let mut said = link.said.clone();
        let version = link.client.server_info().version;
        let NatsSourceDefinition {
            stream: name,
            durable,
            ..
        } = &self.definition;
        let found = async {
            let stream = self.stream(&link).await?;
            let messages = stream.cached_info().state.messages;
            let consumer = match stream.consumer_info(durable).await {
                Ok(info) => {
                    format!(
                        "of which the consumer {durable} has {} to give",
                        info.num_pending
                    )
                }
                Err(_) => format!("and no consumer {durable} yet"),
            };
            let s = if messages == 1 { "" } else { "s" };
            Ok(format!(
                "NATS {version} has the stream {name} with {messages} message{s}, {consumer}"
            ))
        };
        tokio::select! {
            biased;
            found = found => found,
            why = told(&mut said) => Err(why),
        }
    }
}

impl Source for NatsSource {
    /// Of all servers.
    fn address(&self) -> &str {
        &self.address
    }

    fn open(&self) -> BoxFuture<'static, Result<Box<dyn Intake>, String>> {
        let source = self.clone();
        async move {
            // Each request has its own limit of time, and there are few.
            let intake: Box<dyn Intake> = Box::new(source.connected().await?);
            Ok(intake)
        }
        .boxed()
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, String>> {
        let source = self.clone();
        async move { source.reached().await }.boxed()
    }
}

/// Ends when the server says an error.
async fn told(said: &mut tokio::sync::watch::Receiver<Option<Arc<str>>>) -> String {
    if said.changed().await.is_err() {
        // The client of the library is gone, which whoever waits for an answer hears.
        return pending().await;
    }
    let why = said.borrow_and_update().clone();
    format!("the server says: {}", why.as_deref().unwrap_or("an error"))
}

impl NatsIntake {
    async fn turn(&mut self, reads: bool) -> Result<Vec<Arrival>, String> {
        if !self.is_told {
            self.is_told = true;
            return Ok(vec![Arrival::Ready]);
        }
        self.send().await?;
        if reads && self.batch.is_none() {
            self.request().await?;
        }
        let ends_at = self.batch.as_ref().map(|batch| batch.until);
        let is_late = async {
            match ends_at {
                Some(ends_at) => sleep_until(ends_at).await,
                None => pending().await,
            }
        };
        let ended = self.link.ended();
        let first = tokio::select! {
            biased;
            message = self.messages.next() => message,
            why = told(&mut self.link.said) => return Err(why),
            () = ended => None,
            () = is_late => return Err("the server does not answer in time".to_owned()),
            () = sleep_until(self.tells_at) => {
                self.held = self.open.iter().map(|open| open.reply.clone()).collect();
                self.tells_at = Instant::now() + PROGRESS;
                return Ok(Vec::new());
            }
        };
        let mut message = first.ok_or("the server has ended the connection")?;
        let mut arrivals = Vec::new();
        loop {
            self.handle(message, &mut arrivals)?;
            match self.messages.next().now_or_never() {
                Some(Some(another)) => message = another,
                Some(None) | None => return Ok(arrivals),
            }
        }
    }

    /// Sends what waits. May be dropped: at worst something is sent twice, which says nothing new.
    async fn send(&mut self) -> Result<(), String> {
        for (waiting, kind) in [
            (&mut self.acknowledged, AckKind::Ack),
            (&mut self.held, AckKind::Progress),
        ] {
            while let Some(reply) = waiting.front() {
                let sent = self.link.client.publish(reply.clone(), kind.into());
                sent.await.map_err(|error| error.to_string())?;
                waiting.pop_front();
            }
        }
        Ok(())
    }

    /// Asks for a batch. May be dropped: at worst two are on their way.
    async fn request(&mut self) -> Result<(), String> {
        let left = if self.is_large { 1 } else { BATCH };
        let batch = BatchConfig {
            batch: left,
            expires: Some(EXPIRES),
            max_bytes: if self.is_large { 0 } else { BATCH_BYTES },
            ..BatchConfig::default()
        };
        self.number.0 += 1;
        let inbox = Subject::from(format!("{}.{}", self.inbox, self.number.0));
        let requested = self.consumer.request_batch(batch, inbox).await;
        requested.map_err(|error| error.to_string())?;
        self.is_large = false;
        self.batch = Some(Batch {
            left,
            until: Instant::now() + EXPIRES + LATE,
        });
        Ok(())
    }

    fn handle(&mut self, message: Message, arrivals: &mut Vec<Arrival>) -> Result<(), String> {
        if let Some(status) = message.status.filter(|status| *status != StatusCode::OK) {
            return self.handle_status(status, &message);
        }
        let received = jetstream::Message {
            message,
            context: self.link.context.clone(),
        };
        let sequence = match received.info() {
            Ok(info) => info.stream_sequence,
            Err(error) => {
                return Err(format!(
                    "the server gives a message without a place: {error}"
                ));
            }
        };
        let Message {
            subject,
            reply: Some(reply),
            payload,
            headers,
            ..
        } = received.message
        else {
            return Err("the server gives a message that cannot be acknowledged".to_owned());
        };
        if let Some(batch) = &mut self.batch {
            batch.left = batch.left.saturating_sub(1);
            if batch.left == 0 {
                self.batch = None;
            }
        }
        let item = message::item((&subject, sequence), headers.as_ref(), payload, now());
        let (token, sequence) = (self.next.advance(), Sequence(sequence));
        self.progress(|progress| progress.handle_message(sequence));
        self.open.push_back(Open {
            token,
            sequence,
            reply,
        });
        arrivals.push(Arrival::Message(Box::new(item), Some(token)));
        Ok(())
    }

    /// What the server says of the batch.
    fn handle_status(&mut self, status: StatusCode, message: &Message) -> Result<(), String> {
        let description = message.description.as_deref().unwrap_or_default();
        let is_of_batch = *message.subject == *format!("{}.{}", self.inbox, self.number.0);
        match status {
            StatusCode::IDLE_HEARTBEAT => return Ok(()),
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => {}
            _ if description == BATCH_COMPLETED => {}
            _ if description == TOO_LARGE => self.is_large |= is_of_batch,
            StatusCode::NO_RESPONDERS => {
                return Err("the server has no such consumer any more".to_owned());
            }
            _ => return Err(format!("the server says: {status} {description}")),
        }
        if is_of_batch {
            self.batch = None;
        }
        Ok(())
    }

    fn progress(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(progress) = progress.as_mut() {
            change(progress);
        }
    }

    /// Acknowledges what the node has, and gives back what it has not.
    async fn leave(mut self) {
        if self.send().await.is_err() {
            return;
        }
        for open in &self.open {
            let nak = AckKind::Nak(None).into();
            if self
                .link
                .client
                .publish(open.reply.clone(), nak)
                .await
                .is_err()
            {
                return;
            }
        }
        // What does not arrive by now comes again after `ACK_WAIT`.
        let _: Result<_, _> = timeout(ACK_WAIT, self.link.client.flush()).await;
    }
}

impl Intake for NatsIntake {
    fn next(&mut self, reads: bool) -> BoxFuture<'_, Result<Vec<Arrival>, String>> {
        self.turn(reads).boxed()
    }

    fn acknowledge(&mut self, token: Token) {
        let found = self.open.iter().position(|open| open.token == token);
        let open = found.and_then(|place| self.open.remove(place));
        let open = open.expect("a message is acknowledged once");
        self.progress(|progress| progress.handle_acknowledged(open.sequence));
        self.acknowledged.push_back(open.reply);
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.leave().boxed()
    }
}
