//! Shows and reads grant templates.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bailiwick::audit::json_line;
use bailiwick::escape;
use bailiwick::permission::{Template, TemplateError};

use crate::cli::TemplatesCommand;
use crate::table::{or_dash, table};

/// The maximum size of a template file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Why a template cannot be read or found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplatesError {
    #[error("cannot read the template file `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("the template file `{}` is larger than {MAX_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
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
        let lines = templates.iter().map(json_line);
        return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
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
    let failed = |source| TemplatesError::Read(file.to_owned(), source);
    let mut text = String::new();
    let opened = File::open(file).map_err(failed)?;
    opened
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(TemplatesError::TooLarge(file.to_owned()));
    }
    Template::parse(&text).map_err(|error| TemplatesError::Template(file.to_owned(), error))
}
