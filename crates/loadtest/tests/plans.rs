//! Plans of each topology against a small broker that does right: nothing is lost, and sessions begin
//! and end as the plan says.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use loadtest::verify::Faults;
use loadtest::{Measured, Plan, Process, Settings, Target, measure};
use mqtt_proto::{
    AckProperties, ConnAck, ConnAckProperties, Packet, ProtocolVersion, PubAck, Publish,
    PublishProperties, QoS, ReasonCode, ReasonCodes, SubAck, peek_frame,
};

const VERSION: ProtocolVersion = ProtocolVersion::V5;

/// What a client said of its session.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Session {
    subscribes: bool,
    clean_start: bool,
    expiry: Option<u32>,
    /// Of its DISCONNECT, if it sent one.
    expiry_at_end: Option<u32>,
}

/// Delivers at QoS 0 whatever it gets, and grants every subscription.
#[derive(Default)]
struct Broker {
    /// By filter, without `$share/group/`: whether it is shared, and who wants it.
    subscriptions: HashMap<String, (bool, Vec<TcpStream>)>,
    sessions: Vec<Session>,
    connections: usize,
}

impl Broker {
    fn start() -> (SocketAddr, Arc<Mutex<Self>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let broker = Arc::new(Mutex::new(Self::default()));
        let shared = broker.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, broker) = (stream.unwrap(), shared.clone());
                broker.lock().unwrap().connections += 1;
                thread::spawn(move || serve(stream, &broker));
            }
        });
        (address, broker)
    }

    fn subscribe(&mut self, filter: &str, stream: &TcpStream) {
        let plain = filter.strip_prefix("$share/group/");
        let key = plain.unwrap_or(filter).to_owned();
        let (is_shared, wanting) = self.subscriptions.entry(key).or_default();
        *is_shared = plain.is_some();
        wanting.push(stream.try_clone().unwrap());
    }

    fn deliver(&mut self, topic: &str, payload: &[u8]) {
        let publish = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic,
            packet_id: None,
            properties: PublishProperties::default(),
            payload,
        };
        let mut frame = Vec::new();
        publish.encode(VERSION, &mut frame).unwrap();
        let (parent, _) = topic.rsplit_once('/').unwrap();
        for filter in [topic.to_owned(), format!("{parent}/+")] {
            let Some((is_shared, wanting)) = self.subscriptions.get_mut(&filter) else {
                continue;
            };
            let count = if *is_shared { 1 } else { wanting.len() };
            wanting.rotate_left(1);
            for stream in wanting.iter_mut().take(count) {
                stream.write_all(&frame).unwrap();
            }
        }
    }
}

/// One connection until it closes; what it was is in `sessions` then.
fn serve(mut stream: TcpStream, broker: &Mutex<Broker>) {
    let mut session = Session {
        subscribes: false,
        clean_start: false,
        expiry: None,
        expiry_at_end: None,
    };
    let mut pending = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(count) => pending.extend_from_slice(&chunk[..count]),
        }
        while let Some(header) = peek_frame(&pending, Some(VERSION)).unwrap()
            && pending.len() >= header.len()
        {
            let frame: Vec<u8> = pending.drain(..header.len()).collect();
            let mut answer = Vec::new();
            match Packet::decode(&frame, VERSION).unwrap() {
                Packet::Connect(connect) => {
                    session.clean_start = connect.clean_start;
                    session.expiry = connect.properties.session_expiry_interval;
                    let ack = ConnAck {
                        session_present: false,
                        reason: ReasonCode::Success,
                        properties: ConnAckProperties::default(),
                    };
                    ack.encode(VERSION, &mut answer).unwrap();
                }
                Packet::Subscribe(subscribe) => {
                    session.subscribes = true;
                    for (filter, _) in subscribe.filters.iter() {
                        broker.lock().unwrap().subscribe(filter, &stream);
                    }
                    let granted = [ReasonCode::Success];
                    let ack = SubAck {
                        packet_id: subscribe.packet_id,
                        properties: AckProperties::default(),
                        reasons: ReasonCodes::from(granted.as_slice()),
                    };
                    ack.encode(VERSION, &mut answer).unwrap();
                }
                Packet::Publish(publish) => {
                    let mut broker = broker.lock().unwrap();
                    broker.deliver(publish.topic, publish.payload);
                    if let Some(packet_id) = publish.packet_id {
                        let ack = PubAck {
                            packet_id,
                            reason: ReasonCode::Success,
                            properties: AckProperties::default(),
                        };
                        ack.encode(VERSION, &mut answer).unwrap();
                    }
                }
                Packet::Disconnect(disconnect) => {
                    session.expiry_at_end = disconnect.properties.session_expiry_interval;
                }
                other => panic!("{other:?}"),
            }
            if !answer.is_empty() {
                // Under the lock, so that no delivery gets between its bytes.
                let _broker = broker.lock().unwrap();
                stream.write_all(&answer).unwrap();
            }
        }
    }
    broker.lock().unwrap().sessions.push(session);
}

