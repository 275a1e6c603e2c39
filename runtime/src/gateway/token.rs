//! Random bits in, a secret that proves who speaks out.

use std::fmt;

/// A bearer token of 256 random bits; whoever holds it is the client.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new token.
    ///
    /// # Errors
    /// The system's, if it gives no random bits.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// A token that somebody chose; none if it has fewer than 32 characters or one that no header can carry.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (text.len() >= 32 && visible).then(|| Self(text.to_owned()))
    }

    /// The secret itself, to hand to the one client.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this token; takes as long for any wrong one of its length.
    pub(super) fn matches(&self, given: &str) -> bool {
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
    fn a_token_is_itself_alone_and_never_shown() {
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
