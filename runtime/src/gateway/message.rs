//! Checks and parsing of one message of a client.
//!
//! The first pass over the text builds nothing: it counts values, and finds keys that an object has twice. Parsers differ
//! in which of two values they take, so a filter on the way could have seen another policy, or other arguments, than those
//! that would count here. What is built of a message takes many times the bytes of its text, so the number of its values
//! is bounded before.

use std::collections::HashSet;
use std::fmt;

use rmcp::model::{
    ClientRequest, ErrorData, InitializeRequestParams, JsonRpcMessage, NumberOrString, Request,
};
use rmcp::service::RxJsonRpcMessage;
use rmcp::{RoleServer, model::CustomRequest};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

/// How many values a message may have: numbers, strings, arrays, objects and their members.
pub(super) const MAX_VALUES: usize = 50_000;
/// How deep arrays and objects may be nested.
const MAX_DEPTH: usize = 100;
/// How much of a message that is too long is searched for its id, in bytes.
pub(super) const SEARCHED: usize = 64 << 10;
/// Where a stateless client says what it can do.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Why a message is not handled, and the id to answer to if it has one.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) id: Option<NumberOrString>,
    pub(super) error: Box<ErrorData>,
}

impl Rejected {
    fn new(id: Option<NumberOrString>, error: ErrorData) -> Self {
        let error = Box::new(error);
        Self { id, error }
    }

    fn invalid(id: Option<NumberOrString>, reason: &str) -> Self {
        Self::new(id, ErrorData::invalid_request(reason.to_owned(), None))
    }

    /// A message that begins with `text` has more than `most` bytes.
    pub(super) fn too_long(text: &[u8], most: usize) -> Self {
        let head = text.get(..SEARCHED).unwrap_or(text);
        Self::invalid(ids(head).id, &format!("a message has at most {most} bytes"))
    }
}

