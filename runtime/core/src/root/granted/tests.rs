#![expect(clippy::disallowed_methods, reason = "tests create directories")]

use std::sync::Arc;

use super::*;

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text, None).unwrap()
}

#[test]
fn grant_opens_the_parent_directory() {
    let temp = tempfile::tempdir().unwrap();
    let host = temp.path().canonicalize().unwrap();
    let open = host.join("open");
    std::fs::create_dir_all(open.join("sub")).unwrap();
    std::fs::write(open.join("file"), "").unwrap();
    std::os::unix::fs::symlink(&host, open.join("link")).unwrap();
    let mount = |name: &str| {
        let path = path(open.join(name).to_str().unwrap());
        let root = Root::open_granted(&path, &[], &RootTable::default()).unwrap();
        assert!(root.is_for_one_call());
        root.mount().to_string()
    };
    let expected = open.to_str().unwrap();
    for name in ["sub", "file", "absent", "absent/deep", "link", "link/open"] {
        assert_eq!(mount(name), expected, "{name}");
    }
}

#[test]
fn grant_of_a_top_level_entry_opens_the_top_or_the_directory() {
    let mount = |text: &str| {
        let root = Root::open_granted(&path(text), &[], &RootTable::default()).unwrap();
        root.mount().to_string()
    };
    // What is absent is opened as a file is.
    for absent in ["/bailiwick-absent", "/bailiwick-absent/deep"] {
        assert_eq!(mount(absent), "/");
    }
    assert_eq!(mount("/usr"), "/usr");
}

#[test]
fn grant_never_opens_home_kernel_files_or_an_aliased_root() {
    let temp = tempfile::tempdir().unwrap();
    let host = temp.path().canonicalize().unwrap();
    std::fs::create_dir(host.join("r")).unwrap();
    let root = Root::open(path("/r"), &host.join("r"), false).unwrap();
    let roots = RootTable::new(vec![Arc::new(root)]);
    let kept = host.join("audit");
    let refused = |text: &str| {
        let opened = Root::open_granted(&path(text), std::slice::from_ref(&kept), &roots);
        matches!(opened, Err(RootError::Unsafe { .. }))
    };
    for text in ["/", "/dev", "/proc/self/environ", "/proc/1", "/sys/kernel"] {
        assert!(refused(text), "{text}");
    }
    let named = |name: &str| refused(host.join(name).to_str().unwrap());
    assert!(named("audit"));
    assert!(named("r/x"));
    assert!(named("r"));
    assert!(named(""));
    assert!(!named("other"));
    assert!(!named("rr/x"));
}
