//! Who adds items, and what each addition did.

use crate::filter::layer::item_set::{Answers, ItemSet};

/// Who adds an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A client, at this time. [`Paged::turn`](super::Paged::turn) came before.
    Client(i64),
    /// A primary or an AOF, whose additions changed the newest generation. They are never refused.
    Obeyed,
}

/// What an addition did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    /// Whether no generation that is alive held the item; of an obeyed one, the newest alone.
    pub new: bool,
    /// Whether the filter changed.
    pub changed: bool,
}

/// What the additions of a chunk of items did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Additions {
    /// [`Addition::new`] of each item.
    pub new: Answers,
    /// [`Addition::changed`] of each item.
    pub changed: Answers,
}

/// The additions to a filter of layers, which changes by new items alone.
impl From<Answers> for Additions {
    fn from(new: Answers) -> Self {
        Self { new, changed: new }
    }
}

impl Additions {
    #[inline]
    pub(super) fn push(&mut self, Addition { new, changed }: Addition) {
        self.new.push(new);
        self.changed.push(changed);
    }

    /// The answers for `count` items, of which those in `known` changed nothing.
    pub(super) fn among(self, known: ItemSet, count: usize) -> Self {
        let mut others = self.new.each().zip(self.changed.each());
        let mut all = Self::default();
        for index in 0..count {
            if known.has(index) {
                all.push(Addition::default());
            } else if let Some((new, changed)) = others.next() {
                all.push(Addition { new, changed });
            } else {
                break;
            }
        }
        all
    }
}