/// The message that a text is.
pub(super) fn parse(text: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Rejected> {
    let repaired = repaired(text)?;
    let text = repaired.as_deref().unwrap_or(text);
    let parsed = serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(text);
    let mut message = parsed.map_err(|_| diagnose(text))?;
    if let JsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::CustomRequest(custom) = &request.request
        && custom.method == "initialize"
    {
        let id = request.id.clone();
        request.request = initialize(custom).map_err(|error| Rejected::new(Some(id), error))?;
    }
    Ok(message)
}

/// Checks a message without building it. What stands in its place if it has to be read otherwise than it was written: the
/// proposals' own dialect has plain `true` where MCP demands an object.
pub(super) fn repaired(text: &[u8]) -> Result<Option<Vec<u8>>, Rejected> {
    let scan = scan(text)?;
    if !scan.experimental {
        return Ok(None);
    }
    let Ok(mut message) = serde_json::from_slice::<Value>(text) else {
        return Ok(None);
    };
    let mut changed = false;
    for pointer in [
        "/params/capabilities".to_owned(),
        format!("/params/_meta/{}", CAPABILITIES.replace('/', "~1")),
    ] {
        if let Some(Value::Object(capabilities)) = message.pointer_mut(&pointer) {
            changed |=
                with_objects(capabilities).map_err(|error| Rejected::new(ids(text).id, error))?;
        }
    }
    Ok(changed.then(|| serde_json::to_vec(&message).ok()).flatten())
}

/// Makes objects of the experimental capabilities that are plain `true`, and leaves out what says no capability. Whether
/// anything was changed.
fn with_objects(capabilities: &mut Map<String, Value>) -> Result<bool, ErrorData> {
    let Some(experimental) = capabilities.get_mut("experimental") else {
        return Ok(false);
    };
    let Value::Object(keys) = experimental else {
        if !experimental.is_null() {
            return Err(not_an_object("/capabilities/experimental"));
        }
        return Ok(capabilities.remove("experimental").is_some());
    };
    if let Some(configuration) = keys.get("configuration")
        && !configuration.is_object()
        && !configuration.is_null()
    {
        return Err(not_an_object("/capabilities/experimental/configuration"));
    }
    let before = keys.values().filter(|value| value.is_object()).count();
    let changed = before != keys.len();
    keys.retain(|_, value| {
        if *value == Value::Bool(true) {
            *value = Value::Object(Map::new());
        }
        value.is_object()
    });
    Ok(changed)
}

fn not_an_object(field: &str) -> ErrorData {
    let data =
        json!({"kind": "invalid_configuration", "code": "INVALID_ARGUMENTS", "field": field});
    ErrorData::invalid_params(format!("`{field}` must be an object"), Some(data))
}

/// A handshake that could not be read, or why.
fn initialize(custom: &CustomRequest) -> Result<ClientRequest, ErrorData> {
    let params = custom.params.clone().unwrap_or_default();
    let params = serde_json::from_value::<InitializeRequestParams>(params);
    match params {
        Ok(params) => Ok(ClientRequest::InitializeRequest(Request::new(params))),
        Err(error) => {
            let reason = format!(
                "invalid parameters of `initialize`: {}",
                crate::escape(&error.to_string())
            );
            Err(ErrorData::invalid_params(reason, None))
        }
    }
}

/// Why a text that has no key twice and not too many values is not a message.
fn diagnose(text: &[u8]) -> Rejected {
    let id = ids(text);
    let value: Map<String, Value> = serde_json::from_slice(text).unwrap_or_default();
    let reason = match value.get("method") {
        None => "a request has a `method`",
        Some(Value::String(_)) if value.contains_key("id") && id.id.is_none() => {
            "`id` must be a string or an integer"
        }
        Some(Value::String(_)) => "`params` must be an object",
        Some(_) => "`method` must be a string",
    };
    Rejected::invalid(id.id, reason)
}

/// Checks what can be checked without building anything.
fn scan(text: &[u8]) -> Result<Scan, Rejected> {
    let mut scan = Scan {
        values: 0,
        depth: 0,
        problem: None,
        object: false,
        version: false,
        experimental: false,
    };
    let mut parser = serde_json::Deserializer::from_slice(text);
    let look = Look {
        scan: &mut scan,
        member: Member::Other,
    };
    let looked = look.deserialize(&mut parser).and_then(|()| parser.end());
    match (&scan.problem, looked) {
        (Some(Problem::Twice(key)), _) => {
            let reason = format!("one object has `{}` twice", crate::escape(key));
            let error = ErrorData::invalid_params(reason, None);
            Err(Rejected::new(ids(text).id, error))
        }
        (Some(Problem::Values), _) => {
            let reason = format!("a message has at most {MAX_VALUES} values");
            Err(Rejected::invalid(ids(text).id, &reason))
        }
        (Some(Problem::Depth), _) => {
            let reason = format!("a message is nested at most {MAX_DEPTH} deep");
            Err(Rejected::invalid(ids(text).id, &reason))
        }
        (None, Err(error)) => {
            // Of what is cut off or run together nobody can say whose id it has.
            let ids = ids(text);
            let id = ids.id.filter(|_| ids.whole);
            let reason = format!("invalid JSON: {}", crate::escape(&error.to_string()));
            Err(Rejected::new(id, ErrorData::parse_error(reason, None)))
        }
        (None, Ok(())) if !scan.object => {
            let reason = "a message is one JSON object; batches are not supported";
            Err(Rejected::invalid(None, reason))
        }
        (None, Ok(())) if !scan.version => {
            let reason = "`jsonrpc` must be \"2.0\"";
            Err(Rejected::invalid(ids(text).id, reason))
        }
        (None, Ok(())) => Ok(scan),
    }
}

/// What was seen of a message so far.
#[derive(Debug)]
struct Scan {
    values: usize,
    depth: usize,
    problem: Option<Problem>,
    /// It is an object.
    object: bool,
    /// It names version 2.0 of JSON-RPC.
    version: bool,
    /// Some object in it has the key `experimental`.
    experimental: bool,
}

#[derive(Debug)]
enum Problem {
    Twice(String),
    Values,
    Depth,
}

/// Which member of the message a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Version,
    Other,
}

struct Look<'s> {
    scan: &'s mut Scan,
    member: Member,
}

