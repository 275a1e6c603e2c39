//! Paths: a parsed path is normalized, and parsing it again changes nothing.
#![no_main]

use bailiwick::VirtualPath;
use bailiwick_fuzz::parts_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some([text, base]) = parts_of(input) else {
        return;
    };
    let base = VirtualPath::parse(base, None).ok();
    let Ok(path) = VirtualPath::parse(text, base.as_ref()) else {
        return;
    };
    assert!(path.as_str().starts_with('/'));
    assert!(path.names().all(|name| !matches!(name, "" | "." | "..")));
    assert!(!path.as_str().contains('\0'));
    assert_eq!(VirtualPath::parse(path.as_str(), None).as_ref(), Ok(&path));
    assert_eq!(
        VirtualPath::parse(path.as_str(), base.as_ref()).as_ref(),
        Ok(&path)
    );
    if let Some(parent) = path.parent() {
        assert!(path.starts_with(&parent) && !parent.starts_with(&path));
    }
});
