//! Shows and reads grant templates.

use std::path::{Path, PathBuf};

use crate::bounded_file::{ReadError, read_text};
use crate::cli::TemplatesCommand;
use crate::table::{json_lines, or_dash, table};
use bailiwick::permission::{Template, TemplateError};
use bailiwick::text::escape;

/// The maximum size of a template file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Why a template cannot be read or found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplatesError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("invalid template file `{}`", .0.display())]
    Template(PathBuf, #[source] TemplateError),
    #[error("the template file `{}` contains another template, `{found}`", .file.display())]
    NameMismatch { file: PathBuf, found: String },
    #[error("unknown template `{0}`: expected one of {1}")]
    Unknown(String, String),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// Runs the command.
pub(crate) fn run(command: &TemplatesCommand) -> Result<String, TemplatesError> {
    let templates = match &command.file {
        Some(file) => vec![read(file)?],
        None => Template::built_in(),
    };
    if command.json {
        return Ok(json_lines(&templates)?);
    }
    Ok(table(
        ["TEMPLATE", "ALLOWS", "FOR"],
        templates.iter().map(|template| {
            [
                template.name().to_owned(),
                template.allows().join(" "),
                or_dash(template.about()),
            ]
        }),
    ))
}

/// Finds a template by name, in `file` or among the built-in ones.
pub(crate) fn find(name: &str, file: Option<&Path>) -> Result<Template, TemplatesError> {
    let Some(file) = file else {
        let built_in = Template::built_in();
        let names: Vec<String> = built_in
            .iter()
            .map(|template| template.name().to_owned())
            .collect();
        let mut built_in = built_in.into_iter();
        return built_in
            .find(|template| template.name() == name)
            .ok_or_else(|| TemplatesError::Unknown(name.to_owned(), names.join(", ")));
    };
    let template = read(file)?;
    if template.name() == name {
        Ok(template)
    } else {
        Err(TemplatesError::NameMismatch {
            file: file.to_owned(),
            found: escape(template.name()).into_owned(),
        })
    }
}

fn read(file: &Path) -> Result<Template, TemplatesError> {
    let text = read_text("template file", file, MAX_BYTES)?;
    Template::parse(&text).map_err(|error| TemplatesError::Template(file.to_owned(), error))
}
