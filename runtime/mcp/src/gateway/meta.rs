//! Options of this server in a request's `_meta`.

use rmcp::ErrorData;
use rmcp::model::RequestMetaObject;
use serde_json::Value;

use super::Trust;
use bailiwick::call::{CallMeta, Origin};
use bailiwick::effect::PreviewToken;
use bailiwick::scope::ScopePattern;

/// Prefix of keys, as MCP recommends for `_meta`.
pub(super) const PREFIX: &str = "dev.bailiwick/";

/// Known keys; any other key with the prefix is an error.
const KEYS: &[&str] = &[
    "preview",
    "policy",
    "policy_origin",
    "granted_scopes",
    "preview_token",
];

/// Key of a stateless client's capabilities in `_meta`.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Options of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestOptions {
    /// Preview the call.
    pub(super) preview: bool,
    /// Policy of this request: `_meta.policy`, or an array of the client's configuration and that.
    pub(super) policy: Option<Value>,
    /// Who wrote the policy.
    pub(super) origin: Origin,
    /// Grants for this call.
    pub(super) granted: Vec<ScopePattern>,
    /// Grants that are ignored, since this client may not send any.
    pub(super) ignored_grants: Vec<ScopePattern>,
    /// The preview to apply.
    pub(super) preview_token: Option<PreviewToken>,
    /// A view makes the call, so a person must allow it. Not set from `_meta`.
    pub(super) confirm: bool,
    /// The client sent one of the keys, so it knows the extensions of this server.
    pub(super) uses_extensions: bool,
}

impl RequestOptions {
    /// Reads the keys with and without [`PREFIX`]. For clients that are not trusted hosts, only restrictions apply.
    pub(super) fn read(meta: &RequestMetaObject, trust: Trust) -> Result<Self, ErrorData> {
        if meta.is_empty() {
            return Ok(Self::default());
        }
        let own = meta.iter().filter_map(|(key, _)| key.strip_prefix(PREFIX));
        for key in own {
            if !KEYS.contains(&key) {
                return Err(invalid(
                    &bailiwick::text::escape(key),
                    "is not a key of this server",
                ));
            }
        }
        let mut options = Self::default();
        for key in KEYS {
            options.uses_extensions |= get(meta, key)?.is_some();
        }
        if let Some(value) = get(meta, "preview")? {
            options.preview = value
                .as_bool()
                .ok_or_else(|| invalid("preview", "must be true or false"))?;
        }
        if let Some(value) = get(meta, "policy")? {
            if !value.is_object() {
                return Err(invalid("policy", "must be an object"));
            }
            options.policy = Some(value.clone());
        }
        if let Some(configuration) = configuration(meta)? {
            let both = std::iter::once(configuration.clone()).chain(options.policy);
            options.policy = Some(both.collect());
        }
        if let Some(value) = get(meta, "policy_origin")? {
            let written = match value.as_str() {
                Some("human") => Origin::Human,
                Some("llm") => Origin::Model,
                _ => return Err(invalid("policy_origin", "must be `human` or `llm`")),
            };
            if trust == Trust::Host {
                options.origin = written;
            }
        }
        if let Some(value) = get(meta, "granted_scopes")? {
            let granted = patterns(value)?;
            match trust {
                Trust::Host => options.granted = granted,
                Trust::Client | Trust::Agent => options.ignored_grants = granted,
            }
        }
        if let Some(value) = get(meta, "preview_token")? {
            let token = value.as_str().and_then(|text| text.parse().ok());
            let token = token.ok_or_else(|| invalid("preview_token", "is not a preview token"));
            options.preview_token = Some(token?);
        }
        Ok(options)
    }

    /// The part of the options that every call of a tool has.
    pub(super) fn call_meta(&self) -> CallMeta {
        CallMeta {
            origin: self.origin,
            policy: self.policy.clone(),
            ..CallMeta::default()
        }
    }
}

/// The configuration that a stateless client sends with each request, which acts as a policy.
fn configuration(meta: &RequestMetaObject) -> Result<Option<&Value>, ErrorData> {
    let capabilities = meta.get(CAPABILITIES);
    let experimental = capabilities.and_then(|it| it.get("experimental"));
    let configuration = experimental.and_then(|it| it.get("configuration"));
    match configuration.filter(|configuration| !configuration.is_null()) {
        Some(wrong) if !wrong.is_object() => Err(invalid(
            "io.modelcontextprotocol~1clientCapabilities/experimental/configuration",
            "must be an object",
        )),
        configuration => Ok(configuration),
    }
}

/// The value of a key with or without prefix; `null` counts as absent.
fn get<'a>(meta: &'a RequestMetaObject, key: &str) -> Result<Option<&'a Value>, ErrorData> {
    let present = |name: &str| meta.get(name).filter(|value| !value.is_null());
    match (present(key), present(&format!("{PREFIX}{key}"))) {
        (Some(bare), Some(prefixed)) if bare != prefixed => Err(invalid(
            key,
            "is given twice, with and without the prefix, with different values",
        )),
        (bare, prefixed) => Ok(bare.or(prefixed)),
    }
}

