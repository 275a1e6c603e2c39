//! Tests of executing and undoing changes.
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use bailiwick::Code;
use bailiwick::effect::Entry;
use bailiwick_test_support::forbidden_calls::forbid;

use super::*;
use crate::read_view::ReadView as _;
use crate::replace::DirLock;
use crate::testing::{self, World, path};

/// All paths beneath `dir`, with the content of files, the target of links, or the kind.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let name = entry
                .path()
                .strip_prefix(dir)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let state = if kind.is_dir() {
                open.push(entry.path());
                "directory".to_owned()
            } else if kind.is_file() {
                format!(
                    "file {}",
                    String::from_utf8_lossy(&fs::read(entry.path()).unwrap())
                )
            } else if kind.is_symlink() {
                format!("link {}", fs::read_link(entry.path()).unwrap().display())
            } else {
                "special".to_owned()
            };
            found.insert(name, state);
        }
    }
    found
}

fn state(world: &World, at: &str) -> State {
    inspect(&world.view(), &path(at), TemporaryFiles::Included)
        .unwrap()
        .state
}

fn execute_step(world: &World, steps: &[Step]) -> Result<(), Code> {
    let executor = StepExecutor::default();
    let carried = executor.execute(&steps.to_vec().into(), &world.view(), || Ok(()));
    carried.map_err(|error| error.code())
}

fn write(at: &str, content: &str, existing: State) -> Step {
    Step::Write {
        path: path(at),
        content: Bytes::copy_from_slice(content.as_bytes()),
        existing,
        mode: None,
    }
}

fn remove(at: &str, state: State) -> Step {
    Step::Remove {
        path: path(at),
        state,
    }
}

fn make(at: &str) -> Step {
    Step::MakeDirectory {
        path: path(at),
        mode: None,
    }
}

fn relocate(from: &str, to: &str, state: State, existing: State) -> Step {
    Step::Transfer {
        mode: TransferMode::Move,
        from: path(from),
        to: path(to),
        state,
        existing,
    }
}

fn copy(from: &str, to: &str, state: State, existing: State) -> Step {
    Step::Transfer {
        mode: TransferMode::Copy,
        from: path(from),
        to: path(to),
        state,
        existing,
    }
}

fn file(content: &str) -> State {
    State::of_file(content.as_bytes())
}

const FILES: [&str; 5] = [
    "file root/f old",
    "file root/g other",
    "file root/d/a 1",
    "file root/d/e/b 2",
    "dir root/d/empty",
];

/// Executes `steps`, compares, executes the inverse, compares again.
#[track_caller]
fn check(
    steps: impl Fn(&World) -> Vec<Step>,
    inverse: impl Fn(&World) -> Vec<Step>,
    gone: &[&str],
    come: &[(&str, &str)],
) {
    let world = World::new(&FILES);
    let before = tree(&world.host("root"));
    let mut expected = before.clone();
    expected.retain(|name, _| !gone.contains(&name.as_str()));
    expected.extend(
        come.iter()
            .map(|(name, state)| ((*name).to_owned(), (*state).to_owned())),
    );
    execute_step(&world, &steps(&world)).unwrap();
    assert_eq!(tree(&world.host("root")), expected);
    execute_step(&world, &inverse(&world)).unwrap();
    assert_eq!(tree(&world.host("root")), before);
}

#[test]
fn created_file_and_parents_are_undone() {
    check(
        |_| {
            vec![
                make("/r/n"),
                make("/r/n/m"),
                write("/r/n/m/f", "new", State::Absent),
            ]
        },
        |_| {
            vec![
                remove("/r/n/m/f", file("new")),
                remove("/r/n/m", State::empty_directory()),
                remove("/r/n", State::empty_directory()),
            ]
        },
        &[],
        &[
            ("n", "directory"),
            ("n/m", "directory"),
            ("n/m/f", "file new"),
        ],
    );
}

