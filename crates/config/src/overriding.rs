//! Options that replace another one where they are set.

use crate::{
    declare::Spec,
    setting::{Setting, put},
};

/// A value that replaces that of another option; unset: the other one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override<T>(Option<T>);

impl<T> Default for Override<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone> Override<T> {
    /// Puts the value into the place of the other one, if it is set.
    pub fn apply(&self, place: &mut T) {
        if let Some(value) = &self.0 {
            *place = value.clone();
        }
    }
}

/// What a value is read into before it is known.
pub(crate) trait Blank: Setting {
    fn blank() -> Self;
}

macro_rules! blank {
    ($($type:ty = $blank:expr),* $(,)?) => {$(
        impl $crate::overriding::Blank for $type {
            fn blank() -> Self {
                $blank
            }
        }
    )*};
}

pub(crate) use blank;

impl<T: Blank> Setting for Override<T> {
    fn take(&mut self, text: &str, spec: &Spec) -> bool {
        if text.is_empty() {
            return put(self, Some(Self(None)));
        }
        let mut value = T::blank();
        let taken = value.take(text, spec);
        put(self, taken.then_some(Self(Some(value))))
    }

    fn show(&self, spec: &Spec) -> Option<String> {
        self.0.as_ref().and_then(|value| value.show(spec))
    }

    fn expected(&self, spec: &Spec) -> String {
        T::blank().expected(spec)
    }
}
