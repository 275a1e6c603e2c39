//! Sandboxes whose changes are kept apart.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bailiwick_exec::{ExecError, Mount, SandboxSpec};

use crate::sandbox;

/// A script whose changes of `/work` are kept apart.
fn apart(script: &str, work: &Path) -> SandboxSpec {
    let mut spec = sandbox::shell(script, work);
    spec.mounts.pop();
    spec.mounts.push(Mount::Overlay {
        source: work.to_owned(),
        at: "/work".into(),
        writable: true,
        identity: None,
    });
    spec
}

/// Runs a sandbox. Returns its output and its changes.
async fn run(spec: &SandboxSpec) -> (String, OwnedFd) {
    use std::io::Read as _;
    let (mut process, mut reader) = sandbox::start(spec).await.unwrap();
    let changes = process.changes().unwrap();
    assert!(process.changes().is_none());
    process.wait().await.unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    (text, changes)
}

/// The entries of the changes of the first overlay, with the content of files.
fn entries(changes: &OwnedFd) -> BTreeMap<PathBuf, String> {
    use std::os::fd::AsRawFd as _;
    let top = PathBuf::from(format!("/proc/self/fd/{}/0/upper", changes.as_raw_fd()));
    let (mut found, mut open) = (BTreeMap::new(), vec![top.clone()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let text = if kind.is_char_device() {
                "deleted".to_owned()
            } else if kind.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                fs::read_to_string(&path).unwrap()
            };
            found.insert(path.strip_prefix(&top).unwrap().to_owned(), text);
        }
    }
    found
}

#[tokio::test]
async fn overlay_keeps_changes_apart() {
    let work = tempfile::tempdir().unwrap();
    let inside = |name: &str| work.path().join(name);
    fs::create_dir(inside("old")).unwrap();
    for (name, text) in [("a", "a\n"), ("b", "b\n"), ("old/c", "c\n")] {
        fs::write(inside(name), text).unwrap();
    }
    let script =
        "echo more >> a; rm b; rm -r old; mkdir new; echo n > new/n; ln -s a link; cat a; ls";
    let (text, changes) = run(&apart(script, work.path())).await;
    assert_eq!(text, "a\nmore\na\nlink\nnew\n");
    let expected = [
        ("a", "a\nmore\n"),
        ("b", "deleted"),
        ("link", "-> a"),
        ("new", "directory"),
        ("new/n", "n\n"),
        ("old", "deleted"),
    ];
    let expected = expected.map(|(path, text)| (path.into(), text.to_owned()));
    assert_eq!(entries(&changes), BTreeMap::from(expected));
    for (name, text) in [("a", "a\n"), ("b", "b\n"), ("old/c", "c\n")] {
        assert_eq!(fs::read_to_string(inside(name)).unwrap(), text);
    }
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 3);
}

#[tokio::test]
async fn parts_of_an_overlay_are_hidden_or_read_only() {
    let work = tempfile::tempdir().unwrap();
    for name in ["hidden", "fixed"] {
        fs::create_dir(work.path().join(name)).unwrap();
        fs::write(work.path().join(name).join("x"), "the secret\n").unwrap();
    }
    let script = "cat hidden/x; ls hidden; echo x > hidden/y; rm -r hidden; rm fixed/x; echo y > fixed/y; cat fixed/x; \
        mknod device c 0 0; mv fixed moved; echo end > free";
    let mut spec = apart(&format!("{{ {script}; }} 2>/dev/null"), work.path());
    spec.mounts.push(Mount::Hidden {
        at: "/work/hidden".into(),
    });
    spec.mounts.push(Mount::Within {
        at: "/work/fixed".into(),
        writable: false,
    });
    let (text, changes) = run(&spec).await;
    assert_eq!(text, "the secret\n");
    let expected = [("free".into(), "end\n".to_owned())];
    assert_eq!(entries(&changes), BTreeMap::from(expected));
}

#[tokio::test]
async fn changes_have_a_maximum_size() {
    let work = tempfile::tempdir().unwrap();
    let mut spec = apart(
        "head -c 2000000 /dev/zero > big; stat -c %s big",
        work.path(),
    );
    spec.overlay_bytes = 1 << 20;
    let (text, _changes) = run(&spec).await;
    let length = text.lines().last().unwrap().parse::<u64>().unwrap();
    assert!(length <= 1 << 20, "{text}");
    spec.overlay_bytes = 4 << 20;
    assert_eq!(run(&spec).await.0, "2000000\n");
}

#[tokio::test]
async fn replaced_directory_is_not_shown() {
    let (work, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut spec = apart("echo ran", work.path());
    let Some(Mount::Overlay { identity, .. }) = spec.mounts.last_mut() else {
        panic!("{spec:?}")
    };
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(other.path()).unwrap();
    *identity = Some((found.dev(), found.ino()));
    let refused = sandbox::start(&spec).await;
    assert!(
        matches!(refused, Err(ExecError::Setup { .. })),
        "{refused:?}"
    );
}