fn play(name: &str, connections: f64, rates: f64) -> (Measured, Vec<Session>) {
    let (address, broker) = Broker::start();
    let plan = name.parse::<Plan>().unwrap().scaled(connections, rates);
    let settings = Settings {
        target: Target {
            address,
            sources: Vec::new(),
        },
        version: VERSION,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_millis(500),
        broker: Some(Process::own()),
    };
    let measured = measure(&plan, &settings).unwrap();
    assert_eq!(measured.outcome.faults, Faults::default(), "{name}");
    assert_eq!(
        measured.outcome.connecting.len(),
        plan.connections() as u64,
        "{name}"
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let state = broker.lock().unwrap();
        assert_eq!(state.connections, plan.connections(), "{name}");
        if state.sessions.len() == state.connections {
            return (measured, state.sessions.clone());
        }
        drop(state);
        assert!(Instant::now() < deadline, "{name}: a connection stays open");
        thread::yield_now();
    }
}

/// Deliveries for each message sent.
fn check_deliveries(name: &str, connections: f64, rates: f64, expected: u64) -> Measured {
    let (measured, _) = play(name, connections, rates);
    let totals = measured.outcome.totals;
    assert!(totals.sent > 0, "{name}");
    assert_eq!(totals.delivered, totals.sent * expected, "{name}");
    if measured.plan.qos > QoS::AtMostOnce {
        assert_eq!(totals.acknowledged, totals.sent, "{name}");
    }
    let json = measured.json();
    assert_eq!(json["whole_run"]["lost"], 0, "{name}");
    assert!(
        json["broker"]["resident_bytes"].as_u64() > Some(0),
        "{name}"
    );
    measured
}

#[test]
fn each_topology_gets_all_of_its_messages() {
    check_deliveries("2k_2k_qos1_p32_100mps_1n", 0.005, 0.5, 1);
    check_deliveries("100k_1000_qos0_p256_1mps_1n", 0.003, 1.0, 1);
    check_deliveries("1_100000_qos0_p256_1mps_1n", 0.0001, 1.0, 10);
    check_deliveries("qos0-p256-4-40K", 0.001, 1.0, 10);
    check_deliveries("qos1-p64-15K-15K", 0.002, 1.0, 1);
    let name = "100M publishers, 500 APPLICATION subscribers, 1 h";
    check_deliveries(name, 0.000_004, 1.0, 1);
}

#[test]
fn a_fan_in_counts_what_the_broker_took() {
    let measured = check_deliveries("qos1-p256-30K-0", 0.001, 1.0, 0);
    assert_eq!(measured.plan.connections(), 3 + 100);
    assert!(measured.messages() > 0);
    assert_eq!(measured.messages(), measured.totals.acknowledged);
}

#[test]
fn idle_connections_come_at_the_rate_of_the_plan() {
    let (measured, sessions) = play("conn-tcp-1M-5K_1n_false", 0.000_1, 0.1);
    assert_eq!(sessions.len(), 100);
    // 100 at 500 per second, the first at once.
    let expected = Duration::from_millis(198);
    assert!(measured.connect_time >= expected, "{measured}");
    assert_eq!(measured.outcome.totals.sent, 0);
    assert!(measured.to_string().contains("connects/s"), "{measured}");
}

#[test]
fn persistent_sessions_are_the_subscribers_and_end_with_the_run() {
    let (_, sessions) = play("15k_15k_qos1_p256_1mps_1n_1v", 0.001, 1.0);
    let (persistent, clean): (Vec<_>, Vec<_>) = sessions.iter().partition(|s| s.subscribes);
    assert_eq!((persistent.len(), clean.len()), (15, 15));
    for session in persistent {
        assert!(!session.clean_start && session.expiry > Some(60));
        assert_eq!(session.expiry_at_end, Some(0));
    }
    assert!(clean.iter().all(|s| s.clean_start && s.expiry.is_none()));
}

#[test]
fn clean_sessions_are_clean() {
    let (_, sessions) = play("2k_2k_qos0_p32_100mps_1n", 0.001, 0.1);
    assert_eq!(sessions.len(), 4);
    assert!(sessions.iter().all(|s| s.clean_start && s.expiry.is_none()));
}
