use super::*;
use ::report::{Machine, SystemUsage};

/// All that these tests need is set: 31.2 ms, 0.5 % lost, half of two cores, 3 GB.
fn record() -> Record {
    let latency = |p99_ms| Latency {
        count: 1_000,
        mean_ms: 0.000_123,
        p50_ms: 1.001,
        p95_ms: 20.0,
        p99_ms,
        p999_ms: 20.0001,
        max_ms: 1_500.0,
        buckets_ns: Vec::new(),
    };
    let process = |resident_bytes_max| SystemUsage {
        name: "pid 1 (broker)".to_owned(),
        cpu_user_s: 4.0,
        cpu_system_s: 1.0,
        connecting_cpu_s: 0.0,
        resident_bytes_before: 0,
        resident_bytes: 1,
        resident_bytes_max,
    };
    Record {
        format: ::report::FORMAT,
        tool: String::new(),
        scenario: String::new(),
        label: String::new(),
        reading: String::new(),
        started_at: String::new(),
        settings: Vec::new(),
        machine: Machine {
            cores: 2,
            ..Machine::default()
        },
        published: None,
        columns: report::Columns::default(),
        load: report::Load::default(),
        connections: 200,
        connect_seconds: 1.0,
        seconds: 10.0,
        asked_per_second: 100.0,
        messages_per_second: 99.0,
        counts: Counts {
            sent: 1_000,
            acknowledged: 0,
            delivered: 1_000,
            lost: 5,
            duplicated: 4,
            reordered: 10,
            stray: 1,
            disconnects: 2,
        },
        latencies: Latencies {
            deliver: Some(latency(31.2)),
            connect: Some(latency(7.0)),
            ..Latencies::default()
        },
        headline: "deliver".to_owned(),
        system: vec![process(1_000_000_000), process(2_000_000_000)],
        tool_cpu_user_s: 0.0,
        tool_cpu_system_s: 0.0,
        workers: 1,
        samples: Vec::new(),
        publishers: Vec::new(),
        parts: Vec::new(),
        warnings: Vec::new(),
    }
}

fn judge(text: &str, record: &Record) -> Verdict {
    text.parse::<Criteria>().unwrap().judge(record)
}

fn holds(text: &str) {
    let verdict = judge(text, &record());
    assert!(verdict.holds, "{text}: {:?}", verdict.broken);
    assert!(verdict.broken.is_empty());
}

fn breaks(text: &str, sentences: &[&str]) {
    let verdict = judge(text, &record());
    assert!(!verdict.holds, "{text}");
    assert_eq!(verdict.broken, sentences, "{text}");
}

fn refused(text: &str, sentence: &str) {
    let error = text.parse::<Criteria>().unwrap_err().to_string();
    assert!(error.starts_with(sentence), "{text}: {error}");
}

#[test]
fn times_are_compared_in_any_unit() {
    holds("mean=123ns, mean=0.123us, mean<0.2µs, mean<0.2μs, p50=1.001ms, p50=1001us");
    holds("p95<=20ms, p95>=0.02s, p99>31ms, p99.9<21ms, p999>20ms, max<2s");
    breaks("p99<20ms", &["p99 31.2 ms is not < 20 ms"]);
    breaks("p99<20000us", &["p99 31200 us is not < 20000 us"]);
    breaks("max<1s", &["max 1.5 s is not < 1 s"]);
}

#[test]
fn rounding_never_hides_why_a_criterion_is_broken() {
    breaks("p999<=20ms", &["p999 20.0001 ms is not <= 20 ms"]);
}

#[test]
fn a_latency_can_be_named() {
    holds("connect.p99<=7ms, deliver.p99.9<21ms");
    breaks("connect.p99<7ms", &["connect.p99 7 ms is not < 7 ms"]);
}

#[test]
fn the_headline_latency_is_the_one_of_the_record() {
    let mut record = record();
    record.latencies.acknowledge = record.latencies.connect.take();
    record.headline = "acknowledge".to_owned();
    assert!(judge("p99=7ms,ack.p99=7ms", &record).holds);
}

#[test]
fn counts_and_their_shares() {
    holds("loss=5,lost<6,duplicated<=4,reordered=10,stray=1,disconnects=2");
    holds("loss=0.5%,duplicated=0.4%,reordered=1%,stray=0.1%,disconnects=1%");
    breaks("loss=0", &["loss 5 is not = 0"]);
    breaks("loss<0.01%", &["loss 0.5% is not < 0.01%"]);
}

#[test]
fn cpu_and_memory_are_of_all_processes_together() {
    holds("cpu=50%, memory=3GB, memory=3000000KB, memory>2.7GiB");
    breaks("cpu<50%", &["cpu 50% is not < 50%"]);
    breaks("memory<2.5GB", &["memory 3 GB is not < 2.5 GB"]);
}