impl Look<'_> {
    /// Enters an array or object.
    fn enter<E: Error>(&mut self) -> Result<(), E> {
        self.scan.depth += 1;
        if self.scan.depth > MAX_DEPTH {
            self.scan.problem = Some(Problem::Depth);
            return Err(E::custom("nested too deep"));
        }
        Ok(())
    }

    fn below(&mut self, member: Member) -> Look<'_> {
        Look {
            scan: self.scan,
            member,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.scan.values += 1;
        if self.scan.values > MAX_VALUES {
            self.scan.problem = Some(Problem::Values);
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.member == Member::Version {
            self.scan.version = text == "2.0";
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.enter()?;
        while items
            .next_element_seed(self.below(Member::Other))?
            .is_some()
        {}
        self.scan.depth -= 1;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.enter()?;
        let top = self.scan.depth == 1;
        self.scan.object |= top;
        let mut keys = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            let member = match key.as_str() {
                "jsonrpc" if top => Member::Version,
                _ => Member::Other,
            };
            self.scan.experimental |= key == "experimental";
            if let Some(key) = keys.replace(key) {
                self.scan.problem = Some(Problem::Twice(key));
                return Err(A::Error::custom("a key is there twice"));
            }
            members.next_value_seed(self.below(member))?;
        }
        self.scan.depth -= 1;
        Ok(())
    }
}

/// What the id of a text seems to be that need not be JSON.
#[derive(Debug, Default, PartialEq)]
struct Ids {
    /// The one member `id` of the outermost object.
    id: Option<NumberOrString>,
    /// The object ends where the text does.
    whole: bool,
}

/// Looks for the id of a message that a parser refuses, by brackets and strings alone.
fn ids(text: &[u8]) -> Ids {
    let mut found = Vec::new();
    let (mut depth, mut at, mut ended) = (0_usize, 0, None);
    let mut last: Option<&[u8]> = None;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                let end = string_end(text, at);
                last = text.get(at..end).filter(|_| depth == 1);
                at = end;
                continue;
            }
            b':' if last == Some(b"\"id\"") => {
                found.push(scalar(text.get(at + 1..).unwrap_or_default()));
                last = None;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                ended = (depth == 0).then_some(at + 1).filter(|_| ended.is_none());
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => last = None,
        }
        at += 1;
    }
    let object = text.first() == Some(&b'{');
    let id = match found.as_slice() {
        [id] if object => id.clone(),
        _ => None,
    };
    let whole = ended == Some(text.len());
    Ids { id, whole }
}

