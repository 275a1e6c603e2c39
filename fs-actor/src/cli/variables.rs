//! The environment in, the texts of the fields that it sets out.

use std::collections::BTreeMap;
use std::ffi::OsString;

use bailiwick::Token;
use bailiwick::config::Key;

use super::CliError;

/// What the names of all variables of fields begin with.
const PREFIX: &str = "BAILIWICK_";

/// Names and values, as the system has them.
pub(super) type Variables = Vec<(OsString, OsString)>;

/// The variable of the bearer token.
const TOKEN: &str = "BAILIWICK_TOKEN";

/// Removes the bearer token. It is not a configuration key, since neither a file nor a flag may hold it.
pub(super) fn token(variables: &mut Variables) -> Result<Option<String>, CliError> {
    let token = take(variables, TOKEN).map_err(|_| CliError::Token(TOKEN))?;
    match token {
        Some(token) if Token::chosen(&token).is_none() => Err(CliError::Token(TOKEN)),
        token => Ok(token),
    }
}

/// Removes a variable that sets no configuration key; its value.
pub(super) fn take(
    variables: &mut Variables,
    wanted: &'static str,
) -> Result<Option<String>, CliError> {
    let is_wanted = |(name, _): &mut (OsString, OsString)| name.to_str() == Some(wanted);
    let value = variables.extract_if(.., is_wanted).last();
    value
        .map(|(_, value)| value.into_string())
        .transpose()
        .map_err(|_| CliError::NotUtf8(wanted.to_owned()))
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
        let Some(field) = Key::settable().find(|field| field.variable() == name) else {
            return Err(CliError::Variable(name.to_owned()));
        };
        let Ok(value) = value.into_string() else {
            return Err(CliError::NotUtf8(name.to_owned()));
        };
        texts.insert(field.key, vec![value]);
    }
    Ok(texts)
}
