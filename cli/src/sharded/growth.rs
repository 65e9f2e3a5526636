//! How the shards of a filter grow and forget: all of them in one way.

use std::fmt;

use crate::{
    filter_info::FilterInfo,
    window::{self, Window},
};

/// How a shard grows when it is full, and how it forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Size of a new layer over that of the one before; `None` if it does not grow.
    pub(crate) expansion: Option<u64>,
    /// `None` if it does not forget.
    pub(crate) window: Option<Window>,
}

impl Growth {
    /// The words of `BF.RESERVE` for it.
    pub(crate) fn words(self) -> Vec<String> {
        let mut words = match self.expansion {
            Some(factor) => vec!["EXPANSION".to_owned(), factor.to_string()],
            None => vec!["NONSCALING".to_owned()],
        };
        words.extend(self.window.into_iter().flat_map(|window| window::words(window.0)));
        words
    }
}

impl From<&FilterInfo> for Growth {
    fn from(info: &FilterInfo) -> Self {
        Self { expansion: info.expansion, window: info.window }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expansion {
            Some(factor) => write!(formatter, "EXPANSION {factor}, ")?,
            None => formatter.write_str("NONSCALING, ")?,
        }
        match self.window {
            Some(window) => write!(formatter, "window {window}"),
            None => formatter.write_str("no window"),
        }
    }
}
