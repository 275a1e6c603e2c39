//! Shows and changes stored grants.

use std::io;
use std::path::PathBuf;

use crate::cli::{GrantsCommand, format_time};
use crate::table::{json_lines, or_dash, table};
use crate::templates::{self, TemplatesError};
use bailiwick::permission::{
    GrantEditError, GrantHolder, GrantStore, GrantStoreError, Lifetime, Narrowing, StoredGrant,
    TemplateError,
};
use bailiwick::text::escape;

/// Why grants cannot be shown or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantsError {
    #[error(transparent)]
    Store(GrantStoreError),
    #[error("the grant store `{}` is in use: stop the server that uses it", .0.display())]
    InUse(PathBuf),
    #[error("the grant store `{}` has no grants of `{agent}`", .file.display())]
    NoGrants { agent: String, file: PathBuf },
    #[error("cannot change the grant store `{}`", .0.display())]
    Edit(PathBuf, #[source] GrantEditError),
    #[error(transparent)]
    Templates(#[from] TemplatesError),
    #[error("the template cannot be applied")]
    Template(#[from] TemplateError),
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

/// Runs the command.
pub(crate) fn run(command: GrantsCommand) -> Result<String, GrantsError> {
    let GrantsCommand { file, json, .. } = command;
    let found = file.try_exists().and_then(|found| {
        let missing = || io::ErrorKind::NotFound.into();
        found.then_some(()).ok_or_else(missing)
    });
    let mut grants = match found {
        Err(source) if source.kind() == io::ErrorKind::NotFound && command.apply.is_some() => {
            Vec::new()
        }
        Err(source) => return Err(GrantStoreError::Open { file, source }.into()),
        Ok(()) => GrantStore::read(&file)?,
    };
    if !command.revoke.is_empty() {
        let ids = command.revoke.into_iter().collect();
        let revoked = GrantStore::open(&file)?.remove(&ids);
        return format_changed("Revoked", &with_file(file, revoked)?, json);
    }
    if let Some(id) = command.narrow {
        let change = Narrowing {
            pattern: command.to,
            holder_only: command.holder_only,
            ..Narrowing::default()
        };
        let narrowed = GrantStore::open(&file)?.narrow(id, &change);
        return format_changed("Narrowed", &[with_file(file, narrowed)?], json);
    }
    match (command.apply, command.agent) {
        (Some(template), Some(agent)) => {
            let template = templates::find(&template, command.template_file.as_deref())?;
            let holder = GrantHolder::Agent(agent.into());
            let grants = template.grants(&command.root, &holder, Lifetime::Agent)?;
            let added = GrantStore::open(&file)?.add(grants);
            format_changed("Granted", &with_file(file, added)?, json)
        }
        (_, Some(agent)) if command.revoke_all => {
            let mut store = GrantStore::open(&file)?;
            let held = store.grants();
            let held = held.filter(|grant| grant.is_held_at_or_beneath(&agent));
            let ids = held.map(|grant| grant.id).collect();
            let revoked = with_file(file.clone(), store.remove(&ids))?;
            if revoked.is_empty() {
                let agent = escape(&agent).into_owned();
                return Err(GrantsError::NoGrants { agent, file });
            }
            format_changed("Revoked", &revoked, json)
        }
        (_, agent) => {
            if let Some(agent) = agent {
                grants.retain(|grant| grant.is_held_at_or_beneath(&agent));
            }
            format_grants(&grants, json)
        }
    }
}

fn with_file<T>(file: PathBuf, result: Result<T, GrantEditError>) -> Result<T, GrantsError> {
    result.map_err(|error| GrantsError::Edit(file, error))
}

/// Formats changed grants below a heading.
fn format_changed(
    heading: &str,
    grants: &[StoredGrant],
    json: bool,
) -> Result<String, GrantsError> {
    Ok(match (json, grants) {
        (true, _) => format_grants(grants, json)?,
        (false, []) => "Nothing to do: already granted.".to_owned(),
        (false, _) => format!("{heading}\n{}", format_grants(grants, json)?),
    })
}

fn format_grants(grants: &[StoredGrant], json: bool) -> Result<String, GrantsError> {
    if json {
        return Ok(json_lines(grants)?);
    }
    if grants.is_empty() {
        return Ok("No grants.".to_owned());
    }
    Ok(table(
        ["GRANT", "AGENT", "SUB-AGENTS", "GIVEN", "PATTERN"],
        grants.iter().map(|grant| {
            [
                grant.id.to_string(),
                or_dash(&grant.agent),
                if grant.descendants { "too" } else { "-" }.to_owned(),
                format_time(grant.given_at_ms),
                grant.pattern.to_string(),
            ]
        }),
    ))
}
