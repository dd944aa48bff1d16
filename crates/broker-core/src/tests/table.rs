//! The table of a part: what becomes of it in each state with each input.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// A part, with what it is told and asks.
pub(crate) trait Machine {
    type State: Copy + PartialEq + Debug;
    type Input: Copy + Debug;

    /// The part in this state, and nothing that it has done to get there.
    fn in_state(state: Self::State) -> Self;

    fn state(&self) -> Self::State;

    /// What the part does with an input.
    fn tell(&mut self, input: Self::Input) -> Vec<String>;
}

/// State, input, next state, effects.
pub(crate) type Transition<M> = (
    <M as Machine>::State,
    <M as Machine>::Input,
    <M as Machine>::State,
    &'static [&'static str],
);

/// Panics unless the part does what its table says, and the table has so many pairs of a state and an input: each that can
/// be.
pub(crate) fn walk<M: Machine>(transitions: &[Transition<M>], pairs: usize) {
    let mut walked = BTreeSet::new();
    for &(state, input, next, effects) in transitions {
        let pair = format!("{state:?}, {input:?}");
        let mut machine = M::in_state(state);
        assert_eq!(machine.state(), state);
        assert_eq!(machine.tell(input), effects, "{pair}");
        assert_eq!(machine.state(), next, "{pair}");
        assert!(walked.insert(pair.clone()), "{pair} is there twice");
    }
    assert_eq!(walked.len(), pairs, "each state with each possible input");
}
