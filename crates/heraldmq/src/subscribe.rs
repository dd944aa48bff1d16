//! `heraldmq sub`: prints the messages that match topic filters.
//!
//! Invariant: a message is acknowledged only after it was printed, so that what a broken pipe
//! swallowed stays with the broker.

mod format;
mod json;

use std::{
    collections::VecDeque,
    io::{self, Write},
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use jiff::Zoned;
use mqtt_client::{Event as PacketEvent, Incoming};
use mqtt_proto::{
    Publish, PublishProperties, QoS, RetainHandling, SubAck, SubscriptionFilter,
    SubscriptionOptions, filter_matches, validate_topic_filter,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use self::format::{Format, NotJson};
use crate::{
    client::{Connection, ConnectionOptions, Event, explain, farewell, parse_qos, unexpected},
    failure::{Failure, be_quiet, complain},
};

/// How long to wait at the end for PUBREL of messages that were printed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between attempts to connect again.
const RECONNECT: Duration = Duration::from_secs(1);

/// How often is looked whether a signal has come meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Subscribe and print messages, like mosquitto_sub.
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Topic filter to subscribe to; may be repeated.
    #[arg(
        short,
        long,
        required_unless_present_any = ["unsubscribe", "url"],
        value_parser = parse_subscription
    )]
    topic: Vec<String>,
    /// Topic filter to unsubscribe from, in a session that was kept; may be repeated.
    #[arg(short = 'U', long, value_name = "TOPIC")]
    unsubscribe: Vec<String>,
    /// Highest quality of service to receive: 0, 1 or 2.
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// End after this many messages.
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many seconds, with exit code 27.
    #[arg(short = 'W', value_name = "SECONDS")]
    timeout: Option<u64>,
    /// End when the broker has acknowledged the subscriptions.
    #[arg(short = 'E')]
    exit_after_subscribe: bool,
    /// Print the topic name before the payload.
    #[arg(short, long)]
    verbose: bool,
    /// Print messages in this format: %t topic name, %p payload, %q QoS, %r retain; see below.
    #[arg(short = 'F', long, conflicts_with = "verbose", value_parser = Format::parse)]
    format: Option<Format>,
    /// Print the JSON of %j and %J with one line for each member.
    #[arg(long)]
    pretty: bool,
    /// Print no line break after a message.
    #[arg(short = 'N')]
    no_newline: bool,
    /// Do not print messages that were retained before.
    #[arg(short = 'R')]
    no_retained: bool,
    /// Print only messages that were retained before, and end at the first message that was not.
    #[arg(long, conflicts_with = "no_retained")]
    retained_only: bool,
    /// Remove each retained message after printing it, by publishing an empty message to its topic.
    #[arg(long, conflicts_with = "no_retained")]
    remove_retained: bool,
    /// Print this percentage of the messages, taken at random: 0.1 to 100.
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = parse_share)]
    random_filter: f64,
    /// End with exit code 1 when the connection is lost, instead of connecting again.
    #[arg(long)]
    no_reconnect: bool,
    /// Do not print messages whose topic name matches this filter; may be repeated.
    #[arg(short = 'T', long, value_name = "TOPIC", value_parser = parse_filter)]
    filter_out: Vec<String>,
    /// Do not receive what this client itself publishes (MQTT 5).
    #[arg(long)]
    no_local: bool,
    /// Keep the retain flag as the publisher set it (MQTT 5).
    #[arg(long)]
    retain_as_published: bool,
    /// When the broker sends retained messages (MQTT 5).
    #[arg(long, value_name = "WHEN", default_value = "always")]
    retain_handling: Handling,
    #[command(flatten)]
    connection: ConnectionOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum Handling {
    /// At each subscription.
    Always,
    /// If the subscription is new.
    New,
    /// Never.
    Never,
}

const EXAMPLES: &str = "\
Formats (-F):
  %t topic name        %p payload            %x %X payload in hexadecimal
  %l payload bytes     %q QoS                %r retain, 0 or 1
  %m packet identifier %j %J all of it as JSON; with %J, the payload is JSON
  %U time of arrival, seconds since 1970     %I the same as ISO 8601
  %C content type      %R response topic     %D correlation data
  %E message expiry    %F payload format     %P user properties
  %S subscription identifiers                %A topic alias, which is always empty
  %% a percent sign    %10t %-10t %010l width, to the left, zeros    %.3t bytes at most
  @Y @m @d @H … parts of the time as strftime has them; @N nanoseconds; @@ an at sign
  \\n \\r \\t \\v \\a \\e \\0 \\\\ as in C    \\x41 a byte

