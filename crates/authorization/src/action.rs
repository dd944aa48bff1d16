//! What rules allow and deny.

/// What is to be allowed or denied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// To publish to a topic name (also by a will).
    Publish,
    /// To have a message on a topic name retained.
    Retain,
    /// To subscribe to a topic filter.
    Subscribe,
    /// To be sent a message on a topic name.
    Receive,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Publish, Self::Retain, Self::Subscribe, Self::Receive];

    /// The word for it in rules.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Retain => "retain",
            Self::Subscribe => "subscribe",
            Self::Receive => "receive",
        }
    }
}

/// The word for subscribing without receiving.
pub(crate) const SUBSCRIBE_ONLY: &str = "subscribe-only";

/// The actions that a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Actions(u8);

impl Actions {
    /// Every action.
    pub const ALL: Self = Self((1 << Action::ALL.len()) - 1);

    /// Reads actions separated by commas, or `all`. `None`: one of them is unknown.
    ///
    /// `publish` means retained messages too, and `subscribe` what the subscription then brings: a rule
    /// that stands before it and names only `retain` or `receive` can say otherwise. `subscribe-only` is
    /// [`Action::Subscribe`] without [`Action::Receive`].
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        words.split(',').try_fold(Self::default(), |all, word| {
            Some(Self(all.0 | Self::of_word(word.trim())?.0))
        })
    }

    fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "publish" => Self::of(&[Action::Publish, Action::Retain]),
            "retain" => Self::of(&[Action::Retain]),
            "subscribe" => Self::of(&[Action::Subscribe, Action::Receive]),
            SUBSCRIBE_ONLY => Self::of(&[Action::Subscribe]),
            "receive" => Self::of(&[Action::Receive]),
            "all" => Self::ALL,
            _ => return None,
        })
    }

    fn of(actions: &[Action]) -> Self {
        Self(actions.iter().fold(0, |bits, action| bits | bit(*action)))
    }

    /// Whether the action is one of these.
    #[must_use]
    pub fn contains(self, action: Action) -> bool {
        self.0 & bit(action) != 0
    }
}

fn bit(action: Action) -> u8 {
    1 << action as u8
}
