//! Names, checked once where they enter. A value of these types is always well formed.

use std::fmt;
use std::sync::Arc;

/// Longest sensor name in bytes: it is part of every `_id`, so of every index entry.
const MAX_SENSOR_BYTES: usize = 128;
/// Longest field name in bytes: it is repeated in every sample of a document.
const MAX_FIELD_BYTES: usize = 128;
/// Longest site name in bytes.
const MAX_SITE_BYTES: usize = 64;

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("{0} name is empty")]
    Empty(&'static str),
    /// More bytes than allowed.
    #[error("{kind} name has {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// What was named.
        kind: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// A character that this kind of name cannot hold.
    #[error("{kind} name `{}` holds {found:?}, which is not allowed there ({allowed})", name.escape_debug())]
    Character {
        /// What was named.
        kind: &'static str,
        /// The name.
        name: String,
        /// The offending character.
        found: char,
        /// What is allowed instead.
        allowed: &'static str,
    },
}

macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether both are the very same allocation: a fast "yes" before a comparison of the text.
            pub fn is_same_allocation(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_name! {
    /// One sensor: 1 to 128 bytes of UTF-8 without control characters.
    SensorName
}
text_name! {
    /// One field of a sensor. `.`, `$` and NUL, which MongoDB reserves, are replaced by `_`.
    FieldName
}
text_name! {
    /// One installation: `[A-Za-z0-9._-]{1,64}`.
    SiteName
}
text_name! {
    /// One configured input: `[A-Za-z0-9_-]{1,64}`.
    SourceName
}

impl SensorName {
    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        sized("sensor", name, MAX_SENSOR_BYTES)?;
        only("sensor", name, |c| !c.is_control(), "no control characters")?;
        Ok(Self(name.into()))
    }
}

impl FieldName {
    /// Checks a name and replaces what MongoDB reserves: `a.b` becomes `a_b`, `$set` becomes `_set`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        sized("field", name, MAX_FIELD_BYTES)?;
        Ok(Self(name.replace(['.', '$', '\0'], "_").into()))
    }
}

impl SiteName {
    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        sized("site", name, MAX_SITE_BYTES)?;
        only("site", name, |c| c.is_ascii_alphanumeric() || "._-".contains(c), "letters, digits, `.`, `_`, `-`")?;
        Ok(Self(name.into()))
    }
}

impl SourceName {
    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        sized("source", name, MAX_SITE_BYTES)?;
        only("source", name, |c| c.is_ascii_alphanumeric() || "_-".contains(c), "letters, digits, `_`, `-`")?;
        Ok(Self(name.into()))
    }
}

fn sized(kind: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    match name.len() {
        0 => Err(NameError::Empty(kind)),
        bytes if bytes > max => Err(NameError::TooLong { kind, bytes, max }),
        _ => Ok(()),
    }
}

fn only(kind: &'static str, name: &str, allow: impl Fn(char) -> bool, allowed: &'static str) -> Result<(), NameError> {
    match name.chars().find(|&c| !allow(c)) {
        Some(found) => Err(NameError::Character { kind, name: name.to_owned(), found, allowed }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        assert!(SensorName::new("kitchen/🌡 100%|x").is_ok());
        assert!(SensorName::new("").is_err());
        assert!(SensorName::new("a\nb").is_err());
        assert!(SensorName::new(&"x".repeat(129)).is_err());
        assert!(SiteName::new("greenhouse-7").is_ok());
        assert_eq!(
            SiteName::new("green house").unwrap_err().to_string(),
            "site name `green house` holds ' ', which is not allowed there (letters, digits, `.`, `_`, `-`)"
        );
    }

    #[test]
    fn field_names_replace_what_mongodb_reserves() {
        assert_eq!(FieldName::new("a.b").unwrap().as_str(), "a_b");
        assert_eq!(FieldName::new("$set").unwrap().as_str(), "_set");
        assert_eq!(FieldName::new("x\0y").unwrap().as_str(), "x_y");
        assert!(FieldName::new("").is_err());
    }
}
