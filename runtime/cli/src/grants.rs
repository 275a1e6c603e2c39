//! Shows and changes stored grants.

use std::io;
use std::path::PathBuf;

use bailiwick::audit::json_line;
use bailiwick::escape;
use bailiwick::permission::{
    GrantEditError, GrantHolder, GrantStore, GrantStoreError, Lifetime, StoredGrant, TemplateError,
};

use crate::cli::{ApplyTemplate, GrantsAction, GrantsCommand, format_time};
use crate::table::{or_dash, table};
use crate::templates::{self, TemplatesError};

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
    let GrantsCommand { file, action, json } = command;
    // For a server, a missing file is an empty store. Here it is an error.
    let found = file.try_exists().and_then(|found| {
        let missing = || io::ErrorKind::NotFound.into();
        found.then_some(()).ok_or_else(missing)
    });
    let mut grants = match (found, &action) {
        // The first grant creates the store.
        (Err(source), GrantsAction::Apply(_)) if source.kind() == io::ErrorKind::NotFound => {
            Vec::new()
        }
        (Err(source), _) => return Err(GrantStoreError::Open { file, source }.into()),
        // Fails for a damaged store, which is left in place.
        (Ok(()), _) => GrantStore::read(&file)?,
    };
    match action {
        GrantsAction::Show(agent) => {
            if let Some(agent) = agent {
                grants.retain(|grant| grant.is_held_at_or_beneath(&agent));
            }
            format_grants(&grants, json)
        }
        GrantsAction::Revoke(ids) => {
            let revoked = GrantStore::open(&file)?.remove(&ids);
            format_changed("Revoked", &with_file(file, revoked)?, json)
        }
        GrantsAction::RevokeAll(agent) => {
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
        GrantsAction::Narrow(id, change) => {
            let narrowed = GrantStore::open(&file)?.narrow(id, &change);
            format_changed("Narrowed", &[with_file(file, narrowed)?], json)
        }
        GrantsAction::Apply(apply) => {
            let ApplyTemplate {
                template,
                file: template_file,
                agent,
                roots,
            } = apply;
            let template = templates::find(&template, template_file.as_deref())?;
            let holder = GrantHolder::Agent(agent.into());
            let grants = template.grants(&roots, &holder, Lifetime::Agent)?;
            let added = GrantStore::open(&file)?.add(grants);
            format_changed("Granted", &with_file(file, added)?, json)
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
        let lines = grants.iter().map(json_line);
        return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
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
