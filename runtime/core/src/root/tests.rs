#![expect(clippy::disallowed_methods, reason = "tests create directories")]

use super::*;
use crate::call::Origin;
use crate::config::{Config, RootConfig};
use crate::policy::Policy;

fn open(host: &Path) -> Result<Root, RootError> {
    Root::open(VirtualPath::parse("/r", None).unwrap(), host, false)
}

#[track_caller]
fn check_refused(host: &str, home: Option<&str>, expected: &str) {
    let dir = std::fs::File::open(host).unwrap();
    let reason = unsafe_reason(Path::new(host), home.map(Path::new));
    let reason = reason.or_else(|| kernel_reason(dir.as_fd()));
    assert!(reason.unwrap().contains(expected), "{host}: {reason:?}");
}

#[test]
fn file_system_top_is_rejected_as_root() {
    check_refused("/", None, "top of the file system");
    assert!(matches!(
        open(Path::new("/")),
        Err(RootError::Unsafe { .. })
    ));
    assert!(matches!(
        open(Path::new("/tmp/..")),
        Err(RootError::Unsafe { .. })
    ));
}

#[test]
fn kernel_file_systems_are_rejected_as_root() {
    for host in [
        "/proc",
        "/proc/self",
        "/proc/sys/kernel",
        "/sys",
        "/sys/kernel",
    ] {
        check_refused(host, None, "kernel's own files");
        assert!(matches!(
            open(Path::new(host)),
            Err(RootError::Unsafe { .. })
        ));
    }
    check_refused("/dev", None, "devices");
}

#[test]
fn fat_and_kernel_file_systems_are_recognised() {
    let (vfat, exfat) = (0x4d44, 0x2011_bab0);
    assert!(is_fat(vfat) && is_fat(exfat));
    let (ext4, tmpfs, overlayfs) = (0xef53, 0x0102_1994, 0x794c_7630);
    assert!(![ext4, tmpfs, overlayfs].into_iter().any(is_fat));
    let temp = tempfile::tempdir().unwrap();
    let root = open(temp.path()).unwrap();
    assert!(root.require_unique_names().is_ok());
    assert!(!Root::is_in_unsafe_file_system(root.dir().as_fd()).unwrap());
    let proc = std::fs::File::open("/proc").unwrap();
    assert!(Root::is_in_unsafe_file_system(proc.as_fd()).unwrap());
}

#[test]
fn home_is_rejected_as_root_and_a_directory_in_it_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().canonicalize().unwrap();
    let project = home.join("project");
    std::fs::create_dir(&project).unwrap();
    let reason = |host: &Path| unsafe_reason(host, Some(&home));
    assert!(reason(&home).unwrap().contains("home directory"));
    assert!(
        reason(home.parent().unwrap())
            .unwrap()
            .contains("home directory")
    );
    assert_eq!(reason(&project), None);
}

#[test]
fn root_follows_the_opened_directory() {
    use std::os::unix::fs::MetadataExt as _;
    let temp = tempfile::tempdir().unwrap();
    let (host, elsewhere) = (temp.path().join("r"), temp.path().join("moved"));
    std::fs::create_dir(&host).unwrap();
    let root = open(&host).unwrap();
    std::fs::rename(&host, &elsewhere).unwrap();
    std::fs::create_dir(&host).unwrap();
    let found = std::fs::metadata(&elsewhere).unwrap();
    assert_eq!(root.identity(), (found.dev(), found.ino()));
    let held = fstat(root.dir()).unwrap();
    assert_eq!(root.identity(), (held.st_dev, held.st_ino));
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text, None).unwrap()
}

#[test]
fn roots_with_the_same_files_are_rejected() {
    let temp = tempfile::tempdir().unwrap();
    let host = temp.path().canonicalize().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(host.join(name)).unwrap();
    }
    // A bind mount of `a` at `c` is this very directory by another path.
    let mounted = |mount: &str, host: PathBuf, name: &str| {
        let dir = Dir::open_ambient_dir(temp.path().join(name), ambient_authority()).unwrap();
        Root::over(path(mount), host, dir, false).unwrap()
    };
    let a = mounted("/a", host.join("a"), "a");
    let bound = mounted("/c", host.join("c"), "a");
    assert!(matches!(bound.beside(&a), Err(RootError::Unsafe { .. })));
    assert!(matches!(a.beside(&bound), Err(RootError::Unsafe { .. })));
    let b = mounted("/b", host.join("b"), "b");
    assert!(b.beside(&a).is_ok());
    // A walk of `/a` would find other files where `/a/b` stands.
    let within = mounted("/a/b", host.join("b"), "b");
    assert!(matches!(within.beside(&a), Err(RootError::Unsafe { .. })));
    assert!(matches!(a.beside(&within), Err(RootError::Unsafe { .. })));
}

