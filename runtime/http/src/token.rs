//! Bearer tokens.

use std::{fmt, io};

/// Bearer token of 256 random bits.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Creates a random token.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// Parses a chosen token; `None` if it has fewer than 32 characters or one that is invalid in a header.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (text.len() >= 32 && visible).then(|| Self(text.to_owned()))
    }

    /// The token itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time for a given length.
    pub(crate) fn matches(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differ = own.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == given.len() && differ == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_itself_and_is_not_in_debug_output() {
        let token = Token::random().unwrap();
        assert!(token.matches(token.reveal()));
        assert_ne!(token.reveal(), Token::random().unwrap().reveal());
        let longer = format!("{}0", token.reveal());
        for other in [
            "",
            "x",
            &longer,
            token.reveal().trim_start_matches(char::is_alphanumeric),
        ] {
            assert!(!token.matches(other));
        }
        assert!(!format!("{token:?}").contains(token.reveal()));
        assert!(Token::parse("short").is_none());
        assert!(Token::parse(&"a b".repeat(20)).is_none());
        assert!(Token::parse(token.reveal()).is_some());
    }
}
