//! Tests of the access level of an authority.

use crate::config::Config;
use crate::policy::{Access, Authority};

#[test]
fn access_level_follows_the_effective_permissions() {
    use Access::{Full, Interact, Read};
    let level = |config: serde_json::Value| {
        let config = Config::parse(&config).unwrap();
        Authority::configured(&config).unwrap().level()
    };
    let with = |more: serde_json::Value| {
        let mut config = serde_json::json!({ "roots": [{ "path": "/r" }] });
        let members = config.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        config
    };
    let json = |text: &str| serde_json::from_str(text).unwrap();
    assert_eq!(level(with(json("{}"))), Interact);
    assert_eq!(level(with(json(r#"{"allow_escape":true}"#))), Full);
    for closed in [
        r#"{"read_only":true,"allow_escape":true}"#,
        r#"{"access":"read"}"#,
        r#"{"verbs":["read","execute"]}"#,
        r#"{"roots":[]}"#,
        r#"{"roots":[{"path":"/r","access":"read"},{"path":"/s","blocked":true}]}"#,
        r#"{"roots":[],"grantable":["read:file"]}"#,
    ] {
        assert_eq!(level(with(json(closed))), Read, "{closed}");
    }
    assert_eq!(
        level(with(json(r#"{"roots":[],"grantable":["write:file"]}"#))),
        Interact
    );
}
