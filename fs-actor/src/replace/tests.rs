//! Tests of atomic replacement under crashes, limits and races.
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use bailiwick_test_support::{forbidden_calls::forbid, wait};
use rustix::fs::XattrFlags;

use super::*;
use crate::testing;

const LEVELS: [Durability; 3] = [
    Durability::Visible,
    Durability::Ordered,
    Durability::Durable,
];

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

/// Replaces `name` as the tools do.
fn replace(
    dir: &Path,
    name: &str,
    bytes: &[u8],
    requested: Durability,
) -> Result<Durability, ReplaceError> {
    let (dir, old) = (open(dir), open(&dir.join(name)));
    let was = Meta::of(&old)?;
    let staged = StagedFile::in_place_of(dir.as_fd(), bytes, &old, None)?;
    staged.flush(requested)?;
    let _lock = DirLock::acquire(dir.as_fd())?;
    staged.replace(name, &old, &was, requested)
}

fn create(
    dir: &Path,
    name: &str,
    bytes: &[u8],
    mode: Option<u32>,
) -> Result<Durability, ReplaceError> {
    let dir = open(dir);
    StagedFile::new_file(dir.as_fd(), bytes, mode)?.create(name, Durability::Ordered)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_durability_replaces_the_content_only() {
    let temp = tempfile::tempdir().unwrap();
    create(temp.path(), "f", b"old", None).unwrap();
    for level in LEVELS {
        let bytes = format!("{level:?}");
        assert_eq!(
            replace(temp.path(), "f", bytes.as_bytes(), level).unwrap(),
            level
        );
        assert_eq!(fs::read(temp.path().join("f")).unwrap(), bytes.as_bytes());
        assert_eq!(names(temp.path()), ["f"]);
    }
}

#[test]
fn existing_file_is_not_overwritten_by_create() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("d")).unwrap();
    std::os::unix::fs::symlink("nowhere", temp.path().join("l")).unwrap();
    create(temp.path(), "f", b"old", None).unwrap();
    for name in ["d", "l", "f"] {
        assert!(
            matches!(
                create(temp.path(), name, b"new", None),
                Err(ReplaceError::Exists)
            ),
            "{name}"
        );
    }
    assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"old");
    assert_eq!(names(temp.path()), ["d", "f", "l"]);
}

#[test]
fn other_hard_link_keeps_its_content() {
    for level in LEVELS {
        let temp = tempfile::tempdir().unwrap();
        let (root, outside) = (temp.path().join("root"), temp.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::write(&outside, "theirs").unwrap();
        fs::hard_link(&outside, root.join("f")).unwrap();
        replace(&root, "f", b"ours", level).unwrap();
        assert_eq!(fs::read(&outside).unwrap(), b"theirs");
        assert_eq!(fs::read(root.join("f")).unwrap(), b"ours");
        assert_eq!(names(&root), ["f"]);
    }
}

#[test]
fn mode_owner_and_attributes_are_kept_without_set_id_bits() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("f");
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::chown(&file, Some(1234), Some(2345)).expect("these tests run as root");
    rustix::fs::setxattr(&file, "user.note", b"kept", XattrFlags::empty()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    for level in LEVELS {
        replace(temp.path(), "f", b"new", level).unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!(
            (meta.mode() & 0o7777, meta.uid(), meta.gid()),
            (0o751, 1234, 2345)
        );
        let mut note = Vec::with_capacity(64);
        rustix::fs::getxattr(
            &file,
            "user.note",
            rustix::buffer::spare_capacity(&mut note),
        )
        .unwrap();
        assert_eq!(note, b"kept");
    }
}

#[test]
fn new_file_has_the_default_or_given_mode() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("theirs"), "").unwrap();
    create(temp.path(), "ours", b"", None).unwrap();
    create(temp.path(), "stated", b"", Some(0o6640)).unwrap();
    let mode = |name: &str| fs::metadata(temp.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("ours"), mode("theirs"));
    assert_eq!(mode("stated"), 0o640);
}

#[test]
fn changed_file_is_not_replaced() {
    for level in LEVELS {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("f");
        let staged_before = |change: &dyn Fn()| {
            fs::write(&file, "old").unwrap();
            let (dir, old) = (open(temp.path()), open(&file));
            let was = Meta::of(&old).unwrap();
            let staged = StagedFile::in_place_of(dir.as_fd(), b"new", &old, None).unwrap();
            change();
            staged.replace("f", &old, &was, level)
        };
        let grown = staged_before(&|| fs::write(&file, "older").unwrap());
        assert!(matches!(grown, Err(ReplaceError::Changed)));
        assert_eq!(fs::read(&file).unwrap(), b"older");
        let replaced = staged_before(&|| {
            fs::write(temp.path().join("g"), "abc").unwrap();
            fs::rename(temp.path().join("g"), &file).unwrap();
        });
        assert!(matches!(replaced, Err(ReplaceError::Changed)));
        assert_eq!(fs::read(&file).unwrap(), b"abc");
        let gone = staged_before(&|| fs::remove_file(&file).unwrap());
        assert!(matches!(gone, Err(ReplaceError::Changed)));
        assert_eq!(names(temp.path()), Vec::<String>::new());
        assert!(staged_before(&|| ()).is_ok());
    }
}

