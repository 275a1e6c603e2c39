//! The durability of writes, set by flag, variable or configuration file.

use std::path::Path;

use bailiwick_fs::Durability;
use serde_json::{Value, json};

use super::CliError;
use super::variables::Variables;

/// The key in the configuration file.
const KEY: &str = "durability";
/// The environment variable.
const VARIABLE: &str = "BAILIWICK_DURABILITY";

pub(super) const LEVELS: [(&str, Durability); 3] = [
    ("visible", Durability::Visible),
    ("ordered", Durability::Ordered),
    ("durable", Durability::Durable),
];

fn parse(text: &str) -> Option<Durability> {
    LEVELS
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, level)| *level)
}

/// Adds the key to the schema of the configuration file.
pub(super) fn add_to_schema(mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let level = json!({
            "description": "The durability of writes; only in the configuration file",
            "type": "string",
            "enum": LEVELS.map(|(name, _)| name),
            "default": "ordered",
        });
        properties.insert(KEY.into(), level);
    }
    schema
}

/// Removes the key from the configuration file.
pub(super) fn take(path: &Path, document: &mut Value) -> Result<Option<Durability>, CliError> {
    let Some(value) = document
        .as_object_mut()
        .and_then(|members| members.shift_remove(KEY))
    else {
        return Ok(None);
    };
    let level = value.as_str().and_then(parse);
    let location = || format!("`/{KEY}` in `{}`", path.display());
    level
        .map(Some)
        .ok_or_else(|| CliError::Durability(location()))
}

/// The value of the flag, else of the variable (which is removed), else of the file.
pub(super) fn resolve(
    flag: Option<Durability>,
    variables: &mut Variables,
    file: Option<Durability>,
) -> Result<Durability, CliError> {
    let variable = super::variables::take(variables, VARIABLE)?;
    let level = |text: String| parse(&text).ok_or_else(|| CliError::Durability(VARIABLE.into()));
    let variable = variable.map(level).transpose()?;
    Ok(flag.or(variable).or(file).unwrap_or_default())
}
