//! Converts `file://` URIs to virtual paths.

use bailiwick::VirtualPath;

const SCHEME: &str = "file://";

/// The path of a `file://` URI; `None` if the URI is invalid or has another host.
pub(super) fn to_path(uri: &str) -> Option<VirtualPath> {
    let rest = uri.strip_prefix(SCHEME)?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') || rest.contains(['?', '#']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(rest.len());
    let mut input = rest.bytes();
    while let Some(byte) = input.next() {
        bytes.push(match byte {
            b'%' => hex(input.next()?)? << 4 | hex(input.next()?)?,
            byte => byte,
        });
    }
    VirtualPath::parse(&String::from_utf8(bytes).ok()?, None).ok()
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_uri_names_a_path_on_this_host() {
        for (uri, expected) in [
            ("file:///r/a%20b", Some("/r/a b")),
            ("file://localhost/r", Some("/r")),
            ("file:///r/../s", Some("/s")),
            ("file://elsewhere/r", None),
            ("file:///r?x", None),
            ("file:///r%zz", None),
            ("file:///r%f", None),
            ("file:///%ff", None),
            ("https://r/a", None),
            ("r/a", None),
        ] {
            let found = to_path(uri);
            assert_eq!(found.as_ref().map(VirtualPath::as_str), expected, "{uri}");
        }
    }

    proptest! {
        #![proptest_config(crate::cases::cases(1000))]
        #[test]
        fn every_path_round_trips_through_its_uri(name in "[^/\\x00]{1,12}") {
            if let Ok(there) = VirtualPath::parse(&format!("/r/{name}"), None) {
                prop_assert_eq!(to_path(&there.address()), Some(there));
            }
        }
    }
}
