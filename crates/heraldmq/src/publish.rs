//! `heraldmq pub`: publishes a message, or each line of standard input.

use std::{
    fs,
    io::{self, BufRead, Read},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use mqtt_client::Event as PacketEvent;
use mqtt_proto::{PacketType, Publish, QoS, validate_topic_name};

use text_table::units::counted;

use crate::{
    client::{
        Connection, ConnectionOptions, Event, Properties, explain, farewell, parse_qos,
        unencodable, unexpected,
    },
    failure::{Failure, be_quiet},
};

/// Messages of QoS 1 and 2 that wait for their acknowledgement at a time, if the broker allows.
const WINDOW: usize = 100;

/// Publish messages, like mosquitto_pub.
#[derive(clap::Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Topic name to publish to.
    #[arg(short, long, required_unless_present = "url", value_parser = parse_topic)]
    topic: Option<String>,
    #[command(flatten)]
    payload: Payload,
    /// Quality of service: 0, 1 or 2.
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// Let the broker retain the message.
    #[arg(short, long)]
    retain: bool,
    /// Publish the message this many times.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        conflicts_with = "stdin_line"
    )]
    repeat: u32,
    /// Seconds between repetitions.
    #[arg(long, value_name = "SECONDS", requires = "repeat", default_value = "0", value_parser = parse_delay)]
    repeat_delay: Duration,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// Where the payload comes from: exactly one of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Payload {
    /// Publish this text.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
    /// Publish the content of this file.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Publish each line of standard input as a message.
    #[arg(short = 'l', long)]
    stdin_line: bool,
    /// Publish all of standard input as one message.
    #[arg(short = 's', long)]
    stdin_file: bool,
    /// Publish a message without a payload; with -r, this removes the retained message.
    #[arg(short, long)]
    null_message: bool,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq pub -t sensors/a -m 21.5
  heraldmq pub -t sensors/a -m 21.5 -q 1 -r
  heraldmq pub -t sensors/a -n -r                        remove the retained message
  tail -f readings.txt | heraldmq pub -t sensors/a -l -q 1
  heraldmq pub -t job -f job.json -D publish content-type application/json

Exit codes: 0 all messages are published (QoS 1 and 2: acknowledged), 1 some are not, 2 wrong options.";

impl Arguments {
    /// The topic of -t, or else that of the URL.
    fn topic(&self) -> Result<String, Failure> {
        let of_url = || {
            let missing = || Failure::Usage("the URL has no topic, and there is no -t".to_owned());
            let topic = self.connection.topic().ok_or_else(missing)?;
            parse_topic(topic).map_err(Failure::Usage)
        };
        self.topic.clone().map_or_else(of_url, Ok)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.connection.quiet {
        be_quiet();
    }
    let topic = arguments.topic()?;
    let properties = arguments.connection.properties()?;
    // Before connecting, so that a missing file costs the broker nothing.
    let payload = match &arguments.payload {
        Payload {
            stdin_line: true, ..
        } => None,
        Payload {
            message: Some(text),
            ..
        } => Some(text.clone().into_bytes()),
        Payload {
            file: Some(path), ..
        } => Some(read_file(path)?),
        Payload {
            stdin_file: true, ..
        } => Some(read_stdin()?),
        Payload { .. } => Some(Vec::new()),
    };
    let connection = Connection::open(&arguments.connection, &properties, "pub", None, None)?;
    connection.check_publish(arguments.qos, arguments.retain)?;
    let mut publisher = Publisher {
        window: WINDOW.min(connection.receive_maximum().into()),
        connection,
        arguments,
        topic,
        properties: &properties,
        published: 0,
        refusals: Vec::new(),
    };
    match payload {
        Some(payload) => publisher.repeat(&payload)?,
        None => publisher.lines()?,
    }
    publisher.finish()
}

struct Publisher<'a> {
    connection: Connection<'a>,
    arguments: &'a Arguments,
    topic: String,
    properties: &'a Properties,
    window: usize,
    published: u64,
    refusals: Vec<String>,
}

