//! One description of a type for its blocking form and its form for tokio.

/// `pub struct SYNC` and `pub struct ASYNC` over one `Core`, with these methods of it. `now` runs
/// those of the first, and tokio awaits those of the second.
macro_rules! twins {
    ($(#[$about:meta])* $sync:ident, $asynchronous:ident, new($($option:ident: $kind:ty),*);
     $($(#[$does:meta])*
       fn $name:ident$(<$generic:ident: $bound:path>)?(&self $(, $word:ident: $type:ty)*)
           -> $result:ty;)*) => {
        $(#[$about])*
        pub struct $sync(Core<crate::link::Blocking>);

        impl $sync {
            /// Takes addresses and credentials, with connections and timeouts of its own.
            pub fn new(servers: impl Into<Servers>, name: &str $(, $option: $kind)*) -> Self {
                Self(Core::new(&servers.into(), name $(, $option)*))
            }

            $($(#[$does])*
            pub fn $name$(<$generic: $bound>)?(&self $(, $word: $type)*) -> $result {
                crate::link::now(self.0.$name($($word),*))
            })*
        }

        #[doc = concat!("[`", stringify!($sync), "`] for tokio.")]
        #[cfg(feature = "tokio")]
        pub struct $asynchronous(Core<crate::link::Tokio>);

        #[cfg(feature = "tokio")]
        impl $asynchronous {
            #[doc = concat!("As [`", stringify!($sync), "::new`].")]
            pub fn new(servers: impl Into<Servers>, name: &str $(, $option: $kind)*) -> Self {
                Self(Core::new(&servers.into(), name $(, $option)*))
            }

            $($(#[$does])*
            pub async fn $name$(<$generic: $bound>)?(&self $(, $word: $type)*) -> $result {
                self.0.$name($($word),*).await
            })*
        }
    };
}

pub(crate) use twins;