/// Where a string ends that begins at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// The string or integer that a text begins with.
fn scalar(text: &[u8]) -> Option<NumberOrString> {
    let text = text.trim_ascii_start();
    let end = match text.first()? {
        b'"' => string_end(text, 0),
        _ => text
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace())?,
    };
    serde_json::from_slice(text.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params},"id":5}}"#)
    }

    #[track_caller]
    fn twice(text: &str, expected: Option<&str>) {
        let found = match scan(text.as_bytes()) {
            Err(rejected) => Some(rejected.error.message.into_owned()),
            Ok(_) => None,
        };
        let expected = expected.map(|key| format!("one object has `{key}` twice"));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_duplicate_key_is_found_at_any_depth_and_in_any_spelling() {
        twice(&message(r#"{"a":1,"a":1}"#), Some("a"));
        twice(
            &message(r#"{"x":[0,-1,1.5,null,true,"s",{"y":{"b":{},"c":2,"b":3}}]}"#),
            Some("b"),
        );
        twice(
            &message(r#"{"policy":{},"polic\u0079":{}}"#),
            Some("policy"),
        );
    }

    #[test]
    fn a_key_may_be_in_several_objects_and_be_a_value() {
        twice(&message(r#"{"a":{"a":[{"a":1},{"a":"a"}]},"b":"a"}"#), None);
        twice(&message(r#"{"a":1,"A":2}"#), None);
    }

    fn values(count: usize) -> String {
        // The message, its version, method, id and params, and the array.
        let array = vec!["1"; count - 6].join(",");
        message(&format!(r#"{{"a":[{array}]}}"#))
    }

    #[test]
    fn values_and_depth_are_bounded_and_the_refusal_has_the_id() {
        assert!(parse(values(MAX_VALUES).as_bytes()).is_ok());
        let rejected = parse(values(MAX_VALUES + 1).as_bytes()).unwrap_err();
        assert_eq!(rejected.id, Some(NumberOrString::Number(5)));
        assert!(rejected.error.message.contains("50000 values"));
        let nested = |depth: usize| {
            let depth = depth - 2;
            message(&format!(
                r#"{{"a":{}{}}}"#,
                "[".repeat(depth),
                "]".repeat(depth)
            ))
        };
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        for depth in [MAX_DEPTH + 1, 100_000] {
            let rejected = parse(nested(depth).as_bytes()).unwrap_err();
            assert_eq!(rejected.id, Some(NumberOrString::Number(5)), "{depth}");
            assert!(rejected.error.message.contains("100 deep"), "{depth}");
        }
    }

    #[test]
    fn a_whole_message_that_is_not_json_is_answered_by_its_id() {
        for (text, id) in [
            (message(r#"{"a":"\ud800"}"#), true),
            (message(r#"{"a":"}\"\\",}"#), true),
            (message(r#"{"a":tru}"#), true),
            (message(r#"{"id":7,"a":tru}"#), true),
            (message(r#"{"a":1"#), false),
            (message("{}").replace("{}", "}{"), false),
            (message("{}") + "x", false),
            (message("{}") + &message("{}"), false),
            (message("tru").replace("5}", r#"5,"id":6}"#), false),
            (r#"["id":5]"#.into(), false),
        ] {
            let rejected = parse(text.as_bytes()).unwrap_err();
            assert_eq!(rejected.id.is_some(), id, "{text}");
            if id {
                assert_eq!(rejected.id, Some(NumberOrString::Number(5)), "{text}");
            }
        }
    }

    #[test]
    fn the_id_of_a_message_that_is_too_long_is_looked_for_at_its_beginning() {
        let early = format!(r#"{{"id":"a","method":"{}"#, "x".repeat(100_000));
        let rejected = Rejected::too_long(early.as_bytes(), 1);
        assert_eq!(rejected.id, Some(NumberOrString::String("a".into())));
        let late = format!(r#"{{"method":"{}","id":"a"}}"#, "x".repeat(100_000));
        assert_eq!(Rejected::too_long(late.as_bytes(), 1).id, None);
    }

    #[test]
    fn another_version_of_json_rpc_is_refused_by_the_id() {
        for version in [r#""1.0""#, "2.0", "2", "null", r#"{"jsonrpc":"2.0"}"#] {
            let text = message("{}").replace(r#""2.0""#, version);
            let rejected = parse(text.as_bytes()).unwrap_err();
            assert_eq!(rejected.id, Some(NumberOrString::Number(5)), "{text}");
            assert!(rejected.error.message.contains("jsonrpc"), "{text}");
        }
    }

    fn handshake(experimental: &str) -> Result<RxJsonRpcMessage<RoleServer>, Rejected> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"initialize","params":{{"protocolVersion":"2025-11-25",
            "clientInfo":{{"name":"a","version":"1"}},"capabilities":{{"experimental":{experimental}}}}}}}"#
        );
        parse(text.as_bytes())
    }

    #[test]
    fn experimental_capabilities_may_be_plain_true() {
        for (experimental, kept) in [
            (r#"{"policy":true,"configuration":{"a":1}}"#, 2),
            (r#"{"policy":{},"other":false,"configuration":null}"#, 1),
            ("null", 0),
        ] {
            let message = handshake(experimental).unwrap();
            let JsonRpcMessage::Request(request) = message else {
                panic!("no request");
            };
            let ClientRequest::InitializeRequest(request) = request.request else {
                panic!("no handshake");
            };
            let keys = request.params.capabilities.experimental;
            assert_eq!(keys.unwrap_or_default().len(), kept, "{experimental}");
        }
    }

    #[test]
    fn a_configuration_that_is_not_an_object_is_named_by_the_error() {
        for configuration in ["true", "7", r#""x""#, "[]"] {
            let rejected = handshake(&format!(r#"{{"configuration":{configuration}}}"#));
            let rejected = rejected.unwrap_err();
            assert_eq!(rejected.id, Some(NumberOrString::Number(5)));
            let data = rejected.error.data.unwrap();
            assert_eq!(data["field"], "/capabilities/experimental/configuration");
        }
        let rejected = handshake("7").unwrap_err();
        let data = rejected.error.data.unwrap();
        assert_eq!(data["field"], "/capabilities/experimental");
    }
}
