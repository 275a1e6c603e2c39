//! Reads the MCP server configuration files of editors.

use std::collections::{BTreeMap, BTreeSet};

use jsonc_parser::{CollectOptions, ParseOptions, ast, parse_to_ast};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::classify::truncate;
use super::spec::{MAX_SERVERS, ServerSpec, SpecError, escape_placeholders};

/// The longest file, and the longest name in a message, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
const MAX_NAME_BYTES: usize = 128;

/// Why a configuration file, or one of its entries, cannot be used. It contains no value of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersError {
    /// The file is not valid JSON, or not an object.
    #[error("invalid JSON at line {line}, column {column}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// An object has a duplicate key.
    #[error("duplicate key `{0}`")]
    DuplicateKey(String),
    /// The file is too long.
    #[error("the servers file is too long; it may have {MAX_FILE_BYTES} bytes")]
    TooLong,
    /// The file has no key for servers.
    #[error("the servers file has neither the key `mcpServers` nor `servers`")]
    NoServers,
    /// A field has the wrong type.
    #[error("{field} has the wrong type; expected {expected}")]
    Type {
        /// The JSON pointer of the field.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
    /// An environment variable is not set.
    #[error("{field} names the variable `{variable}`, which is not set")]
    Unset {
        /// The variable.
        variable: String,
        /// The JSON pointer of the field.
        field: String,
    },
    /// An input has no value.
    #[error("{field} names the input `{input}`, which has no value")]
    Input {
        /// The id of the input.
        input: String,
        /// The JSON pointer of the field.
        field: String,
    },
    /// A placeholder is not supported or has no value.
    #[error(
        "{field} contains a placeholder that is not supported here; supported are `${{env:NAME}}`, `${{NAME}}`, \
         `${{NAME:-default}}`, `${{input:ID}}`, `${{workspaceFolder}}` and `${{userHome}}`"
    )]
    Placeholder {
        /// The JSON pointer of the field.
        field: String,
    },
    /// The `envFile` cannot be read, or contains an invalid line.
    #[error("cannot read variables from the file that {field} names")]
    EnvFile {
        /// The JSON pointer of the field.
        field: String,
    },
    /// The server uses the transport that Streamable HTTP replaced.
    #[error(
        "the server `{0}` uses the HTTP+SSE transport of 2024-11-05, which is not supported; most servers offer \
         Streamable HTTP (type `http`) at another address"
    )]
    Sse(String),
    /// The server has neither a command nor an address, both, or a type that does not match.
    #[error("the server `{0}` must have either a command or an address, and a type that fits")]
    Kind(String),
    /// The server is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The content of a configuration file.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ServersFile {
    /// The valid servers.
    pub servers: Vec<ServerSpec>,
    /// The keys of invalid entries, and what is wrong with them.
    pub rejected: Vec<(String, ServersError)>,
}

/// Resolves the placeholders in a configuration file. A closure resolves environment variables only.
pub trait ServersContext {
    /// The value of an environment variable: `${env:NAME}`, `${NAME}` and `${NAME:-default}`.
    fn variable(&self, name: &str) -> Option<String>;

    /// The value that a person entered for `${input:ID}`.
    fn input(&self, _id: &str) -> Option<String> {
        None
    }

    /// The workspace folder: `${workspaceFolder}`.
    fn workspace_folder(&self) -> Option<String> {
        None
    }

    /// The home directory: `${userHome}`.
    fn user_home(&self) -> Option<String> {
        None
    }

    /// The text of a file of variables, with one `NAME=VALUE` per line: `envFile`.
    fn env_file(&self, _path: &str) -> Option<String> {
        None
    }
}