#[test]
fn replaced_file_is_restored() {
    check(
        |_| vec![write("/r/f", "new", file("old"))],
        |_| vec![write("/r/f", "old", file("new"))],
        &[],
        &[("f", "file new")],
    );
}

#[test]
fn moved_directory_is_moved_back() {
    check(
        |world| {
            vec![relocate(
                "/r/d",
                "/r/x",
                state(world, "/r/d"),
                State::Absent,
            )]
        },
        |world| {
            vec![relocate(
                "/r/x",
                "/r/d",
                state(world, "/r/x"),
                State::Absent,
            )]
        },
        &["d", "d/a", "d/e", "d/e/b", "d/empty"],
        &[
            ("x", "directory"),
            ("x/a", "file 1"),
            ("x/e", "directory"),
            ("x/e/b", "file 2"),
            ("x/empty", "directory"),
        ],
    );
}

#[test]
fn move_over_a_file_is_undone() {
    check(
        |_| vec![relocate("/r/f", "/r/g", file("old"), file("other"))],
        |_| {
            vec![
                relocate("/r/g", "/r/f", file("old"), State::Absent),
                write("/r/g", "other", State::Absent),
            ]
        },
        &["f"],
        &[("g", "file old")],
    );
}

#[test]
fn copy_has_the_state_of_its_source() {
    check(
        |world| {
            vec![
                copy("/r/d", "/r/x", state(world, "/r/d"), State::Absent),
                copy("/r/f", "/r/y", file("old"), State::Absent),
                copy("/r/f", "/r/g", file("old"), file("other")),
            ]
        },
        |world| {
            vec![
                remove("/r/x", state(world, "/r/d")),
                remove("/r/y", file("old")),
                write("/r/g", "other", file("old")),
            ]
        },
        &[],
        &[
            ("x", "directory"),
            ("x/a", "file 1"),
            ("x/e", "directory"),
            ("x/e/b", "file 2"),
            ("x/empty", "directory"),
            ("y", "file old"),
            ("g", "file old"),
        ],
    );
}

#[test]
fn directory_is_removed_with_its_contents() {
    let world = World::new(&FILES);
    execute_step(&world, &[remove("/r/d", state(&world, "/r/d"))]).unwrap();
    assert_eq!(
        tree(&world.host("root")).keys().collect::<Vec<_>>(),
        ["f", "g"]
    );
}

/// Plans `step`, changes a file, and checks that executing the step then changes nothing.
#[track_caller]
fn check_stale(step: impl Fn(&World) -> Step, change: impl Fn(&Path)) {
    let world = World::new(&FILES);
    let step = step(&world);
    change(&world.host("root"));
    let before = tree(&world.host("root"));
    assert_eq!(
        execute_step(&world, &[make("/r/first"), step]),
        Err(Code::StalePreview)
    );
    assert_eq!(tree(&world.host("root")), before);
}

#[test]
fn changed_file_makes_the_plan_stale() {
    let rewrite = |root: &Path| fs::write(root.join("f"), "odd").unwrap();
    check_stale(|_| write("/r/f", "new", file("old")), rewrite);
    check_stale(|_| remove("/r/f", file("old")), rewrite);
    check_stale(
        |_| relocate("/r/f", "/r/x", file("old"), State::Absent),
        rewrite,
    );
    check_stale(
        |_| relocate("/r/g", "/r/f", file("other"), file("old")),
        rewrite,
    );
    check_stale(
        |_| copy("/r/f", "/r/x", file("old"), State::Absent),
        rewrite,
    );
    check_stale(
        |_| copy("/r/g", "/r/f", file("other"), file("old")),
        rewrite,
    );
}

