//! All targets, briefly: their seeds, what was kept of their corpora, and mutations of both. Always the same
//! ones.

use std::fs;
use std::path::Path;

use fuzz::{TARGETS, Target};

/// Mutations of each target.
const RUNS: usize = 3_000;

/// The longest input.
const LONGEST: usize = 4_096;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) as usize % bound.max(1)
    }
}

/// Changes an input as fuzzers do: bits, bytes, parts cut out, doubled, or taken of another one.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const STRIKING: [u8; 8] = [0, 1, 0x7F, 0x80, 0xFF, b'"', b'/', b','];
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let length = random.below(input.len() - at + 1).min(16);
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = STRIKING[random.below(STRIKING.len())],
            2 => drop(input.drain(at..at + length)),
            3 => {
                let part = input[at..at + length].to_vec();
                input.splice(at..at, part);
            }
            4 if !other.is_empty() => {
                let from = random.below(other.len());
                let part = &other[from..other.len().min(from + 1 + random.below(32))];
                input.splice(at..at, part.iter().copied());
            }
            _ => input.insert(at, STRIKING[random.below(STRIKING.len())]),
        }
    }
    input.truncate(LONGEST);
}

fn kept(target: &Target) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let Ok(files) = fs::read_dir(corpus.join(target.name)) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect()
}

#[test]
fn no_target_panics() {
    for target in TARGETS {
        let mut inputs = (target.seeds)();
        assert!(!inputs.is_empty(), "{} has seeds", target.name);
        inputs.extend(kept(target));
        inputs.iter().for_each(|input| (target.run)(input));
        let mut random = Random(7);
        for run in 0..RUNS {
            let mut input = inputs[random.below(inputs.len())].clone();
            let other = &inputs[random.below(inputs.len())];
            mutate(&mut input, other, &mut random);
            let panicked = std::panic::catch_unwind(|| (target.run)(&input)).is_err();
            assert!(
                !panicked,
                "{}, run {run}: {}",
                target.name,
                input.escape_ascii()
            );
        }
    }
}