impl<F: Fn(&str) -> Option<String>> ServersContext for F {
    fn variable(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// One entry. Other keys of editors, such as automatic approvals, are ignored.
struct Entry {
    kind: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    env_file: Option<String>,
    cwd: Option<String>,
    /// The address and its key.
    url: Option<(&'static str, String)>,
    headers: BTreeMap<String, String>,
}

/// The keys for servers.
const KEYS: [&str; 2] = ["servers", "mcpServers"];

/// The keys for an address.
const ADDRESSES: [&str; 3] = ["url", "serverUrl", "httpUrl"];

impl ServerSpec {
    /// Reads the MCP configuration file of an editor: `{"servers": {NAME: {"command", "args", "env", "envFile",
    /// "cwd"}}}` or `{NAME: {"url", "headers"}}`, also under the key `mcpServers`; the address may be in `serverUrl` or
    /// `httpUrl`. Comments and trailing commas are allowed. Servers with `disabled` are skipped. `context` resolves
    /// placeholders such as `${env:X}`.
    ///
    /// The identity of a server is the written text: secrets written as `${env:X}` or `${input:X}` count by their
    /// names. `command` and `cwd` count with placeholders replaced, and the content of an `envFile` counts by its
    /// values.
    ///
    /// Invalid entries do not affect the others; see [`ServersFile::rejected`].
    ///
    /// # Errors
    /// [`ServersError`] if the file cannot be read; it contains no value of the file or of a variable.
    pub fn read_all(
        text: &str,
        context: &impl ServersContext,
    ) -> Result<ServersFile, ServersError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(ServersError::TooLong);
        }
        let mut file = parse(text)?;
        if !file.is_empty() && !KEYS.iter().any(|key| file.contains_key(*key)) {
            return Err(ServersError::NoServers);
        }
        let (mut read, mut seen) = (ServersFile::default(), BTreeSet::new());
        for key in KEYS {
            let servers: Option<Map<String, Value>> = take_field(&mut file, "", key, "an object")?;
            for (name, entry) in servers.unwrap_or_default() {
                let field = format!("/{key}/{}", pointer_segment(&name));
                let spec = parse_entry(entry, &name, &field).and_then(|entry| {
                    let Some(entry) = entry else { return Ok(None) };
                    let spec = entry.read(&name, &field, context)?;
                    spec.check()?;
                    if read.servers.len() >= MAX_SERVERS {
                        return Err(SpecError::TooMany.into());
                    }
                    if !seen.insert(name.clone()) {
                        return Err(SpecError::Duplicate(name.clone()).into());
                    }
                    Ok(Some(spec))
                });
                match spec {
                    Ok(spec) => read.servers.extend(spec),
                    Err(why) => read.rejected.push((display_name(&name), why)),
                }
            }
        }
        Ok(read)
    }
}

/// Parses JSON with comments and trailing commas.
fn parse(text: &str) -> Result<Map<String, Value>, ServersError> {
    let strict = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &strict);
    let parsed = parsed.map_err(|error| ServersError::Json {
        line: error.line_display(),
        column: error.column_display(),
    })?;
    if let Some(key) = parsed.value.as_ref().and_then(duplicate_key) {
        return Err(ServersError::DuplicateKey(display_name(key)));
    }
    match parsed.value.map(Value::from) {
        Some(Value::Object(file)) => Ok(file),
        _ => Err(ServersError::Json { line: 1, column: 1 }),
    }
}

/// The first duplicate key of an object.
fn duplicate_key<'v>(value: &'v ast::Value<'_>) -> Option<&'v str> {
    match value {
        ast::Value::Object(object) => {
            let mut keys = BTreeSet::new();
            object.properties.iter().find_map(|property| {
                let key = property.name.as_str();
                let again = (!keys.insert(key)).then_some(key);
                again.or_else(|| duplicate_key(&property.value))
            })
        }
        ast::Value::Array(array) => array.elements.iter().find_map(duplicate_key),
        _ => None,
    }
}