#[test]
fn sizes_are_compared_in_any_unit() {
    let mut large = record();
    large.system.truncate(1);
    large.system[0].resident_bytes_max = 1 << 40;
    let binary = "memory=1TiB,memory=1024GiB,memory=1048576MiB,memory=1073741824KiB";
    assert!(judge(binary, &large).holds);
    large.system[0].resident_bytes_max = 1_000_000_000_000;
    let decimal = "memory=1TB,memory=1000GB,memory=1000000MB,memory=1000000000KB";
    assert!(judge(decimal, &large).holds);
    assert!(judge("memory=1000000000000B", &large).holds);
}

#[test]
fn whole_percents_are_exact() {
    let mut record = record();
    record.messages_per_second = 29.0;
    assert!(judge("rate=29%", &record).holds);
}

#[test]
fn a_rate_that_was_not_kept_up_does_not_hold() {
    let mut slow = record();
    slow.messages_per_second = 71.0;
    let sentence = "rate 71% is not >= 98%";
    assert_eq!(judge("loss=5", &slow).broken, [sentence]);
    assert!(judge("rate>=71%", &slow).holds);
    assert_eq!(judge("rate>=72%", &slow).broken.len(), 1);
}

#[test]
fn where_no_messages_are_asked_for_only_a_given_rate_is_judged() {
    let mut idle = record();
    idle.asked_per_second = 0.0;
    idle.messages_per_second = 0.0;
    assert!(judge("connect.p99<1s", &idle).holds);
    let sentence = "rate was not measured: no messages were asked for";
    assert_eq!(judge("rate>=1%", &idle).broken, [sentence]);
}

#[test]
fn what_was_not_measured_does_not_hold() {
    let mut bare = record();
    bare.system.clear();
    bare.latencies = Latencies::default();
    bare.counts = Counts::default();
    let figures = "p99<1s,ack.max<1s,cpu<100%,memory<1TB,loss<1%";
    let broken = judge(figures, &bare).broken;
    assert_eq!(
        broken,
        [
            "p99 was not measured: no such latency was recorded",
            "ack.max was not measured: no such latency was recorded",
            "cpu was not measured: no process of the broker was watched",
            "memory was not measured: no process of the broker was watched",
            "loss was not measured: there was nothing to have a share of",
        ]
    );
}

#[test]
fn what_is_no_number_does_not_hold() {
    let mut odd = record();
    odd.messages_per_second = f64::NAN;
    for criterion in ["rate<1%", "rate<=1%", "rate=1%", "rate>=1%", "rate>1%"] {
        assert!(!judge(criterion, &odd).holds, "{criterion}");
    }
    odd.asked_per_second = f64::NAN;
    assert!(!judge("loss=5", &odd).holds);
}

#[test]
fn criteria_are_written_as_they_are_read() {
    let text = "p99<20ms,connect.max<=1.5s,loss=0,lost<0.01%,cpu<80%,memory>1GiB,rate>=99%";
    let written = text.parse::<Criteria>().unwrap().to_string();
    assert_eq!(written, text.replace("lost", "loss"));
    let again = written.parse::<Criteria>().unwrap().to_string();
    assert_eq!(again, written);
    let spaced = " p99.9 < 20 MS , loss = 0".parse::<Criteria>().unwrap();
    assert_eq!(spaced.to_string(), "p999<20ms,loss=0");
}

#[test]
fn errors_name_the_wrong_part_and_what_is_allowed() {
    refused("", "`` should be a figure, one of");
    refused("p99<1ms,,loss=0", "`` should be a figure, one of");
    refused("p99<1,5ms", "`1` for p99 should be a time in ns");
    refused("p99", "`p99` should be a figure, one of");
    refused("loss==0", "`==` should be one of < <= = >= >");
    refused("loss!=0", "`!=` should be one of");
    refused("lattency<1ms", "`lattency` is no figure; the nearest is");
    refused("p9<1ms", "`p9` is no figure; the nearest is `p95`");
    refused(
        "connect-p99<1ms",
        "`connect-p99` is no figure; the nearest is `connect.p99`",
    );
    refused("p99<20", "`20` for p99 should be a time in ns");
    refused("p99<20GB", "`20GB` for p99 should be a time in ns");
    refused("p99<-1ms", "`-1ms` for p99 should be a time");
    refused("p99<1.2.3ms", "`1.2.3ms` for p99 should be a time");
    refused("loss<", "`` for loss should be a whole number");
    refused("loss<0.01", "`0.01` for loss should be a whole number");
    refused("memory<2", "`2` for memory should be a size");
    refused("cpu<80", "`80` for cpu should be in percent");
    let endless = format!("p99<{}ms", "9".repeat(400));
    refused(&endless, "`999");
}
