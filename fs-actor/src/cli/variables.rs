//! The environment in, the texts of the fields that it sets out.

use std::collections::BTreeMap;
use std::ffi::OsString;

use bailiwick::{Field, Token};

use super::CliError;

/// What the names of all variables of fields begin with.
const PREFIX: &str = "BAILIWICK_";

/// Names and values, as the system has them.
type Variables = Vec<(OsString, OsString)>;

/// The variable of the bearer token.
const TOKEN: &str = "BAILIWICK_TOKEN";

/// Takes out the bearer token, which is no field, for no file and no flag may hold it.
pub(super) fn token(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Option<String>, Variables), CliError> {
    let (tokens, rest): (Vec<_>, Vec<_>) = variables
        .into_iter()
        .partition(|(name, _)| name.to_str() == Some(TOKEN));
    let Some((_, token)) = tokens.into_iter().next_back() else {
        return Ok((None, rest));
    };
    let token = token.into_string().ok();
    let token = token.filter(|token| Token::chosen(token).is_some());
    Ok((Some(token.ok_or(CliError::Token(TOKEN))?), rest))
}

/// Finds the variables of fields; one that begins like them and is none is refused, for it may be a restriction that is
/// spelled wrong.
pub(super) fn texts(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<&'static str, Vec<String>>, CliError> {
    let mut texts = BTreeMap::new();
    // In one order, so that of two that are wrong always the same is told.
    for (name, value) in variables.into_iter().collect::<BTreeMap<_, _>>() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let Some(field) = Field::settable().find(|field| field.variable() == name) else {
            return Err(CliError::Variable(name.to_owned()));
        };
        let Ok(value) = value.into_string() else {
            return Err(CliError::NotUtf8(name.to_owned()));
        };
        texts.insert(field.key, vec![value]);
    }
    Ok(texts)
}
