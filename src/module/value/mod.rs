//! The value behind a key: a filter, or one on its way in; how it gets into a key, out of one, and
//! to the server.
//!
//! It may be stored under two types (`value/data_type.rs`), whose handles are here: the value is
//! the same, so is every command.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

mod aof;
pub(super) mod data_type;
mod defrag;
mod rdb;

use crate::{
    codec::native::dump::{self, Load},
    command::refusal::Refusal,
    filter::{CellKind, Expansion, Family, Filter, Layer, Params, Window},
    module::{
        api::{Key, clock, malloc_size, raw},
        stats,
    },
};

/// The value behind a key.
#[derive(Debug)]
pub(crate) enum Value {
    /// A filter without a window.
    Ready(Filter),
    /// A filter that forgets. Boxed, so that other filters stay small.
    Window(Box<Window>),
    /// A filter that BF.LOADCHUNK has begun and not finished. It answers no query: what it will
    /// hold is not all in. [`Value::placeholder`] is one, too.
    Loading(Box<Load>),
}

/// The seed of a placeholder, by which it is told from a filter that BF.LOADCHUNK has begun.
const PLACEHOLDER_SEED: u64 = 0x706c_6163_6568_6f6c;

#[cold]
fn is_placeholder(load: &Load) -> bool {
    load.filter().seed() == PLACEHOLDER_SEED
}

/// The server's handle of the type, set by `keep_types`.
static DATA_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// The handle of valkey-bloom's; null where its name was taken.
static VALKEY_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the handles that the server gave.
fn keep_types(own: *mut raw::RedisModuleType, valkeys: *mut raw::RedisModuleType) {
    DATA_TYPE.store(own, Relaxed);
    VALKEY_TYPE.store(valkeys, Relaxed);
}

impl Value {
    /// The value of a complete filter.
    pub(crate) fn of(filter: Filter) -> Self {
        match Window::try_from(filter) {
            Ok(window) => Self::Window(Box::new(window)),
            Err(filter) => Self::Ready(filter),
        }
    }

    /// The value in an open key.
    ///
    /// # Errors
    /// `WrongType`; a key that is not there is `Ok(None)`.
    #[inline]
    pub(crate) fn in_key(key: &mut Key) -> Result<Option<&mut Self>, Refusal> {
        let mut raw = key.value(DATA_TYPE.load(Relaxed)).cast::<Self>();
        if raw.is_null() {
            raw = Self::under_the_second_name(key)?;
        }
        // SAFETY: 1. a value of our type was made by `into_raw`: nothing else is given to the
        // server. 2. It lives as long as the key is open, and the exclusive borrow of the key makes
        // this the only reference: commands run one at a time.
        Ok(unsafe { raw.as_mut() })
    }

    /// What a key that holds nothing of the first type holds of the second; null if the key is not
    /// there.
    #[cold]
    fn under_the_second_name(key: &Key) -> Result<*mut Self, Refusal> {
        let raw = key.value(VALKEY_TYPE.load(Relaxed)).cast::<Self>();
        if raw.is_null() && !key.is_empty() {
            return Err(Refusal::WrongType);
        }
        Ok(raw)
    }

    /// The type under which it is stored.
    fn data_type(&self) -> *mut raw::RedisModuleType {
        match self {
            Self::Ready(filter) if matches!(filter.family(), Family::Valkey(_)) => {
                let second = VALKEY_TYPE.load(Relaxed);
                if second.is_null() { DATA_TYPE.load(Relaxed) } else { second }
            }
            Self::Ready(_) | Self::Window(_) | Self::Loading(_) => DATA_TYPE.load(Relaxed),
        }
    }

    /// The value in an open key, if it is complete.
    ///
    /// # Errors
    /// `WrongType`; `Loading` or `Placeholder` for one that is not complete; a key that is not
    /// there is `Ok(None)`.
    #[inline]
    pub(crate) fn complete_in_key(key: &mut Key) -> Result<Option<&mut Self>, Refusal> {
        match Self::in_key(key)? {
            Some(Self::Loading(load)) if is_placeholder(load) => Err(Refusal::Placeholder),
            Some(Self::Loading(_)) => Err(Refusal::Loading),
            value => Ok(value),
        }
    }

    /// The filter in an open key. One with a window has all layers that are allocated.
    ///
    /// # Errors
    /// Those of [`Self::complete_in_key`].
    #[inline]
    pub(crate) fn filter_in_key(key: &mut Key) -> Result<Option<&mut Filter>, Refusal> {
        Ok(Self::complete_in_key(key)?.map(Self::filter_mut))
    }

