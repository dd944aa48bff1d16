//! Nanoseconds per decision when the last of 10, 1,000 or 100,000 rules decides. `HERALD_BENCH_SMOKE=1`
//! runs each once only, to see that it works.

use std::hint::black_box;
use std::time::{Duration, Instant};

use herald_authorization::{Action, Client, Rules};

/// Prints the best of nine rounds: on a shared machine the fastest round is the least disturbed one.
#[expect(clippy::print_stdout, reason = "the report of a benchmark")]
fn measure(name: &str, mut run: impl FnMut()) {
    let smoke = std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let (rounds, round_time) = if smoke {
        (1, Duration::ZERO)
    } else {
        (9, Duration::from_millis(60))
    };
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        let mut runs = 0_u32;
        loop {
            run();
            runs += 1;
            if start.elapsed() >= round_time {
                break;
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(runs));
    }
    println!("{name:<44} {best:>10.1} ns");
}

fn main() {
    let client = Client {
        client_id: "device-0",
        username: Some("user-0"),
        address: Some([10, 0, 0, 7].into()),
    };
    let ask = |rules: &Rules, topic: &str| {
        let decision = rules.decide(black_box(&client), Action::Publish, black_box(topic));
        assert!(black_box(decision).is_some());
    };
    for count in [10, 1_000, 100_000] {
        let users: String = (1..count)
            .map(|n| format!("allow user \"user-{n}\" all users/{n}/#\n"))
            .collect();
        let users = Rules::parse(&format!("{users}deny all all\n")).expect("rules");
        measure(&format!("{count} rules, each for another user"), || {
            ask(&users, "plant/7/device/1234/up");
        });
        let everybody: String = (1..count)
            .map(|n| format!("allow all all plant/{n}/device/%c/#\n"))
            .collect();
        let everybody = Rules::parse(&format!("{everybody}deny all all\n")).expect("rules");
        measure(&format!("{count} rules, all for everybody"), || {
            ask(&everybody, "plant/0/device/1234/up");
        });
    }
}