#[test]
fn file_is_compared_with_the_content_that_the_plan_has_read() {
    let old = "old\n".repeat(100_000);
    let longer = format!("{old}x");
    let mut other_end = old.clone();
    other_end.replace_range(old.len() - 2.., "x\n");
    let shorter = "old\n".repeat(99_999);
    for there in ["", "old\n", &shorter, &longer, &other_end, &old] {
        let world = World::new(&FILES);
        let change_set = ChangeSet {
            replaced: Some(old.clone().into()),
            ..vec![write("/r/f", "new", file(&old))].into()
        };
        let at = world.host("root/f");
        fs::write(&at, there).unwrap();
        let executed = StepExecutor::default().execute(&change_set, &world.view(), || Ok(()));
        let (expected, left) = if there == old {
            (Ok(()), "new")
        } else {
            (Err(Code::StalePreview), there)
        };
        assert_eq!(executed.map_err(|error| error.code()), expected);
        assert!(fs::read_to_string(&at).unwrap() == left);
    }
}

#[test]
fn missing_file_or_other_kind_makes_the_plan_stale() {
    for change in [
        |_: &Path| (),
        |file: &Path| fs::create_dir(file).unwrap(),
        |file: &Path| symlink("g", file).unwrap(),
        |file: &Path| {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                file,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .unwrap()
        },
    ] {
        let change = |root: &Path| {
            fs::remove_file(root.join("f")).unwrap();
            change(&root.join("f"));
        };
        check_stale(|_| write("/r/f", "new", file("old")), change);
        check_stale(|_| remove("/r/f", file("old")), change);
        check_stale(
            |_| relocate("/r/f", "/r/x", file("old"), State::Absent),
            change,
        );
        check_stale(|_| copy("/r/f", "/r/x", file("old"), State::Absent), change);
    }
}

#[test]
fn new_file_at_the_target_makes_the_plan_stale() {
    for change in [
        |name: &Path| fs::write(name, "theirs").unwrap(),
        |name: &Path| fs::create_dir(name).unwrap(),
        |name: &Path| symlink("nowhere", name).unwrap(),
    ] {
        let change = |root: &Path| change(&root.join("x"));
        check_stale(|_| write("/r/x", "new", State::Absent), change);
        check_stale(|_| make("/r/x"), change);
        check_stale(
            |_| relocate("/r/f", "/r/x", file("old"), State::Absent),
            change,
        );
        check_stale(
            |world| relocate("/r/d", "/r/x", state(world, "/r/d"), State::Absent),
            change,
        );
        check_stale(|_| copy("/r/f", "/r/x", file("old"), State::Absent), change);
        check_stale(
            |world| copy("/r/d", "/r/x", state(world, "/r/d"), State::Absent),
            change,
        );
    }
}

#[test]
fn changed_directory_makes_the_plan_stale() {
    for change in [
        |root: &Path| fs::write(root.join("d/e/new"), "").unwrap(),
        |root: &Path| fs::write(root.join("d/e/b"), "3").unwrap(),
        |root: &Path| fs::remove_dir(root.join("d/empty")).unwrap(),
        |root: &Path| fs::rename(root.join("d/a"), root.join("d/A")).unwrap(),
    ] {
        check_stale(|world| remove("/r/d", state(world, "/r/d")), change);
        check_stale(
            |world| relocate("/r/d", "/r/x", state(world, "/r/d"), State::Absent),
            change,
        );
        check_stale(
            |world| copy("/r/d", "/r/x", state(world, "/r/d"), State::Absent),
            change,
        );
    }
}

#[test]
fn directory_replaced_by_a_link_is_not_followed() {
    let world = World::new(&["file root/d/f old", "file outside/f old"]);
    let before = file("old");
    fs::rename(world.host("root/d"), world.host("root/e")).unwrap();
    symlink(world.host("outside"), world.host("root/d")).unwrap();
    for step in [
        write("/r/d/f", "new", before.clone()),
        remove("/r/d/f", before),
        write("/r/d/n", "new", State::Absent),
    ] {
        assert!(execute_step(&world, &[step]).is_err());
    }
    assert_eq!(
        tree(&world.host("outside")),
        BTreeMap::from([("f".to_owned(), "file old".to_owned())])
    );
}