Examples:
  heraldmq sub -v -t 'sensors/#'
  heraldmq sub -t 'jobs/+' -q 1 -c -i worker-1         a session that outlives the connection
  heraldmq sub -t a/b -C 1 -W 5                        one message, within 5 seconds
  heraldmq sub -t '#' -F '%t %q %r %l'

After its connection is lost, the command tries once a second to connect again (with --no-reconnect it ends).

Exit codes: 0 ended as asked or by a signal, 1 refused or disconnected, 2 wrong options, 27 timeout
(-W).";

impl Arguments {
    fn options(&self) -> SubscriptionOptions {
        SubscriptionOptions {
            qos: self.qos,
            no_local: self.no_local,
            retain_as_published: self.retain_as_published,
            retain_handling: match self.retain_handling {
                Handling::Always => RetainHandling::SendAtSubscribe,
                Handling::New => RetainHandling::SendIfNew,
                Handling::Never => RetainHandling::DoNotSend,
            },
        }
    }

    /// The topic filters of -t, and that of the URL.
    fn topics(&self) -> Result<Vec<String>, Failure> {
        let mut topics = self.topic.clone();
        if let Some(topic) = self.connection.topic() {
            topics.push(parse_subscription(topic).map_err(Failure::Usage)?);
        }
        if topics.is_empty() && self.unsubscribe.is_empty() {
            let missing = "the URL has no topic, and there is no -t";
            return Err(Failure::Usage(missing.to_owned()));
        }
        Ok(topics)
    }

    fn is_wanted(&self, publish: &Publish<'_>) -> bool {
        let filtered_out = |filter: &String| filter_matches(filter, publish.topic);
        let stale = self.no_retained && publish.retain;
        !stale && !self.filter_out.iter().any(filtered_out)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.connection.quiet {
        be_quiet();
    }
    let deadline = arguments
        .timeout
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let properties = arguments.connection.properties()?;
    let topics = arguments.topics()?;
    let options = arguments.options();
    let only_qos = SubscriptionOptions {
        qos: options.qos,
        ..SubscriptionOptions::default()
    };
    if !arguments.connection.version().is_v5() && options != only_qos {
        return Err(Failure::Usage(
            "--no-local, --retain-as-published and --retain-handling need MQTT 5 (-V 5)".to_owned(),
        ));
    }
    let format = match &arguments.format {
        Some(format) => format.clone(),
        None if arguments.verbose => Format::verbose(),
        None => Format::plain(),
    };
    let open =
        |earlier| Connection::open(&arguments.connection, &properties, "sub", deadline, earlier);
    // The broker may tell others of the connection before this process knows that it has one.
    let stop = Stop::watch()?;
    let connection = open(None)?;
    if stop.goes_to(&connection) {
        return connection.disconnect();
    }
    let mut subscriber = Subscriber {
        connection,
        arguments,
        topics: &topics,
        format,
        owed: 0,
        printed: 0,
        removals: VecDeque::new(),
        outcome: None,
    };
    loop {
        let lost = match subscriber
            .request()
            .and_then(|()| subscriber.receive(deadline))
        {
            Ok(Outcome::Lost(how)) | Err(Failure::Runtime(how)) if !arguments.no_reconnect => how,
            Ok(outcome) => return subscriber.finish(outcome),
            Err(failure) => return Err(failure),
        };
        complain(&format!("{lost}; connecting again"));
        // As mosquitto_sub: the first connection has to succeed, later ones are tried until they do.
        let connection = loop {
            if stop.wait(deadline) {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(Failure::TimedOut);
            }
            match open(Some(subscriber.connection.client())) {
                Ok(connection) => break connection,
                Err(Failure::Runtime(_)) => {}
                Err(failure) => return Err(failure),
            }
        };
        if stop.goes_to(&connection) {
            return connection.disconnect();
        }
        subscriber.go_on(connection);
    }
}

/// Signals that ask for the end: given to the connection, or noted while it is lost. Before the first one there is nothing to
/// end but the process.
struct Stop {
    asked: Arc<AtomicBool>,
    sink: Arc<Mutex<Option<SyncSender<Event>>>>,
}

impl Stop {
    fn watch() -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|error| Failure::Runtime(format!("cannot watch signals: {error}")))?;
        let stop = Self {
            asked: Arc::default(),
            sink: Arc::default(),
        };
        let (asked, sink) = (Arc::clone(&stop.asked), Arc::clone(&stop.sink));
        thread::spawn(move || {
            for _ in signals.forever() {
                asked.store(true, Ordering::Relaxed);
                match &*sink.lock().unwrap_or_else(PoisonError::into_inner) {
                    // A connection that is lost has nobody to tell.
                    Some(sink) => drop(sink.try_send(Event::Stop)),
                    None => process::exit(0),
                }
            }
        });
        Ok(stop)
    }

    /// From now on signals go to this connection. True: one has come.
    fn goes_to(&self, connection: &Connection<'_>) -> bool {
        *self.sink.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.sender());
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits before the next attempt to connect. True: the end was asked for.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        let next = Instant::now() + RECONNECT;
        let next = deadline.map_or(next, |deadline| deadline.min(next));
        while Instant::now() < next && !self.asked.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        self.asked.load(Ordering::Relaxed)
    }
}

