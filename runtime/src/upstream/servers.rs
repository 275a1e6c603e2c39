//! The file in which editors keep their servers in, the servers or the place that is wrong out.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::classify::cut;
use super::spec::{ServerSpec, SpecError, check_all};

/// The longest file, in bytes, and the longest name that a message shows.
const LONGEST_FILE: usize = 1 << 20;
const LONGEST_NAME: usize = 128;

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
    /// It is too long.
    #[error("the file of the servers is too long; it may have {LONGEST_FILE} bytes")]
    TooLong,
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
    /// server that is `disabled` is left out. A server is known by what is written: write secrets as `${env:X}`, which
    /// counts by the name of the variable, but for `command` and `cwd`, which count as they are filled in.
    ///
    /// # Errors
    /// [`ServersError`]; it tells no value of the file or of a variable.
    pub fn read_all(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Self>, ServersError> {
        if text.len() > LONGEST_FILE {
            return Err(ServersError::TooLong);
        }
        let file: File = serde_json::from_str(text).map_err(|error| ServersError::Json {
            line: error.line(),
            column: error.column(),
        })?;
        let keyed = |key, servers: BTreeMap<String, Entry>| {
            servers
                .into_iter()
                .map(move |(name, entry)| (format!("/{key}/{}", place(&name)), name, entry))
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
        let fill = |text: &str, field: &str| filled(text, field, variable);
        let keep = |text: &str, _: &str| Ok(text.to_owned());
        let kind = self.kind.as_deref();
        match (&self.command, &self.url) {
            (Some(command), None) if kind.is_none_or(|kind| kind == "stdio") => {
                // A command and a folder say what runs and where, and are no place for secrets.
                let command = fill(command, &format!("{field}/command"))?;
                let folder = self.cwd.as_ref();
                let folder = folder.map(|cwd| fill(cwd, &format!("{field}/cwd")));
                let spec = ServerSpec::stdio(name, command);
                let spec = match folder.transpose()? {
                    Some(folder) => spec.folder(folder),
                    None => spec,
                };
                let written = self.child(spec.clone(), field, &keep)?;
                Ok(self.child(spec, field, &fill)?.known_by(written))
            }
            (None, Some(url))
                if kind.is_none_or(|kind| matches!(kind, "http" | "streamable-http")) =>
            {
                let written = ServerSpec::http(name, url);
                let mut spec = ServerSpec::http(name, fill(url, &format!("{field}/url"))?);
                for (header, value) in &self.headers {
                    let field = format!("{field}/headers/{}", place(header));
                    spec = spec.header(header, fill(value, &field)?);
                }
                Ok(spec.known_by(written))
            }
            _ => Err(ServersError::Kind(shown(name))),
        }
    }

    /// What a program is given, each as `text` says.
    fn child(
        &self,
        mut spec: ServerSpec,
        field: &str,
        text: &dyn Fn(&str, &str) -> Result<String, ServersError>,
    ) -> Result<ServerSpec, ServersError> {
        for (index, arg) in self.args.iter().enumerate() {
            spec = spec.args([text(arg, &format!("{field}/args/{index}"))?]);
        }
        for (key, value) in &self.env {
            let field = format!("{field}/env/{}", place(key));
            spec = spec.env(key, text(value, &field)?);
        }
        Ok(spec)
    }
}

/// A name of the file, as a message shows it.
fn shown(name: &str) -> String {
    cut(&crate::escape(name), LONGEST_NAME)
}

/// A name of the file as one step of a JSON pointer.
fn place(name: &str) -> String {
    shown(&name.replace('~', "~0").replace('/', "~1"))
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
            variable: shown(name),
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
    use std::collections::BTreeSet;

    #[cfg(feature = "http")]
    use super::super::spec::HttpReach;
    use super::super::spec::Reach;
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
    fn a_server_is_known_by_the_text_and_not_by_the_secret() {
        let label = |text: &str, value: &str| {
            let specs = ServerSpec::read_all(text, |_| Some(value.to_owned())).unwrap();
            specs[0].label()
        };
        let text = r#"{"servers": {"a": {"command": "run", "args": ["${env:TOKEN}"], "env": {"K": "${env:TOKEN}", "P": "x"}}}}"#;
        assert_eq!(label(text, "one"), label(text, "two"));
        for (from, to) in [
            ("run", "walk"),
            (r#""x""#, r#""y""#),
            (r#""P""#, r#""NODE_OPTIONS""#),
            (r#""K": "${env:TOKEN}""#, r#""K": "${env:OTHER}""#),
            (r#""command""#, r#""cwd": "/elsewhere", "command""#),
        ] {
            let other = text.replace(from, to);
            assert_ne!(other, text);
            assert_ne!(label(&other, "one"), label(text, "one"), "{to}");
        }
        for chosen in [
            r#"{"servers": {"a": {"command": "${env:RUN}"}}}"#,
            r#"{"servers": {"a": {"command": "run", "cwd": "/${env:RUN}"}}}"#,
        ] {
            assert_ne!(label(chosen, "one"), label(chosen, "two"));
        }
    }

    #[test]
    fn a_text_that_reads_as_a_reference_is_none_where_it_was_said_in_full() {
        let written = |text: &str| {
            let specs = ServerSpec::read_all(text, |_| Some("s3cr3t".to_owned())).unwrap();
            specs[0].label()
        };
        let program = || ServerSpec::stdio("a", "run");
        let secret = program().secret("X", "s3cr3t").label();
        let reference = r#"{"servers": {"a": {"command": "run", "env": {"X": "${env:X}"}}}}"#;
        assert_eq!(written(reference), secret);
        for (text, said) in [
            (reference, program().env("X", "${env:X}")),
            (
                r#"{"servers": {"a": {"command": "run", "args": ["${env:X}"]}}}"#,
                program().args(["${env:X}"]),
            ),
            (
                r#"{"servers": {"a": {"command": "run", "args": ["$${env:X}"]}}}"#,
                program().args(["${env:X}"]),
            ),
            (
                r#"{"servers": {"a": {"command": "run", "args": ["$${env:X}"]}}}"#,
                program().args(["$${env:X}"]),
            ),
        ] {
            assert_ne!(written(text), said.label(), "{text}");
        }
        // What holds no reference is the same in both.
        let plain = r#"{"servers": {"a": {"command": "run", "args": ["$", "{env:X}"]}}}"#;
        assert_eq!(written(plain), program().args(["$", "{env:X}"]).label());
        let args = ["${env:X}", "$${env:X}", "${}{env:X}", "${}", "${", "$"];
        let labels = args.map(|arg| program().args([arg]).label());
        assert_eq!(BTreeSet::from_iter(&labels).len(), args.len());
    }

    #[cfg(feature = "http")]
    #[test]
    fn an_address_that_reads_as_a_reference_is_none_where_it_was_said_in_full() {
        let text = r#"{"servers": {"a": {"url": "http://127.0.0.1/${env:X}"}}}"#;
        let specs = ServerSpec::read_all(text, |_| Some("s3cr3t".to_owned())).unwrap();
        let said = ServerSpec::http("a", "http://127.0.0.1/${env:X}");
        assert_ne!(specs[0].label(), said.label());
    }

    #[test]
    fn names_in_messages_deceive_nobody_and_are_short() {
        refused(
            "{\"servers\": {\"a/\u{202e}~b\": {\"command\": \"x\", \"env\": {\"\\n\": \"${env:\u{202e}}\"}}}}",
            "the variable `\\u{202e}` is not set, which /servers/a~1\\u{202e}~0b/env/\\u{a} names",
        );
        let long = format!(r#"{{"servers": {{"{}": {{}}}}}}"#, "x".repeat(5000));
        let told = read(&long).map(|_| ()).unwrap_err().to_string();
        assert!(told.len() < 300, "{told}");
        let padded = |bytes: usize| format!("{}{}", "{}", " ".repeat(bytes - 2));
        assert!(read(&padded(LONGEST_FILE)).is_ok());
        assert!(matches!(
            read(&padded(LONGEST_FILE + 1)),
            Err(ServersError::TooLong)
        ));
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
