//! The patterns of single-level wildcards in the filters of a session.
//!
//! Purpose: a topic name is compared with at most one path of filters for each set of levels that have `+`, however
//! many filters there are (`topic-router`). So the number of these sets, and not that of the filters, bounds what a
//! session makes the messages of others cost. Those of people's systems are few: filters come from templates.

/// Which levels of a filter are `+`, ascending; in a shared subscription, the group counts as levels too.
pub type Pattern = Box<[u16]>;

/// The pattern of a filter; `None`: no level of it is `+`.
#[must_use]
pub fn pattern_of(filter: &str) -> Option<Pattern> {
    // Most filters have no wildcard at all.
    if !filter.as_bytes().contains(&b'+') {
        return None;
    }
    let levels = (0..).zip(filter.split('/'));
    let single = levels.filter(|(_, level)| *level == "+");
    let pattern: Pattern = single.map(|(number, _)| number).collect();
    (!pattern.is_empty()).then_some(pattern)
}

/// How many filters of a session have each pattern.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Vec<(Pattern, u32)>);

impl Patterns {
    /// Those of a session that has none.
    pub(crate) const EMPTY: Self = Self(Vec::new());

    pub(crate) fn add(&mut self, filter: &str) {
        let Some(pattern) = pattern_of(filter) else {
            return;
        };
        match self.find(&pattern) {
            Ok(index) => self.0[index].1 += 1,
            Err(index) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(index, (pattern, 1));
            }
        }
    }

    pub(crate) fn remove(&mut self, filter: &str) {
        let Some(pattern) = pattern_of(filter) else {
            return;
        };
        if let Ok(index) = self.find(&pattern) {
            self.0[index].1 -= 1;
            if self.0[index].1 == 0 {
                self.0.remove(index);
            }
            if self.0.is_empty() {
                self.0 = Vec::new();
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter().map(|(pattern, _)| pattern)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, pattern: &Pattern) -> bool {
        self.find(pattern).is_ok()
    }

    pub(crate) fn heap_len(&self) -> usize {
        let levels = self.0.iter().map(|(pattern, _)| size_of_val(&**pattern));
        self.0.capacity() * size_of::<(Pattern, u32)>() + levels.sum::<usize>()
    }

    fn find(&self, pattern: &Pattern) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_levels_that_are_wildcards() {
        let pattern = |filter| pattern_of(filter).map(Vec::from);
        assert_eq!(pattern("a/b/#"), None);
        assert_eq!(pattern("a+b/c+"), None);
        assert_eq!(pattern("+"), Some(vec![0]));
        assert_eq!(pattern("a/+/b/+/#"), Some(vec![1, 3]));
        assert_eq!(pattern("x/+/y/+"), Some(vec![1, 3]));
        assert_eq!(pattern("$share/g/+"), Some(vec![2]));
    }

    #[test]
    fn patterns_are_counted_and_forgotten() {
        let mut patterns = Patterns::default();
        for filter in ["a/+", "b/+", "a/b", "+/a", "#"] {
            patterns.add(filter);
        }
        assert_eq!(patterns.len(), 2);
        patterns.remove("a/+");
        patterns.remove("a/b");
        assert!(patterns.contains(&pattern_of("x/+").unwrap()));
        patterns.remove("b/+");
        assert!(!patterns.contains(&pattern_of("x/+").unwrap()));
        patterns.remove("+/a");
        assert_eq!((patterns.len(), patterns.heap_len()), (0, 0));
    }
}