/// Why receiving ends.
enum Outcome {
    /// As asked: enough messages, a signal, nobody reads any more.
    Done,
    TimedOut,
    Refused(String),
    /// The connection is gone, or the broker has ended it; the text says how.
    Lost(String),
    Dismissed(String),
}

struct Subscriber<'a> {
    connection: Connection<'a>,
    arguments: &'a Arguments,
    topics: &'a [String],
    format: Format,
    /// SUBACK and UNSUBACK that have not come yet.
    owed: u32,
    printed: u64,
    /// Topics whose retained message is still to be removed.
    removals: VecDeque<String>,
    outcome: Option<Outcome>,
}

impl<'a> Subscriber<'a> {
    /// Sends SUBSCRIBE and UNSUBSCRIBE.
    fn request(&mut self) -> Result<(), Failure> {
        let arguments = self.arguments;
        if !arguments.unsubscribe.is_empty() {
            let filters: Vec<&str> = arguments.unsubscribe.iter().map(String::as_str).collect();
            self.connection.unsubscribe(&filters)?;
            self.owed += 1;
        }
        if !self.topics.is_empty() {
            let options = arguments.options();
            let filters: Vec<(&str, SubscriptionOptions)> = self
                .topics
                .iter()
                .map(|topic| (topic.as_str(), options))
                .collect();
            self.connection.subscribe(&filters)?;
            self.owed += 1;
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Option<Instant>) -> Result<Outcome, Failure> {
        loop {
            match self.connection.next(deadline)? {
                None => return Ok(Outcome::TimedOut),
                Some(Event::Stop) => return Ok(Outcome::Done),
                Some(Event::Ended(how)) => return Ok(Outcome::Lost(how)),
                Some(Event::Bytes(bytes)) => self.handle(&bytes)?,
                Some(Event::Line(_) | Event::EndOfInput) => {}
            }
            if let Some(outcome) = self.outcome.take() {
                return Ok(outcome);
            }
        }
    }

    fn handle(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut arrival = self.connection.receive(bytes);
        while let Some(event) = self.connection.poll(&mut arrival)? {
            match event {
                PacketEvent::Released {
                    answer: Some(answer),
                    ..
                } => self.connection.answer(answer)?,
                PacketEvent::Acknowledged(ack) if ack.reason.is_error() => {
                    let why = explain(ack.reason, ack.reason_string);
                    complain(&format!(
                        "the broker did not remove a retained message: {why}"
                    ));
                }
                // Messages that come when enough have come are not acknowledged.
                _ if self.outcome.is_some() => {}
                PacketEvent::Message(incoming) => self.deliver(&incoming, true)?,
                // A message of QoS 2 that comes again is acknowledged again, not printed again.
                PacketEvent::Duplicate(incoming) => self.deliver(&incoming, false)?,
                PacketEvent::Subscribed(suback) => self.subscribed(&suback),
                PacketEvent::Unsubscribed(_) => self.acknowledged(),
                PacketEvent::Disconnected(packet) => {
                    let (passes, how) = farewell(&packet);
                    self.outcome = Some(if passes {
                        Outcome::Lost(how)
                    } else {
                        Outcome::Dismissed(how)
                    });
                }
                PacketEvent::Stray { packet_type, .. } => return Err(unexpected(packet_type)),
                _ => {}
            }
        }
        self.remove_more()
    }

    /// Removes retained messages, as many as the broker takes unacknowledged.
    fn remove_more(&mut self) -> Result<(), Failure> {
        while self.connection.in_flight() < usize::from(self.connection.receive_maximum())
            && let Some(topic) = self.removals.pop_front()
        {
            self.connection.publish(Publish {
                dup: false,
                qos: QoS::AtLeastOnce,
                retain: true,
                topic: &topic,
                packet_id: None,
                properties: PublishProperties::default(),
                payload: b"",
            })?;
        }
        Ok(())
    }

    fn subscribed(&mut self, suback: &SubAck<'_>) {
        let mut granted = 0;
        let mut refusal = None;
        for (topic, reason) in self.topics.iter().zip(suback.reasons.iter()) {
            if reason.is_error() {
                let why = explain(reason, suback.properties.reason_string);
                let line = format!("the broker refused the subscription to {topic}: {why}");
                // The last one is the message of the failure.
                if let Some(earlier) = refusal.replace(line) {
                    complain(&earlier);
                }
            } else {
                granted += 1;
            }
        }
        match refusal {
            Some(refusal) if granted == 0 => self.outcome = Some(Outcome::Refused(refusal)),
            Some(refusal) => {
                complain(&refusal);
                self.acknowledged();
            }
            None => self.acknowledged(),
        }
    }

    fn acknowledged(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        if self.owed == 0 && self.arguments.exit_after_subscribe {
            self.outcome = Some(Outcome::Done);
        }
    }

    fn deliver(&mut self, incoming: &Incoming<'_>, is_new: bool) -> Result<(), Failure> {
        let publish = &incoming.publish;
        if self.arguments.retained_only && !publish.retain {
            self.outcome = Some(Outcome::Done);
            return Ok(());
        }
        if is_new && self.arguments.is_wanted(publish) {
            if self.is_drawn() && self.print(publish).is_err() {
                self.outcome = Some(Outcome::Done);
                return Ok(());
            }
            self.printed += 1;
            if self.arguments.remove_retained && publish.retain {
                self.removals.push_back(publish.topic.to_owned());
            }
            if self.arguments.count == Some(self.printed) {
                self.outcome = Some(Outcome::Done);
            }
        }
        match incoming.answer {
            Some(answer) => self.connection.answer(answer),
            None => Ok(()),
        }
    }

    /// Whether a message is among those that are printed, by chance.
    fn is_drawn(&self) -> bool {
        let share = self.arguments.random_filter / 100.0;
        share >= 1.0 || rand::random::<f64>() < share
    }

    fn print(&self, publish: &Publish<'_>) -> io::Result<()> {
        let mut line = Vec::new();
        let is_pretty = self.arguments.pretty;
        let printed = self
            .format
            .append(publish, &Zoned::now(), is_pretty, &mut line);
        if let Err(NotJson) = printed {
            let topic = publish.topic;
            complain(&format!("the payload of a message on {topic} is not JSON"));
            return Ok(());
        }
        if !self.arguments.no_newline {
            line.push(b'\n');
        }
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    }

    /// Another connection takes the place of one that was lost.
    fn go_on(&mut self, connection: Connection<'a>) {
        self.owed = 0;
        self.connection = connection;
    }

    /// Completes what was printed, and disconnects. Messages that come meanwhile are not
    /// acknowledged: in a session that is kept, they come again.
    fn finish(mut self, outcome: Outcome) -> Result<(), Failure> {
        if let Outcome::Lost(how) | Outcome::Dismissed(how) = outcome {
            return Err(Failure::Runtime(how));
        }
        let patience = Instant::now() + PATIENCE;
        // From now on, messages are not for here.
        self.outcome = Some(Outcome::Done);
        self.remove_more()?;
        while self.connection.is_awaiting_release() || self.connection.in_flight() > 0 {
            let Some(Event::Bytes(bytes)) = self.connection.next(Some(patience))? else {
                break;
            };
            self.handle(&bytes)?;
        }
        self.connection.disconnect()?;
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::TimedOut => Err(Failure::TimedOut),
            Outcome::Refused(why) | Outcome::Lost(why) | Outcome::Dismissed(why) => {
                Err(Failure::Runtime(why))
            }
        }
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    let share = share.filter(|share| (0.1..=100.0).contains(share));
    share.ok_or_else(|| "a number from 0.1 to 100".to_owned())
}

fn parse_filter(text: &str) -> Result<String, String> {
    validate_topic_filter(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// A topic filter, or a shared subscription.
fn parse_subscription(text: &str) -> Result<String, String> {
    SubscriptionFilter::parse(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}
