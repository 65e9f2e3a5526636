//! One description of a type for its blocking form and its form for tokio.

/// `pub struct SYNC` and `pub struct ASYNC` over one `Core`, with these of its methods. SYNC runs
/// them by `now`, and ASYNC awaits them. The method after `new` is an expression, the same in both.
/// After `;` is a callback: `f(x: X) -> T` is `impl FnOnce(X) -> T`. In ASYNC it returns a future.
macro_rules! twins {
    ($(#[$about:meta])* $sync:ident, $asynchronous:ident, new($($option:ident: $kind:ty)?)
       $(, $(#[$says:meta])* $get:ident($core:ident) -> $value:ty = $how:expr)?;
     $($(#[$does:meta])*
       fn $name:ident$(<$($generic:ident$(: $bound:path)?),+>)?(&self $(, $word:ident: $type:ty)*
           $(; $callback:ident($($given:ident: $gift:ty)?) -> $found:ty)?) -> $result:ty;)*) => {
        $(#[$about])*
        pub struct $sync(std::sync::Arc<Core>);

        impl $sync {
            /// Takes addresses and credentials, with connections and timeouts of its own.
            pub fn new(servers: impl Into<Servers>, name: &str $(, $option: $kind)?)
                -> Result<Self> {
                Ok(Self(Core::new(&servers.into(), name, false $(, $option)?)?.into()))
            }

            $($(#[$does])*
            pub fn $name$(<$($generic$(: $bound)?),+>)?(&self $(, $word: $type)*
                $(, $callback: impl FnOnce($($gift)?) -> $found)?) -> $result {
                crate::link::now(self.0.$name($($word,)*
                    $(|$($given)?| std::future::ready($callback($($given)?)))?))
            })*

            $($(#[$says])*
            pub fn $get(&self) -> $value {
                let $core = &*self.0;
                $how
            })?
        }

        #[doc = concat!("[`", stringify!($sync), "`] for tokio, with the same rules.")]
        pub struct $asynchronous(std::sync::Arc<Core>);

        impl $asynchronous {
            #[doc = concat!("As [`", stringify!($sync), "::new`].")]
            pub fn new(servers: impl Into<Servers>, name: &str $(, $option: $kind)?)
                -> Result<Self> {
                Ok(Self(Core::new(&servers.into(), name, true $(, $option)?)?.into()))
            }

            $($(#[$does])*
            pub async fn $name<$($($generic$(: $bound)?,)+)? $(F: Future<Output = $found>)?>(
                &self $(, $word: $type)* $(, $callback: impl FnOnce($($gift)?) -> F)?) -> $result {
                self.0.$name($($word,)* $($callback)?).await
            })*

            $($(#[$says])*
            pub fn $get(&self) -> $value {
                let $core = &*self.0;
                $how
            })?
        }
    };
}

pub(crate) use twins;
