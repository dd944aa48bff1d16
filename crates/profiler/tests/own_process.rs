//! Profiles of the process of this test. One test: a process has one profile at a time.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use profiler::{CpuSampling, Hertz, Refused};

const PATIENCE: Duration = Duration::from_secs(60);

#[inline(never)]
fn burn(rounds: u64) -> u64 {
    (0..rounds).fold(0, |sum, round| black_box(sum ^ round.rotate_left(7)))
}

/// Calls itself, so that stacks are deep.
#[inline(never)]
fn descend(levels: u32) -> u64 {
    match levels {
        0 => burn(20_000),
        _ => black_box(descend(levels - 1)) + 1,
    }
}

#[test]
fn a_thread_that_works_is_seen_with_its_callers_and_a_second_profile_is_refused() {
    let mut sampling = CpuSampling::begin(Hertz(199)).unwrap();
    assert!(matches!(CpuSampling::begin(Hertz(199)), Err(Refused::Busy)));
    let begun = Instant::now();
    let worker = thread::Builder::new().name("worker".into());
    let worker = worker.spawn(move || {
        let cpu = Instant::now();
        let mut sum = 0u64;
        while cpu.elapsed() < Duration::from_secs(1) {
            sum = sum.wrapping_add(descend(20));
        }
        sum
    });
    let worker = worker.unwrap();
    while !worker.is_finished() {
        assert!(begun.elapsed() < PATIENCE);
        sampling.gather();
        thread::park_timeout(Duration::from_millis(50));
    }
    let profile = sampling.end();
    assert!(worker.join().is_ok());
    let of_worker = |stack: &&profiler::Stack| profile.threads[stack.thread].name == "worker";
    let stacks: Vec<_> = profile.stacks.iter().filter(of_worker).collect();
    let samples: u64 = stacks.iter().map(|stack| stack.count.0).sum();
    assert!(samples >= 20, "{samples} of {}", profile.samples.0);
    // Twenty calls, and those of the thread below them.
    let deep = stacks.iter().filter(|stack| stack.frames.len() > 20);
    let deep: u64 = deep.map(|stack| stack.count.0).sum();
    assert!(deep * 10 >= samples * 9, "{deep} of {samples}");
    let program = profile.modules.iter().position(|module| module.is_program);
    assert!(program.is_some());
    assert!(stacks[0].frames.iter().any(|frame| frame.module == program));
    // The next one begins with nothing.
    let next = CpuSampling::begin(Hertz(199)).unwrap().end();
    assert!(next.samples.0 < samples, "{}", next.samples.0);
}