#[test]
fn links_are_moved_and_removed_without_following() {
    let world = World::new(&["file root/f old", "link root/l f", "link root/m f"]);
    execute_step(
        &world,
        &[
            relocate("/r/l", "/r/n", state(&world, "/r/l"), State::Absent),
            remove("/r/m", state(&world, "/r/m")),
        ],
    )
    .unwrap();
    let expected = [("f", "file old"), ("n", "link f")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(tree(&world.host("root")), BTreeMap::from(expected));
}

#[test]
fn removed_tree_keeps_link_targets() {
    let world = World::new(&[
        "file root/d/f x",
        "link root/d/l @/outside",
        "file outside/kept y",
    ]);
    execute_step(&world, &[remove("/r/d", state(&world, "/r/d"))]).unwrap();
    assert!(tree(&world.host("root")).is_empty());
    assert_eq!(fs::read_to_string(world.host("outside/kept")).unwrap(), "y");
}

#[test]
fn tree_with_links_is_not_copied() {
    let world = World::new(&["file root/d/f x", "link root/d/l @/outside"]);
    let step = copy("/r/d", "/r/x", state(&world, "/r/d"), State::Absent);
    assert_eq!(execute_step(&world, &[step]), Err(Code::NotRegular));
    assert_eq!(tree(&world.host("root")).len(), 3);
}

#[test]
fn copy_is_not_more_permissive_than_its_source() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new(&["file root/d/f x", "dir root/d/e"]);
    for (name, mode) in [("root/d", 0o750), ("root/d/e", 0o700), ("root/d/f", 0o4711)] {
        fs::set_permissions(world.host(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    execute_step(
        &world,
        &[copy("/r/d", "/r/x", state(&world, "/r/d"), State::Absent)],
    )
    .unwrap();
    let mode = |name: &str| fs::metadata(world.host(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("root/x"), mode("root/x/e"), mode("root/x/f")),
        (0o750, 0o700, 0o711)
    );
}

#[test]
fn revoked_call_changes_nothing() {
    let world = World::new(&FILES);
    let before = tree(&world.host("root"));
    let revoked = || Err::<(), _>(CallError::new(Code::Cancelled, "revoked"));
    for step in [
        write("/r/f", "new", file("old")),
        write("/r/x", "new", State::Absent),
        make("/r/x"),
        relocate("/r/f", "/r/x", file("old"), State::Absent),
        copy("/r/f", "/r/x", file("old"), State::Absent),
        copy("/r/d", "/r/x", state(&world, "/r/d"), State::Absent),
        remove("/r/f", file("old")),
        remove("/r/d", state(&world, "/r/d")),
    ] {
        let error = StepExecutor::default()
            .execute(&vec![step].into(), &world.view(), revoked)
            .unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
        assert_eq!(tree(&world.host("root")), before);
    }
}

#[test]
fn failure_reports_the_number_of_executed_steps() {
    let world = World::new(&FILES);
    let steps = [
        write("/r/x", "new", State::Absent),
        write("/r/f", "new", file("odd")),
    ];
    let error = StepExecutor::default()
        .execute(&steps.to_vec().into(), &world.view(), || Ok(()))
        .unwrap_err();
    assert_eq!(error.details()["done"], 1);
}

#[test]
fn failure_of_a_rollback_reports_the_numbers_of_undone_and_remaining_steps() {
    let world = World::new(&FILES);
    let made = [
        vec![remove("/r/f", file("old"))],
        vec![remove("/r/g", file("odd"))],
        vec![],
        vec![remove("/r/d/a", file("odd")), remove("/r/d", file("odd"))],
    ];
    let roll_back = |made: &[Vec<Step>]| {
        let error = CallError::new(Code::Io, "failed");
        StepExecutor::default().roll_back(error, made, &world.view())
    };
    assert!(roll_back(&[]).details().is_empty());
    let error = roll_back(&made);
    assert_eq!(error.details()["rolled_back"], 1);
    assert_eq!(error.details()["done"], 3);
    assert_eq!(
        error.details()["not_rolled_back"],
        json!(["/r/d/a", "/r/d", "/r/g"])
    );
}

#[test]
fn entries_that_a_rollback_restored_do_not_count_as_removed() {
    let undone = vec![remove("/r/f", file("old"))];
    let left = vec![remove("/r/g", file("odd"))];
    for (made, removed) in [([&left, &undone], 0), ([&undone, &left], 3)] {
        let world = World::new(&FILES);
        let error = CallError::new(Code::Io, "failed").with("removed", 3);
        let made = made.map(Clone::clone);
        let error = StepExecutor::default().roll_back(error, &made, &world.view());
        let details = error.details();
        assert_eq!(
            (&details["removed"], &details["done"]),
            (&json!(removed), &json!(1))
        );
    }
}

#[test]
fn directory_is_swept_once_by_an_executor_and_its_clones() {
    let world = World::new(&FILES);
    let abandoned = || {
        let name = crate::replace::temporary_name().unwrap();
        world.write(format!("root/{name}"), "x");
        world.host("root").join(name)
    };
    let (executor, first) = (StepExecutor::default(), abandoned());
    let executors = [executor.clone(), executor];
    let run = |executor: &StepExecutor, name: &str| {
        let made = executor.execute(&vec![make(name)].into(), &world.view(), || Ok(()));
        made.unwrap();
    };
    run(&executors[0], "/r/x");
    assert!(!first.try_exists().unwrap());
    let second = abandoned();
    run(&executors[1], "/r/y");
    assert!(second.try_exists().unwrap());
    run(&StepExecutor::default(), "/r/z");
    assert!(!second.try_exists().unwrap());
}

#[test]
fn move_between_file_systems_is_refused_with_advice() {
    if !testing::in_child(
        "change::tests::move_between_file_systems_is_refused_with_advice",
        ":",
    ) {
        return;
    }
    let mut world = World::new(&["file root/f old", "dir root/mnt"]);
    world.crosses_mounts = true;
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(world.host("root/mnt"))
        .status();
    assert!(
        mounted.unwrap().success(),
        "these tests mount a tmpfs, so they run as root"
    );
    let step = relocate("/r/f", "/r/mnt/f", file("old"), State::Absent);
    let error = StepExecutor::default()
        .execute(&vec![step].into(), &world.view(), || Ok(()))
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidArguments);
    assert!(error.message().contains("copy the source"));
    execute_step(
        &world,
        &[
            copy("/r/f", "/r/mnt/f", file("old"), State::Absent),
            remove("/r/f", file("old")),
        ],
    )
    .unwrap();
    assert_eq!(fs::read_to_string(world.host("root/mnt/f")).unwrap(), "old");
}

#[test]
fn mount_inside_a_tree_is_not_entered() {
    if !testing::in_child("change::tests::mount_inside_a_tree_is_not_entered", ":") {
        return;
    }
    let world = World::new(&["file root/d/f old", "dir root/d/mnt"]);
    let mount = world.host("root/d/mnt");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&mount)
        .status();
    assert!(
        mounted.unwrap().success(),
        "these tests mount a tmpfs, so they run as root"
    );
    fs::write(mount.join("theirs"), "x").unwrap();
    let inspected = world.run(|view| {
        inspect(view, &path("/r/d"), TemporaryFiles::Included).map(|inspected| inspected.state)
    });
    assert_eq!(inspected.unwrap_err(), Code::NotRegular);
    assert_eq!(fs::read_to_string(mount.join("theirs")).unwrap(), "x");
}

#[test]
fn deep_tree_needs_few_descriptors_and_has_a_depth_limit() {
    let world = World::new(&[]);
    let deep = |levels: usize| vec!["d"; levels].join("/");
    fs::create_dir_all(world.host("root").join(deep(200))).unwrap();
    execute_step(&world, &[remove("/r/d", state(&world, "/r/d"))]).unwrap();
    assert!(tree(&world.host("root")).is_empty());
    fs::create_dir_all(world.host("root").join(deep(300))).unwrap();
    let inspected = world.run(|view| {
        inspect(view, &path("/r/d"), TemporaryFiles::Included).map(|inspected| inspected.state)
    });
    assert_eq!(inspected.unwrap_err(), Code::TooLarge);
}

#[test]
fn name_that_is_not_utf8_stops_the_call() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new(&["file root/d/f x"]);
    let name = std::ffi::OsStr::from_bytes(b"\xff\n");
    fs::write(world.host("root/d").join(name), "").unwrap();
    let inspected = world.run(|view| {
        inspect(view, &path("/r/d"), TemporaryFiles::Included).map(|inspected| inspected.state)
    });
    assert_eq!(inspected.unwrap_err(), Code::PermissionDenied);
}

