//! The value of a key: a filter, or one that is being loaded; how it gets into a key, out of one,
//! and to the server. It may be stored under two types (`value/data_type.rs`).

use std::{
    ffi::{CStr, c_void},
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

pub(super) mod data_type;
mod defrag;

pub(crate) use crate::codec::native::Stored;
use crate::{
    codec::{self, native::Load},
    command::refusal::Refusal,
    filter::{self, Expansion, Family, Filter, Params, Plan, paged::Paged},
    module::{
        api::{Key, clock, malloc_size, raw},
        guarded,
        stats::{self, Share},
    },
    sharding::Shard,
};

/// The seed of a placeholder, which tells it from other loads. If the AOF does not have the
/// placeholder, the last bit is 1.
const PLACEHOLDER_SEED: u64 = 0x706c_6163_6568_6f6c;

/// The server's handle of the type, set by `data_type::register`.
static DATA_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());
/// That of valkey-bloom's type; null where its name was taken.
static VALKEY_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

impl Stored {
    /// Copies the value, if there is memory.
    pub(crate) fn duplicate(&self) -> Result<Self, filter::Error> {
        match self {
            Self::Layers(filter) => filter.duplicate().map(Self::Layers),
            Self::Pages(paged) => paged.duplicate().map(Self::Pages),
            Self::Partial(load) => load.duplicate().map(|load| Self::Partial(Box::new(load))),
        }
    }

    /// The value in an open key; `None` if the key is missing.
    #[inline]
    pub(crate) fn in_key(key: &mut Key) -> Result<Option<&mut Self>, Refusal> {
        let mut raw = key.value(DATA_TYPE.load(Relaxed)).cast::<Self>();
        if raw.is_null() {
            raw = Self::under_the_second_name(key)?;
        }
        // SAFETY: 1. a value of our type was made by `into_raw` or `put_filled`: nothing else is
        // given to the server. 2. It lives as long as the key is open, and the exclusive borrow of
        // the key makes this the only reference: commands run one at a time.
        Ok(unsafe { raw.as_mut() })
    }

    /// The value under the second type, in a key without a value of the first type; null if the key
    /// is missing.
    #[cold]
    fn under_the_second_name(key: &Key) -> Result<*mut Self, Refusal> {
        let raw = key.value(VALKEY_TYPE.load(Relaxed)).cast::<Self>();
        if raw.is_null() && !key.is_empty() {
            return Err(Refusal::WRONG_TYPE);
        }
        Ok(raw)
    }

    /// The type under which it is stored.
    fn data_type(&self) -> *mut raw::RedisModuleType {
        let valkeys = VALKEY_TYPE.load(Relaxed);
        match self {
            Self::Layers(filter)
                if matches!(filter.family(), Family::Valkey(_)) && !valkeys.is_null() =>
            {
                valkeys
            }
            _ => DATA_TYPE.load(Relaxed),
        }
    }

    /// The value in an open key, if it is complete; `None` if the key is missing.
    #[inline]
    pub(crate) fn complete_in_key(key: &mut Key) -> Result<Option<&mut Self>, Refusal> {
        match Self::in_key(key)? {
            Some(Self::Partial(load)) => Err(incomplete(load)),
            value => Ok(value),
        }
    }

    /// A load that has nothing in it. It takes the place of a filter that exists elsewhere and
    /// could not be made here (`unapplied.rs`). `written` is whether the AOF gets the placeholder.
    /// If not, the AOF has a COPY or RESTORE, which may succeed when the server starts again. No
    /// chunk of the filter elsewhere completes it, because its parameters differ.
    pub(crate) fn placeholder(written: bool) -> Option<Self> {
        let params = Params {
            error_rate: 0.01,
            capacity: 1,
            expansion: Expansion::NONSCALING,
            seed: PLACEHOLDER_SEED | u64::from(!written),
            counts: false,
            shard: None,
        };
        let load = Load::new(Plan::new(&params).ok()?, u64::MAX).ok()?;
        Some(Self::Partial(Box::new(load)))
    }

    /// Whether it is a placeholder that the AOF has.
    pub(crate) fn is_written_placeholder(&self) -> bool {
        matches!(self, Self::Partial(load) if seed(load) == Some(PLACEHOLDER_SEED))
    }

    /// Puts the value into an open, empty key.
    pub(crate) fn put(self, key: &mut Key) -> Result<(), Refusal> {
        self.put_filled(key, |_| ())
    }

