//! Versions as Cargo has them, and their order.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Three numbers, and what stands behind them if it comes before a release, such as `alpha.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    numbers: [u64; 3],
    before: Option<String>,
}

impl Version {
    pub(crate) fn is_release(&self) -> bool {
        self.before.is_none()
    }

    /// The first version that is not compatible with this one any more.
    pub(crate) fn next_incompatible(&self) -> Self {
        let numbers = match self.numbers {
            [0, 0, patch] => [0, 0, patch + 1],
            [0, minor, _] => [0, minor + 1, 0],
            [major, ..] => [major + 1, 0, 0],
        };
        Self {
            numbers,
            before: None,
        }
    }
}

impl FromStr for Version {
    type Err = String;

    /// Numbers that are left out are zero; what stands behind a `+` says nothing.
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.split('+').next().unwrap_or(text);
        let (numbers, before) = match plain.split_once('-') {
            Some((numbers, before)) => (numbers, Some(before.to_owned())),
            None => (plain, None),
        };
        let unreadable = || format!("`{text}` is no version");
        let given: Vec<&str> = numbers.split('.').collect();
        let mut parts = [0; 3];
        if given.len() > parts.len() {
            return Err(unreadable());
        }
        for (part, number) in parts.iter_mut().zip(given) {
            *part = number.parse().map_err(|_| unreadable())?;
        }
        Ok(Self {
            numbers: parts,
            before,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        match &self.before {
            Some(before) => write!(f, "-{before}"),
            None => Ok(()),
        }
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_numbers = self.numbers.cmp(&other.numbers);
        by_numbers.then_with(|| match (&self.before, &other.before) {
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (one, two) => one.cmp(two),
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