    /// A load that has nothing in it. It takes the place of a filter that exists elsewhere and
    /// could not be made here (`unapplied.rs`). `None` if there is no memory for a few bytes.
    ///
    /// Its parameters are not those of the filter elsewhere, so that no chunk of that filter
    /// completes it.
    pub(crate) fn placeholder() -> Option<Self> {
        let params = Params {
            error_rate: 0.01,
            capacity: 1,
            expansion: Expansion::NONSCALING,
            seed: PLACEHOLDER_SEED,
            cells: CellKind::Bits,
        };
        let filter = Filter::new(&params, u64::MAX).ok()?;
        let (_, header) = dump::header(&filter);
        let load = Load::begin(&header, u64::MAX).ok()?;
        Some(Self::Loading(Box::new(load)))
    }

    /// Puts the value into an open, empty key.
    ///
    /// # Errors
    /// `NoMemory` if the server refuses it.
    pub(crate) fn put(self, key: &mut Key) -> Result<(), Refusal> {
        self.put_filled(key, |_| ())
    }

    /// [`Self::put`], after `fill` has changed the value. Once the key is published, subscribers in
    /// other modules may change it, and the value must not be used through its old handle.
    ///
    /// # Errors
    /// Those of [`Self::put`].
    pub(crate) fn put_filled<T>(
        self,
        key: &mut Key,
        fill: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Refusal> {
        let data_type = self.data_type();
        // Counted before `fill`, which counts what it changes.
        stats::made(self.filter());
        let mut value = Box::new(self);
        let filled = fill(&mut value);
        let raw = Box::into_raw(value).cast();
        if key.set(data_type, raw) {
            return Ok(filled);
        }
        // SAFETY: it was made above, and the server did not take it.
        drop(unsafe { Self::from_raw(raw) });
        Err(Refusal::NoMemory)
    }

    /// Makes a filter of a load that is complete.
    pub(crate) fn finish_load(&mut self) {
        if let Self::Loading(load) = self {
            // SAFETY: `self` is valid for reads, and is overwritten below before anyone can use or
            // drop it again: nothing in between can panic.
            let load = unsafe { std::ptr::read(load) };
            // SAFETY: `self` is valid for writes; its old content was moved out by the line above.
            unsafe { std::ptr::write(self, Self::of(load.into_filter())) };
        }
    }

    /// Gives it to the server.
    pub(crate) fn into_raw(self) -> *mut c_void {
        stats::made(self.filter());
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `raw` came from [`Self::into_raw`], and is not used again.
    pub(super) unsafe fn from_raw(raw: *mut c_void) -> Box<Self> {
        // SAFETY: the caller's promise.
        let value: Box<Self> = unsafe { Box::from_raw(raw.cast()) };
        stats::freed(value.filter());
        value
    }

    /// What the server passed to a callback.
    ///
    /// # Safety
    /// `raw` came from [`Self::into_raw`], and is not written to or freed while the reference
    /// lives.
    pub(crate) unsafe fn borrow<'a>(raw: *const c_void) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*raw.cast() }
    }

    /// The filter, complete or not: to measure, save and copy.
    pub(crate) fn filter(&self) -> &Filter {
        match self {
            Self::Ready(filter) => filter,
            Self::Window(window) => window.filter(),
            Self::Loading(load) => load.filter(),
        }
    }

    /// The filter, complete or not: to move its memory.
    pub(crate) fn filter_mut(&mut self) -> &mut Filter {
        match self {
            Self::Ready(filter) => filter,
            Self::Window(window) => window.filter_mut(),
            Self::Loading(load) => load.filter_mut(),
        }
    }

    /// The filter that forgets, if it is one.
    pub(crate) fn window(&self) -> Option<&Window> {
        match self {
            Self::Window(window) => Some(window),
            Self::Ready(_) | Self::Loading(_) => None,
        }
    }

    /// The items that are remembered now.
    pub(crate) fn items(&self) -> u64 {
        match self {
            Self::Window(window) => window.items(clock()),
            Self::Ready(_) | Self::Loading(_) => self.filter().items(),
        }
    }

    /// Bytes that the allocator really spends on it.
    pub(super) fn memory(&self) -> usize {
        let boxed = match self {
            Self::Ready(_) => 0,
            Self::Window(window) => malloc_size(std::ptr::from_ref::<Window>(window)),
            Self::Loading(load) => malloc_size(std::ptr::from_ref::<Load>(load)),
        };
        let filter = self.filter();
        let list: usize = filter.older_memory().into_iter().flatten().map(malloc_size).sum();
        let bits: usize =
            filter.layers().map(|layer| malloc_size(layer.bits().words().as_ptr())).sum();
        let boxes: usize =
            filter.layers().filter_map(Layer::boxed).map(|(address, _)| malloc_size(address)).sum();
        malloc_size(std::ptr::from_ref(self)) + boxed + list + bits + boxes
    }
}
