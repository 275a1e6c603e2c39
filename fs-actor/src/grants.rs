//! The file of a grant store in, a text that tells of its grants out; those to be taken back are gone from it by then.

use std::io;
use std::path::PathBuf;

use bailiwick::{GrantRemovalError, GrantStore, GrantStoreError, StoredGrant, escape, json_line};

use crate::cli::{Granted, Wish, time_of};
use crate::table::{or_dash, table};

/// Why grants are not shown, or not taken back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantsError {
    #[error(transparent)]
    Store(GrantStoreError),
    #[error("the grant store `{}` is in use; nothing is taken out of it while a server has it", .0.display())]
    InUse(PathBuf),
    #[error("no grant of `{agent}` is in the grant store `{}`", .file.display())]
    NoneOf { agent: String, file: PathBuf },
    #[error("cannot take grants out of the grant store `{}`", .0.display())]
    Removal(PathBuf, #[source] GrantRemovalError),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

impl From<GrantStoreError> for GrantsError {
    fn from(error: GrantStoreError) -> Self {
        match error {
            GrantStoreError::InUse { file } => Self::InUse(file),
            error => Self::Store(error),
        }
    }
}

/// Shows or takes back what a person wants.
pub(crate) fn look(granted: Granted) -> Result<String, GrantsError> {
    let Granted { file, wish, json } = granted;
    // To a server no file is an empty store; whoever names one means a store that is there.
    let found = file.try_exists().and_then(|found| {
        let missing = || io::ErrorKind::NotFound.into();
        found.then_some(()).ok_or_else(missing)
    });
    if let Err(source) = found {
        return Err(GrantStoreError::Open { file, source }.into());
    }
    // A damaged store is refused here, and so left where it is.
    let mut grants = GrantStore::read(&file)?;
    match wish {
        Wish::Show(agent) => {
            if let Some(agent) = agent {
                grants.retain(|grant| grant.is_held_at_or_beneath(&agent));
            }
            shown(&grants, json)
        }
        Wish::Revoke(ids) => {
            let taken = GrantStore::open(&file)?.remove(&ids);
            let taken = taken.map_err(|error| GrantsError::Removal(file, error))?;
            taken_back(&taken, json)
        }
        Wish::RevokeAll(agent) => {
            let mut store = GrantStore::open(&file)?;
            let held = store.grants();
            let held = held.filter(|grant| grant.is_held_at_or_beneath(&agent));
            let ids = held.map(|grant| grant.id).collect();
            let taken = store.remove(&ids);
            let taken = taken.map_err(|error| GrantsError::Removal(file.clone(), error))?;
            if taken.is_empty() {
                let agent = escape(&agent).into_owned();
                return Err(GrantsError::NoneOf { agent, file });
            }
            taken_back(&taken, json)
        }
    }
}

fn taken_back(taken: &[StoredGrant], json: bool) -> Result<String, GrantsError> {
    let text = shown(taken, json)?;
    Ok(if json {
        text
    } else {
        format!("Taken back\n{text}")
    })
}

fn shown(grants: &[StoredGrant], json: bool) -> Result<String, GrantsError> {
    if json {
        let lines = grants.iter().map(json_line);
        return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
    }
    if grants.is_empty() {
        return Ok("Nothing is granted.".to_owned());
    }
    Ok(table(
        ["GRANT", "AGENT", "SUB-AGENTS", "GIVEN", "PATTERN"],
        grants.iter().map(|grant| {
            [
                grant.id.to_string(),
                or_dash(&grant.agent),
                if grant.descendants { "too" } else { "-" }.to_owned(),
                time_of(grant.given_at_ms),
                grant.pattern.to_string(),
            ]
        }),
    ))
}
