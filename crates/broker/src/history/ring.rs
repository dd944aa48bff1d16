//! Values of the last steps of a clock.

/// Steps that are kept.
///
/// Limit: a node's counts over time | {} samples, one in {broker::history::STEP_MS}, each of as many values as are
/// sampled | the oldest is forgotten
const STEPS: usize = 360;

/// The value that ends at so many steps is at that, modulo [`STEPS`], with the number of the step: what is older is not told.
#[derive(Debug)]
pub(super) struct Ring<T> {
    places: Vec<Option<(u64, T)>>,
    /// The step that was kept last.
    end: Option<u64>,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            end: None,
        }
    }
}

impl<T> Ring<T> {
    /// The value of a step, if it has one.
    pub(super) fn keep(&mut self, step: u64, value: Option<T>) {
        self.places.resize_with(STEPS, || None);
        if let Some(kept) = self.places.get_mut(place(step)) {
            *kept = value.map(|value| (step, value));
        }
        self.end = Some(step);
    }

    /// The step that was kept last.
    pub(super) fn end(&self) -> Option<u64> {
        self.end
    }

    /// The values of the steps after one, up to the last; without one, of all steps from the first that has a value.
    pub(super) fn since(&self, after: Option<u64>) -> Vec<Option<&T>> {
        let steps = match self.end {
            Some(end) => {
                let first = end.saturating_sub(STEPS as u64 - 1);
                first.max(after.map_or(0, |after| after.saturating_add(1)))..end + 1
            }
            None => 0..0,
        };
        let value = |step: u64| {
            let (of, value) = self.places.get(place(step))?.as_ref()?;
            (*of == step).then_some(value)
        };
        let values = steps.map(value);
        values
            .skip_while(|value| after.is_none() && value.is_none())
            .collect()
    }
}

fn place(step: u64) -> usize {
    usize::try_from(step % STEPS as u64).expect("a remainder is small")
}