#[test]
fn relative_target_above_a_root_becomes_absolute() {
    let temp = tempfile::tempdir().unwrap();
    let host = temp.path().canonicalize().unwrap();
    let root = open(&host).unwrap();
    let above = host.parent().unwrap();
    assert_eq!(root.above("../x/y"), Some(above.join("x/y")));
    assert_eq!(root.above("..//x"), Some(above.join("x")));
    assert_eq!(root.above(".."), Some(above.to_path_buf()));
    assert_eq!(root.above("..x"), Some(host.join("..x")));
    assert_eq!(root.above(&"../".repeat(99)), None);
    // A later `..` is not resolved.
    assert_eq!(root.above("../x/../y"), Some(above.join("x/../y")));
}

#[test]
fn only_plain_targets_beneath_the_root_have_a_virtual_path() {
    let temp = tempfile::tempdir().unwrap();
    let host = temp.path().canonicalize().unwrap();
    let root = open(&host).unwrap();
    let virtual_path = |path: PathBuf| root.virtual_path(&path).map(|path| path.to_string());
    assert_eq!(virtual_path(host.clone()), Some("/r".to_owned()));
    assert_eq!(virtual_path(host.join("a/b")), Some("/r/a/b".to_owned()));
    assert_eq!(virtual_path(host.join("../b")), None);
    let mut sibling = host.into_os_string();
    sibling.push("-evil/b");
    assert_eq!(virtual_path(sibling.into()), None);
}

#[test]
fn worker_has_only_the_roots_that_it_reaches() {
    let temp = tempfile::tempdir().unwrap();
    let mounts = ["/a", "/b"].map(path);
    let open = |mount: &VirtualPath| Root::open(mount.clone(), temp.path(), false).unwrap();
    let roots = Arc::new(RootTable::new(
        mounts.iter().map(open).map(Arc::new).collect(),
    ));
    let config = mounts.into_iter().map(RootConfig::new);
    let host = Authority::configured(&config.fold(Config::new(), Config::root)).unwrap();
    let reached = |policy: Policy| {
        let worker = host.narrow(&host.admit(&policy, Origin::Host).unwrap());
        roots.reached_by(&worker)
    };
    let narrow = reached(Policy::new().allow("read:file:/b/src"));
    let names = |roots: Vec<&Root>| -> Vec<String> {
        let names = roots.iter().map(|root| root.mount().to_string());
        names.collect()
    };
    assert_eq!(names(narrow.iter().collect()), ["/b"]);
    assert_eq!(names(narrow.closed().collect()), ["/a"]);
    assert!(narrow.find(&path("/a/x")).is_none());
    let all = reached(Policy::new().allow("read:file"));
    assert!(Arc::ptr_eq(&all, &roots));
}

#[test]
fn cached_kind_is_that_of_directories_and_missing_entries() {
    let temp = tempfile::tempdir().unwrap();
    let host = temp.path().canonicalize().unwrap();
    std::fs::create_dir(host.join("folder")).unwrap();
    std::fs::write(host.join("folder/file"), "").unwrap();
    for (target, link) in [("folder/file", "to-file"), ("folder", "to-folder")] {
        std::os::unix::fs::symlink(target, host.join(link)).unwrap();
    }
    std::os::unix::fs::symlink("/", host.join("out")).unwrap();
    let roots = RootTable::new(vec![Arc::new(open(&host).unwrap())]);
    for (name, is_file, kind) in [
        ("/r/folder/file", true, CachedKind::Unknown),
        ("/r/to-folder/file", true, CachedKind::Unknown),
        ("/r/to-file", false, CachedKind::Unknown),
        ("/r/folder", false, CachedKind::Directory),
        ("/r", false, CachedKind::Root),
        ("/r/missing", false, CachedKind::Missing),
        ("/elsewhere", false, CachedKind::Missing),
    ] {
        assert_eq!(roots.is_file(&path(name)), is_file, "{name}");
        // A rename elsewhere on the machine may interrupt a lookup.
        let mut lookups = (0..1000).map(|_| roots.cached_kind(&path(name)));
        let cached = lookups.find(|cached| *cached != CachedKind::Unknown);
        assert_eq!(cached.unwrap_or(CachedKind::Unknown), kind, "{name}");
    }
    let outside = roots.cached_kind(&path("/r/out/etc"));
    assert_eq!(outside, CachedKind::Unknown);
}
