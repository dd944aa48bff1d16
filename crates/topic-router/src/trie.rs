//! Filters with wildcards: a trie over topic levels.
//!
//! A node stands for one or more levels below its parent: a chain without branches is one node, so most
//! filters cost one node of 64 bytes. Nodes hold no tables of children; one hash table for the whole
//! trie maps (parent, first level) to the child, at 6–11 bytes per node.
//!
//! Invariants: a node without receivers has at least two children; the children of a node differ in
//! their first level. A match visits a node at most once, since the path to a node fixes the levels of
//! the topic that it stands for; so a match costs at most the number of nodes whose path fits, however
//! the wildcards are arranged. On a path that fits, each level is that of the topic or `+`: there are no more
//! such paths than patterns of `+` among the filters, so a match compares at most that many times (and once for
//! no `+` at all) the levels of the topic, however many filters there are. Who bounds the patterns of a session
//! bounds what all its filters cost a match.
//!
//! Deliberately absent: recursion, links from a node to its children.

use crate::dense::Index;
use crate::hashing::Hashing;
use crate::inline_vec::InlineVec;
use crate::level::{MULTI, SEPARATOR, SINGLE, end_of_level, first, is_hidden};
use crate::receivers::Receivers;
use crate::slab::Slab;
use crate::text::Text;

/// The parent of the nodes at the first level.
const ROOT: u32 = u32::MAX;

/// Filters by level.
#[derive(Debug)]
pub(crate) struct Trie<R, O> {
    nodes: Slab<Node<R, O>>,
    edges: Index,
    root: Children,
    /// Heap memory of the nodes, in bytes.
    heap: usize,
}

#[derive(Debug)]
struct Node<R, O> {
    /// One level or more.
    label: Text,
    receivers: Receivers<R, O>,
    parent: u32,
    children: Children,
}

/// What a node knows of its children.
#[derive(Debug, Default)]
struct Children {
    count: u32,
    /// The numbers of all children, combined by exclusive or: when one is left, this is its number.
    combined: u32,
    single: bool,
    multi: bool,
}

impl Children {
    fn add(&mut self, number: u32, level: &[u8]) {
        self.count += 1;
        self.combined ^= number;
        self.note(level, true);
    }

    fn remove(&mut self, number: u32, level: &[u8]) {
        self.count -= 1;
        self.combined ^= number;
        self.note(level, false);
    }

    fn note(&mut self, level: &[u8], present: bool) {
        match level {
            SINGLE => self.single = present,
            MULTI => self.multi = present,
            _ => {}
        }
    }

    fn has_literal(&self) -> bool {
        self.count > u32::from(self.single) + u32::from(self.multi)
    }
}

/// A place in a match: below `node`, with the topic's level number `depth` at byte `start`.
#[derive(Clone, Copy, Default)]
struct Place {
    node: u32,
    depth: u32,
    /// One past the length of the topic when all its levels are consumed.
    start: usize,
}

/// How a label compares with the rest of a topic.
enum Fit {
    No,
    /// The label ended in `#`.
    Whole,
    /// The label ended; the next level of the topic stands here.
    Up {
        depth: u32,
        start: usize,
    },
}

/// The levels of a topic, each scanned and hashed once per match however many nodes look at it.
struct Levels<'a> {
    topic: &'a [u8],
    /// The end and hash of each level; zeros where they are not known yet.
    known: InlineVec<(usize, u64)>,
    /// Levels of filters that were compared with those of the topic.
    compared: usize,
}

impl<'a> Levels<'a> {
    fn get(&mut self, hashing: &Hashing, depth: u32, start: usize) -> (&'a [u8], u64) {
        let known = self.known.slot(depth as usize);
        if *known == (0, 0) {
            let end = end_of_level(self.topic, start);
            *known = (
                end,
                hashing.name(self.topic.get(start..end).unwrap_or_default()),
            );
        }
        (self.topic.get(start..known.0).unwrap_or_default(), known.1)
    }
}

impl<R: Copy + Ord, O: Copy> Trie<R, O> {
    pub(crate) fn new() -> Self {
        Trie {
            nodes: Slab::new(),
            edges: Index::new(),
            root: Children::default(),
            heap: 0,
        }
    }

    #[inline]
    pub(crate) fn for_each_match(
        &self,
        hashing: &Hashing,
        topic: &[u8],
        f: &mut impl FnMut(&R, &O),
    ) -> usize {
        if self.nodes.is_empty() {
            return 0;
        }
        self.walk(hashing, topic, f)
    }