fn patterns(value: &Value) -> Result<Vec<ScopePattern>, ErrorData> {
    let wrong = || invalid("granted_scopes", "must be an array of strings");
    let items = value.as_array().ok_or_else(wrong)?;
    let mut patterns = Vec::with_capacity(items.len());
    for item in items {
        let text = item.as_str().ok_or_else(wrong)?;
        match text.parse() {
            Ok(pattern) => patterns.push(pattern),
            // An invalid grant is ignored; the others still apply.
            Err(error) => {
                tracing::debug!(scope = %bailiwick::text::escape(text), %error, "ignored an invalid granted scope");
            }
        }
    }
    Ok(patterns)
}

fn invalid(key: &str, reason: &str) -> ErrorData {
    let data = serde_json::json!({
        "kind": "invalid_meta", "code": "INVALID_ARGUMENTS", "field": format!("/_meta/{key}"),
    });
    ErrorData::invalid_params(format!("_meta.{key} {reason}"), Some(data))
}

#[cfg(test)]
mod tests {
    use rmcp::model::MetaObject;
    use serde_json::json;

    use super::*;

    fn read(meta: Value, trust: Trust) -> Result<RequestOptions, ErrorData> {
        let Value::Object(map) = meta else { panic!() };
        RequestOptions::read(&RequestMetaObject(MetaObject(map)), trust)
    }

    #[test]
    fn keys_are_read_bare_and_prefixed() {
        for prefix in ["", PREFIX] {
            let meta = json!({
                format!("{prefix}preview"): true,
                format!("{prefix}policy"): {"read_only": true},
                format!("{prefix}policy_origin"): "human",
                format!("{prefix}granted_scopes"): ["write:file:/a"],
            });
            let options = read(meta, Trust::Host).unwrap();
            assert!(options.preview && options.uses_extensions);
            assert_eq!(options.policy, Some(json!({"read_only": true})));
            assert_eq!(options.origin, Origin::Human);
            assert_eq!(options.granted, ["write:file:/a".parse().unwrap()]);
        }
        let nulls = json!({"preview": null, "policy": null, "granted_scopes": null});
        assert_eq!(read(nulls, Trust::Host).unwrap(), RequestOptions::default());
    }

    #[test]
    fn configuration_of_a_stateless_client_acts_as_policy() {
        let with = |configuration: Value| json!({ CAPABILITIES: { "experimental": { "configuration": configuration } } });
        let (closed, policy) = (json!({"read_only": true}), json!({"tools": ["stat"]}));
        for trust in [Trust::Host, Trust::Agent] {
            let options = read(with(closed.clone()), trust).unwrap();
            assert_eq!(options.policy, Some(json!([closed])));
            let mut both = with(closed.clone());
            both["policy"] = policy.clone();
            let options = read(both, trust).unwrap();
            assert_eq!(options.policy, Some(json!([closed, policy])));
            assert_eq!(read(with(json!(null)), trust).unwrap().policy, None);
            assert!(read(with(json!(true)), trust).is_err());
        }
    }

    #[test]
    fn agent_metadata_can_only_narrow() {
        let meta = json!({
            "policy": {"read_only": true}, "policy_origin": "human", "granted_scopes": ["*"],
        });
        let options = read(meta, Trust::Agent).unwrap();
        assert!(options.policy.is_some());
        assert_eq!(options.origin, Origin::Model);
        assert!(options.granted.is_empty() && !options.ignored_grants.is_empty());
    }

    #[test]
    fn invalid_option_is_an_error_that_names_it() {
        for (meta, field) in [
            (json!({"preview": "true"}), "/_meta/preview"),
            (json!({"policy": "none"}), "/_meta/policy"),
            (json!({"policy_origin": "admin"}), "/_meta/policy_origin"),
            (json!({"granted_scopes": "*"}), "/_meta/granted_scopes"),
            (json!({"granted_scopes": [1]}), "/_meta/granted_scopes"),
            (json!({"preview_token": "x"}), "/_meta/preview_token"),
            (json!({"dev.bailiwick/Preview": true}), "/_meta/Preview"),
            (
                json!({"preview": true, "dev.bailiwick/preview": false}),
                "/_meta/preview",
            ),
        ] {
            let error = read(meta, Trust::Host).unwrap_err();
            assert_eq!(error.data.unwrap()["field"], field);
        }
    }

    #[test]
    fn invalid_grant_is_ignored() {
        let options = read(
            json!({"granted_scopes": ["write:file:../x", "read:file:/a"]}),
            Trust::Host,
        );
        assert_eq!(options.unwrap().granted, ["read:file:/a".parse().unwrap()]);
    }
}
