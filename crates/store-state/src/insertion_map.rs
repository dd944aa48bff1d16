//! A map that keeps the order in which its keys were inserted.
//!
//! Invariant: every operation takes logarithmic time at most; a client decides how many keys there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashing::HashMap;

/// Values by name. Each entry has a number; entries stand in the order of these.
#[derive(Clone, Debug)]
pub struct InsertionMap<V> {
    numbers: HashMap<Arc<str>, u64>,
    entries: BTreeMap<u64, (Arc<str>, V)>,
}

impl<V> Default for InsertionMap<V> {
    fn default() -> Self {
        Self {
            numbers: HashMap::default(),
            entries: BTreeMap::new(),
        }
    }
}

impl<V> InsertionMap<V> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of a name's entry.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// A name's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&V> {
        let number = self.numbers.get(name)?;
        self.entries.get(number).map(|(_, value)| value)
    }

    /// A name's value.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        let number = self.numbers.get(name)?;
        self.entries.get_mut(number).map(|(_, value)| value)
    }

    /// The entry of a number.
    #[must_use]
    pub fn entry(&self, number: u64) -> Option<(&str, &V)> {
        self.entries
            .get(&number)
            .map(|(name, value)| (&**name, value))
    }

    /// Inserts an entry behind all others, and removes the one that the name had. Returns its number.
    pub fn push(&mut self, name: &str, value: V) -> u64 {
        self.remove(name);
        let number = self.next_number();
        self.insert(number, name, value);
        number
    }

    /// The number that [`push`](Self::push) gives to the next new name.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.entries
            .last_key_value()
            .map_or(0, |(last, _)| last + 1)
    }

    /// Inserts an entry whose name and number are new.
    pub fn insert(&mut self, number: u64, name: &str, value: V) {
        let name = Arc::<str>::from(name);
        self.numbers.insert(Arc::clone(&name), number);
        self.entries.insert(number, (name, value));
    }

    /// Removes a name's entry; returns its value.
    pub fn remove(&mut self, name: &str) -> Option<V> {
        let number = self.numbers.remove(name)?;
        self.entries.remove(&number).map(|(_, value)| value)
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<(&str, &V)> {
        let (_, (name, value)) = self.entries.first_key_value()?;
        Some((name, value))
    }

    /// The first entry's value.
    pub fn first_mut(&mut self) -> Option<&mut V> {
        self.entries
            .first_entry()
            .map(|entry| &mut entry.into_mut().1)
    }

    /// Removes the first entry.
    pub fn pop_first(&mut self) -> Option<(Arc<str>, V)> {
        let (_, (name, value)) = self.entries.pop_first()?;
        self.numbers.remove(&*name);
        Some((name, value))
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.entries.values().map(|(name, value)| (&**name, value))
    }

    /// All values in order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|(_, value)| value)
    }

    /// The numbers of all entries, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_stand_in_the_order_of_insertion(steps in prop::collection::vec((0u8..3, "[a-d]"), 0..60)) {
            let (mut map, mut model) = (InsertionMap::default(), Vec::<(String, usize)>::new());
            for (at, (step, name)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        map.push(&name, at);
                        model.retain(|(known, _)| *known != name);
                        model.push((name.clone(), at));
                    }
                    1 => {
                        map.remove(&name);
                        model.retain(|(known, _)| *known != name);
                    }
                    _ => {
                        let first = map.pop_first().map(|(name, value)| (name.to_string(), value));
                        prop_assert_eq!(first, (!model.is_empty()).then(|| model.remove(0)));
                    }
                }
                let all: Vec<_> = map.iter().map(|(name, value)| (name.to_owned(), *value)).collect();
                prop_assert_eq!(&all, &model);
                let of_name = model.iter().find(|(known, _)| *known == name);
                prop_assert_eq!(map.get(&name), of_name.map(|(_, value)| value));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