    fn walk(&self, hashing: &Hashing, topic: &[u8], f: &mut impl FnMut(&R, &O)) -> usize {
        let mut levels = Levels {
            topic,
            known: InlineVec::new(),
            compared: 0,
        };
        let mut open = InlineVec::new();
        let mut next = Some(Place {
            node: ROOT,
            depth: 0,
            start: 0,
        });
        while let Some(Place { node, depth, start }) = next {
            let children = self.children(node);
            // [MQTT-4.7.2-1] no wildcard in the first level matches a topic name that starts with $.
            let wildcards = node != ROOT || !is_hidden(topic);
            // [MQTT-4.7.1-1] [MQTT3-4.7.1-2] `#` stands for its parent level and all below it.
            if children.multi
                && wildcards
                && let Some(child) = self.child(hashing.edge(node, hashing.multi), node, MULTI)
                && self.nodes.get(child).label.as_bytes() == MULTI
            {
                self.nodes.get(child).receivers.for_each(f);
            }
            if start > topic.len() {
                self.nodes.get(node).receivers.for_each(f);
            } else {
                if children.has_literal() {
                    let (level, hash) = levels.get(hashing, depth, start);
                    let child = self.child(hashing.edge(node, hash), node, level);
                    self.enter(hashing, child, depth, start, &mut levels, &mut open, f);
                }
                // [MQTT-4.7.1-2] [MQTT3-4.7.1-3] `+` stands for one whole level, be it empty.
                if children.single && wildcards {
                    let child = self.child(hashing.edge(node, hashing.single), node, SINGLE);
                    self.enter(hashing, child, depth, start, &mut levels, &mut open, f);
                }
            }
            next = open.pop();
        }
        levels.compared
    }