impl Publisher<'_> {
    fn repeat(&mut self, payload: &[u8]) -> Result<(), Failure> {
        for turn in 0..self.arguments.repeat {
            if turn > 0 && !self.arguments.repeat_delay.is_zero() {
                let due = Instant::now() + self.arguments.repeat_delay;
                while let Some(event) = self.connection.next(Some(due))? {
                    self.handle(event)?;
                }
            }
            self.publish(payload)?;
        }
        Ok(())
    }

    /// Publishes each line of standard input. One line at a time is asked for, so that lines wait
    /// in the pipe, not here, while the window is full.
    fn lines(&mut self) -> Result<(), Failure> {
        let (ask, asked) = sync_channel(1);
        let sink = self.connection.sender();
        thread::spawn(move || read_lines(&asked, &sink));
        loop {
            // The reader takes requests until it has sent its last event.
            let _ = ask.send(());
            loop {
                match self.next()? {
                    Event::Line(line) => {
                        self.publish(&line)?;
                        break;
                    }
                    Event::EndOfInput => return Ok(()),
                    other => self.handle(other)?,
                }
            }
        }
    }

    fn publish(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.settle(self.window - 1)?;
        let mut buffer = Vec::new();
        self.connection.publish(Publish {
            dup: false,
            qos: self.arguments.qos,
            retain: self.arguments.retain,
            topic: &self.topic,
            packet_id: None,
            properties: self.properties.publish(&mut buffer).map_err(unencodable)?,
            payload,
        })?;
        self.published += 1;
        Ok(())
    }

    /// Waits until at most `most` messages are in flight.
    fn settle(&mut self, most: usize) -> Result<(), Failure> {
        while self.connection.in_flight() > most {
            let event = self.next()?;
            self.handle(event)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Event, Failure> {
        match self.connection.next(None)? {
            Some(event) => Ok(event),
            None => unreachable!("without a deadline, waiting ends with an event"),
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        let bytes = match event {
            Event::Bytes(bytes) => bytes,
            Event::Ended(how) => return Err(Failure::Runtime(how)),
            Event::Line(_) | Event::EndOfInput | Event::Stop => return Ok(()),
        };
        let mut arrival = self.connection.receive(&bytes);
        while let Some(event) = self.connection.poll(&mut arrival)? {
            match event {
                PacketEvent::Acknowledged(ack) if ack.reason.is_error() => {
                    self.refusals.push(explain(ack.reason, ack.reason_string));
                }
                PacketEvent::Disconnected(packet) => {
                    return Err(Failure::Runtime(farewell(&packet).1));
                }
                PacketEvent::Stray {
                    packet_type: packet_type @ (PacketType::SubAck | PacketType::UnsubAck),
                    ..
                } => return Err(unexpected(packet_type)),
                // A session that was kept may have messages waiting; they are not for here, and
                // unacknowledged they stay with the broker.
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.settle(0)?;
        self.connection.disconnect()?;
        match self.refusals.first() {
            None => Ok(()),
            Some(first) if self.published == 1 => Err(Failure::Runtime(format!(
                "the broker refused the message: {first}"
            ))),
            Some(first) => Err(Failure::Runtime(format!(
                "the broker refused {} of {}, the first with: {first}",
                self.refusals.len(),
                counted(self.published, "message", "messages")
            ))),
        }
    }
}

/// Sends a line for each request, and an end when there is none.
fn read_lines(asked: &Receiver<()>, sink: &SyncSender<Event>) {
    let mut input = io::stdin().lock();
    while asked.recv().is_ok() {
        let mut line = Vec::new();
        let event = match input.read_until(b'\n', &mut line) {
            Ok(0) => Event::EndOfInput,
            Ok(_) => {
                if line.ends_with(b"\n") {
                    line.pop();
                }
                Event::Line(line)
            }
            Err(error) => Event::Ended(format!("standard input cannot be read: {error}")),
        };
        if sink.send(event).is_err() {
            return;
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::Runtime(format!("standard input cannot be read: {error}")))?;
    Ok(bytes)
}

fn parse_topic(text: &str) -> Result<String, String> {
    validate_topic_name(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected seconds, 0 or more".to_owned())
}
