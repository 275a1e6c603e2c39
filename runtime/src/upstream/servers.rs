//! Reads the file in which editors keep their MCP servers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::classify::cut;
use super::spec::{MOST_SERVERS, ServerSpec, SpecError};

/// The longest file, in bytes, and the longest name that a message shows.
const LONGEST_FILE: usize = 1 << 20;
const LONGEST_NAME: usize = 128;

/// Why a file of servers, or one of its entries, cannot be used. It holds no value of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// It is not JSON, or not an object with servers in it.
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
    /// A field has a value of another type than it must have.
    #[error("{field} has the wrong type; expected {expected}")]
    Type {
        /// The JSON pointer of the place.
        field: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// A variable that it names is not set.
    #[error("the variable `{variable}` is not set, which {field} names")]
    Unset {
        /// The variable.
        variable: String,
        /// The JSON pointer of the place.
        field: String,
    },
    /// It needs what this host does not support, such as `${input:x}`.
    #[error("{field} holds a `${{…}}` other than `${{env:NAME}}`, which is not supported")]
    Placeholder {
        /// The JSON pointer of the place.
        field: String,
    },
    /// It needs a file of variables, which is not read.
    #[error("{field} is not supported; set the variables under `env`")]
    EnvFile {
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

/// What a file of servers says.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ServersFile {
    /// The servers that can be used.
    pub servers: Vec<ServerSpec>,
    /// The entries that cannot: the key of each and what is wrong with it.
    pub rejected: Vec<(String, ServersError)>,
}

/// `servers`, or `mcpServers` as some editors say.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    servers: Map<String, Value>,
    #[serde(default, rename = "mcpServers")]
    mcp_servers: Map<String, Value>,
}

/// What counts of one server; what else editors keep there (what they allow without asking, above all) does not.
struct Entry {
    kind: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    env_file: bool,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
}

impl ServerSpec {
    /// Reads the file in which editors keep their servers: `{"servers": {NAME: {"command", "args", "env", "cwd"}}}` or
    /// `{NAME: {"url", "headers"}}`, under the key `mcpServers` as well. `${env:X}` is what `variable` says of `X`. A
    /// server that is `disabled` is left out. A server is known by what is written: write secrets as `${env:X}`, which
    /// counts by the name of the variable, but for `command` and `cwd`, which count as they are filled in.
    ///
    /// An entry that cannot be used does not keep the others from being used; [`ServersFile::rejected`] says why.
    ///
    /// # Errors
    /// [`ServersError`] if no entry can be read; it holds no value of the file or of a variable.
    pub fn read_all(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<ServersFile, ServersError> {
        if text.len() > LONGEST_FILE {
            return Err(ServersError::TooLong);
        }
        let file: File = serde_json::from_str(text).map_err(|error| ServersError::Json {
            line: error.line(),
            column: error.column(),
        })?;
        let keyed = |key, servers: Map<String, Value>| {
            servers
                .into_iter()
                .map(move |(name, entry)| (format!("/{key}/{}", place(&name)), name, entry))
        };
        let all = keyed("servers", file.servers).chain(keyed("mcpServers", file.mcp_servers));
        let (mut read, mut seen) = (ServersFile::default(), BTreeSet::new());
        for (field, name, entry) in all {
            let spec = entry_of(entry, &field).and_then(|entry| {
                let Some(entry) = entry else { return Ok(None) };
                let spec = entry.read(&name, &field, &variable)?;
                spec.check()?;
                if read.servers.len() >= MOST_SERVERS {
                    return Err(SpecError::TooMany.into());
                }
                if !seen.insert(name.clone()) {
                    return Err(SpecError::Duplicate(name.clone()).into());
                }
                Ok(Some(spec))
            });
            match spec {
                Ok(spec) => read.servers.extend(spec),
                Err(why) => read.rejected.push((shown(&name), why)),
            }
        }
        Ok(read)
    }
}

/// One entry, unless it is disabled.
fn entry_of(entry: Value, field: &str) -> Result<Option<Entry>, ServersError> {
    let Value::Object(mut entry) = entry else {
        let (field, expected) = (field.to_owned(), "an object");
        return Err(ServersError::Type { field, expected });
    };
    if taken(&mut entry, field, "disabled", "a boolean")? == Some(true) {
        return Ok(None);
    }
    let text = "a string";
    Ok(Some(Entry {
        kind: taken(&mut entry, field, "type", text)?,
        command: taken(&mut entry, field, "command", text)?,
        args: taken(&mut entry, field, "args", "an array of strings")?.unwrap_or_default(),
        env: taken(&mut entry, field, "env", "an object of strings")?.unwrap_or_default(),
        env_file: taken::<Value>(&mut entry, field, "envFile", "a string")?.is_some(),
        cwd: taken(&mut entry, field, "cwd", text)?,
        url: taken(&mut entry, field, "url", text)?,
        headers: taken(&mut entry, field, "headers", "an object of strings")?.unwrap_or_default(),
    }))
}

/// A field of an entry; `null` counts as absent.
fn taken<T: DeserializeOwned>(
    entry: &mut Map<String, Value>,
    field: &str,
    key: &str,
    expected: &'static str,
) -> Result<Option<T>, ServersError> {
    let value = entry.remove(key).unwrap_or_default();
    serde_json::from_value(value).map_err(|_| ServersError::Type {
        field: format!("{field}/{key}"),
        expected,
    })
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
        if self.env_file {
            let field = format!("{field}/envFile");
            return Err(ServersError::EnvFile { field });
        }
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
    #[cfg(feature = "http")]
    use super::super::spec::HttpReach;
    use super::super::spec::Reach;
    use super::*;

    fn file(text: &str) -> Result<ServersFile, ServersError> {
        let variable = |name: &str| (name == "TOKEN").then(|| "s3cr3t${env:TOKEN}".to_owned());
        ServerSpec::read_all(text, variable)
    }

    #[track_caller]
    fn read(text: &str) -> Vec<ServerSpec> {
        let read = file(text).unwrap();
        assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        read.servers
    }

    /// What is wrong with the one entry of a file that cannot be used.
    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let mut read = file(text).unwrap();
        let (_, error) = read.rejected.pop().unwrap();
        assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        assert_eq!(error.to_string(), expected);
        assert!(!error.to_string().contains("s3cr3t"));
    }

