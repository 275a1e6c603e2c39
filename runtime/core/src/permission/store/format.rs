//! File format of the grant store.
//!
//! The first line contains the format, the next id, the number of grants, and the hash of the rest of the file. One
//! line per grant follows. The hash covers everything, so missing or changed parts are detected.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{GrantStoreError, StoredGrant};
use crate::audit::json_line;
use crate::effect::ContentHash;
use crate::id::GrantId;
use crate::json::read_json;

const FORMAT: &str = "bailiwick-grants";
pub(super) const VERSION: u64 = 2;
/// Start of a store of any version.
const BEGINS: &[u8] = br#"{"format":"bailiwick-grants","version":"#;
const HASH_OPENS: &str = ",\"sha256\":\"";
const HASH_CLOSES: &str = "\"}";
/// Maximum number of grants.
pub(in super::super) const MAX_GRANTS: usize = 10_000;
/// Maximum size of a store: 10,000 grants with paths of maximum length.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// Largest id, since common JSON readers round greater numbers.
const MAX_NUMBERS: u64 = 1 << 53;

/// Content of a store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contents {
    /// The id after the highest one of any stored grant, so that no id is reused.
    pub(crate) next: u64,
    pub(crate) grants: BTreeMap<GrantId, StoredGrant>,
}

impl Default for Contents {
    fn default() -> Self {
        Self {
            next: 1,
            grants: BTreeMap::new(),
        }
    }
}

/// Damage of a grant store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantDamage {
    /// It is too large.
    #[error("it is larger than a grant store can be")]
    Large,
    /// The first line is incomplete or invalid.
    #[error("its first line cannot be read")]
    Header(#[source] serde_json::Error),
    /// Bytes are missing, added or changed.
    #[error("its content does not match its checksum")]
    Changed,
    /// The number of grants differs from the first line, or is too large.
    #[error("it does not contain the number of grants that its first line states")]
    Count,
    /// A line is not a grant.
    #[error("line {line} is not a grant")]
    Grant {
        /// The line number, from 1.
        line: usize,
        /// The reason.
        source: serde_json::Error,
    },
    /// An id is used twice, or is invalid.
    #[error("invalid grant number {0}")]
    Number(GrantId),
}

/// The first line. It ends with the hash, which is added when the rest of the file is known.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u64,
    next: u64,
    grants: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Header fields of every version.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

