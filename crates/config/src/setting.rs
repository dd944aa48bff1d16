//! How the types of options are read from text and written back.
//!
//! Invariant: what `show` gives, `take` turns into the same value again, so two values are equal
//! exactly if they are shown alike. `Option` types take the empty text as "unset".

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{declare::Spec, node::Value};

/// Longest text an option takes, in bytes: what a UTF-8 string of MQTT can carry.
const MAX_TEXT: usize = 65_535;

/// The value of one option.
pub(crate) trait Setting {
    /// Takes the value that `text` means; false, and nothing changed, if it means none.
    fn take(&mut self, text: &str, spec: &Spec) -> bool;

    /// The text that [`Setting::take`] reads back to this value; `None` if it is unset.
    fn show(&self, spec: &Spec) -> Option<String>;

    /// What is allowed, as in "expected …".
    fn expected(&self, spec: &Spec) -> String;

    /// Takes a value from a file. Types that allow more than a scalar say so here.
    fn read(&mut self, value: &Value, spec: &Spec) -> bool {
        matches!(value, Value::Scalar(text) if self.take(text, spec))
    }
}

/// Puts `parsed` in place, if there is one.
pub(crate) fn put<T>(place: &mut T, parsed: Option<T>) -> bool {
    parsed.map(|value| *place = value).is_some()
}

/// A whole number in decimal digits, within the range of the type and that of the option.
fn whole<N: TryFrom<u64>>(text: &str, spec: &Spec) -> Option<N> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse::<u64>().ok()?;
    if spec
        .range
        .as_ref()
        .is_some_and(|range| !range.contains(&number))
    {
        return None;
    }
    N::try_from(number).ok()
}

fn expected_whole(spec: &Spec, least: u64, most: u64) -> String {
    match &spec.range {
        Some(range) => format!("a whole number {} to {}", range.start(), range.end()),
        None => format!("a whole number {least} to {most}"),
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Setting for $number {
            fn take(&mut self, text: &str, spec: &Spec) -> bool {
                put(self, whole(text, spec))
            }
            fn show(&self, _: &Spec) -> Option<String> {
                Some(self.to_string())
            }
            fn expected(&self, spec: &Spec) -> String {
                expected_whole(spec, 0, <$number>::MAX.into())
            }
        }

        impl Setting for NonZero<$number> {
            fn take(&mut self, text: &str, spec: &Spec) -> bool {
                put(self, whole(text, spec).and_then(NonZero::<$number>::new))
            }
            fn show(&self, _: &Spec) -> Option<String> {
                Some(self.to_string())
            }
            fn expected(&self, spec: &Spec) -> String {
                expected_whole(spec, 1, <$number>::MAX.into())
            }
        }

        /// 0 is `None`; the option's documentation says what it means.
        impl Setting for Option<NonZero<$number>> {
            fn take(&mut self, text: &str, spec: &Spec) -> bool {
                put(self, whole(text, spec).map(NonZero::<$number>::new))
            }
            fn show(&self, _: &Spec) -> Option<String> {
                Some(self.map_or(0, NonZero::get).to_string())
            }
            fn expected(&self, spec: &Spec) -> String {
                expected_whole(spec, 0, <$number>::MAX.into())
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64);

impl Setting for Option<u16> {
    fn take(&mut self, text: &str, spec: &Spec) -> bool {
        put(
            self,
            if text.is_empty() {
                Some(None)
            } else {
                whole(text, spec).map(Some)
            },
        )
    }
    fn show(&self, _: &Spec) -> Option<String> {
        self.map(|number| number.to_string())
    }
    fn expected(&self, spec: &Spec) -> String {
        expected_whole(spec, 0, u16::MAX.into())
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

impl Setting for bool {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(self, boolean(text))
    }
    fn show(&self, _: &Spec) -> Option<String> {
        Some(self.to_string())
    }
    fn expected(&self, _: &Spec) -> String {
        "true or false".to_owned()
    }
}

impl Setting for Option<bool> {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(
            self,
            if text.is_empty() {
                Some(None)
            } else {
                boolean(text).map(Some)
            },
        )
    }
    fn show(&self, _: &Spec) -> Option<String> {
        self.map(|value| value.to_string())
    }
    fn expected(&self, _: &Spec) -> String {
        "true or false".to_owned()
    }
}

/// Text that can stand in an MQTT string and on one line of a log.
pub(crate) fn text_ok(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.chars().any(char::is_control)
}

impl Setting for String {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(
            self,
            (!text.is_empty() && text_ok(text)).then(|| text.to_owned()),
        )
    }
    fn show(&self, _: &Spec) -> Option<String> {
        Some(self.clone())
    }
    fn expected(&self, _: &Spec) -> String {
        format!("1 to {MAX_TEXT} bytes of text without control characters")
    }
}

impl Setting for Option<String> {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(
            self,
            text_ok(text).then(|| (!text.is_empty()).then(|| text.to_owned())),
        )
    }
    fn show(&self, _: &Spec) -> Option<String> {
        self.clone()
    }
    fn expected(&self, _: &Spec) -> String {
        format!("up to {MAX_TEXT} bytes of text without control characters")
    }
}

impl Setting for PathBuf {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        let usable = !text.is_empty() && text_ok(text);
        put(self, usable.then(|| Path::new(text).to_owned()))
    }
    fn show(&self, _: &Spec) -> Option<String> {
        Some(self.display().to_string())
    }
    fn expected(&self, _: &Spec) -> String {
        "a path".to_owned()
    }
}

/// No text is `None`; the option's documentation says what it means.
impl Setting for Option<PathBuf> {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        let path = (!text.is_empty()).then(|| Path::new(text).to_owned());
        put(self, text_ok(text).then_some(path))
    }
    fn show(&self, _: &Spec) -> Option<String> {
        self.as_ref().map(|path| path.display().to_string())
    }
    fn expected(&self, _: &Spec) -> String {
        "a path".to_owned()
    }
}

/// In the unit of its option, which must be one of time.
impl Setting for Duration {
    fn take(&mut self, text: &str, spec: &Spec) -> bool {
        let count = whole::<u32>(text, spec);
        put(self, count.and_then(|count| spec.unit?.duration(count)))
    }
    fn show(&self, spec: &Spec) -> Option<String> {
        spec.unit.map(|unit| unit.count(*self).to_string())
    }
    fn expected(&self, spec: &Spec) -> String {
        expected_whole(spec, 0, u32::MAX.into())
    }
}

/// As [`Duration`]; 0 is `None`.
impl Setting for Option<Duration> {
    fn take(&mut self, text: &str, spec: &Spec) -> bool {
        let mut duration = Duration::ZERO;
        duration.take(text, spec) && {
            *self = (!duration.is_zero()).then_some(duration);
            true
        }
    }
    fn show(&self, spec: &Spec) -> Option<String> {
        self.unwrap_or_default().show(spec)
    }
    fn expected(&self, spec: &Spec) -> String {
        Duration::ZERO.expected(spec)
    }
}

/// Declares an option that takes one of a few words.
macro_rules! choice {
    ($(
        $(#[doc = $about:literal])*
        pub enum $name:ident {
            $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])* $variant,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }

        impl $crate::setting::Setting for $name {
            fn take(&mut self, text: &str, _: &$crate::declare::Spec) -> bool {
                $crate::setting::put(self, match text {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                })
            }
            fn show(&self, _: &$crate::declare::Spec) -> Option<String> {
                Some(self.to_string())
            }
            fn expected(&self, _: &$crate::declare::Spec) -> String {
                format!("one of {}", [$($word),*].join(", "))
            }
        }
    )*};
}

pub(crate) use choice;
