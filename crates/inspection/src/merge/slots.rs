//! Which slots of a store nobody has answered for.

/// The ranges of slots that are not covered, each with the name of its store: `session_store:0-21845`.
#[must_use]
pub fn uncovered(store: &str, covered: impl Iterator<Item = (u16, u16)>) -> Vec<String> {
    let mut covered: Vec<(u16, u16)> = covered.collect();
    covered.sort_unstable();
    let mut next = 0_u32;
    let mut missing = Vec::new();
    for (first, last) in covered {
        if u32::from(first) > next {
            missing.push(format!("{store}:{next}-{}", first - 1));
        }
        next = next.max(u32::from(last) + 1);
    }
    if next <= u32::from(u16::MAX) {
        missing.push(format!("{store}:{next}-{}", u16::MAX));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_range_has_is_named() {
        type Case<'a> = (&'a [(u16, u16)], &'a [&'a str]);
        let cases: [Case<'_>; 6] = [
            (&[], &["s:0-65535"]),
            (&[(0, 65_535)], &[]),
            (&[(10, 65_535), (0, 9)], &[]),
            (&[(0, 9), (5, 20), (30, 40)], &["s:21-29", "s:41-65535"]),
            (&[(1, 1)], &["s:0-0", "s:2-65535"]),
            // A node has said it the wrong way round.
            (&[(9, 3), (0, 65_535)], &[]),
        ];
        for (covered, expected) in cases {
            assert_eq!(
                uncovered("s", covered.iter().copied()),
                expected,
                "{covered:?}"
            );
        }
    }
}