/// Encodes `contents`.
pub(super) fn encode(contents: &Contents) -> io::Result<Vec<u8>> {
    let header = json_line(&Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        next: contents.next,
        grants: contents.grants.len(),
        sha256: None,
    })?;
    let mut body = String::new();
    for grant in contents.grants.values() {
        body += &json_line(grant)?;
        body.push('\n');
    }
    let opened = header.strip_suffix('}').unwrap_or(&header);
    let hash = hash(opened.as_bytes(), body.as_bytes());
    let bytes = format!("{opened}{HASH_OPENS}{hash}{HASH_CLOSES}\n{body}").into_bytes();
    if bytes.len() as u64 > MAX_BYTES || contents.grants.len() > MAX_GRANTS {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The hash of the first line up to its hash, and of the following lines.
fn hash(opened: &[u8], body: &[u8]) -> ContentHash {
    let mut hasher = Sha256::new();
    hasher.update((opened.len() as u64).to_le_bytes());
    hasher.update(opened);
    hasher.update(body);
    ContentHash::from_bytes(hasher.finalize().into())
}

/// Decodes the content of `file` if it is exactly as it was written.
pub(super) fn decode(file: &Path, bytes: &[u8]) -> Result<Contents, GrantStoreError> {
    let damaged = |source| GrantStoreError::Damaged {
        file: file.to_owned(),
        kept_in: None,
        source,
    };
    let file = || file.to_owned();
    if !bytes.starts_with(BEGINS) && !BEGINS.starts_with(bytes) {
        return Err(GrantStoreError::Foreign { file: file() });
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(damaged(GrantDamage::Large));
    }
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let (header, body) = (lines.next().unwrap_or_default(), lines.next());
    match serde_json::from_slice(header) {
        Ok(Versioned { version: VERSION }) => {}
        Ok(Versioned { version }) => {
            let file = file();
            return Err(GrantStoreError::Version { file, version });
        }
        Err(error) => return Err(damaged(GrantDamage::Header(error))),
    }
    let body = body.ok_or_else(|| damaged(GrantDamage::Changed))?;
    intact(header, body).map_err(damaged)
}

fn intact(header: &[u8], body: &[u8]) -> Result<Contents, GrantDamage> {
    let stated: Header = serde_json::from_slice(header).map_err(GrantDamage::Header)?;
    let no_hash = || GrantDamage::Header(serde::de::Error::missing_field("sha256"));
    let stated_hash = stated.sha256.ok_or_else(no_hash)?;
    let seal = format!("{HASH_OPENS}{stated_hash}{HASH_CLOSES}");
    let opened = header
        .strip_suffix(seal.as_bytes())
        .ok_or(GrantDamage::Changed)?;
    if hash(opened, body).to_string() != stated_hash {
        return Err(GrantDamage::Changed);
    }
    let mut contents = Contents {
        next: stated.next,
        grants: BTreeMap::new(),
    };
    for (index, line) in body.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let grant: StoredGrant = read_json(line).map_err(|source| GrantDamage::Grant {
            line: index + 2,
            source,
        })?;
        let id = grant.id;
        if id.0 == 0 || id.0 >= stated.next || contents.grants.insert(id, grant).is_some() {
            return Err(GrantDamage::Number(id));
        }
    }
    if stated.next > MAX_NUMBERS {
        return Err(GrantDamage::Number(GrantId(stated.next)));
    }
    if contents.grants.len() != stated.grants || stated.grants > MAX_GRANTS {
        return Err(GrantDamage::Count);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Contents, GrantStoreError> {
        super::decode(Path::new("grants"), bytes)
    }

    fn grant(id: u64, agent: &str, pattern: &str) -> StoredGrant {
        StoredGrant {
            id: GrantId(id),
            agent: agent.into(),
            pattern: pattern.parse().unwrap(),
            descendants: id.is_multiple_of(2),
            given_at_ms: 1_700_000_000_000,
        }
    }

    fn contents(next: u64, grants: impl IntoIterator<Item = StoredGrant>) -> Contents {
        Contents {
            next,
            grants: grants.into_iter().map(|grant| (grant.id, grant)).collect(),
        }
    }

    /// A file with a valid hash and any content.
    fn sealed(version: u64, rest: &str, body: &str) -> Vec<u8> {
        let opened = format!(r#"{{"format":"bailiwick-grants","version":{version},{rest}"#);
        let hash = hash(opened.as_bytes(), body.as_bytes());
        format!("{opened}{HASH_OPENS}{hash}{HASH_CLOSES}\n{body}").into_bytes()
    }

    const LINE: &str = r#"{"id":1,"agent":"main","pattern":"write:file:/r","reach":"exact","operations":["change"],"descendants":false,"given_at_ms":0}
"#;

    #[track_caller]
    fn damage(rest: &str, body: &str) -> String {
        match decode(&sealed(2, rest, body)) {
            Err(GrantStoreError::Damaged { source: damage, .. }) => damage.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn store_file_has_one_readable_line_per_grant() {
        let text = encode(&contents(
            8,
            [grant(3, "main/tests", "write:file:/repo/docs")],
        ))
        .unwrap();
        let text = String::from_utf8(text).unwrap();
        let (header, body) = text.split_once('\n').unwrap();
        assert!(
            header.starts_with(
                r#"{"format":"bailiwick-grants","version":2,"next":8,"grants":1,"sha256":""#
            ),
            "{header}"
        );
        assert_eq!(
            body,
            "{\"id\":3,\"agent\":\"main/tests\",\"pattern\":\"write:file:/repo/docs\",\"reach\":\"beneath\",\"operations\":[\"create\",\"change\",\"delete\",\"move\"],\"descendants\":false,\"given_at_ms\":1700000000000}\n"
        );
    }

    #[test]
    fn written_store_is_read_back_with_deceptive_characters_escaped() {
        let hostile: String = (0..0xa0)
            .chain([0x200b, 0x202e, 0x2066, 0xfeff, 0xe0041])
            .filter_map(char::from_u32)
            .chain("é日🦀\"\\".chars())
            .collect();
        let contents = contents(
            5,
            [
                grant(1, &hostile, "write:file:/r/é日"),
                grant(4, "main", "*"),
            ],
        );
        let bytes = encode(&contents).unwrap();
        assert_eq!(decode(&bytes).unwrap(), contents);
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            !text
                .replace('\n', "")
                .chars()
                .any(crate::text::is_deceptive)
        );
    }

    #[test]
    fn any_changed_byte_is_detected() {
        let bytes = encode(&contents(
            9,
            [1, 2, 8].map(|id| grant(id, "main/a", "write:file:/r/x")),
        ))
        .unwrap();
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert!(decode(&other).is_err(), "bit {bit} of byte {at}");
            }
            for added in [b' ', b'\n', b'0'] {
                let mut more = bytes.clone();
                more.insert(at, added);
                assert!(decode(&more).is_err(), "{added} at {at}");
            }
        }
        let more = [bytes.as_slice(), b"\n"].concat();
        assert!(decode(&more).is_err());
        assert!(decode(&bytes).is_ok());
    }

    #[test]
    fn valid_hash_does_not_accept_invalid_content() {
        assert!(decode(&sealed(2, r#""next":2,"grants":1"#, LINE)).is_ok());
        let one = r#""next":2,"grants":1"#;
        let no_grant = "line 2 is not a grant";
        for body in [
            LINE.replace("write:file:/r", "write:file:r"),
            LINE.replace(",\"reach\":\"exact\"", ""),
            LINE.replace("\"change\"", "\"read\""),
            LINE.replace("[\"change\"]", "[]"),
            LINE.replace("\"descendants\"", "\"until\":1,\"descendants\""),
            LINE.replace(",\"given_at_ms\":0", ""),
            LINE.replace("false", "0"),
            "\n".to_owned(),
        ] {
            assert_eq!(damage(one, &body), no_grant, "{body}");
        }
        let count = "it does not contain the number of grants that its first line states";
        assert_eq!(damage(r#""next":2,"grants":2"#, LINE), count);
        assert_eq!(damage(r#""next":2,"grants":0"#, LINE), count);
        let number = "invalid grant number g1";
        assert_eq!(damage(r#""next":1,"grants":1"#, LINE), number);
        assert_eq!(
            damage(r#""next":2,"grants":2"#, &format!("{LINE}{LINE}")),
            number
        );
        assert_eq!(
            damage(r#""next":18446744073709551615,"grants":0"#, ""),
            "invalid grant number g18446744073709551615"
        );
        assert_eq!(
            damage(r#""next":2,"grants":1,"more":1"#, LINE),
            "its first line cannot be read"
        );
    }

    #[test]
    fn format_1_without_operations_is_rejected() {
        let line = r#"{"id":1,"agent":"main","pattern":"write:file:/r","descendants":false,"given_at_ms":0}
"#;
        let older = sealed(1, r#""next":2,"grants":1"#, line);
        assert!(matches!(
            decode(&older),
            Err(GrantStoreError::Version { version: 1, .. })
        ));
        assert_eq!(
            damage(r#""next":2,"grants":1"#, line),
            "line 2 is not a grant"
        );
    }

    #[test]
    fn other_version_other_file_and_damage_are_distinguished() {
        let later = sealed(3, r#""next":2,"grants":1,"more":1"#, "?");
        assert!(matches!(
            decode(&later),
            Err(GrantStoreError::Version { version: 3, .. })
        ));
        for foreign in ["{}", "[1]", r#"{"format":"other","version":1}"#, "\n"] {
            assert!(
                matches!(
                    decode(foreign.as_bytes()),
                    Err(GrantStoreError::Foreign { .. })
                ),
                "{foreign}"
            );
        }
        for cut in [
            "",
            r#"{"form"#,
            r#"{"format":"bailiwick-grants","version":1"#,
        ] {
            assert!(
                matches!(decode(cut.as_bytes()), Err(GrantStoreError::Damaged { .. })),
                "{cut}"
            );
        }
    }

    #[test]
    fn too_many_grants_are_neither_written_nor_read() {
        let most = MAX_GRANTS as u64;
        let full = contents(most + 1, (1..=most).map(|id| grant(id, "a", "write")));
        assert_eq!(decode(&encode(&full).unwrap()).unwrap(), full);
        let more = contents(most + 2, (1..=most + 1).map(|id| grant(id, "a", "write")));
        assert_eq!(
            encode(&more).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        let body = (1..=most + 1).map(|id| LINE.replace("\"id\":1", &format!("\"id\":{id}")));
        let rest = format!(r#""next":{},"grants":{}"#, most + 2, most + 1);
        assert_eq!(
            damage(&rest, &body.collect::<String>()),
            "it does not contain the number of grants that its first line states"
        );
    }
}
