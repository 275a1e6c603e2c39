//! Files of templates or nothing in, templates that hold their examples out, and the text that tells of them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bailiwick::{Template, TemplateError, escape, json_line};

use crate::cli::TemplatesCommand;
use crate::table::{or_dash, table};

/// The largest file of a template that is read, in bytes; a template has no more.
const MAX_BYTES: u64 = 64 << 10;

/// Why there is no such template.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplatesError {
    #[error("cannot read the template file `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("the template file `{}` is larger than {MAX_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("the template file `{}` cannot be used", .0.display())]
    Template(PathBuf, #[source] TemplateError),
    #[error("the template file `{}` holds the template `{found}`", .file.display())]
    NameMismatch { file: PathBuf, found: String },
    #[error("no template `{0}` is built in; there are {1}")]
    Unknown(String, String),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// Shows what a person wants to see.
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

/// The template of this name: in the file if one is named, else among those built in.
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
