//! Parses and checks messages of a client.
//!
//! The first pass builds no values: it counts them, and rejects objects with duplicate keys. Parsers differ in which of
//! two values they use, so a proxy could have checked another policy or other arguments. The number of values is
//! limited before they are built, since they take many times the memory of their text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use rmcp::model::{
    ClientRequest, ErrorData, InitializeRequestParams, JsonRpcError, JsonRpcMessage,
    NumberOrString, Request,
};
use rmcp::service::RxJsonRpcMessage;
use rmcp::{RoleServer, model::CustomRequest};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::direct;

/// Maximum number of values in a message: numbers, strings, arrays, objects and their members.
pub(super) const MAX_VALUES: usize = 50_000;
/// Maximum nesting depth.
const MAX_DEPTH: usize = 100;
/// Maximum number of messages in a batch.
pub(super) const MAX_BATCH: usize = 100;
const NO_BATCH: &str = "a message must be a JSON object; batches are accepted only after `initialize` has agreed on 2025-03-26";
/// Maximum bytes of a member that are kept while scanning for the id.
const MAX_MEMBER_BYTES: usize = 4096;
/// Key of a stateless client's capabilities in `_meta`.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A rejected message: the error, and the id to answer to if there is one.
#[derive(Debug)]
pub(super) struct RejectedMessage {
    pub(super) id: Option<NumberOrString>,
    pub(super) error: Box<ErrorData>,
}

impl RejectedMessage {
    pub(super) fn new(id: Option<NumberOrString>, error: ErrorData) -> Self {
        let error = Box::new(error);
        Self { id, error }
    }

    fn invalid(id: Option<NumberOrString>, reason: &str) -> Self {
        Self::new(id, ErrorData::invalid_request(reason.to_owned(), None))
    }

    /// The JSON-RPC error.
    pub(super) fn encode(self) -> Vec<u8> {
        serde_json::to_vec(&JsonRpcError::new(self.id, *self.error)).unwrap_or_default()
    }

    /// The error for a batch in a revision without batches.
    pub(super) fn batch() -> Self {
        Self::invalid(None, NO_BATCH)
    }

    /// The error for a message of more than `max` bytes that `ids` has scanned. Only requests are answered by their id.
    pub(super) fn too_long(ids: &IdScanner, max: usize) -> Self {
        let id = ids.id().filter(|_| ids.is_whole() && ids.has_method);
        Self::invalid(id, &format!("a message has at most {max} bytes"))
    }
}

/// The messages of a line.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) messages: Vec<Message>,
    /// The messages are answered together.
    pub(super) is_batch: bool,
}

/// A message, or why it is rejected.
pub(super) type Message = Result<RxJsonRpcMessage<RoleServer>, RejectedMessage>;

/// Parses a message, or a batch if `batches` is set. With `direct`, common requests are decoded without rmcp.
pub(super) fn read(text: &[u8], batches: bool, direct: bool) -> Parsed {
    let is_batch = batches && is_batch(text);
    let messages = match is_batch.then(|| split(text)) {
        None => vec![parse(text, &mut 0, direct)],
        Some(Ok(texts)) => {
            let mut values = 0;
            let messages = texts.iter().map(|text| parse(text, &mut values, direct));
            messages.collect()
        }
        Some(Err(rejected)) => {
            return Parsed {
                messages: vec![Err(rejected)],
                is_batch: false,
            };
        }
    };
    Parsed { messages, is_batch }
}

/// Whether a JSON text is an array.
pub(super) fn is_batch(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"[")
}

/// Splits a batch into the texts of its messages. Stops reading at the first message beyond the limit.
pub(super) fn split(text: &[u8]) -> Result<Vec<&[u8]>, RejectedMessage> {
    let mut batch = BatchReader::default();
    let mut parser = serde_json::Deserializer::from_slice(text);
    let parsed = parser.deserialize_seq(&mut batch);
    let parsed = parsed.and_then(|()| parser.end());
    if batch.too_many {
        let reason = format!("a batch has at most {MAX_BATCH} messages");
        return Err(RejectedMessage::invalid(None, &reason));
    }
    parsed.map_err(|error| RejectedMessage::new(None, invalid_json(&error)))?;
    if batch.messages.is_empty() {
        let reason = "a batch must contain at least one message";
        return Err(RejectedMessage::invalid(None, reason));
    }
    Ok(batch.messages)
}

/// Reads the messages of a batch up to the limit.
#[derive(Debug, Default)]
struct BatchReader<'t> {
    messages: Vec<&'t [u8]>,
    too_many: bool,
}

