//! Defines enumerations whose values are words, as text, JSON and JSON Schema.

/// Defines an enumeration with the word of each value, a list of all values, and `as_str`.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$meta:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $name {
            $($(#[$meta])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// All values, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Returns the value as written.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }
    };
}

pub(crate) use words;
