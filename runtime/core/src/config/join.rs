//! Joins the values of two configuration sources, so that the later one never loosens the earlier one.

use serde_json::{Map, Value, json};

use super::{Config, Restriction};
use crate::policy::PolicyError;
use crate::policy::keys::{Key, Merge, ValueKind};
use crate::scope::ScopePattern;

/// Keys that are replaced together, since the default verdict depends on whether there are lists.
const SCOPE_LISTS: [&str; 4] = ["allow_scopes", "ask_scopes", "delegate_only", "otherwise"];

/// Merges `old` of an earlier source with `new` of a later one.
///
/// # Errors
/// [`PolicyError`] if `new` opens more than `old` and no value satisfies both.
pub(super) fn joined(field: &Key, old: &Value, new: &Value) -> Result<Value, PolicyError> {
    let joined = match (field.merge, field.kind) {
        (Merge::And, _) => json!(old == true && new == true),
        (Merge::Or, _) => json!(old == true || new == true),
        (Merge::Min, ValueKind::Object) => members(field, old, new)?,
        // Except in a budget, 0 is unlimited.
        (Merge::Min, ValueKind::Count) if field.parent().is_none() && *old == 0 => new.clone(),
        (Merge::Min, ValueKind::Count) if field.parent().is_none() && *new == 0 => old.clone(),
        (Merge::Min, ValueKind::Count) => json!(old.as_u64().min(new.as_u64())),
        (Merge::Max, ValueKind::Count) => json!(old.as_u64().max(new.as_u64())),
        (Merge::Min, ValueKind::OneOf(words)) => {
            let rank = |value: &Value| words.all().iter().position(|word| value == word);
            if rank(old) < rank(new) { old } else { new }.clone()
        }
        (Merge::Union, _) => {
            let missing = items(new).filter(|item| !items(old).any(|held| held == *item));
            items(old).chain(missing).cloned().collect()
        }
        (Merge::Intersection, ValueKind::Names | ValueKind::ListOf(_)) => {
            let both = items(old).filter(|item| items(new).any(|kept| kept == *item));
            both.cloned().collect()
        }
        (Merge::Identity, ValueKind::Patterns) => {
            check_covered(field, old, new)?;
            new.clone()
        }
        // Lists of scopes and roots, which `overridden` handles.
        _ => new.clone(),
    };
    Ok(joined)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn members(field: &Key, old: &Value, new: &Value) -> Result<Value, PolicyError> {
    let mut all = old.as_object().cloned().unwrap_or_default();
    for (name, value) in new.as_object().into_iter().flatten() {
        let member = Key::find(&format!("{}/{name}", field.key));
        let figure = match (all.get(name).filter(|old| !old.is_null()), member) {
            (Some(old), Some(member)) if !value.is_null() => joined(member, old, value)?,
            (Some(old), _) => old.clone(),
            (None, _) => value.clone(),
        };
        all.insert(name.clone(), figure);
    }
    Ok(Value::Object(all))
}

/// Rejects patterns of a later source that no pattern of the earlier one covers.
fn check_covered(field: &Key, old: &Value, new: &Value) -> Result<(), PolicyError> {
    let pattern = |item: &Value| item.as_str()?.parse::<ScopePattern>().ok();
    for (index, item) in items(new).enumerate() {
        let wanted = pattern(item);
        let covered = items(old).filter_map(pattern).any(|held| {
            wanted
                .as_ref()
                .is_some_and(|wanted| held.covers_pattern(wanted))
        });
        if !covered {
            return Err(PolicyError::expansion(
                format!("/{}/{index}", field.key),
                "is beyond what an earlier source of the configuration names",
                item.clone(),
                old.clone(),
            ));
        }
    }
    Ok(())
}

/// The values that a later source replaces as a whole. They are removed from `all` if they would otherwise be merged
/// with that source.
pub(super) fn overridden(
    all: &mut Map<String, Value>,
    later: &Map<String, Value>,
) -> Result<Option<Restriction>, PolicyError> {
    let mut earlier = Map::new();
    let named = |key: &&str| later.contains_key(*key);
    let differs = |key: &str| later.get(key) != all.get(key);
    if SCOPE_LISTS.iter().any(named) && SCOPE_LISTS.iter().any(|key| differs(key)) {
        for key in SCOPE_LISTS {
            earlier.extend(all.remove(key).map(|value| (key.to_owned(), value)));
        }
    }
    if let Some(roots) = all.get("roots").filter(|_| later.contains_key("roots"))
        && later.get("roots") != Some(roots)
    {
        earlier.insert("roots".to_owned(), roots.clone());
    }
    if earlier.is_empty() {
        return Ok(None);
    }
    let Config { roots, policy, .. } = Config::parse(&Value::Object(earlier))?;
    Ok(Some(Restriction { roots, policy }))
}
