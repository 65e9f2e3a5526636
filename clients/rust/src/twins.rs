//! One description of a type for its blocking form and its form for tokio.

/// `pub struct SYNC` and `pub struct ASYNC` over one `Core`, with these of its methods. SYNC runs
/// them by `now`, and ASYNC awaits them. The method after `new` is the same in both.
macro_rules! twins {
    ($(#[$about:meta])* $sync:ident, $asynchronous:ident, new($($option:ident: $kind:ty),*)
       $(, $(#[$says:meta])* $get:ident -> $value:ty)?;
     $($(#[$does:meta])*
       fn $name:ident$(<$generic:ident: $bound:path>)?(&self $(, $word:ident: $type:ty)*)
           -> $result:ty;)*) => {
        $(#[$about])*
        pub struct $sync(std::sync::Arc<Core>);

        impl $sync {
            /// Takes addresses and credentials, with connections and timeouts of its own.
            pub fn new(servers: impl Into<Servers>, name: &str $(, $option: $kind)*)
                -> Result<Self> {
                Ok(Self(Core::new(&servers.into(), name, false $(, $option)*)?.into()))
            }

            $($(#[$does])*
            pub fn $name$(<$generic: $bound>)?(&self $(, $word: $type)*) -> $result {
                crate::link::now(self.0.$name($($word),*))
            })*

            $($(#[$says])*
            pub fn $get(&self) -> $value {
                self.0.$get()
            })?
        }

        #[doc = concat!("[`", stringify!($sync), "`] for tokio.")]
        pub struct $asynchronous(std::sync::Arc<Core>);

        impl $asynchronous {
            #[doc = concat!("As [`", stringify!($sync), "::new`].")]
            pub fn new(servers: impl Into<Servers>, name: &str $(, $option: $kind)*)
                -> Result<Self> {
                Ok(Self(Core::new(&servers.into(), name, true $(, $option)*)?.into()))
            }

            $($(#[$does])*
            pub async fn $name$(<$generic: $bound>)?(&self $(, $word: $type)*) -> $result {
                self.0.$name($($word),*).await
            })*

            $($(#[$says])*
            pub fn $get(&self) -> $value {
                self.0.$get()
            })?
        }
    };
}

pub(crate) use twins;