    /// [`Self::put`], after `fill` has changed the value. Afterwards only the key may be used: once
    /// it is published, subscribers in other modules may change it.
    pub(crate) fn put_filled<T>(
        self,
        key: &mut Key,
        fill: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Refusal> {
        let data_type = self.data_type();
        // Counted before `fill`, which counts what it changes.
        stats::made(self.share());
        let mut value = Box::new(self);
        let filled = fill(&mut value);
        let raw = Box::into_raw(value).cast();
        if key.set(data_type, raw) {
            return Ok(filled);
        }
        // SAFETY: it was made above, and the server did not take it.
        drop(unsafe { Self::from_raw(raw) });
        Err(Refusal::NO_MEMORY)
    }

    /// Makes a filter of a load that is complete. Without memory it remains a load.
    pub(crate) fn finish_load(&mut self) -> Result<(), codec::Error> {
        let before = self.share();
        let Self::Partial(load) = self else {
            return Ok(());
        };
        let finished = load.finish().map(|stored| *self = stored);
        // A try that fails may have split some pages.
        before.changed(self.share());
        finished
    }

    /// Puts empty pages above the only layer of a filter, which is full. Without memory nothing
    /// changes.
    #[cold]
    pub(crate) fn overflow(&mut self) -> Result<(), filter::Error> {
        if let Self::Layers(filter) = self {
            let before = Share::of_layers(filter);
            let paged = filter.overflow()?;
            before.changed(Share::of_pages(&paged));
            *self = Self::Pages(paged);
        }
        Ok(())
    }

    /// Gives it to the server.
    pub(crate) fn into_raw(self) -> *mut c_void {
        stats::made(self.share());
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `raw` came from [`Self::into_raw`] or [`Self::put_filled`], and is not used again.
    pub(super) unsafe fn from_raw(raw: *mut c_void) -> Box<Self> {
        // SAFETY: the caller's promise.
        let value: Box<Self> = unsafe { Box::from_raw(raw.cast()) };
        stats::freed(value.share());
        value
    }

    /// What it adds to the totals over all filters.
    pub(crate) fn share(&self) -> Share {
        match self {
            Self::Layers(filter) => Share::of_layers(filter),
            Self::Pages(paged) => Share::of_pages(paged),
            Self::Partial(load) => {
                load.layered().map_or_else(|| Share::of_part(load), Share::of_layers)
            }
        }
    }

    /// The shard that it is, if it is one.
    #[inline]
    pub(crate) fn shard(&self) -> Option<Shard> {
        match self {
            Self::Layers(filter) => filter.shard(),
            Self::Pages(paged) => paged.shard(),
            Self::Partial(_) => None,
        }
    }

    /// The items that are remembered now.
    pub(crate) fn items(&self) -> u64 {
        match self {
            Self::Layers(filter) => filter.items(),
            Self::Pages(paged) => paged.items(now(paged)),
            Self::Partial(_) => 0,
        }
    }

    /// Bytes of bits and pages, those included that a window has emptied and not freed.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Layers(filter) => filter.bit_bytes(),
            Self::Pages(paged) => paged.bytes().saturating_add(paged.leaving_bytes()),
            Self::Partial(load) => load.bytes(),
        }
    }

    /// Bytes that the allocator really spends on it.
    pub(super) fn memory(&self) -> usize {
        let own = malloc_size(std::ptr::from_ref(self));
        own + match self {
            Self::Layers(filter) => filter.memory(malloc_size),
            Self::Pages(paged) => paged.memory(malloc_size),
            Self::Partial(load) => {
                malloc_size(std::ptr::from_ref::<Load>(load))
                    + load.filter.as_ref().map_or(0, |filter| filter.memory(malloc_size))
                    + load.layer_plans().first().map_or(0, |first| malloc_size(first))
                    // Its pages have the sizes that the allocator gives.
                    + load.page_bytes() as usize
            }
        }
    }
}

/// Runs the body of a callback that gets a value; returns `fallback` if it panics.
///
/// # Safety
/// `raw` came from [`Stored::into_raw`] or [`Stored::put_filled`]. Nothing writes to it or frees it
/// until this returns: the server calls back between commands, or in a child process.
unsafe fn with_value<T>(
    entry: &CStr,
    fallback: T,
    raw: *const c_void,
    body: impl FnOnce(&Stored) -> T,
) -> T {
    // SAFETY: the caller's promise.
    guarded(entry, fallback, || body(unsafe { &*raw.cast() }))
}

/// The pointer to a placeholder, or null if there is no memory for a few bytes.
fn placeholder() -> *mut c_void {
    Stored::placeholder(false).map_or(std::ptr::null_mut(), Stored::into_raw)
}

/// The time by which a query is answered. Only a window needs it.
#[inline]
pub(crate) fn now(paged: &Paged) -> i64 {
    if paged.window().is_some() { clock() } else { 0 }
}

/// Why a load answers nothing.
#[cold]
fn incomplete(load: &Load) -> Refusal {
    if is_placeholder(load) { Refusal::PLACEHOLDER } else { Refusal::LOADING }
}

/// Whether it takes the place of a filter that could not be made here.
pub(crate) fn is_placeholder(load: &Load) -> bool {
    seed(load).is_some_and(|seed| seed | 1 == PLACEHOLDER_SEED | 1)
}

fn seed(load: &Load) -> Option<u64> {
    load.layered().map(Filter::seed)
}