#[test]
fn masked_hash_reveals_only_changes() {
    let world = World::new(&["file root/1 x", "file root/2 x"]);
    let executor = StepExecutor::default();
    let entry = |executor: &StepExecutor, name: &str, content: &str| {
        let inspected = world
            .run(|view| inspect(view, &path(name), TemporaryFiles::Included))
            .unwrap();
        executor
            .entry(&file(content), inspected.meta.as_ref(), false)
            .unwrap()
    };
    let masked = |content: &str| entry(&executor, "/r/1", content);
    assert_eq!(masked("a"), masked("a"));
    assert_ne!(masked("a"), masked("b"));
    assert_ne!(masked("a"), entry(&StepExecutor::default(), "/r/1", "a"));
    assert_ne!(masked("a"), entry(&executor, "/r/2", "a"));
    let Entry::File { hash, bytes } = masked("a") else {
        panic!("a file stays a file");
    };
    assert_ne!(hash, ContentHash::of(b"a"));
    assert_eq!(bytes, 0);
    let open = executor.entry(&file("a"), None, true).unwrap();
    assert_eq!(open, file("a").entry());
}

#[test]
fn racing_creators_create_one_file() {
    let world = World::new(&[]);
    let made: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let world = world.host("root");
                scope.spawn(move || {
                    let dir = fs::File::open(world).unwrap();
                    let staged = crate::replace::StagedFile::new_file(
                        std::os::fd::AsFd::as_fd(&dir),
                        format!("{number}").as_bytes(),
                        None,
                    );
                    usize::from(staged.unwrap().create("one", Durability::Ordered).is_ok())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!((made, tree(&world.host("root")).len()), (1, 1));
    assert!(world.view().shows(&path("/r/one")));
}

#[test]
fn reached_durability_is_reported() {
    let reached = |durability, fsync_fails| {
        let world = World::new(&FILES);
        let mut change_set = ChangeSet::from(vec![
            make("/r/x"),
            relocate("/r/f", "/r/x/f", file("old"), State::Absent),
            copy("/r/d", "/r/y", state(&world, "/r/d"), State::Absent),
            remove("/r/g", file("other")),
        ]);
        change_set.durability = durability;
        assert_eq!(change_set.reached.get(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if fsync_fails {
                    forbid(&[testing::FSYNC], rustix::io::Errno::INVAL);
                }
                StepExecutor::default()
                    .execute(&change_set, &world.view(), || Ok(()))
                    .unwrap();
            });
        });
        change_set.reached.get()
    };
    for durability in [
        Durability::Visible,
        Durability::Ordered,
        Durability::Durable,
    ] {
        assert_eq!(reached(durability, false), Some(durability));
    }
    assert_eq!(
        reached(Durability::Durable, true),
        Some(Durability::Ordered)
    );
    assert_eq!(
        reached(Durability::Visible, true),
        Some(Durability::Visible)
    );
}

