//! The file in which editors keep their servers in, the servers or the place that is wrong out.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::spec::{ServerSpec, SpecError, check_all};

/// Why the file of the servers cannot be used. No value of it is told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// It is not the JSON that it should be.
    #[error("the file of the servers cannot be read: line {line}, column {column}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// A variable that it names is not set.
    #[error("the variable `{variable}` is not set, which {field} names")]
    Unset {
        /// The variable.
        variable: String,
        /// The JSON pointer of the place.
        field: String,
    },
    /// `${...}` stands for something else than a variable.
    #[error("{field} holds a `${{…}}` that is no `${{env:NAME}}`")]
    Placeholder {
        /// The JSON pointer of the place.
        field: String,
    },
    /// A server says neither a command nor an address, or both, or a type that does not fit.
    #[error("the server `{0}` must have either a command or an address, and a type that fits")]
    Kind(String),
    /// A server cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// `servers`, or `mcpServers` as some editors say.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    servers: BTreeMap<String, Entry>,
    #[serde(default, rename = "mcpServers")]
    mcp_servers: BTreeMap<String, Entry>,
}

/// What counts of one server; what else editors keep there (what they allow without asking, above all) does not.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

impl ServerSpec {
    /// Reads the file in which editors keep their servers: `{"servers": {NAME: {"command", "args", "env", "cwd"}}}` or
    /// `{NAME: {"url", "headers"}}`, under the key `mcpServers` as well. `${env:X}` is what `variable` says of `X`. A
    /// server that is `disabled` is left out.
    ///
    /// # Errors
    /// [`ServersError`]; it tells no value of the file or of a variable.
    pub fn read_all(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Self>, ServersError> {
        let file: File = serde_json::from_str(text).map_err(|error| ServersError::Json {
            line: error.line(),
            column: error.column(),
        })?;
        let keyed = |key, servers: BTreeMap<String, Entry>| {
            servers
                .into_iter()
                .map(move |(name, entry)| (format!("/{key}/{name}"), name, entry))
        };
        let all = keyed("servers", file.servers).chain(keyed("mcpServers", file.mcp_servers));
        let specs: Vec<Self> = all
            .filter(|(_, _, entry)| !entry.disabled)
            .map(|(field, name, entry)| entry.read(&name, &field, &variable))
            .collect::<Result<_, _>>()?;
        check_all(&specs)?;
        Ok(specs)
    }
}

impl Entry {
    fn read(
        self,
        name: &str,
        field: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ServerSpec, ServersError> {
        let kind = self.kind.as_deref();
        match (&self.command, &self.url) {
            (Some(command), None) if kind.is_none_or(|kind| kind == "stdio") => {
                self.child(name, command, field, variable)
            }
            (None, Some(url))
                if kind.is_none_or(|kind| matches!(kind, "http" | "streamable-http")) =>
            {
                let written = vec!["http".to_owned(), url.clone()];
                let url = filled(url, &format!("{field}/url"), variable)?;
                let mut spec = ServerSpec::http(name, url);
                for (header, value) in &self.headers {
                    let field = format!("{field}/headers/{header}");
                    spec = spec.header(header, filled(value, &field, variable)?);
                }
                Ok(spec.known_by(written))
            }
            _ => Err(ServersError::Kind(crate::escape(name).into())),
        }
    }

    fn child(
        &self,
        name: &str,
        command: &str,
        field: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ServerSpec, ServersError> {
        let mut written = vec!["stdio".to_owned(), command.to_owned()];
        written.extend(self.args.iter().cloned());
        let command = filled(command, &format!("{field}/command"), variable)?;
        let mut spec = ServerSpec::stdio(name, command);
        for (index, arg) in self.args.iter().enumerate() {
            spec = spec.args([filled(arg, &format!("{field}/args/{index}"), variable)?]);
        }
        for (key, value) in &self.env {
            spec = spec.env(key, filled(value, &format!("{field}/env/{key}"), variable)?);
        }
        if let Some(folder) = &self.cwd {
            spec = spec.folder(filled(folder, &format!("{field}/cwd"), variable)?);
        }
        Ok(spec.known_by(written))
    }
}

/// `text` with every `${env:X}` replaced; what a variable holds is not read again.
fn filled(
    text: &str,
    field: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ServersError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let named = after.split_once('}');
        let named = named.and_then(|(inside, rest)| Some((inside.strip_prefix("env:")?, rest)));
        let Some((name, after)) = named else {
            let field = field.to_owned();
            return Err(ServersError::Placeholder { field });
        };
        let value = variable(name).ok_or_else(|| ServersError::Unset {
            variable: crate::escape(name).into(),
            field: field.to_owned(),
        })?;
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::spec::{HttpReach, Reach};
    use super::*;

    fn read(text: &str) -> Result<Vec<ServerSpec>, ServersError> {
        let variable = |name: &str| (name == "TOKEN").then(|| "s3cr3t${env:TOKEN}".to_owned());
        ServerSpec::read_all(text, variable)
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = read(text).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, expected);
        assert!(!error.contains("s3cr3t"));
    }

    #[test]
    fn a_program_and_an_address_are_read_from_one_file() {
        let text = r#"{"servers": {"b": {"type": "stdio", "command": "run", "args": ["-t", "${env:TOKEN}"],
            "env": {"KEY": "x${env:TOKEN}y"}, "cwd": "/srv", "autoApprove": ["*"]},
            "off": {"command": "x", "disabled": true}}, "inputs": []}"#;
        let specs = read(text).unwrap();
        let [spec] = specs.as_slice() else {
            panic!("{specs:?}")
        };
        let Reach::Child {
            command,
            args,
            env,
            folder,
        } = &spec.reach
        else {
            panic!("{spec:?}")
        };
        assert_eq!((command.as_str(), spec.name.as_str()), ("run", "b"));
        assert_eq!(args, &["-t", "s3cr3t${env:TOKEN}"]);
        assert_eq!(env["KEY"], "xs3cr3t${env:TOKEN}y");
        assert_eq!(folder.as_deref(), Some("/srv".as_ref()));
    }

    #[cfg(feature = "http")]
    #[test]
    fn an_address_is_read_with_its_headers() {
        let text = r#"{"mcpServers": {"a": {"type": "http", "url": "http://127.0.0.1:1/mcp",
            "headers": {"Authorization": "Bearer ${env:TOKEN}"}}}}"#;
        let specs = read(text).unwrap();
        let Reach::Http(HttpReach { url, headers, .. }) = &specs[0].reach else {
            panic!("{specs:?}")
        };
        assert_eq!(url, "http://127.0.0.1:1/mcp");
        assert_eq!(headers["Authorization"], "Bearer s3cr3t${env:TOKEN}");
    }

    #[test]
    fn a_server_is_known_by_the_text_and_not_by_the_variable() {
        let text = r#"{"servers": {"a": {"command": "run", "args": ["${env:TOKEN}"]}}}"#;
        let label = |value: &str| {
            let specs = ServerSpec::read_all(text, |_| Some(value.to_owned())).unwrap();
            specs[0].label()
        };
        assert_eq!(label("one"), label("two"));
        let other = text.replace("run", "walk");
        assert_ne!(label("one"), read(&other).unwrap()[0].label());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place_and_never_by_its_value() {
        refused(
            r#"{"servers": {"a": {"command": "x", "env": {"K": "${env:MISSING}"}}}}"#,
            "the variable `MISSING` is not set, which /servers/a/env/K names",
        );
        refused(
            r#"{"servers": {"a": {"command": "x", "args": ["${env:TOKEN}", "${input:key}"]}}}"#,
            "/servers/a/args/1 holds a `${…}` that is no `${env:NAME}`",
        );
        refused(
            r#"{"servers": {"a": {"command": "x", "url": "http://y"}}}"#,
            "the server `a` must have either a command or an address, and a type that fits",
        );
        refused(
            r#"{"servers": {"a": {"type": "sse", "url": "http://y"}}}"#,
            "the server `a` must have either a command or an address, and a type that fits",
        );
        refused(
            r#"{"servers": {"a": {"command": "s3cr3t", "args": "s3cr3t"}}}"#,
            "the file of the servers cannot be read: line 1, column 56",
        );
        refused(
            r#"{"servers": {"a": {"command": "x"}}, "mcpServers": {"a": {"command": "x"}}}"#,
            "two servers are named `a`",
        );
    }
}
