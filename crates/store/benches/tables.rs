//! What tables cost: writing checkpoints, loading by one scan, reading single keys, the table of a split's
//! child, and the space of queues that fill and drain.
//!
//! `cargo bench -p herald-store` prints the figures; with `--test`, or `HERALD_BENCH_SMOKE=1` in the
//! environment, few records only prove that it runs. CPU is that of the one thread that does all. Records
//! have 300 bytes, of which the key has 20; values cannot be compressed.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]
#![expect(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::Instant;

use store::{RowFilter, ShardTable, Tables, TablesOptions};
use store_state::{Changes, DESCRIPTOR_KEY, Descriptor, SlotRange, Table};

const RECORD_BYTES: usize = 300;
/// Records of a checkpoint: about 16 MB.
const CHECKPOINT: u64 = 55_000;

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test")
        || std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let records: u64 = if smoke { 2_000 } else { 1_000_000 };
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let tables = Tables::open(folder.path(), TablesOptions::default()).unwrap();
        tables.shard(1).unwrap()
    };

    println!("{records} records of {RECORD_BYTES} bytes");
    let table = open();
    measure("write, with maintenance", records, || {
        write(&table, 0..records, Some(&mut Random(7)));
    });
    println!(
        "disk {} MB for {} MB; {}",
        table.disk_bytes() / 1_000_000,
        records * RECORD_BYTES as u64 / 1_000_000,
        memory()
    );

    drop(table);
    let table = measure("open", 1, open);
    measure("load by one scan", records, || {
        let mut seen = 0;
        table
            .range(&[], &[0xFF; 21], &mut |_, _| {
                seen += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(seen, records);
    });
    let mut random = Random(9);
    let reads = records / 10;
    measure("read random keys", reads, || {
        for _ in 0..reads {
            let key = key(random.next() % records);
            assert!(table.get(&key).unwrap().is_some());
        }
    });
    measure("read keys that are not there", reads, || {
        for _ in 0..reads {
            let key = key(records + random.next() % records);
            assert!(table.get(&key).unwrap().is_none());
        }
    });
    println!("{}", memory());
    drop(table);
    seed(folder.path());
    let table = open();

    let queued = records * 7 / 2;
    println!("\n{queued} records are queued and drained, in rounds");
    for round in 1..=3 {
        let numbers = records * 10 * round..records * 10 * round + queued;
        measure("queue", queued, || {
            write(&table, numbers.clone(), Some(&mut Random(round)));
        });
        let full = table.disk_bytes();
        measure("drain", queued, || write(&table, numbers, None));
        println!(
            "round {round}: {} MB full, {} MB drained; {}",
            full / 1_000_000,
            table.disk_bytes() / 1_000_000,
            memory()
        );
    }
}

/// Makes the table of a child of the shard's, five times, and has the foreign rows of the last one removed.
fn seed(folder: &Path) {
    let keeps: RowFilter = |key, range| match key {
        [_, high, low, ..] => range.contains(u16::from_be_bytes([*high, *low])),
        _ => true,
    };
    let options = TablesOptions {
        keeps,
        ..TablesOptions::default()
    };
    let tables = Tables::open(folder, options).unwrap();
    let parent = tables.shard(1).unwrap();
    let child = Descriptor::first(SlotRange::ALL).split_off(1 << 15);
    let mut changes = Changes::default();
    changes.put(DESCRIPTOR_KEY.to_vec(), child.to_row());
    for number in 0..1_000 {
        changes.put(key(number), Random(number + 1).value());
    }
    let mut made = None;
    for _ in 0..5 {
        drop(made.take());
        tables.remove(2).unwrap();
        let table = measure("make a child's table", 1, || {
            tables.seed(2, &parent, &changes, b"child").unwrap()
        });
        made = Some(table);
    }
    let table = made.unwrap();
    let files = fs::read_dir(folder.join("shard-0000000000000002/tables")).unwrap();
    println!(
        "{} files, {} MB",
        files.count(),
        table.disk_bytes() / 1_000_000
    );
    measure("remove its foreign rows", 1, || table.maintain().unwrap());
    println!("{} MB are left", table.disk_bytes() / 1_000_000);
    drop(table);
    tables.remove(2).unwrap();
}

/// Writes records in checkpoints, or removes them; after each, what maintenance is due.
fn write(table: &ShardTable, numbers: Range<u64>, mut values: Option<&mut Random>) {
    let mut first = numbers.start;
    while first < numbers.end {
        let end = numbers.end.min(first + CHECKPOINT);
        let mut changes = Changes::default();
        for number in first..end {
            match &mut values {
                Some(random) => changes.put(key(number), random.value()),
                None => changes.delete(key(number)),
            }
        }
        table.write(&changes, &end.to_be_bytes()).unwrap();
        table.maintain().unwrap();
        first = end;
    }
}

/// Keys like those of queues: spread over sessions, rising within one.
fn key(number: u64) -> Vec<u8> {
    let session = (number % 1_000).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = Vec::with_capacity(20);
    key.extend_from_slice(&session.to_be_bytes());
    key.extend_from_slice(b"msg.");
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn value(&mut self) -> Vec<u8> {
        let mut value = Vec::with_capacity(RECORD_BYTES);
        while value.len() < RECORD_BYTES - 20 {
            value.extend_from_slice(&self.next().to_le_bytes());
        }
        value
    }
}

fn measure<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let (start, cpu, written) = (Instant::now(), cpu_ns(), written());
    let made = work();
    let took = start.elapsed();
    let cpu = cpu_ns().saturating_sub(cpu);
    println!(
        "{what:<30} {:>8.3} s  {:>7.2} MB/s  {:>7.2} µs each  {:>7.2} µs CPU  {:>5} MB to disk",
        took.as_secs_f64(),
        (count * RECORD_BYTES as u64) as f64 / 1e6 / took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / count as f64,
        cpu as f64 / 1e3 / count as f64,
        (self::written() - written) / 1_000_000
    );
    made
}

/// Nanoseconds of CPU this thread has used.
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Bytes this process has written to storage.
fn written() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find(|line| line.starts_with("write_bytes:"));
    line.unwrap()[12..].trim().parse().unwrap()
}

fn memory() -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let mib = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1_024
    };
    format!("{} MiB of memory, {} at most", mib("VmRSS"), mib("VmHWM"))
}