#[test]
fn durable_content_is_on_the_disk_before_the_directory_is_locked_and_the_effect_begins() {
    let world = World::new(&FILES);
    let dir = fs::File::open(world.host("root")).unwrap();
    let _lock = DirLock::acquire(std::os::fd::AsFd::as_fd(&dir)).unwrap();
    for step in [
        write("/r/x", "new", State::Absent),
        write("/r/f", "new", file("old")),
        copy("/r/f", "/r/g", file("old"), file("other")),
    ] {
        let change_set = ChangeSet {
            durability: Durability::Durable,
            ..vec![step].into()
        };
        let begun = std::sync::atomic::AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            let executed = scope.spawn(|| {
                forbid(&[testing::FSYNC], rustix::io::Errno::IO);
                let begin = || {
                    begun.store(true, std::sync::atomic::Ordering::Relaxed);
                    Ok(())
                };
                StepExecutor::default().execute(&change_set, &world.view(), begin)
            });
            executed.join().unwrap().unwrap_err()
        });
        assert_eq!(error.code(), Code::Io);
        assert!(!begun.into_inner());
    }
}

#[test]
fn racing_writers_do_not_complete_a_repository_between_them() {
    for _ in 0..(testing::cases() / 100).clamp(20, 1_000) {
        let world = World::new(&["file root/d/objects/x x"]);
        let steps = [
            write("/r/d/HEAD", "ref: x", State::Absent),
            make("/r/d/refs"),
        ];
        let start = std::sync::Barrier::new(2);
        let made: usize = std::thread::scope(|scope| {
            let (world, start) = (&world, &start);
            let writers = steps.map(|step| {
                scope.spawn(move || {
                    start.wait();
                    usize::from(execute_step(world, &[step]).is_ok())
                })
            });
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        assert_eq!(made, 1);
    }
}

/// Keeps replacing `/r/d/f` while `step` is executed with the planned state. Returns how often the step succeeded.
fn race_with_a_writer(step: impl Fn(State) -> Step, expected_content: &str) -> usize {
    let rounds = (testing::cases() / 100).clamp(20, 1_000);
    let race = |round: usize| {
        let world = World::new(&["file root/d/f old"]);
        let step = step(state(
            &world,
            if expected_content == "d/f" {
                "/r/d/f"
            } else {
                "/r/d"
            },
        ));
        let start = std::sync::Barrier::new(2);
        let (written, made) = std::thread::scope(|scope| {
            let (world, start) = (&world, &start);
            let writer = scope.spawn(move || {
                start.wait();
                for _ in 0..round % 64 * 50 {
                    std::hint::spin_loop();
                }
                execute_step(world, &[write("/r/d/f", "new", file("old"))]).is_ok()
            });
            start.wait();
            let made = execute_step(world, &[step]).is_ok();
            (writer.join().unwrap(), made)
        });
        let tree = tree(&world.host("root"));
        let lost = written && !tree.values().any(|state| state == "file new");
        assert!(!lost, "{made} {tree:?}");
        // A successful step took the planned content.
        assert!(!(written && made), "{tree:?}");
        usize::from(made)
    };
    (0..rounds).map(race).sum()
}

#[test]
fn concurrent_update_is_not_moved_or_removed() {
    let moved = |state| relocate("/r/d/f", "/r/g", state, State::Absent);
    race_with_a_writer(moved, "d/f");
    race_with_a_writer(|state| remove("/r/d/f", state), "d/f");
}

#[test]
fn concurrent_update_survives_directory_removal() {
    race_with_a_writer(|state| remove("/r/d", state), "d");
}

/// What a sequence of steps keeps in memory.
#[derive(Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
struct Held {
    kept: u64,
    held: u64,
    /// Whether all steps can be undone.
    undoable: bool,
}

/// A tool that plans steps, of which old contents of at most so many bytes are kept.
struct Plans(u64, Vec<Step>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArgs {}

impl bailiwick::ReadTool for Plans {
    type Args = NoArgs;
    type Output = Held;
    type Job = ();

    fn spec(&self) -> bailiwick::ToolSpec {
        bailiwick::ToolSpec::new("plans", "Plan", "Plans steps.")
    }

    fn prepare(
        &self,
        _: NoArgs,
        _: &bailiwick::config::Namespace,
    ) -> Result<bailiwick::tool::Prepared<()>, CallError> {
        Ok(bailiwick::tool::Prepared {
            needs: Vec::new(),
            job: (),
        })
    }

    fn read(
        &self,
        (): &(),
        permit: &bailiwick::tool::ReadPermit,
    ) -> Result<bailiwick::Reply, bailiwick::tool::Interrupt> {
        let executor = StepExecutor::default();
        let mut sequence = sequence::Sequence::new(&executor, permit);
        sequence.keep_at_most(self.0);
        for step in &self.1 {
            sequence.push(step.clone())?;
        }
        let (kept, held) = (sequence.kept(), sequence.held());
        let undoable = sequence.finish()?.inverse.is_some();
        let held = Held {
            kept,
            held,
            undoable,
        };
        Ok(bailiwick::Reply::text("planned", held))
    }
}

/// What is kept of these steps on the files `a`, `b` and `d/c` of 100 bytes each.
async fn held(most: u64, steps: Vec<Step>) -> Held {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("d")).unwrap();
    for name in ["a", "b", "d/c"] {
        fs::write(temp.path().join(name), content(name)).unwrap();
    }
    let (runtime, _grants) = bailiwick::Runtime::builder()
        .root("r", temp.path())
        .tools(crate::tools().reader(Plans(most, steps)))
        .build()
        .await
        .unwrap();
    let spec = bailiwick::WorkerSpec::new("main").policy(bailiwick::Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let outcome = worker.call("plans", json!({})).await.unwrap();
    let value = outcome.structured().unwrap();
    let number = |name: &str| value[name].as_u64().unwrap();
    Held {
        kept: number("kept"),
        held: number("held"),
        undoable: value["undoable"] == true,
    }
}

fn content(name: &str) -> String {
    name.repeat(100).split_at(100).0.to_owned()
}

#[tokio::test]
async fn sequence_keeps_old_contents_up_to_its_limit() {
    let steps = || {
        let removed = ["a", "b"].map(|name| remove(&format!("/r/{name}"), file(&content(name))));
        removed.to_vec()
    };
    let held = async |most| held(most, steps()).await;
    let all = Held {
        kept: 200,
        held: 200,
        undoable: true,
    };
    assert_eq!(held(200).await, all);
    let first = Held {
        kept: 100,
        held: 100,
        undoable: false,
    };
    assert_eq!(held(199).await, first);
    let none = Held {
        kept: 0,
        held: 0,
        undoable: false,
    };
    assert_eq!(held(99).await, none);
}

#[tokio::test]
async fn sequence_keeps_no_contents_of_moved_and_copied_files() {
    let (a, b) = (file(&content("a")), file(&content("b")));
    let steps = vec![
        relocate("/r/a", "/r/x", a.clone(), State::Absent),
        copy("/r/b", "/r/y", b, State::Absent),
    ];
    let nothing = Held {
        kept: 0,
        held: 0,
        undoable: true,
    };
    assert_eq!(held(1_000, steps.clone()).await, nothing);
    // What is changed afterwards is read where it is.
    let changed = [steps, vec![write("/r/x", "new", a)]].concat();
    let old = Held {
        kept: 100,
        held: 103,
        undoable: true,
    };
    assert_eq!(held(1_000, changed).await, old);
}

/// Whether all of these steps can be undone.
async fn undoable(steps: Vec<Step>) -> bool {
    held(u64::MAX, steps).await.undoable
}

/// So many steps that a call has not enough time to compare each of them with all others.
const MANY: usize = 40_000;

#[tokio::test]
async fn inverse_of_many_steps_is_collected_once() {
    let made = (0..MANY).map(|n| make(&format!("/r/new/{n}")));
    assert!(undoable([make("/r/new")].into_iter().chain(made).collect()).await);
}

#[tokio::test]
async fn path_is_planned_without_looking_at_all_others() {
    let paths: Vec<String> = (0..MANY).map(|n| format!("/r/{n}")).collect();
    let written = paths.iter().map(|path| write(path, "x", State::Absent));
    let removed = paths.iter().map(|path| remove(path, file("x")));
    assert!(undoable(written.chain(removed).collect()).await);
}