impl<'de> Visitor<'de> for &mut BatchReader<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(message) = items.next_element::<&RawValue>()? {
            if self.messages.len() == MAX_BATCH {
                self.too_many = true;
                return Err(A::Error::custom("rejected"));
            }
            self.messages.push(message.get().as_bytes());
        }
        Ok(())
    }
}

fn invalid_json(error: &serde_json::Error) -> ErrorData {
    let reason = format!(
        "invalid JSON: {}",
        bailiwick::text::escape(&error.to_string())
    );
    ErrorData::parse_error(reason, None)
}

/// Parses one message; `values` counts the values of all messages of a batch.
fn parse(text: &[u8], values: &mut usize, direct: bool) -> Message {
    let replacement = repair(text, values)?;
    let text = replacement.as_deref().unwrap_or(text);
    if direct && let Some(message) = direct::decode(text) {
        return Ok(message);
    }
    let mut message = decode(text)?;
    if let JsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::CustomRequest(custom) = &request.request
        && custom.method == "initialize"
    {
        let id = request.id.clone();
        request.request =
            initialize(custom).map_err(|error| RejectedMessage::new(Some(id), error))?;
    }
    Ok(message)
}

/// Checks a message that the SDK will parse. Returns replacement text if it needs to be normalized. `values` counts the
/// values of all messages of a batch.
pub(super) fn check(text: &[u8], values: &mut usize) -> Result<Option<Vec<u8>>, RejectedMessage> {
    let replacement = repair(text, values)?;
    decode(replacement.as_deref().unwrap_or(text))?;
    Ok(replacement)
}

fn decode(text: &[u8]) -> Message {
    serde_json::from_slice(text).map_err(|_| diagnose(text))
}

/// Checks a message without building it. Returns replacement text if it uses the dialect of the proposals, which has
/// plain `true` where MCP requires an object.
fn repair(text: &[u8], values: &mut usize) -> Result<Option<Vec<u8>>, RejectedMessage> {
    if !scan(text, values)?.experimental {
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
            changed |= normalize_capabilities(capabilities)
                .map_err(|error| RejectedMessage::new(scan_ids(text).id(), error))?;
        }
    }
    Ok(changed.then(|| serde_json::to_vec(&message).ok()).flatten())
}

