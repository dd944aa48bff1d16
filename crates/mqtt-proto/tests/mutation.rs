//! Mutates valid frames for a while: bits, lengths, splices. `HERALD_FUZZ_SECONDS` says how long
//! (default 2), `HERALD_FUZZ_SEED` from where; the seed is printed, so that a failure can be run again.

use std::time::{Duration, Instant};

use mqtt_proto::Packet;

mod generate;

use generate::{Source, VERSIONS, check_any_bytes, packet};

/// Marsaglia's xorshift: all that is asked of it is that a seed gives the same run again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit.max(1)
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 33) as u8
    }
}

impl Iterator for Random {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        Some(self.byte())
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn corpus(random: &mut Random) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for round in 0..600 {
        let version = VERSIONS[round % 3];
        let mut frame = Vec::new();
        let packet = packet(&mut Source(random), version);
        packet
            .encode(version, &mut frame)
            .expect("a generated packet encodes");
        assert_eq!(Packet::decode(&frame, version), Ok(packet));
        // Long frames slow the run down and reach nothing that short ones do not.
        if frame.len() < 600 {
            frames.push(frame);
        }
    }
    frames
}

fn mutate(frame: &mut Vec<u8>, frames: &[Vec<u8>], random: &mut Random) {
    let at = random.below(frame.len());
    match random.below(8) {
        0 => frame[at] ^= 1 << random.below(8),
        1 => frame[at] = random.byte(),
        2 => frame[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
        3 => frame.truncate(at.max(1)),
        4 => frame.insert(at, random.byte()),
        5 => {
            frame.remove(at);
            if frame.is_empty() {
                frame.push(0);
            }
        }
        // The remaining length, when it is one byte.
        6 => {
            let len = frame.len();
            if let Some(length) = frame.get_mut(1) {
                *length = (len as u8).wrapping_add(random.byte() % 5).wrapping_sub(4);
            }
        }
        _ => {
            let other = &frames[random.below(frames.len())];
            let from = random.below(other.len());
            let to = from + random.below(other.len() - from);
            let end = at + random.below(frame.len() - at);
            frame.splice(at..end, other[from..to].iter().copied());
            if frame.is_empty() {
                frame.push(0);
            }
        }
    }
    // Mostly mend the remaining length, or nothing but the length check would be tested.
    if random.below(4) > 0 && frame.len() >= 2 && frame.len() < 130 {
        frame[1] = (frame.len() - 2) as u8;
    }
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "the seed is what a failure is rerun with"
)]
fn mutated_frames_keep_the_invariants() {
    let seed = from_environment("HERALD_FUZZ_SEED", 0x4845_5241_4C44).max(1);
    let time = Duration::from_secs(from_environment("HERALD_FUZZ_SECONDS", 2));
    println!("HERALD_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let frames = corpus(&mut random);
    let start = Instant::now();
    let mut runs = 0_u64;
    while start.elapsed() < time {
        for _ in 0..200 {
            let mut frame = frames[random.below(frames.len())].clone();
            for _ in 0..=random.below(4) {
                mutate(&mut frame, &frames, &mut random);
            }
            check_any_bytes(&frame);
            runs += 1;
        }
    }
    println!("{runs} mutated frames in {:?}", start.elapsed());
}