    #[test]
    fn a_program_and_an_address_are_read_from_one_file() {
        let text = r#"{"servers": {"b": {"type": "stdio", "command": "run", "args": ["-t", "${env:TOKEN}"],
            "env": {"KEY": "x${env:TOKEN}y"}, "cwd": "/srv", "autoApprove": ["*"]},
            "off": {"command": "x", "disabled": true}}, "inputs": []}"#;
        let specs = read(text);
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
        let specs = read(text);
        let Reach::Http(HttpReach { url, headers, .. }) = &specs[0].reach else {
            panic!("{specs:?}")
        };
        assert_eq!(url, "http://127.0.0.1:1/mcp");
        assert_eq!(headers["Authorization"], "Bearer s3cr3t${env:TOKEN}");
    }

    #[test]
    fn a_server_is_known_by_the_text_and_not_by_the_secret() {
        let label = |text: &str, value: &str| {
            let read = ServerSpec::read_all(text, |_| Some(value.to_owned())).unwrap();
            read.servers[0].label()
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
            let read = ServerSpec::read_all(text, |_| Some("s3cr3t".to_owned())).unwrap();
            read.servers[0].label()
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
        let read = ServerSpec::read_all(text, |_| Some("s3cr3t".to_owned())).unwrap();
        let said = ServerSpec::http("a", "http://127.0.0.1/${env:X}");
        assert_ne!(read.servers[0].label(), said.label());
    }

    #[test]
    fn names_in_messages_deceive_nobody_and_are_short() {
        refused(
            "{\"servers\": {\"a/\u{202e}~b\": {\"command\": \"x\", \"env\": {\"\\n\": \"${env:\u{202e}}\"}}}}",
            "the variable `\\u{202e}` is not set, which /servers/a~1\\u{202e}~0b/env/\\u{a} names",
        );
        let long = format!(r#"{{"servers": {{"{}": {{}}}}}}"#, "x".repeat(5000));
        let (name, error) = file(&long).unwrap().rejected.remove(0);
        assert!(name.len() < 300 && error.to_string().len() < 300, "{error}");
        let padded = |bytes: usize| format!("{}{}", "{}", " ".repeat(bytes - 2));
        assert!(file(&padded(LONGEST_FILE)).is_ok());
        assert!(matches!(
            file(&padded(LONGEST_FILE + 1)),
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
            "/servers/a/args/1 holds a `${…}` other than `${env:NAME}`, which is not supported",
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
            "/servers/a/args has the wrong type; expected an array of strings",
        );
        refused(
            r#"{"servers": {"a": {"command": "x", "envFile": "${workspaceFolder}/.env"}}}"#,
            "/servers/a/envFile is not supported; set the variables under `env`",
        );
        refused(
            r#"{"servers": {"a": "s3cr3t"}}"#,
            "/servers/a has the wrong type; expected an object",
        );
        refused(
            r#"{"servers": {"a__b": {"command": "x"}}}"#,
            &SpecError::Name("a__b".to_owned()).to_string(),
        );
        let error = file(r#"{"servers": {"a": {"command": "s3cr3t", "#).unwrap_err();
        let expected = "the file of the servers cannot be read: line 1, column 40";
        assert_eq!(error.to_string(), expected);
        refused(
            r#"{"servers": {"a": {"command": "x"}}, "mcpServers": {"a": {"command": "x"}}}"#,
            "two servers are named `a`",
        );
    }

    #[test]
    fn one_unusable_entry_leaves_the_other_servers_usable() {
        let text = r#"{"servers": {
            "asks": {"command": "x", "args": ["${input:key}"]}, "old": {"type": "sse", "url": "http://y"},
            "off": {"command": 7, "disabled": true}, "works": {"command": "x", "env": null},
            "file": {"command": "x", "envFile": ".env"}, "typed": {"command": ["x"]}
        }, "mcpServers": {"works": {"command": "y"}, "also": {"command": "z"}}}"#;
        let read = file(text).unwrap();
        let names: Vec<_> = read.servers.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["works", "also"]);
        let mut rejected: Vec<_> = read
            .rejected
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        rejected.sort_unstable();
        assert_eq!(rejected, ["asks", "file", "old", "typed", "works"]);
    }

    #[test]
    fn the_most_servers_of_a_file_are_read_and_one_more_is_rejected() {
        let all = (0..=MOST_SERVERS).map(|n| format!(r#""s{n}": {{"command": "x"}}"#));
        let text = format!(
            r#"{{"servers": {{{}}}}}"#,
            all.collect::<Vec<_>>().join(",")
        );
        let read = file(&text).unwrap();
        assert_eq!(read.servers.len(), MOST_SERVERS);
        let [(_, error)] = read.rejected.as_slice() else {
            panic!("{:?}", read.rejected)
        };
        assert!(matches!(error, ServersError::Spec(SpecError::TooMany)));
    }
}
