//! Environment variables of configuration keys.

use std::collections::BTreeMap;
use std::ffi::OsString;

use bailiwick::config::Key;
use bailiwick_mcp::gateway::Token;

use super::CliError;

/// The prefix of all variables.
const PREFIX: &str = "BAILIWICK_";

/// Names and values of environment variables.
pub(super) type Variables = Vec<(OsString, OsString)>;

/// The variable of the bearer token.
const TOKEN: &str = "BAILIWICK_TOKEN";

/// Variables of `bailiwick serve` that are not configuration keys.
const SERVE_ONLY: [&str; 4] = [
    TOKEN,
    "BAILIWICK_ALLOW_HOST",
    "BAILIWICK_ALLOW_ORIGIN",
    "BAILIWICK_DURABILITY",
];

/// Removes the bearer token. It is not a configuration key, since it must not be in a file or flag.
pub(super) fn take_token(variables: &mut Variables) -> Result<Option<String>, CliError> {
    let token = take(variables, TOKEN).map_err(|_| CliError::Token(TOKEN))?;
    match token {
        Some(token) if Token::parse(&token).is_none() => Err(CliError::Token(TOKEN)),
        token => Ok(token),
    }
}

/// Removes a variable and returns its value.
pub(super) fn take(
    variables: &mut Variables,
    variable: &'static str,
) -> Result<Option<String>, CliError> {
    let is_match = |(name, _): &mut (OsString, OsString)| name.to_str() == Some(variable);
    let value = variables.extract_if(.., is_match).last();
    value
        .map(|(_, value)| value.into_string())
        .transpose()
        .map_err(|_| CliError::NotUtf8(variable.to_owned()))
}

/// Removes the variables that only `bailiwick serve` uses.
pub(super) fn drop_serve_only(variables: &mut Variables) {
    variables.retain(|(name, _)| !SERVE_ONLY.iter().any(|known| name == known));
}

/// Collects the variables of configuration keys. Unknown variables with the prefix are rejected, since they may be misspelled
/// restrictions.
pub(super) fn field_values(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<&'static str, Vec<String>>, CliError> {
    let mut values = BTreeMap::new();
    // Sorted, so that errors are deterministic.
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
        values.insert(field.key, vec![value]);
    }
    Ok(values)
}