    /// Compares the label of `child` with the topic, and leaves the place below it to be visited.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one match, borrowed differently"
    )]
    #[inline]
    fn enter(
        &self,
        hashing: &Hashing,
        child: Option<u32>,
        depth: u32,
        start: usize,
        levels: &mut Levels<'_>,
        open: &mut InlineVec<Place>,
        f: &mut impl FnMut(&R, &O),
    ) {
        let Some(number) = child else { return };
        let node = self.nodes.get(number);
        match fit(node.label.as_bytes(), hashing, depth, start, levels) {
            Fit::No => {}
            Fit::Whole => node.receivers.for_each(f),
            // Most nodes have no children: settled here, without a visit.
            Fit::Up { start, .. } if node.children.count == 0 => {
                if start > levels.topic.len() {
                    node.receivers.for_each(f);
                }
            }
            Fit::Up { depth, start } => open.push(Place {
                node: number,
                depth,
                start,
            }),
        }
    }

    pub(crate) fn insert(
        &mut self,
        hashing: &Hashing,
        filter: &[u8],
        receiver: R,
        options: O,
    ) -> Option<O> {
        let mut parent = ROOT;
        let mut rest = filter;
        let node = loop {
            let level = first(rest);
            let Some(child) = self.child(hashing.edge(parent, hashing.name(level)), parent, level)
            else {
                break self.add(hashing, parent, rest, Receivers::None);
            };
            let label = self.nodes.get(child).label.as_bytes();
            let common = common_levels(label, rest);
            let node = if common < label.len() {
                self.split(hashing, child, common)
            } else {
                child
            };
            match rest.get(common + 1..) {
                None => break node,
                Some(below) => (parent, rest) = (node, below),
            }
        };
        let receivers = &mut self.nodes.get_mut(node).receivers;
        let before = receivers.heap_bytes();
        let old = receivers.insert(receiver, options);
        self.heap = self.heap - before + receivers.heap_bytes();
        old
    }

    pub(crate) fn remove(&mut self, hashing: &Hashing, filter: &[u8], receiver: &R) -> Option<O> {
        let node = self.find(hashing, filter)?;
        let receivers = &mut self.nodes.get_mut(node).receivers;
        let before = receivers.heap_bytes();
        let options = receivers.remove(receiver)?;
        self.heap = self.heap - before + receivers.heap_bytes();
        let parent = self.nodes.get(node).parent;
        if self.nodes.get(node).receivers.is_none() && self.children(node).count == 0 {
            self.drop_leaf(hashing, node);
            self.tidy(hashing, parent);
        } else {
            self.tidy(hashing, node);
        }
        Some(options)
    }

    /// Restores the invariant at a node that lost receivers or a child: if it only leads to one child,
    /// the child takes its place.
    fn tidy(&mut self, hashing: &Hashing, number: u32) {
        if number == ROOT
            || !self.nodes.get(number).receivers.is_none()
            || self.children(number).count != 1
        {
            return;
        }
        let child = self.children(number).combined;
        let lower = self.nodes.get(child).label.as_bytes();
        let hash = self.edge_of(hashing, number, lower);
        self.edges.remove(hash, child, || {
            edges(&self.nodes, hashing).filter(|(other, _)| *other != child)
        });
        let upper = self.nodes.remove(number);
        let label = [
            upper.label.as_bytes(),
            &[SEPARATOR],
            self.nodes.get(child).label.as_bytes(),
        ]
        .concat();
        let node = self.nodes.get_mut(child);
        let old = core::mem::replace(&mut node.label, Text::new(&label));
        node.parent = upper.parent;
        self.heap =
            self.heap + node.label.heap_bytes() - old.heap_bytes() - upper.label.heap_bytes();
        self.children_mut(upper.parent).combined ^= number ^ child;
        self.edges
            .renumber(self.edge_of(hashing, upper.parent, &label), number, child);
    }

    /// Gives the first `common` bytes of a label, whole levels, to a new node above. The lower part
    /// keeps its number, so that its own children need no change.
    fn split(&mut self, hashing: &Hashing, number: u32, common: usize) -> u32 {
        let node = self.nodes.get_mut(number);
        let parent = node.parent;
        let (upper, lower) = node.label.as_bytes().split_at(common);
        let (upper, lower) = (
            Text::new(upper),
            Text::new(lower.get(1..).unwrap_or_default()),
        );
        self.heap = self.heap + upper.heap_bytes() + lower.heap_bytes() - node.label.heap_bytes();
        node.label = lower;
        let hash = self.edge_of(hashing, parent, upper.as_bytes());
        let above = self.nodes.insert(Node {
            label: upper,
            receivers: Receivers::None,
            parent,
            children: Children::default(),
        });
        self.children_mut(parent).combined ^= number ^ above;
        self.edges.renumber(hash, number, above);
        self.nodes.get_mut(number).parent = above;
        self.link(hashing, number);
        above
    }

    fn add(
        &mut self,
        hashing: &Hashing,
        parent: u32,
        label: &[u8],
        receivers: Receivers<R, O>,
    ) -> u32 {
        let label = Text::new(label);
        self.heap += label.heap_bytes();
        let number = self.nodes.insert(Node {
            label,
            receivers,
            parent,
            children: Children::default(),
        });
        self.link(hashing, number);
        number
    }

    /// Makes a node known to its parent and to the table of edges.
    fn link(&mut self, hashing: &Hashing, number: u32) {
        let Node { label, parent, .. } = self.nodes.get(number);
        let level = Text::new(first(label.as_bytes()));
        let parent = *parent;
        let hash = self.edge_of(hashing, parent, level.as_bytes());
        self.edges.insert(hash, number, || {
            edges(&self.nodes, hashing).filter(|(other, _)| *other != number)
        });
        self.children_mut(parent).add(number, level.as_bytes());
    }

    fn drop_leaf(&mut self, hashing: &Hashing, number: u32) {
        let Node { label, parent, .. } = self.nodes.remove(number);
        self.heap -= label.heap_bytes();
        let hash = self.edge_of(hashing, parent, label.as_bytes());
        self.edges
            .remove(hash, number, || edges(&self.nodes, hashing));
        self.children_mut(parent)
            .remove(number, first(label.as_bytes()));
    }

    fn find(&self, hashing: &Hashing, filter: &[u8]) -> Option<u32> {
        let mut parent = ROOT;
        let mut rest = filter;
        loop {
            let level = first(rest);
            let child = self.child(hashing.edge(parent, hashing.name(level)), parent, level)?;
            let label = self.nodes.get(child).label.as_bytes();
            if common_levels(label, rest) < label.len() {
                return None;
            }
            match rest.get(label.len() + 1..) {
                None => return Some(child),
                Some(below) => (parent, rest) = (child, below),
            }
        }
    }

    /// The child of `parent` whose label starts with `level`; `hash` is that of the edge.
    #[inline]
    fn child(&self, hash: u64, parent: u32, level: &[u8]) -> Option<u32> {
        self.edges.find(hash, |number| {
            let node = self.nodes.get(number);
            node.parent == parent
                && node
                    .label
                    .as_bytes()
                    .strip_prefix(level)
                    .is_some_and(|rest| matches!(rest, [] | [SEPARATOR, ..]))
        })
    }

    fn edge_of(&self, hashing: &Hashing, parent: u32, label: &[u8]) -> u64 {
        hashing.edge(parent, hashing.name(first(label)))
    }

    fn children(&self, number: u32) -> &Children {
        if number == ROOT {
            &self.root
        } else {
            &self.nodes.get(number).children
        }
    }

    fn children_mut(&mut self, number: u32) -> &mut Children {
        if number == ROOT {
            &mut self.root
        } else {
            &mut self.nodes.get_mut(number).children
        }
    }

    /// Drops some nodes of a trie that is not used any more. About how many; 0: none are left.
    pub(crate) fn drop_last(&mut self) -> usize {
        self.nodes.drop_last()
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.nodes.heap_bytes() + self.edges.heap_bytes() + self.heap
    }
}

