//! The form in which options are declared, and what can be done with a declaration.
//!
//! `options!` turns one table per group into a typed struct with its defaults, and into
//! [`Section::entries`], a view of that struct as named slots. Everything else (reading a file,
//! naming the nearest key, comparing two configurations, the reference page, the example file) is
//! ordinary code over that view, so a new option is one line in `options.rs` and nothing else.
//!
//! Kinds: `live` options take effect at SIGHUP, `fixed` ones at the next start; a `group` holds
//! further options. A field of type `Vec<group>` accepts one object or a list of objects.

use std::{fmt, ops::RangeInclusive, time::Duration};

use crate::setting::Setting;

/// What is declared about one option or group, apart from its value.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Name within its group, as written in the file.
    pub(crate) key: &'static str,
    pub(crate) doc: &'static [&'static str],
    pub(crate) unit: Option<Unit>,
    /// Narrower than what the type allows.
    pub(crate) range: Option<RangeInclusive<u64>>,
    /// What the example file shows as active instead of the default in a comment.
    pub(crate) example: Option<&'static str>,
    /// Whether SIGHUP applies a new value.
    pub(crate) live: bool,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    BytesPerSecond,
    Milliseconds,
    Nanoseconds,
    Seconds,
}

/// A group of options.
pub(crate) trait Section {
    fn about(&self) -> &'static [&'static str];
    /// The same group with every option at its default.
    fn fresh(&self) -> Box<dyn Section>;
    fn entries(&mut self) -> Vec<Entry<'_>>;
}

/// One line of a group: its declaration, and access to the value.
pub(crate) struct Entry<'a> {
    pub(crate) spec: &'static Spec,
    pub(crate) slot: Slot<'a>,
}

pub(crate) enum Slot<'a> {
    Setting(&'a mut dyn Setting),
    Section(&'a mut dyn Section),
    List(&'a mut dyn List),
}

/// One object or a list of objects of the same group.
pub(crate) trait List {
    /// An item with every option at its default.
    fn item(&self) -> Box<dyn Section>;
    fn items(&mut self) -> Vec<&mut dyn Section>;
    fn clear(&mut self);
    /// Appends a default item and hands it out.
    fn add(&mut self) -> &mut dyn Section;
}

/// How a field's type takes part.
pub(crate) trait AsSlot {
    fn slot(&mut self) -> Slot<'_>;
}

impl<T: Setting> AsSlot for T {
    fn slot(&mut self) -> Slot<'_> {
        Slot::Setting(self)
    }
}

impl<S: Section + Default + 'static> AsSlot for Vec<S> {
    fn slot(&mut self) -> Slot<'_> {
        Slot::List(self)
    }
}

impl<S: Section + Default + 'static> List for Vec<S> {
    fn item(&self) -> Box<dyn Section> {
        Box::new(S::default())
    }
    fn items(&mut self) -> Vec<&mut dyn Section> {
        self.iter_mut()
            .map(|item| item as &mut dyn Section)
            .collect()
    }
    fn clear(&mut self) {
        Vec::clear(self);
    }
    fn add(&mut self) -> &mut dyn Section {
        self.push(S::default());
        self.last_mut().expect("an item was pushed just now")
    }
}

impl Spec {
    /// The documentation as paragraphs of one line each.
    pub(crate) fn text(&self) -> String {
        text(self.doc)
    }
}

/// Doc comment lines as one line of text.
pub(crate) fn text(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

impl Unit {
    /// The duration of `count` units; `None` for units that are not of time.
    pub(crate) fn duration(self, count: u32) -> Option<Duration> {
        match self {
            Self::Milliseconds => Some(Duration::from_millis(count.into())),
            Self::Seconds => Some(Duration::from_secs(count.into())),
            Self::Nanoseconds => Some(Duration::from_nanos(count.into())),
            Self::Bytes | Self::BytesPerSecond => None,
        }
    }

    /// How many whole units `duration` has.
    pub(crate) fn count(self, duration: Duration) -> u128 {
        match self {
            Self::Milliseconds => duration.as_millis(),
            Self::Nanoseconds => duration.as_nanos(),
            Self::Seconds | Self::Bytes | Self::BytesPerSecond => duration.as_secs().into(),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes per second",
            Self::Milliseconds => "milliseconds",
            Self::Nanoseconds => "nanoseconds",
            Self::Seconds => "seconds",
        })
    }
}

/// Declares groups of options. Each line reads
/// `kind "key" => field: Type = default, unit …, range …, example …;`
/// with its documentation above it; what comes after the type may be left out in this order.
macro_rules! options {
    ($(
        $(#[doc = $about:literal])*
        $visibility:vis struct $section:ident {
            $(
                $(#[doc = $doc:literal])*
                $kind:ident $key:literal => $field:ident: $type:ty $(= $default:expr)?
                    $(, unit $unit:ident)? $(, range $range:expr)? $(, example $example:literal)?;
            )*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $visibility struct $section {
            $(
                #[doc = concat!("`", $key, "`" $(, ", in ", stringify!($unit))?, ".")]
                $(#[doc = $doc])*
                pub $field: $type,
            )*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($field: options!(@default $($default)?),)* }
            }
        }

        impl $crate::declare::Section for $section {
            fn about(&self) -> &'static [&'static str] {
                &[$($about),*]
            }
            fn fresh(&self) -> Box<dyn $crate::declare::Section> {
                Box::new(Self::default())
            }
            fn entries(&mut self) -> Vec<$crate::declare::Entry<'_>> {
                vec![$($crate::declare::Entry {
                    spec: const { &$crate::declare::Spec {
                        key: $key,
                        doc: &[$($doc),*],
                        unit: options!(@maybe $($crate::declare::Unit::$unit)?),
                        range: options!(@maybe $($range)?),
                        example: options!(@maybe $($example)?),
                        live: options!(@live $kind),
                    } },
                    slot: $crate::declare::AsSlot::slot(&mut self.$field),
                }),*]
            }
        }

        impl $crate::declare::AsSlot for $section {
            fn slot(&mut self) -> $crate::declare::Slot<'_> {
                $crate::declare::Slot::Section(self)
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@maybe) => { None };
    (@maybe $value:expr) => { Some($value) };
    (@live live) => { true };
    (@live fixed) => { false };
    (@live group) => { false };
}

pub(crate) use options;