#[test]
fn concurrent_readers_and_writers_see_complete_files() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("f");
    let content = |byte: u8| vec![byte; 64 << 10];
    fs::write(&file, content(b'0')).unwrap();
    let done = AtomicBool::new(false);
    let (reads, written) = std::thread::scope(|scope| {
        let (file, done, temp) = (&file, &done, temp.path());
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut reads = 0;
                    while !done.load(Ordering::Relaxed) {
                        let bytes = fs::read(file).unwrap();
                        assert!(bytes == content(bytes[0]));
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        let writers: Vec<_> = (b'a'..b'e')
            .map(|byte| {
                scope.spawn(move || {
                    let level = LEVELS[usize::from(byte) % 2];
                    (0..100)
                        .filter(|_| match replace(temp, "f", &content(byte), level) {
                            Ok(_) => true,
                            Err(ReplaceError::Changed) => false,
                            Err(error) => panic!("{error:?}"),
                        })
                        .count()
                })
            })
            .collect();
        let written: usize = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum();
        done.store(true, Ordering::Relaxed);
        (
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .sum::<u32>(),
            written,
        )
    });
    assert!(reads > 0 && written > 0);
    assert_eq!(names(temp.path()), ["f"]);
}

#[test]
fn concurrent_read_modify_write_loses_no_update() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("count");
    fs::write(&file, "0").unwrap();
    let each: usize = (testing::cases() / 400).clamp(25, 1_000);
    let increment = || {
        let (dir, mut old) = (open(temp.path()), open(&file));
        let was = Meta::of(&old)?;
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        let next = (text.parse::<usize>().unwrap() + 1).to_string();
        let staged = StagedFile::in_place_of(dir.as_fd(), next.as_bytes(), &old, None)?;
        let _lock = DirLock::acquire(dir.as_fd())?;
        staged.replace("count", &old, &was, Durability::Visible)
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..each {
                    while let Err(error) = increment() {
                        assert!(matches!(error, ReplaceError::Changed), "{error:?}");
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), (8 * each).to_string());
}

#[test]
fn sweep_removes_only_abandoned_files() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    let (dead, live) = (
        sweep::temporary_name().unwrap(),
        sweep::temporary_name().unwrap(),
    );
    let (linked, folder, copied) = (
        sweep::temporary_name().unwrap(),
        sweep::temporary_name().unwrap(),
        sweep::temporary_name().unwrap(),
    );
    let fifo = sweep::temporary_name().unwrap();
    for name in [&dead, &live, &linked] {
        fs::write(temp.path().join(name), "x").unwrap();
    }
    fs::hard_link(temp.path().join(&linked), temp.path().join("other")).unwrap();
    fs::create_dir_all(temp.path().join(&folder).join("a/b")).unwrap();
    fs::write(temp.path().join(&folder).join("a/f"), "x").unwrap();
    fs::create_dir(temp.path().join(&copied)).unwrap();
    let copier = open(&temp.path().join(&copied));
    lock::hold_live_lock(copier.as_fd());
    rustix::fs::mkfifoat(&dir, fifo.as_str(), Mode::RWXU).unwrap();
    fs::write(temp.path().join(".bailiwick-1.tmp"), "x").unwrap();
    let live_path = temp.path().join(&live);
    let writer = open(&live_path);
    lock::hold_live_lock(writer.as_fd());
    assert_eq!(sweep::sweep(dir.as_fd()).unwrap(), 3);
    let mut left = vec![
        ".bailiwick-1.tmp".to_owned(),
        live,
        copied,
        fifo,
        "other".to_owned(),
    ];
    left.sort();
    assert_eq!(names(temp.path()), left);
    drop(writer);
    wait::for_lock(&live_path);
    assert_eq!(sweep::sweep(dir.as_fd()).unwrap(), 1);
}

#[test]
fn directory_is_swept_at_first_use() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, sweeper) = (open(temp.path()), Sweeper::default());
    for expected in [0, 1] {
        fs::write(temp.path().join(sweep::temporary_name().unwrap()), "x").unwrap();
        sweeper.sweep_once(dir.as_fd());
        assert_eq!(names(temp.path()).len(), expected);
    }
}

/// Writes until it is killed; writes one byte to standard output per file.
#[test]
fn writer_to_be_killed() {
    // Only the test that kills it sets the variable.
    let Some(dir) = std::env::var_os("BAILIWICK_KILL_IN") else {
        return;
    };
    for turn in 0_usize.. {
        let bytes = vec![b'a' + u8::try_from(turn % 26).unwrap(); 256 << 10];
        replace(dir.as_ref(), "f", &bytes, LEVELS[turn % 2]).unwrap();
        std::io::stderr().write_all(b".").unwrap();
    }
}

