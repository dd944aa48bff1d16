//! The subscriptions of one session, sorted by filter: a request adds or removes any number of them.
//!
//! Invariant: many filters cost one pass over the subscriptions, not one each; what comes of a request is the same as if
//! its filters came one after the other.

use super::StoredSubscription;

/// Filters of a request that are put in their places one by one: each moves those behind it, which costs less than a new
/// vector for so few.
const FEW: usize = 8;

/// What a session had with the filter of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    Nothing,
    /// With other options, or another identifier.
    Other,
    Same,
}

impl Before {
    fn of(known: Option<&StoredSubscription>, new: &StoredSubscription) -> Self {
        match known {
            None => Self::Nothing,
            Some(known) if known == new => Self::Same,
            Some(_) => Self::Other,
        }
    }
}

/// Adds or replaces subscriptions. Says for each of `new` what was there; of those with the same filter, each finds the
/// one before it, and the last one stays.
pub(super) fn put(
    subscriptions: &mut Vec<StoredSubscription>,
    new: &[StoredSubscription],
) -> Vec<Before> {
    let before = if new.len() > FEW {
        put_many(subscriptions, new)
    } else {
        let new = new.iter();
        new.map(|new| put_one(subscriptions, new)).collect()
    };
    shrink(subscriptions);
    before
}

/// Removes subscriptions. Says for each filter whether it was there; one that comes twice is there once.
pub(super) fn remove(
    subscriptions: &mut Vec<StoredSubscription>,
    filters: &[Box<str>],
) -> Vec<bool> {
    let had = if filters.len() > FEW {
        remove_many(subscriptions, filters)
    } else {
        let filters = filters.iter();
        filters
            .map(|filter| remove_one(subscriptions, filter))
            .collect()
    };
    shrink(subscriptions);
    had
}

/// Where a filter stands, or would.
fn find(subscriptions: &[StoredSubscription], filter: &str) -> Result<usize, usize> {
    subscriptions.binary_search_by(|subscription| (*subscription.filter).cmp(filter))
}

fn put_one(subscriptions: &mut Vec<StoredSubscription>, new: &StoredSubscription) -> Before {
    match find(subscriptions, &new.filter) {
        Ok(place) => {
            let before = Before::of(Some(&subscriptions[place]), new);
            if before == Before::Other {
                subscriptions[place] = new.clone();
            }
            before
        }
        Err(place) => {
            subscriptions.insert(place, new.clone());
            Before::Nothing
        }
    }
}

fn put_many(
    subscriptions: &mut Vec<StoredSubscription>,
    new: &[StoredSubscription],
) -> Vec<Before> {
    let mut sorted: Vec<_> = new.iter().enumerate().collect();
    // Stable: those with the same filter stay in the order of the request.
    sorted.sort_by(|(_, a), (_, b)| a.filter.cmp(&b.filter));
    let mut before = vec![Before::Nothing; new.len()];
    let mut added = Vec::new();
    for same in sorted.chunk_by(|(_, a), (_, b)| a.filter == b.filter) {
        let Some(&(_, last)) = same.last() else {
            continue;
        };
        let place = find(subscriptions, &last.filter);
        let mut known = place.ok().map(|place| &subscriptions[place]);
        for &(number, new) in same {
            before[number] = Before::of(known, new);
            known = Some(new);
        }
        match place {
            Ok(place) => subscriptions[place] = last.clone(),
            Err(place) => added.push((place, last.clone())),
        }
    }
    if !added.is_empty() {
        merge(subscriptions, added);
    }
    before
}

/// Puts each of `added` before the one that stands at its place now. Places ascend.
fn merge(subscriptions: &mut Vec<StoredSubscription>, added: Vec<(usize, StoredSubscription)>) {
    let mut merged = Vec::with_capacity(subscriptions.len() + added.len());
    let mut old = std::mem::take(subscriptions).into_iter();
    let mut taken = 0;
    for (place, new) in added {
        merged.extend(old.by_ref().take(place - taken));
        taken = place;
        merged.push(new);
    }
    merged.extend(old);
    *subscriptions = merged;
}

fn remove_one(subscriptions: &mut Vec<StoredSubscription>, filter: &str) -> bool {
    let place = find(subscriptions, filter);
    if let Ok(place) = place {
        subscriptions.remove(place);
    }
    place.is_ok()
}

fn remove_many(subscriptions: &mut Vec<StoredSubscription>, filters: &[Box<str>]) -> Vec<bool> {
    let places = filters.iter().map(|filter| find(subscriptions, filter));
    let mut found: Vec<(usize, usize)> = places
        .enumerate()
        .filter_map(|(number, place)| Some((place.ok()?, number)))
        .collect();
    found.sort_unstable();
    // Of those with the same filter the first one removes it.
    found.dedup_by_key(|(place, _)| *place);
    let mut had = vec![false; filters.len()];
    for &(_, number) in &found {
        had[number] = true;
    }
    let mut gone = found.into_iter().map(|(place, _)| place).peekable();
    let mut places = 0..;
    subscriptions.retain(|_| {
        let place = places.next();
        gone.next_if(|gone| Some(*gone) == place).is_none()
    });
    had
}

/// Gives back room for more than a quarter of what there is. An eighth stays, so that one subscription after the
/// other does not move all of them each time.
fn shrink(subscriptions: &mut Vec<StoredSubscription>) {
    let len = subscriptions.len();
    if subscriptions.capacity() > len + len / 4 + 2 {
        subscriptions.shrink_to(len + len / 8);
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::SubscriptionOptions;
    use proptest::prelude::*;

    use super::*;

    fn subscription((filter, id): (u8, u32)) -> StoredSubscription {
        StoredSubscription {
            filter: format!("filter/{filter}").into(),
            options: SubscriptionOptions::default(),
            id,
        }
    }

    fn request() -> impl Strategy<Value = Vec<(u8, u32)>> {
        prop::collection::vec((0..40_u8, 0..3_u32), 0..60)
    }

    proptest! {
        #[test]
        fn many_at_once_are_as_one_after_the_other(
            requests in prop::collection::vec((request(), request()), 1..5),
        ) {
            let (mut one, mut many) = (Vec::new(), Vec::new());
            for (new, gone) in requests {
                let new: Vec<_> = new.into_iter().map(subscription).collect();
                let expected: Vec<_> = new.iter().map(|new| put_one(&mut one, new)).collect();
                prop_assert_eq!(put_many(&mut many, &new), expected);
                prop_assert_eq!(&many, &one);
                let gone = gone.into_iter().map(|of| subscription(of).filter);
                let gone: Vec<_> = gone.collect();
                let expected: Vec<_> = gone.iter().map(|gone| remove_one(&mut one, gone)).collect();
                prop_assert_eq!(remove_many(&mut many, &gone), expected);
                prop_assert_eq!(&many, &one);
            }
        }
    }

    #[test]
    fn room_is_given_back_and_made_once() {
        let new: Vec<_> = (0..200).map(|n| subscription((n, 0))).collect();
        let mut subscriptions = Vec::new();
        put(&mut subscriptions, &new);
        assert_eq!((subscriptions.len(), subscriptions.capacity()), (200, 200));
        let gone: Vec<_> = new.iter().skip(16).map(|of| of.filter.clone()).collect();
        remove(&mut subscriptions, &gone);
        assert_eq!((subscriptions.len(), subscriptions.capacity()), (16, 18));
    }
}