/// Replaces plain `true` among the experimental capabilities by objects, and removes values that enable nothing.
/// Returns whether anything changed.
fn normalize_capabilities(capabilities: &mut Map<String, Value>) -> Result<bool, ErrorData> {
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

/// Parses a handshake that the SDK did not recognize.
fn initialize(custom: &CustomRequest) -> Result<ClientRequest, ErrorData> {
    let params = custom.params.clone().unwrap_or_default();
    let params = serde_json::from_value::<InitializeRequestParams>(params);
    match params {
        Ok(params) => Ok(ClientRequest::InitializeRequest(Request::new(params))),
        Err(error) => {
            let error = bailiwick::text::escape(&error.to_string()).into_owned();
            let reason = format!("invalid parameters of `initialize`: {error}");
            Err(ErrorData::invalid_params(reason, None))
        }
    }
}

/// The error for a text that passed the first pass but is not a valid message.
fn diagnose(text: &[u8]) -> RejectedMessage {
    let Ok(message) = serde_json::from_slice::<Map<String, Value>>(text) else {
        return RejectedMessage::batch();
    };
    let id = scan_ids(text).id();
    let has_version = message.get("jsonrpc").is_some_and(|it| it == "2.0");
    let reason = match message.get("method") {
        _ if !has_version => "`jsonrpc` must be \"2.0\"",
        None => "a request has a `method`",
        Some(Value::String(_)) if message.contains_key("id") && id.is_none() => {
            "`id` must be a string or an integer"
        }
        Some(Value::String(_)) => "`params` must be an object",
        Some(_) => "`method` must be a string",
    };
    RejectedMessage::invalid(id, reason)
}

/// The first pass: checks limits and duplicate keys, and counts values.
fn scan(text: &[u8], values: &mut usize) -> Result<Scan, RejectedMessage> {
    let mut scan = Scan {
        values: *values,
        ..Scan::default()
    };
    let mut parser = serde_json::Deserializer::from_slice(text);
    let scanned = (&mut scan).deserialize(&mut parser);
    let scanned = scanned.and_then(|()| parser.end());
    *values = scan.values;
    let Err(error) = scanned else { return Ok(scan) };
    let ids = scan_ids(text);
    Err(match scan.problem {
        Some(problem) => RejectedMessage::new(ids.id(), problem),
        // Truncated or concatenated messages have no reliable id.
        None => RejectedMessage::new(ids.id().filter(|_| ids.is_whole()), invalid_json(&error)),
    })
}

/// State of the first pass.
#[derive(Debug, Default)]
struct Scan {
    values: usize,
    depth: usize,
    /// Why the scan ended, if the text may still be valid JSON.
    problem: Option<ErrorData>,
    /// Some object has the key `experimental`.
    experimental: bool,
}

impl Scan {
    /// Ends the scan.
    fn reject<E: Error>(&mut self, problem: ErrorData) -> E {
        self.problem = Some(problem);
        E::custom("rejected")
    }

    /// Enters an array or object.
    fn enter<E: Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let reason = format!("a message is nested at most {MAX_DEPTH} deep");
            return Err(self.reject(ErrorData::invalid_request(reason, None)));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Scan {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.values += 1;
        if self.values > MAX_VALUES {
            let reason = format!("a message has at most {MAX_VALUES} values");
            return Err(self.reject(ErrorData::invalid_request(reason, None)));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Scan {
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

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.enter()?;
        while items.next_element_seed(&mut *self)?.is_some() {}
        self.depth -= 1;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.enter()?;
        let mut keys = Keys::default();
        while let Some(Key(key)) = members.next_key()? {
            self.experimental |= key == "experimental";
            if let Err(key) = keys.insert(key) {
                let reason = format!(
                    "duplicate key `{}` in an object",
                    bailiwick::text::escape(&key)
                );
                return Err(self.reject(ErrorData::invalid_params(reason, None)));
            }
            members.next_value_seed(&mut *self)?;
        }
        self.depth -= 1;
        Ok(())
    }
}

/// A key of an object, borrowed from the text if it has no escapes.
#[derive(Deserialize)]
struct Key<'t>(#[serde(borrow)] Cow<'t, str>);

/// The keys of an object. Most objects have few, which need no hashes.
#[derive(Default)]
struct Keys<'t> {
    few: Vec<Cow<'t, str>>,
    more: HashSet<Cow<'t, str>>,
}

impl<'t> Keys<'t> {
    /// Adds a key; returns it if it is a duplicate.
    fn insert(&mut self, key: Cow<'t, str>) -> Result<(), Cow<'t, str>> {
        if self.few.contains(&key) || self.more.contains(&key) {
            return Err(key);
        }
        if self.few.len() < 16 {
            self.few.push(key);
        } else {
            self.more.insert(key);
        }
        Ok(())
    }
}

/// The id of a request, if it is unambiguous; `None` for other messages.
pub(super) fn request_id(text: &[u8]) -> Option<NumberOrString> {
    let ids = scan_ids(text);
    ids.id().filter(|_| ids.has_method)
}

/// Finds the id of a message that cannot be parsed, by brackets and strings only. Accepts the text in pieces.
#[derive(Debug, Default)]
pub(super) struct IdScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the text begins with `{`.
    is_object: Option<bool>,
    /// The outermost object or array has ended.
    ended: bool,
    /// There is text after it.
    trailing: bool,
    /// Key of the current member of the outermost object.
    key: Option<String>,
    /// Beginning of the current key or value of the outermost object.
    token: Vec<u8>,
    /// Number of `id` members of the outermost object, and the last one.
    ids: usize,
    last_id: Option<NumberOrString>,
    has_method: bool,
}

impl IdScanner {
    pub(super) fn feed(&mut self, text: &[u8]) {
        for byte in text {
            self.next(*byte);
        }
    }

    /// The id, if there is exactly one.
    fn id(&self) -> Option<NumberOrString> {
        let id = self.last_id.clone();
        id.filter(|_| self.ids == 1 && self.is_object == Some(true))
    }

    /// Whether the object ends at the end of the text.
    fn is_whole(&self) -> bool {
        self.ended && !self.trailing
    }

    fn next(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        if byte.is_ascii_whitespace() {
            if !self.token.is_empty() {
                self.keep(byte);
            }
            return;
        }
        self.is_object.get_or_insert(byte == b'{');
        self.trailing |= self.ended;
        match byte {
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                    self.ended = true;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                let key = serde_json::from_slice(&self.token).ok();
                self.key = key.filter(|_| self.key.is_none());
                self.token.clear();
            }
            b',' if self.depth == 1 => self.end_member(),
            _ => {
                self.in_string = byte == b'"';
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < MAX_MEMBER_BYTES {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        match self.key.take().as_deref() {
            Some("id") => {
                self.ids += 1;
                self.last_id = serde_json::from_slice(&self.token).ok();
            }
            Some("method") => self.has_method = true,
            _ => {}
        }
        self.token.clear();
    }
}

/// Scans a whole text.
fn scan_ids(text: &[u8]) -> IdScanner {
    let mut ids = IdScanner::default();
    ids.feed(text);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Message {
        super::parse(text, &mut 0, true)
    }

    fn message(params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params},"id":5}}"#)
    }

    #[track_caller]
    fn check_duplicate_key(text: &str, expected: Option<&str>) {
        let found = match scan(text.as_bytes(), &mut 0) {
            Err(rejected) => Some(rejected.error.message.into_owned()),
            Ok(_) => None,
        };
        let expected = expected.map(|key| format!("duplicate key `{key}` in an object"));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn duplicate_key_is_found_at_any_depth_and_escaping() {
        check_duplicate_key(&message(r#"{"a":1,"a":1}"#), Some("a"));
        check_duplicate_key(
            &message(r#"{"x":[0,-1,1.5,null,true,"s",{"y":{"b":{},"c":2,"b":3}}]}"#),
            Some("b"),
        );
        check_duplicate_key(
            &message(r#"{"policy":{},"polic\u0079":{}}"#),
            Some("policy"),
        );
    }

    #[test]
    fn equal_keys_in_several_objects_are_accepted() {
        check_duplicate_key(&message(r#"{"a":{"a":[{"a":1},{"a":"a"}]},"b":"a"}"#), None);
        check_duplicate_key(&message(r#"{"a":1,"A":2}"#), None);
    }

    fn values(count: usize) -> String {
        // The message, its version, method, id and params, and the array.
        let array = vec!["1"; count - 6].join(",");
        message(&format!(r#"{{"a":[{array}]}}"#))
    }

    #[test]
    fn values_and_depth_are_bounded_and_error_has_the_id() {
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
    fn invalid_json_is_answered_by_its_id() {
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
    fn batch_is_split_into_its_messages() {
        let split = |text: &str| -> Result<Vec<String>, i32> {
            let found = split(text.as_bytes()).map_err(|rejected| rejected.error.code.0)?;
            Ok(found
                .iter()
                .map(|one| String::from_utf8_lossy(one).into_owned())
                .collect())
        };
        let one = r#"{"a":[1,{"b":"],[\"{"}],"c":"\ud800"}"#;
        assert_eq!(
            split(&format!(" [ {one} , 7,\n[1,2] ] ")).unwrap(),
            [one, "7", "[1,2]"]
        );
        for (text, code) in [
            ("[]", -32600),
            ("[ ]", -32600),
            ("[1,]", -32700),
            ("[1 2]", -32700),
            ("[1", -32700),
            ("[1]]", -32700),
        ] {
            assert_eq!(split(text), Err(code), "{text}");
        }
        let many = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        assert_eq!(split(&many(MAX_BATCH)).unwrap().len(), MAX_BATCH);
        assert_eq!(split(&many(MAX_BATCH + 1)), Err(-32600));
    }

    #[test]
    fn batch_is_not_read_beyond_its_limit() {
        // Reading on would find invalid JSON.
        let text = "[".to_owned() + &"1,".repeat(MAX_BATCH + 1) + "}";
        let rejected = split(text.as_bytes()).unwrap_err();
        assert_eq!(rejected.error.code.0, -32600);
    }

    #[test]
    fn values_of_all_messages_of_a_batch_are_bounded_together() {
        let batch = format!("[{},{}]", values(MAX_VALUES - 6), message("{}"));
        let messages = |text: &str| {
            let parsed = read(text.as_bytes(), true, true);
            assert!(parsed.is_batch);
            parsed.messages
        };
        assert!(messages(&batch).iter().all(Result::is_ok));
        let batch = format!("[{},{}]", values(MAX_VALUES - 4), message("{}"));
        let refused = messages(&batch).pop().unwrap().unwrap_err();
        assert_eq!(refused.id, Some(NumberOrString::Number(5)));
        let alone = read(batch.as_bytes(), false, true);
        assert!(!alone.is_batch && alone.messages[0].is_err());
    }

    #[test]
    fn oversized_request_is_answered_by_its_id() {
        let id = |text: &str| RejectedMessage::too_long(&scan_ids(text.as_bytes()), 1).id;
        let long = "x".repeat(100_000);
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":9,"method":"m","params":{{"a":"{long}"}}}}"#),
            format!(r#"{{"method":"m","params":{{"a":"{long}"}},"jsonrpc":"2.0","id":9}}"#),
            format!(r#"{{"method":"m","params":{{"a":"{long}"}},"id" : 9 ,"z":"{long}"}}"#)
                + "\r\n",
            format!(
                r#" {{"method":"m","params":{{"id":7,"a":["{long}",{{"id":8}}]}},"\u0069d":9}}"#
            ),
            format!(r#"{{"method":"m","params":{{"a":"{long},\"id\":7,\\"}},"id":9}}"#),
            format!(r#"{{"method":"id","{long}":"id","params":["id",7],"id":9}}"#),
        ] {
            assert_eq!(id(&text), Some(NumberOrString::Number(9)), "{}", text.len());
        }
        let text = format!(r#"{{"method":"m","params":["{long}"],"id":"a\"b"}}"#);
        assert_eq!(id(&text), Some(NumberOrString::String("a\"b".into())));
    }

    #[test]
    fn oversized_message_with_ambiguous_id_is_answered_without_id() {
        let long = "x".repeat(100_000);
        for text in [
            // A nested id, two ids, or none.
            format!(r#"{{"method":"m","params":{{"id":9,"a":"{long}"}}}}"#),
            format!(r#"{{"method":"m","params":"{long}\",\"id\":9"}}"#),
            format!(r#"{{"id":9,"method":"m","params":"{long}","id":9}}"#),
            format!(r#"{{"id":9,"method":"m","params":"{long}","\u0069d":8}}"#),
            format!(r#"{{"id":"{long}","method":"m"}}"#),
            format!(r#"{{"id":1.5,"method":"m","params":"{long}"}}"#),
            format!(r#"{{"id":{{"id":9}},"method":"m","params":"{long}"}}"#),
            format!(r#"{{"id":9 8,"method":"m","params":"{long}"}}"#),
            // A response.
            format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{"method":"{long}"}}}}"#),
            // Truncated, concatenated, a batch, not JSON.
            format!(r#"{{"method":"m","id":9,"params":"{long}"#),
            format!(r#"{{"method":"m","id":9,"params":{{"a":"{long}"}}"#),
            format!(r#"{{"method":"m","id":9,"params":"{long}"}}{{"id":9}}"#),
            format!(r#"[{{"method":"m","id":9,"params":"{long}"}}]"#),
            format!(r#"["method":"m","id":9,"params":"{long}"]"#),
            long,
        ] {
            let text = text.as_bytes();
            assert_eq!(
                RejectedMessage::too_long(&scan_ids(text), 1).id,
                None,
                "{}",
                text.len()
            );
        }
    }

    #[test]
    fn id_scanner_accepts_text_in_pieces() {
        let text = r#" {"method":"m\"","params":{"id":1,"a":"\\"},"id":"nine"} "#.as_bytes();
        for size in 1..text.len() {
            let mut ids = IdScanner::default();
            text.chunks(size).for_each(|piece| ids.feed(piece));
            let id = RejectedMessage::too_long(&ids, 1).id;
            assert_eq!(id, Some(NumberOrString::String("nine".into())), "{size}");
        }
    }

    #[test]
    fn other_json_rpc_version_is_rejected_by_its_id() {
        for version in [r#""1.0""#, "2.0", "2", "null", r#"{"jsonrpc":"2.0"}"#] {
            let text = message("{}").replace(r#""2.0""#, version);
            let rejected = parse(text.as_bytes()).unwrap_err();
            assert_eq!(rejected.id, Some(NumberOrString::Number(5)), "{text}");
            assert!(rejected.error.message.contains("jsonrpc"), "{text}");
        }
    }

    fn handshake(experimental: &str) -> Result<RxJsonRpcMessage<RoleServer>, RejectedMessage> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"initialize","params":{{"protocolVersion":"2025-11-25",
            "clientInfo":{{"name":"a","version":"1"}},"capabilities":{{"experimental":{experimental}}}}}}}"#
        );
        parse(text.as_bytes())
    }

    #[test]
    fn experimental_capabilities_may_be_plain_true() {
        for (experimental, kept_bytes) in [
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
            assert_eq!(keys.unwrap_or_default().len(), kept_bytes, "{experimental}");
        }
    }

    #[test]
    fn error_names_a_configuration_that_is_not_an_object() {
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