#[test]
fn killed_writer_leaves_old_or_new_file() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("f");
    fs::write(&file, vec![b'a'; 256 << 10]).unwrap();
    let kills: usize = (testing::cases() / 500).clamp(10, 1_000);
    for turn in 0..kills {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "replace::tests::writer_to_be_killed",
                "--nocapture",
            ])
            .env("BAILIWICK_KILL_IN", temp.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = vec![0; 1 + turn % 5];
        writer
            .stderr
            .take()
            .unwrap()
            .read_exact(&mut output)
            .unwrap();
        // Vary the time within the next write.
        for _ in 0..turn * 997 % 40_000 {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let bytes = fs::read(&file).unwrap();
        assert_eq!(bytes, vec![bytes[0]; 256 << 10]);
    }
    sweep::sweep(open(temp.path()).as_fd()).unwrap();
    assert_eq!(names(temp.path()), ["f"]);
}

#[test]
fn full_disk_keeps_the_old_file() {
    let temp = tempfile::tempdir().unwrap();
    if !testing::in_child(
        "replace::tests::full_disk_keeps_the_old_file",
        "mount -t tmpfs -o size=1m none /mnt || { echo 'these tests mount a tmpfs, so they run as root' >&2; exit 1; }",
    ) {
        return;
    }
    drop(temp);
    let mount = Path::new("/mnt");
    fs::write(mount.join("f"), vec![b'o'; 100 << 10]).unwrap();
    for level in LEVELS {
        for bytes in [1 << 20, 2 << 20] {
            let error = replace(mount, "f", &vec![b'n'; bytes], level).unwrap_err();
            assert!(
                matches!(error, ReplaceError::System(Errno::NOSPC)),
                "{error:?}"
            );
            assert_eq!(fs::read(mount.join("f")).unwrap(), vec![b'o'; 100 << 10]);
            assert_eq!(names(mount), ["f"]);
        }
        assert!(matches!(
            create(mount, "g", &vec![b'n'; 2 << 20], None),
            Err(ReplaceError::System(Errno::NOSPC))
        ));
        replace(mount, "f", &vec![b'o'; 100 << 10], level).unwrap();
    }
}

#[test]
fn file_size_limit_is_an_error() {
    let name = "replace::tests::file_size_limit_is_an_error";
    if !testing::in_child(name, "ulimit -f 16") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("f"), "old").unwrap();
    let limit = getrlimit(Resource::Fsize).current.unwrap();
    let bytes = vec![b'n'; usize::try_from(limit).unwrap() + 1];
    for level in LEVELS {
        let error = replace(temp.path(), "f", &bytes, level).unwrap_err();
        assert!(matches!(error, ReplaceError::Limit(bytes) if bytes == limit));
        assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"old");
        assert_eq!(names(temp.path()), ["f"]);
    }
    assert!(replace(temp.path(), "f", &bytes[1..], Durability::Ordered).is_ok());
}

#[test]
fn failed_exchange_keeps_the_newest_file() {
    use std::cell::{Cell, RefCell};
    // "ours" replaced a file of another writer. Then others write before each exchange.
    for (others, left, gone) in [
        (vec![None], "theirs", "ours"),
        (vec![Some("third"), None], "third", "theirs"),
        (vec![Some("third"), Some("fourth"), None], "fourth", "third"),
    ] {
        let names = Cell::new(("ours", "theirs"));
        let others = RefCell::new(others.into_iter());
        let swap = || {
            let (used, own) = names.get();
            let used = others.borrow_mut().next().flatten().unwrap_or(used);
            names.set((own, used));
            Ok(())
        };
        swap_back("ours", "theirs", swap, || Ok(names.get().1)).unwrap();
        assert_eq!(names.get(), (left, gone));
    }
}

/// System call number of `newfstatat`.
const STATAT: i64 = if cfg!(target_arch = "x86_64") {
    262
} else {
    79
};

#[test]
fn displaced_file_is_kept_if_it_cannot_be_inspected() {
    let temp = tempfile::tempdir().unwrap();
    let (file, other) = (temp.path().join("f"), temp.path().join("g"));
    fs::write(&file, "old").unwrap();
    let (dir, old) = (open(temp.path()), open(&file));
    let was = Meta::of(&old).unwrap();
    let mut staged = StagedFile::in_place_of(dir.as_fd(), b"ours", &old, None).unwrap();
    let temporary = staged.name.take().unwrap();
    fs::write(&other, "theirs").unwrap();
    fs::rename(&other, &file).unwrap();
    let exchanged = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            forbid(&[STATAT], Errno::IO);
            staged.exchange(temporary, "f", &was)
        });
        thread.join().unwrap()
    });
    drop(staged);
    let Err(ReplaceError::Displaced { kept, .. }) = exchanged else {
        panic!("{exchanged:?}");
    };
    assert_eq!(fs::read(&file).unwrap(), b"ours");
    assert_eq!(sweep::sweep(dir.as_fd()).unwrap(), 0);
    assert_eq!(fs::read(temp.path().join(kept)).unwrap(), b"theirs");
}