/// Parses an entry; `None` if it is disabled.
fn parse_entry(entry: Value, name: &str, field: &str) -> Result<Option<Entry>, ServersError> {
    let Value::Object(mut entry) = entry else {
        let (field, expected) = (field.to_owned(), "an object");
        return Err(ServersError::Type { field, expected });
    };
    if take_field(&mut entry, field, "disabled", "a boolean")? == Some(true) {
        return Ok(None);
    }
    let text = "a string";
    let mut url = None;
    for key in ADDRESSES {
        if let Some(address) = take_field::<String>(&mut entry, field, key, text)?
            && url.replace((key, address)).is_some()
        {
            return Err(ServersError::Kind(display_name(name)));
        }
    }
    Ok(Some(Entry {
        kind: take_field(&mut entry, field, "type", text)?,
        command: take_field(&mut entry, field, "command", text)?,
        args: take_field(&mut entry, field, "args", "an array of strings")?.unwrap_or_default(),
        env: take_field(&mut entry, field, "env", "an object of strings")?.unwrap_or_default(),
        env_file: take_field(&mut entry, field, "envFile", text)?,
        cwd: take_field(&mut entry, field, "cwd", text)?,
        url,
        headers: take_field(&mut entry, field, "headers", "an object of strings")?
            .unwrap_or_default(),
    }))
}

/// Removes a field from an object; `null` counts as absent.
fn take_field<T: DeserializeOwned>(
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
        context: &dyn ServersContext,
    ) -> Result<ServerSpec, ServersError> {
        let fill = |text: &str, key: &str| fill(text, &format!("{field}/{key}"), context);
        let kind = self.kind.as_deref();
        match (&self.command, &self.url) {
            (Some(command), None) if kind.is_none_or(|kind| kind == "stdio") => {
                // The command and the folder must not contain secrets, so their values are part of the identity.
                let mut spec = ServerSpec::stdio(name, fill(command, "command")?.value);
                if let Some(folder) = &self.cwd {
                    spec = spec.folder(fill(folder, "cwd")?.value);
                }
                for (key, value) in self.variables(field, context)? {
                    spec = spec.env(key, value);
                }
                for (index, arg) in self.args.iter().enumerate() {
                    let arg = fill(arg, &format!("args/{index}"))?;
                    spec.add_arg(arg.value, arg.written);
                }
                for (key, value) in &self.env {
                    let value = fill(value, &format!("env/{}", pointer_segment(key)))?;
                    spec.set_variable(key, value.value, value.written);
                }
                Ok(spec)
            }
            (None, Some(_)) if kind == Some("sse") => Err(ServersError::Sse(display_name(name))),
            (None, Some((key, url))) if kind.is_none_or(is_http) => {
                let url = fill(url, key)?;
                let mut spec = ServerSpec::http_as_written(name.to_owned(), url.value, url.written);
                for (header, value) in &self.headers {
                    let value = fill(value, &format!("headers/{}", pointer_segment(header)))?;
                    spec = spec.header(header, value.value);
                }
                Ok(spec)
            }
            _ => Err(ServersError::Kind(display_name(name))),
        }
    }

    /// The variables in the `envFile`, if there is one.
    fn variables(
        &self,
        field: &str,
        context: &dyn ServersContext,
    ) -> Result<Vec<(String, String)>, ServersError> {
        let Some(path) = &self.env_file else {
            return Ok(Vec::new());
        };
        let field = format!("{field}/envFile");
        let path = fill(path, &field, context)?;
        let read = context.env_file(&path.value).and_then(|text| {
            let pairs = dotenvy::from_read_iter(text.as_bytes());
            pairs.collect::<Result<Vec<_>, _>>().ok()
        });
        read.ok_or(ServersError::EnvFile { field })
    }
}

fn is_http(kind: &str) -> bool {
    matches!(kind, "http" | "streamable-http" | "streamableHttp")
}

/// Escapes and truncates a name for messages.
fn display_name(name: &str) -> String {
    truncate(&bailiwick::text::escape(name), MAX_NAME_BYTES)
}

/// Escapes a name as a segment of a JSON pointer.
fn pointer_segment(name: &str) -> String {
    display_name(&name.replace('~', "~0").replace('/', "~1"))
}

/// A text with its placeholders replaced.
struct Filled {
    value: String,
    /// The text with the names of variables and inputs, which may be secrets, in place of their values.
    written: String,
}

