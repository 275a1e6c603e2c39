//! Grant stores: any content with a valid checksum is read or rejected, opening agrees with reading, and a store that a
//! person edits keeps its other grants.
#![no_main]

use std::collections::BTreeSet;
use std::fs;

use bailiwick::permission::{GrantStore, GrantStoreError};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

fuzz_target!(|input: &[u8]| {
    // The rest of the first line, and the lines of the grants.
    let mut parts = input.splitn(2, |byte| *byte == 0xff);
    let (header, body) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut bytes = br#"{"format":"bailiwick-grants","version":2,"#.to_vec();
    bytes.extend(header);
    let mut hasher = Sha256::new();
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(&bytes);
    hasher.update(body);
    let hash: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    bytes.extend(format!(",\"sha256\":\"{hash}\"}}\n").into_bytes());
    bytes.extend(body);

    let file = std::env::temp_dir().join(format!("bailiwick-fuzz-grants-{}", std::process::id()));
    fs::write(&file, &bytes).expect("the temporary directory can be written");
    let read = GrantStore::read(&file);
    assert_eq!(
        fs::read(&file).ok().as_ref(),
        Some(&bytes),
        "reading changed the file"
    );
    match (read, GrantStore::open(&file)) {
        (Ok(grants), Ok(mut store)) => {
            assert!(store.grants().eq(&grants));
            let Some(first) = grants.first() else {
                return;
            };
            store
                .remove(&BTreeSet::from([first.id]))
                .expect("a stored grant can be removed");
            drop(store);
            let rest = GrantStore::read(&file).expect("an edited store can be read");
            assert_eq!(rest, grants[1..]);
        }
        (
            Err(_),
            Err(GrantStoreError::Damaged {
                kept_in: Some(kept),
                ..
            }),
        ) => {
            assert_eq!(fs::read(&kept).ok(), Some(bytes));
            fs::remove_file(&kept).expect("the kept file can be removed");
            assert!(
                GrantStore::open(&file).is_ok(),
                "the next start has an empty store"
            );
        }
        (Err(_), Err(GrantStoreError::Foreign { .. } | GrantStoreError::Version { .. })) => {
            assert_eq!(fs::read(&file).ok(), Some(bytes));
        }
        (read, opened) => panic!("read: {read:?}, opened: {opened:?}"),
    }
});