/// All nodes with the hashes of their edges.
fn edges<R, O>(nodes: &Slab<Node<R, O>>, hashing: &Hashing) -> impl Iterator<Item = (u32, u64)> {
    nodes.iter().map(|(number, node)| {
        (
            number,
            hashing.edge(node.parent, hashing.name(first(node.label.as_bytes()))),
        )
    })
}

/// Compares a label, level by level, with the topic from `start` on.
fn fit(
    label: &[u8],
    hashing: &Hashing,
    mut depth: u32,
    mut start: usize,
    levels: &mut Levels<'_>,
) -> Fit {
    let topic = levels.topic;
    let mut at = 0;
    loop {
        let end = end_of_level(label, at);
        let level = label.get(at..end).unwrap_or_default();
        let last = end == label.len();
        levels.compared += 1;
        if last && level == MULTI {
            return Fit::Whole;
        }
        let Some(rest) = topic.get(start..) else {
            return Fit::No;
        };
        if level == SINGLE {
            start += levels.get(hashing, depth, start).0.len() + 1;
        } else {
            match rest.strip_prefix(level) {
                Some([] | [SEPARATOR, ..]) => start += level.len() + 1,
                _ => return Fit::No,
            }
        }
        depth += 1;
        if last {
            return Fit::Up { depth, start };
        }
        at = end + 1;
    }
}

/// The length of the longest common prefix of whole levels; the first levels are equal.
fn common_levels(label: &[u8], rest: &[u8]) -> usize {
    let equal = label.iter().zip(rest).take_while(|(a, b)| a == b).count();
    let ends = |name: &[u8]| matches!(name.get(equal), None | Some(&SEPARATOR));
    if ends(label) && ends(rest) {
        return equal;
    }
    let shared = label.get(..equal).unwrap_or_default();
    shared
        .iter()
        .rposition(|&b| b == SEPARATOR)
        .expect("the first levels are equal")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(trie: &Trie<u64, u64>) {
        let mut heap = 0;
        for (number, node) in trie.nodes.iter() {
            assert!(
                !node.receivers.is_none() || node.children.count >= 2,
                "a node without purpose"
            );
            let children: Vec<_> = trie
                .nodes
                .iter()
                .filter(|(_, child)| child.parent == number)
                .collect();
            assert_eq!(children.len(), node.children.count as usize);
            assert_eq!(
                children.iter().fold(0, |all, (child, _)| all ^ child),
                node.children.combined
            );
            heap += node.label.heap_bytes() + node.receivers.heap_bytes();
        }
        assert_eq!(trie.heap, heap);
    }

    #[test]
    fn chains_are_one_node_before_and_after_a_branch() {
        let hashing = Hashing::with_seed(1);
        let mut trie = Trie::new();
        let filters = [
            "a/b/+/c/d/e/f/g/h/i/j/k",
            "a/b/+/c/x",
            "a/b/+",
            "a/#",
            "+/b",
            "+",
            "#",
            "/+",
            "//+/",
        ];
        for filter in filters {
            assert_eq!(trie.insert(&hashing, filter.as_bytes(), 1, 1), None);
            check(&trie);
        }
        for (i, filter) in filters.into_iter().enumerate().skip(1) {
            assert_eq!(
                trie.remove(&hashing, filter.as_bytes(), &1),
                Some(1),
                "{filter}"
            );
            check(&trie);
            assert!(
                trie.find(&hashing, filter.as_bytes()).is_none_or(|n| trie
                    .nodes
                    .get(n)
                    .receivers
                    .is_none())
            );
            assert!(i < filters.len() - 1 || trie.nodes.iter().count() == 1);
        }
        assert_eq!(trie.remove(&hashing, filters[0].as_bytes(), &1), Some(1));
        assert_eq!((trie.heap_bytes(), trie.root.count), (0, 0));
    }

    #[test]
    fn a_node_fits_a_cache_line() {
        assert_eq!(size_of::<Node<u64, u64>>(), 64);
        assert_eq!(size_of::<Node<u64, [u32; 3]>>(), 64);
    }
}