/// Replaces placeholders in `text`, without replacing placeholders in their values.
fn fill(text: &str, field: &str, context: &dyn ServersContext) -> Result<Filled, ServersError> {
    let unsupported = || ServersError::Placeholder {
        field: field.to_owned(),
    };
    let (mut value, mut written) = (String::new(), String::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after) = after.split_once('}').ok_or_else(unsupported)?;
        rest = after;
        let (filled, name) = match inside {
            "workspaceFolder" => (context.workspace_folder().ok_or_else(unsupported)?, None),
            "userHome" => (context.user_home().ok_or_else(unsupported)?, None),
            _ => (value_of(inside, field, context)?, Some(inside)),
        };
        value.extend([before, &filled]);
        written.push_str(before);
        match name {
            Some(name) => written.extend(["${", name, "}"]),
            None => written.push_str(&escape_placeholders(&filled)),
        }
    }
    value.push_str(rest);
    written.push_str(rest);
    Ok(Filled { value, written })
}

/// The value of a placeholder that may hold a secret.
fn value_of(
    inside: &str,
    field: &str,
    context: &dyn ServersContext,
) -> Result<String, ServersError> {
    let field = || field.to_owned();
    if let Some(id) = inside.strip_prefix("input:") {
        let unset = || ServersError::Input {
            input: display_name(id),
            field: field(),
        };
        return context.input(id).ok_or_else(unset);
    }
    let (name, default) = match (inside.strip_prefix("env:"), inside.split_once(":-")) {
        (Some(name), _) => (name, None),
        (None, Some((name, default))) => (name, Some(default)),
        (None, None) => (inside, None),
    };
    let plain = |name: &str| {
        let mut bytes = name.bytes();
        let first = bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        first && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if !inside.starts_with("env:") && !plain(name) {
        return Err(ServersError::Placeholder { field: field() });
    }
    let unset = || ServersError::Unset {
        variable: display_name(name),
        field: field(),
    };
    match default {
        None => context.variable(name).ok_or_else(unset),
        Some(default) => {
            let value = context.variable(name).filter(|value| !value.is_empty());
            Ok(value.unwrap_or_else(|| default.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::HttpConfig;
    use super::super::spec::TransportConfig;
    use super::*;

    fn file(text: &str) -> Result<ServersFile, ServersError> {
        let variable = |name: &str| (name == "TOKEN").then(|| "s3cr3t${env:TOKEN}".to_owned());
        ServerSpec::read_all(text, &variable)
    }

    #[track_caller]
    fn read(text: &str) -> Vec<ServerSpec> {
        let read = file(text).unwrap();
        assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        read.servers
    }

    /// Asserts that the file has one invalid entry, with this error.
    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let mut read = file(text).unwrap();
        let (_, error) = read.rejected.pop().unwrap();
        assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        assert_eq!(error.to_string(), expected);
        assert!(!error.to_string().contains("s3cr3t"));
    }

    #[test]
    fn command_is_read_with_its_arguments() {
        let text = r#"{"servers": {"b": {"type": "stdio", "command": "run", "args": ["-t", "${env:TOKEN}"],
            "env": {"KEY": "x${env:TOKEN}y"}, "cwd": "/srv", "autoApprove": ["*"]},
            "off": {"command": "x", "disabled": true}}, "inputs": []}"#;
        let specs = read(text);
        let [spec] = specs.as_slice() else {
            panic!("{specs:?}")
        };
        let TransportConfig::Child {
            command,
            args,
            env,
            folder,
        } = &spec.transport
        else {
            panic!("{spec:?}")
        };
        assert_eq!((command.as_str(), spec.name.as_str()), ("run", "b"));
        assert_eq!(args, &["-t", "s3cr3t${env:TOKEN}"]);
        assert_eq!(env["KEY"], "xs3cr3t${env:TOKEN}y");
        assert_eq!(folder.as_deref(), Some("/srv".as_ref()));
    }

    #[test]
    fn url_is_read_with_its_headers() {
        let text = r#"{"mcpServers": {"a": {"type": "http", "url": "http://127.0.0.1:1/mcp",
            "headers": {"Authorization": "Bearer ${env:TOKEN}"}}}}"#;
        let specs = read(text);
        let TransportConfig::Http(HttpConfig { url, headers, .. }) = &specs[0].transport else {
            panic!("{specs:?}")
        };
        assert_eq!(url, "http://127.0.0.1:1/mcp");
        assert_eq!(headers["Authorization"], "Bearer s3cr3t${env:TOKEN}");
    }

    #[test]
    fn identity_uses_the_written_text() {
        let label = |text: &str, value: &str| {
            let read = ServerSpec::read_all(text, &|_: &str| Some(value.to_owned())).unwrap();
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
    fn literal_texts_with_placeholder_syntax_have_their_own_identity() {
        let written = |text: &str| {
            let read = ServerSpec::read_all(text, &|_: &str| Some("s3cr3t".to_owned())).unwrap();
            read.servers[0].label()
        };
        let program = || ServerSpec::stdio("a", "run");
        let secret = program().secret("X", "s3cr3t").label();
        let reference = r#"{"servers": {"a": {"command": "run", "env": {"X": "${env:X}"}}}}"#;
        assert_eq!(written(reference), secret);
        for (text, literal_spec) in [
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
            assert_ne!(written(text), literal_spec.label(), "{text}");
        }
        // Text without placeholder syntax has the same identity.
        let plain = r#"{"servers": {"a": {"command": "run", "args": ["$", "{env:X}"]}}}"#;
        assert_eq!(written(plain), program().args(["$", "{env:X}"]).label());
        let args = ["${env:X}", "$${env:X}", "${}{env:X}", "${}", "${", "$"];
        let labels = args.map(|arg| program().args([arg]).label());
        assert_eq!(BTreeSet::from_iter(&labels).len(), args.len());
    }

    #[test]
    fn literal_urls_with_placeholder_syntax_have_their_own_identity() {
        let text = r#"{"servers": {"a": {"url": "http://127.0.0.1/${env:X}"}}}"#;
        let read = ServerSpec::read_all(text, &|_: &str| Some("s3cr3t".to_owned())).unwrap();
        let literal_spec = ServerSpec::http("a", "http://127.0.0.1/${env:X}");
        assert_ne!(read.servers[0].label(), literal_spec.label());
    }

    #[test]
    fn names_in_errors_are_escaped_and_short() {
        refused(
            "{\"servers\": {\"a/\u{202e}~b\": {\"command\": \"x\", \"env\": {\"\\n\": \"${env:\u{202e}}\"}}}}",
            "/servers/a~1\\u{202e}~0b/env/\\u{a} names the variable `\\u{202e}`, which is not set",
        );
        let long = format!(r#"{{"servers": {{"{}": {{}}}}}}"#, "x".repeat(5000));
        let (name, error) = file(&long).unwrap().rejected.remove(0);
        assert!(name.len() < 300 && error.to_string().len() < 300, "{error}");
        let padded = |bytes: usize| format!("{}{}", "{}", " ".repeat(bytes - 2));
        assert!(file(&padded(MAX_FILE_BYTES)).is_ok());
        assert!(matches!(
            file(&padded(MAX_FILE_BYTES + 1)),
            Err(ServersError::TooLong)
        ));
    }

    #[test]
    fn errors_name_the_field_and_never_its_value() {
        refused(
            r#"{"servers": {"a": {"command": "x", "env": {"K": "${env:MISSING}"}}}}"#,
            "/servers/a/env/K names the variable `MISSING`, which is not set",
        );
        refused(
            r#"{"servers": {"a": {"command": "x", "args": ["${env:TOKEN}", "${input:key}"]}}}"#,
            "/servers/a/args/1 names the input `key`, which has no value",
        );
        refused(
            r#"{"servers": {"a": {"command": "x", "url": "http://y"}}}"#,
            "the server `a` must have either a command or an address, and a type that fits",
        );
        refused(
            r#"{"servers": {"a": {"type": "websocket", "url": "http://y"}}}"#,
            "the server `a` must have either a command or an address, and a type that fits",
        );
        refused(
            r#"{"servers": {"a": {"command": "s3cr3t", "args": "s3cr3t"}}}"#,
            "/servers/a/args has the wrong type; expected an array of strings",
        );
        refused(
            r#"{"servers": {"a": {"command": "x", "envFile": "missing"}}}"#,
            "cannot read variables from the file that /servers/a/envFile names",
        );
        refused(
            r#"{"servers": {"a": "s3cr3t"}}"#,
            "/servers/a has the wrong type; expected an object",
        );
        refused(
            r#"{"servers": {"a__b": {"command": "x"}}}"#,
            &SpecError::Name("a__b".to_owned()).to_string(),
        );
        let error = file(r#"{"notes": {"command": "s3cr3t"}}"#).unwrap_err();
        let expected = "the servers file has neither the key `mcpServers` nor `servers`";
        assert_eq!(error.to_string(), expected);
        assert!(file(r#"{"mcpServers": {}}"#).unwrap().servers.is_empty());
        let error = file(r#"{"servers": {"a": {"command": "s3cr3t", "#).unwrap_err();
        let expected = "invalid JSON at line 1, column 19";
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
    fn servers_beyond_the_limit_are_rejected() {
        let all = (0..=MAX_SERVERS).map(|n| format!(r#""s{n}": {{"command": "x"}}"#));
        let text = format!(
            r#"{{"servers": {{{}}}}}"#,
            all.collect::<Vec<_>>().join(",")
        );
        let read = file(&text).unwrap();
        assert_eq!(read.servers.len(), MAX_SERVERS);
        let [(_, error)] = read.rejected.as_slice() else {
            panic!("{:?}", read.rejected)
        };
        assert!(matches!(error, ServersError::Spec(SpecError::TooMany)));
    }

    /// An editor with a workspace, inputs and a file of variables.
    struct Editor;

    impl ServersContext for Editor {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "PORT" => Some("80".into()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }

        fn input(&self, id: &str) -> Option<String> {
            (id == "api-key").then(|| "entered".into())
        }

        fn workspace_folder(&self) -> Option<String> {
            Some("/work/${env:PORT}".into())
        }

        fn user_home(&self) -> Option<String> {
            Some("/home/me".into())
        }

        fn env_file(&self, path: &str) -> Option<String> {
            let text = "# comment\nFROM_FILE='a b'\nexport BOTH=file\n";
            (path == "/home/me/.env").then(|| text.into())
        }
    }

    #[test]
    fn placeholders_of_all_editors_are_replaced() {
        let args = [
            ("${PORT}", "80"),
            ("${env:PORT}${PORT:-1}", "8080"),
            ("${UNSET:-a default: 1}", "a default: 1"),
            ("${EMPTY:-other}", "other"),
            ("${EMPTY}", ""),
            ("key=${input:api-key}", "key=entered"),
            ("${workspaceFolder}/x", "/work/${env:PORT}/x"),
            ("${userHome}", "/home/me"),
        ];
        let given = serde_json::json!({"servers": {"a": {
            "command": "x", "args": args.map(|(written, _)| written), "envFile": "${userHome}/.env",
            "env": {"BOTH": "entry"},
        }}});
        let read = ServerSpec::read_all(&given.to_string(), &Editor).unwrap();
        let [spec] = read.servers.as_slice() else {
            panic!("{read:?}")
        };
        let TransportConfig::Child {
            args: filled, env, ..
        } = &spec.transport
        else {
            panic!("{spec:?}")
        };
        assert_eq!(*filled, args.map(|(_, filled)| filled));
        assert_eq!((&*env["FROM_FILE"], &*env["BOTH"]), ("a b", "entry"));
    }

    #[test]
    fn unsupported_placeholders_are_rejected_by_field() {
        for arg in [
            "${command:pick}",
            "${file}",
            "${workspaceFolder:other}",
            "${a b}",
            "${",
            "${}",
        ] {
            let given = serde_json::json!({"servers": {"a": {"command": "x", "args": [arg]}}});
            let read = ServerSpec::read_all(&given.to_string(), &Editor).unwrap();
            let (_, error) = &read.rejected[0];
            let unset = matches!(error, ServersError::Unset { .. });
            let names = error.to_string().contains("/servers/a/args/0");
            assert!(
                names && (unset || matches!(error, ServersError::Placeholder { .. })),
                "{arg}: {error}"
            );
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_ignored() {
        let text = "\u{feff}// a comment\n{\"servers\": {\"a\": {\"command\": \"x\", /* here */ \"args\": [\"//no\",],},},}";
        let specs = read(text);
        let TransportConfig::Child { args, .. } = &specs[0].transport else {
            panic!("{specs:?}")
        };
        assert_eq!(args, &["//no"]);
        for strict in [
            "{'servers': {}}",
            "{servers: {}}",
            "[]",
            "",
            "{\"servers\": {} \"inputs\": []}",
        ] {
            assert!(
                matches!(file(strict), Err(ServersError::Json { .. })),
                "{strict}"
            );
        }
        let deep = format!(
            "{{\"inputs\": {}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(matches!(file(&deep), Err(ServersError::Json { .. })));
    }

    #[test]
    fn duplicate_keys_are_rejected_at_any_depth() {
        for text in [
            r#"{"servers": {"a": {"command": "x", "command": "y"}}}"#,
            r#"{"servers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#,
            r#"{"servers": {}, "servers": {}}"#,
            r#"{"servers": {"a": {"command": "x", "env": {"A": "1", "A": "2"}}}}"#,
            r#"{"inputs": [{"id": "a", "id": "b"}], "servers": {}}"#,
        ] {
            let error = file(text).unwrap_err();
            assert!(matches!(error, ServersError::DuplicateKey(_)), "{error}");
        }
        let once = r#"{"servers": {"a": {"command": "x"}, "b": {"command": "x"}}}"#;
        assert_eq!(read(once).len(), 2);
    }

    #[test]
    fn workspace_folder_is_part_of_the_identity() {
        let label = |folder: &'static str, token: &'static str| {
            struct At(&'static str, &'static str);
            impl ServersContext for At {
                fn variable(&self, _: &str) -> Option<String> {
                    Some(self.1.into())
                }
                fn workspace_folder(&self) -> Option<String> {
                    Some(self.0.into())
                }
            }
            let text = r#"{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}", "${TOKEN}"]}}}"#;
            ServerSpec::read_all(text, &At(folder, token))
                .unwrap()
                .servers[0]
                .label()
        };
        assert_eq!(label("/a", "s"), label("/a", "t"));
        assert_ne!(label("/a", "s"), label("/b", "s"));
    }

    #[test]
    fn urls_are_read_under_every_key_and_sse_is_unsupported() {
        for key in ADDRESSES {
            let text =
                format!(r#"{{"mcpServers": {{"a": {{"{key}": "http://127.0.0.1:1/mcp"}}}}}}"#);
            assert_eq!(read(&text).len(), 1, "{key}");
        }
        for kind in ["http", "streamable-http", "streamableHttp"] {
            let text = format!(
                r#"{{"mcpServers": {{"a": {{"type": "{kind}", "url": "http://127.0.0.1:1/mcp"}}}}}}"#
            );
            assert_eq!(read(&text).len(), 1, "{kind}");
        }
        refused(
            r#"{"mcpServers": {"a": {"url": "http://127.0.0.1:1", "httpUrl": "http://127.0.0.1:2"}}}"#,
            "the server `a` must have either a command or an address, and a type that fits",
        );
        let text = r#"{"mcpServers": {"a": {"type": "sse", "url": "http://127.0.0.1:1/sse"}}}"#;
        let mut read = file(text).unwrap();
        let (name, error) = read.rejected.pop().unwrap();
        assert!(
            matches!(&error, ServersError::Sse(of) if *of == name),
            "{error}"
        );
    }
}
