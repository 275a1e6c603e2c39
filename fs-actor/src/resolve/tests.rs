//! Tests of the resolver: escapes and races.
#![expect(
    clippy::disallowed_methods,
    reason = "the tests create and exchange files"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use bailiwick::Code;
use bailiwick::tool::Interrupt;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::testing::{KernelMode, SetOnDrop, TestView, World, cases, in_child, path, race};

fn text(view: &TestView<'_>, requested: &str) -> Result<String, Interrupt> {
    let mut text = String::new();
    let opened = file(view, &path(requested))?;
    opened.file.take(1 << 20).read_to_string(&mut text).unwrap();
    Ok(text)
}

/// Reads `requested` in a world of `lines`, with and without `openat2`.
#[track_caller]
fn check(lines: &[&str], requested: &str, expected: Result<&str, Code>) {
    let world = World::new(lines);
    for kernel in KernelMode::ALL {
        let got = kernel.run(|| world.run(|view| text(view, requested)));
        assert_eq!(got.as_deref().map_err(|code| *code), expected, "{kernel:?}");
    }
}

#[test]
fn regular_file_is_read() {
    check(&["file root/a/b/f in"], "/r/a/b/f", Ok("in"));
    check(&["file second/f in"], "/s/f", Ok("in"));
}

#[test]
fn missing_file_is_none_and_a_path_that_is_not_visible_is_an_error() {
    let temporary = format!("/r/.bailiwick-{}.tmp", "0".repeat(32));
    let world = World::new(&[
        "file root/f in",
        "dir root/d",
        "file outside/f out",
        "file root/secrets/k out",
        "link root/dangling none",
        "link root/outside @/outside/f",
        "link root/denied secrets/k",
        "link root/denied-missing secrets/none",
    ]);
    for kernel in KernelMode::ALL {
        let exists = |requested: &str| {
            kernel.run(|| {
                let found = world.run(|view| file_if_exists(view, &path(requested)));
                found.map(|found| found.is_some())
            })
        };
        assert_eq!(exists("/r/f"), Ok(true));
        for missing in ["/r/none", "/r/none/f", "/r/dangling"] {
            assert_eq!(exists(missing), Ok(false), "{missing}");
        }
        for hidden in [
            "/r/outside",
            "/r/denied",
            "/r/denied-missing",
            "/x/f",
            &temporary,
        ] {
            assert_eq!(exists(hidden), Err(Code::NotFound), "{hidden}");
        }
        assert_eq!(exists("/r/d"), Err(Code::NotRegular));
        assert_eq!(exists("/r/f/f"), Err(Code::NotDirectory));
    }
}

#[test]
fn root_name_prefix_is_not_the_root() {
    let lines = ["file root-evil/f out", "file root/f in"];
    check(&lines, "/r-evil/f", Err(Code::NotFound));
    check(&lines, "/r/f", Ok("in"));
}

#[test]
fn link_inside_the_root_is_followed() {
    check(&["file root/d/f in", "link root/l d/f"], "/r/l", Ok("in"));
    check(
        &["file root/d/f in", "link root/d/l ./../d//f"],
        "/r/d/l",
        Ok("in"),
    );
    check(&["file root/d/f in", "link root/l d"], "/r/l/f", Ok("in"));
    check(
        &["file root/d/f in", "link root/x/y/l ../../d"],
        "/r/x/y/l/f",
        Ok("in"),
    );
    check(
        &["file root/f in", "link root/l @/root/f"],
        "/r/l",
        Ok("in"),
    );
}

#[test]
fn link_into_another_root_is_followed() {
    check(
        &["file second/d/f in", "link root/l @/second/d"],
        "/r/l/f",
        Ok("in"),
    );
}

#[test]
fn link_out_of_all_roots_is_not_found() {
    let outside = "file outside/f out";
    check(
        &[outside, "link root/l @/outside/f"],
        "/r/l",
        Err(Code::NotFound),
    );
    check(
        &[outside, "link root/l ../outside/f"],
        "/r/l",
        Err(Code::NotFound),
    );
    check(
        &[outside, "link root/l @/outside"],
        "/r/l/f",
        Err(Code::NotFound),
    );
    check(
        &[outside, "link root/l ../outside"],
        "/r/l/f",
        Err(Code::NotFound),
    );
    check(
        &[outside, "link root/l @/root/../outside/f"],
        "/r/l",
        Err(Code::NotFound),
    );
    check(
        &[outside, "link root/l .."],
        "/r/l/outside/f",
        Err(Code::NotFound),
    );
    check(
        &[outside, "link root/l /"],
        "/r/l/etc/passwd",
        Err(Code::NotFound),
    );
}

#[test]
fn relative_link_out_of_a_root_equals_the_absolute_one() {
    for target in ["@/root/f", "../root/f", "d/../../root/f"] {
        let link = format!("link root/l {target}");
        check(&["file root/f in", "dir root/d", &link], "/r/l", Ok("in"));
    }
    for target in ["@/second", "../second", "./../second"] {
        let link = format!("link root/l {target}");
        check(&["file second/f other", &link], "/r/l/f", Ok("other"));
    }
    // Names in between are not resolved.
    let lines = ["file root/f in", "link root/l ../outside/../root/f"];
    check(&lines, "/r/l", Err(Code::NotFound));
    let loops = ["link root/l ../root/l"];
    check(&loops, "/r/l", Err(Code::NotFound));
    let denied = ["file root/secrets/k out", "link root/l ../root/secrets/k"];
    check(&denied, "/r/l", Err(Code::NotFound));
}

#[test]
fn link_chains_are_followed_and_loops_are_not() {
    let chain = [
        "file root/f in",
        "link root/a b",
        "link root/b c",
        "link root/c f",
    ];
    check(&chain, "/r/a", Ok("in"));
    check(
        &["link root/a b", "link root/b a"],
        "/r/a",
        Err(Code::NotFound),
    );
    check(&["link root/a a"], "/r/a/x", Err(Code::NotFound));
    check(&["link root/a a/a/a/a"], "/r/a", Err(Code::NotFound));
    let out = [
        "file outside/f out",
        "link root/a b",
        "link root/b ../outside/f",
    ];
    check(&out, "/r/a", Err(Code::NotFound));
}

#[test]
fn at_most_forty_links_are_followed() {
    let mut lines: Vec<String> = (1..=41)
        .map(|n| format!("link root/l{n} l{}", n - 1))
        .collect();
    lines.push("file root/l0 in".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    check(&lines, "/r/l40", Ok("in"));
    check(&lines, "/r/l41", Err(Code::NotFound));
}

#[test]
fn denied_name_is_denied_by_every_path() {
    let tree = ["file root/secrets/key out", "file root/d/f in"];
    let through = |link: &'static str, requested: &str| {
        let lines = [tree[0], tree[1], link];
        check(&lines, requested, Err(Code::NotFound));
    };
    through("link root/l secrets/key", "/r/l");
    through("link root/l secrets", "/r/l/key");
    through("link root/d/l ../secrets", "/r/d/l/key");
    through("link root/l @/root/secrets/key", "/r/l");
    through("link second/l @/root/secrets", "/s/l/key");
}

#[test]
fn link_in_a_denied_directory_is_not_read() {
    let lines = [
        "file root/f in",
        "link root/secrets/l ../f",
        "link root/a secrets/l",
    ];
    check(&lines, "/r/a", Err(Code::NotFound));
    check(
        &[
            "file root/f in",
            "link root/other/l ../f",
            "link root/a other/l",
        ],
        "/r/a",
        Ok("in"),
    );
}

#[test]
fn link_may_need_approval() {
    let lines = [
        "file root/f in",
        "link root/asked/l ../f",
        "link root/a asked/l",
    ];
    check(&lines, "/r/a", Err(Code::ScopeRequired));
}

#[test]
fn host_path_like_a_virtual_path_is_not_the_root() {
    check(
        &["file root/f in", "link root/l /r/f"],
        "/r/l",
        Err(Code::NotFound),
    );
}

#[test]
fn denied_link_does_not_reveal_whether_its_target_exists() {
    for target in [
        "secrets/key",
        "secrets/none",
        "secrets/key/below",
        "../outside/f",
        "@/outside/f",
    ] {
        let link = format!("link root/l {target}");
        let world = World::new(&["file root/secrets/key out", "file outside/f out", &link]);
        let none = World::new(&[]);
        let answer = |world: &World| match file(&world.view(), &path("/r/l")) {
            Err(Interrupt::Moved { from, .. }) => CallError::not_found(&from),
            Err(Interrupt::Failed(error)) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(answer(&world), answer(&none), "{target}");
    }
}

#[test]
fn dangling_link_resolves_to_its_target() {
    let world = World::new(&[
        "dir root/d",
        "link root/l d/new",
        "link root/out @/outside/new",
    ]);
    for kernel in KernelMode::ALL {
        let moved =
            |requested: &str| kernel.run(|| entry(&world.view(), &path(requested)).unwrap_err());
        match moved("/r/l") {
            Interrupt::Moved { from, to } => {
                assert_eq!((from, to), (path("/r/l"), path("/r/d/new")))
            }
            interrupt => panic!("{interrupt}"),
        }
        assert!(
            matches!(moved("/r/out"), Interrupt::Moved { to, .. } if !to.starts_with(&path("/r")))
        );
        let found = kernel.run(|| world.run(|view| entry(view, &path("/r/l"))));
        assert_eq!(found, Ok(None));
    }
}

#[test]
fn parent_is_opened_without_following_the_name() {
    let lines = [
        "dir root/d",
        "link root/l d",
        "link root/d/dangling nowhere",
    ];
    let world = World::new(&lines);
    for kernel in KernelMode::ALL {
        let name = |requested: &str| {
            kernel.run(|| world.run(|view| parent(view, &path(requested)).map(|(_, name)| name)))
        };
        assert_eq!(name("/r/d/new"), Ok("new".to_owned()));
        assert_eq!(name("/r/l/new"), Ok("new".to_owned()));
        assert_eq!(name("/r/d/dangling"), Ok("dangling".to_owned()));
        assert_eq!(name("/r/none/new"), Err(Code::NotFound));
        assert_eq!(name("/r"), Err(Code::InvalidArguments));
        assert_eq!(name("/elsewhere/x"), Err(Code::NotFound));
    }
    match parent(&world.view(), &path("/r/l/new")).unwrap_err() {
        Interrupt::Moved { to, .. } => assert_eq!(to, path("/r/d/new")),
        interrupt => panic!("{interrupt}"),
    }
}

#[test]
fn errors_have_advice_and_no_host_path() {
    let world = World::new(&["file root/f in", "dir root/d"]);
    for kernel in KernelMode::ALL {
        let code = |requested: &str| {
            kernel
                .run(|| world.run(|view| text(view, requested)))
                .unwrap_err()
        };
        assert_eq!(code("/r/none"), Code::NotFound);
        assert_eq!(code("/r/f/below"), Code::NotDirectory);
        assert_eq!(code("/r/d"), Code::NotRegular);
        assert_eq!(code("/r"), Code::NotRegular);
        let listed = kernel.run(|| world.run(|view| directory(view, &path("/r/f")).map(drop)));
        assert_eq!(listed, Err(Code::NotDirectory));
        let listed = kernel.run(|| world.run(|view| directory(view, &path("/r/d")).map(drop)));
        assert_eq!(listed, Ok(()));
        let listed = kernel.run(|| world.run(|view| directory(view, &path("/r")).map(drop)));
        assert_eq!(listed, Ok(()));
    }
    for errno in [
        Errno::ACCESS,
        Errno::IO,
        Errno::XDEV,
        Errno::NXIO,
        Errno::NAMETOOLONG,
    ] {
        assert!(
            !to_call_error(errno, &path("/r/f"))
                .message()
                .contains("tmp")
        );
    }
}

#[test]
fn deceptive_names_are_escaped_in_every_error() {
    let odd = path("/r/a\u{202e}txt");
    for errno in [
        Errno::NOENT,
        Errno::ACCESS,
        Errno::IO,
        Errno::XDEV,
        Errno::NXIO,
        Errno::NOTDIR,
    ] {
        let message = to_call_error(errno, &odd).message().to_owned();
        assert!(
            !message.contains('\u{202e}') && message.contains("\\u{202e}"),
            "{message}"
        );
    }
}

#[test]
fn only_regular_files_are_opened() {
    let world = World::new(&["file root/f in"]);
    let node = |name: &str, kind, device| {
        mknodat(
            CWD,
            world.host(name),
            kind,
            Mode::from_raw_mode(0o600),
            device,
        )
        .unwrap();
    };
    node("root/fifo", FileType::Fifo, 0);
    node(
        "root/zero",
        FileType::CharacterDevice,
        rustix::fs::makedev(1, 5),
    );
    node(
        "root/disk",
        FileType::BlockDevice,
        rustix::fs::makedev(7, 0),
    );
    let _socket = std::os::unix::net::UnixListener::bind(world.host("root/socket")).unwrap();
    for kernel in KernelMode::ALL {
        for name in ["fifo", "zero", "disk", "socket"] {
            let requested = format!("/r/{name}");
            let got = kernel.run(|| world.run(|view| text(view, &requested)));
            assert_eq!(got, Err(Code::NotRegular), "{kernel:?} {name}");
            let cache = FileCache::<()>::default();
            assert!(try_open_nowait(&world.view(), &path(&requested), 100, &cache).is_none());
        }
        assert_eq!(
            kernel.run(|| world.run(|view| text(view, "/r/f"))),
            Ok("in".to_owned())
        );
    }
}

#[test]
fn refused_fifo_does_not_wake_its_writer() {
    let world = World::new(&[]);
    let fifo = world.host("root/fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for kernel in KernelMode::ALL {
        let got = kernel.run(|| world.run(|view| text(view, "/r/fifo")));
        assert_eq!(got, Err(Code::NotRegular));
        // A non-blocking writer gets ENXIO if no reader has opened the FIFO.
        let writing = OFlags::WRONLY | OFlags::NONBLOCK;
        let writer = rustix::fs::openat(CWD, &fifo, writing, Mode::empty());
        assert_eq!(writer.unwrap_err(), Errno::NXIO);
    }
}

#[test]
fn magic_links_of_procfs_are_not_followed() {
    check(
        &["link root/l /proc/self/environ"],
        "/r/l",
        Err(Code::NotFound),
    );
    check(
        &["link root/l /proc/self/root"],
        "/r/l/etc/passwd",
        Err(Code::NotFound),
    );
    check(
        &["link root/l /proc/self/fd"],
        "/r/l/0",
        Err(Code::NotFound),
    );
}

#[test]
fn special_names_of_other_systems_are_plain_names() {
    for name in [
        "-rf",
        "~",
        "$HOME",
        "*.x",
        "a;b",
        "...",
        "\\x",
        "%2e%2e",
        "\u{202e}txt",
    ] {
        let world = World::new(&[]);
        world.write(format!("root/{name}"), "in");
        for kernel in KernelMode::ALL {
            let got = kernel.run(|| world.run(|view| text(view, &format!("/r/{name}"))));
            assert_eq!(got, Ok("in".to_owned()), "{name}");
        }
    }
}

#[test]
fn link_to_an_invalid_path_is_not_found() {
    check(
        &["link root/l a\nb", "file root/f in"],
        "/r/l",
        Err(Code::NotFound),
    );
}

fn mount(args: &[&str]) {
    let done = Command::new("mount").args(args).status().unwrap();
    assert!(done.success());
}

#[test]
fn mounts_belong_to_the_root_only_if_it_crosses_mounts() {
    const NAME: &str = "resolve::tests::mounts_belong_to_the_root_only_if_it_crosses_mounts";
    if !in_child(NAME, "") {
        return;
    }
    let mut world = World::new(&[
        "dir root/tmp",
        "dir root/bind",
        "dir root/proc",
        "file outside/f out",
    ]);
    let host = |name: &str| world.host(name).to_str().unwrap().to_owned();
    mount(&["-t", "tmpfs", "none", &host("root/tmp")]);
    world.write("root/tmp/f", "out");
    mount(&["--bind", &host("outside"), &host("root/bind")]);
    mount(&["-t", "proc", "none", &host("root/proc")]);
    for crosses in [false, true] {
        world.crosses_mounts = crosses;
        let mounted = if crosses {
            Ok("out".to_owned())
        } else {
            Err(Code::NotRegular)
        };
        for kernel in KernelMode::ALL {
            let got = |requested| kernel.run(|| world.run(|view| text(view, requested)));
            assert_eq!(got("/r/tmp/f"), mounted, "{kernel:?}");
            assert_eq!(got("/r/bind/f"), mounted, "{kernel:?}");
            assert_eq!(
                got("/r/proc/self/environ"),
                Err(Code::NotRegular),
                "{kernel:?}"
            );
            assert_eq!(
                got("/r/proc/1/environ"),
                Err(Code::NotRegular),
                "{kernel:?}"
            );
            assert_eq!(got("/r/proc/cpuinfo"), Err(Code::NotRegular), "{kernel:?}");
            let listed =
                kernel.run(|| world.run(|view| directory(view, &path("/r/proc")).map(drop)));
            assert_eq!(listed, Err(Code::NotRegular), "{kernel:?}");
        }
    }
}

#[test]
fn files_open_and_links_are_judged_without_procfs() {
    const NAME: &str = "resolve::tests::files_open_and_links_are_judged_without_procfs";
    if !in_child(NAME, "mount -t tmpfs none /proc") {
        return;
    }
    assert!(!fs::exists("/proc/self").unwrap());
    check(&["file root/d/f in", "link root/l d"], "/r/l/f", Ok("in"));
    check(&["file root/f in"], "/r/f", Ok("in"));
    check(
        &["file root/secrets/key out", "link root/l secrets"],
        "/r/l/key",
        Err(Code::NotFound),
    );
    check(
        &["file outside/f out", "link root/l ../outside"],
        "/r/l/f",
        Err(Code::NotFound),
    );
    only_regular_files_are_opened();
}

#[track_caller]
fn check_race(lines: &[&str], pairs: &[(&str, &str)], requested: &str) {
    let world = World::new(lines);
    for kernel in [KernelMode::Native, KernelMode::Missing] {
        let look = || world.run(|view| text(view, requested));
        race(&world, pairs, kernel, cases() / 2, look);
    }
}

#[test]
fn no_race_of_a_directory_and_a_link_leads_out() {
    let lines = [
        "file root/a/d/f in",
        "file outside/f out",
        "link root/a/l @/outside",
    ];
    check_race(&lines, &[("root/a/d", "root/a/l")], "/r/a/d/f");
    let lines = [
        "file root/a/d/f in",
        "file outside/f out",
        "link root/a/l ../../outside",
    ];
    check_race(&lines, &[("root/a/d", "root/a/l")], "/r/a/d/f");
}

#[test]
fn no_race_of_a_file_and_a_link_leads_out() {
    let lines = [
        "file root/f in",
        "file outside/f out",
        "link root/l @/outside/f",
    ];
    check_race(&lines, &[("root/f", "root/l")], "/r/f");
}

#[test]
fn no_race_of_a_directory_and_a_link_leads_to_a_denied_file() {
    let lines = [
        "file root/a/f in",
        "file root/secrets/f out",
        "link root/l secrets",
    ];
    check_race(&lines, &[("root/a", "root/l")], "/r/a/f");
}

#[test]
fn no_race_of_a_link_on_the_path_leads_out_or_to_a_denied_file() {
    let lines = [
        "file root/a/f in",
        "link root/start a/f",
        "file root/secrets/f out",
        "link root/l secrets",
        "file outside/f out",
        "link root/m ../outside",
    ];
    check_race(
        &lines,
        &[("root/a", "root/l"), ("root/l", "root/m")],
        "/r/start",
    );
}

#[test]
fn no_race_of_a_file_and_a_fifo_blocks() {
    let world = World::new(&["file root/f in"]);
    let fifo = world.host("root/fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for kernel in [KernelMode::Native, KernelMode::Missing] {
        let look = || world.run(|view| text(view, "/r/f"));
        let pairs = [("root/f", "root/fifo")];
        race(&world, &pairs, kernel, cases() / 4, look);
    }
}

#[test]
fn no_race_lists_entries_outside_the_root() {
    let lines = [
        "file root/d/in x",
        "file outside/out x",
        "link root/l @/outside",
    ];
    let world = World::new(&lines);
    for kernel in [KernelMode::Native, KernelMode::Missing] {
        let look = || {
            world.run(|view| {
                let dir = directory(view, &path("/r/d"))?;
                let mut names = dir.dir.entries().unwrap();
                Ok(names
                    .next()
                    .unwrap()
                    .unwrap()
                    .file_name()
                    .into_string()
                    .unwrap())
            })
        };
        race(&world, &[("root/d", "root/l")], kernel, cases() / 2, look);
    }
}

#[test]
fn no_race_makes_a_cached_read_return_another_file() {
    let world = World::new(&[
        "file root/f in",
        "file outside/f out",
        "link root/l @/outside/f",
    ]);
    let fifo = world.host("root/fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let cache = FileCache::<()>::default();
    let look = || {
        let view = world.view();
        let opened = try_open_nowait(&view, &path("/r/f"), 100, &cache).ok_or(Code::NotFound)?;
        assert_eq!(Meta::of(&opened.open.file).unwrap().kind, Kind::File);
        Ok(content(&opened.open))
    };
    let pairs = [("root/f", "root/fifo"), ("root/f", "root/l")];
    race(&world, &pairs, KernelMode::Native, cases(), look);
}

#[test]
fn no_race_makes_a_cached_read_open_a_file_beyond_the_limit() {
    let world = World::new(&["file root/f in"]);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).open(world.host("root/f")).unwrap();
    let over = AtomicBool::new(false);
    let lengths = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                file.set_len(1 << 30).unwrap();
                file.set_len(2).unwrap();
            }
        });
        let reads = scope.spawn(|| {
            let _over = SetOnDrop(&over);
            let opened = (0..cases()).filter_map(|_| {
                let cache = FileCache::<()>::default();
                try_open_nowait(&world.view(), &path("/r/f"), 100, &cache)
            });
            opened
                .map(|file| file.open.meta.len)
                .collect::<BTreeSet<_>>()
        });
        reads.join().unwrap()
    });
    assert_eq!(lengths, BTreeSet::from([2]));
}

#[test]
fn cached_file_is_opened_without_the_disk() {
    let world = World::new(&[
        "file root/f in",
        "link root/l f",
        "dir root/d",
        "file root/secrets/key out",
        "link root/k secrets/key",
    ]);
    let opened = |requested: &str| {
        try_open_nowait(
            &world.view(),
            &path(requested),
            2,
            &FileCache::<()>::default(),
        )
    };
    assert!(text(&world.view(), "/r/f").is_ok());
    assert_eq!(opened("/r/f").map(|file| file.open.meta.len), Some(2));
    for requested in ["/r/l", "/r/d", "/r/none", "/r/k", "/elsewhere"] {
        assert!(opened(requested).is_none(), "{requested}");
    }
}

fn content(opened: &OpenFile) -> String {
    let mut buffer = [0; 100];
    let read = opened.file.read_at(&mut buffer, 0).unwrap();
    String::from_utf8(buffer[..read].to_vec()).unwrap()
}

#[test]
fn cached_file_is_used_only_while_its_path_has_it() {
    let world = World::new(&["file root/f one", "file root/g two"]);
    let cache = FileCache::<()>::default();
    let read = || {
        let opened = try_open_nowait(&world.view(), &path("/r/f"), 100, &cache)?;
        Some((content(&opened.open), opened))
    };
    let (text, first) = read().unwrap();
    assert_eq!(text, "one");
    assert!(Arc::ptr_eq(&read().unwrap().1, &first));

    world.write("root/f", "six");
    assert_eq!(read().unwrap().0, "six");
    fs::rename(world.host("root/g"), world.host("root/f")).unwrap();
    assert_eq!(read().unwrap().0, "two");

    fs::remove_file(world.host("root/f")).unwrap();
    assert!(read().is_none());
    let fifo = world.host("root/f");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(read().is_none());
    let writing = OFlags::WRONLY | OFlags::NONBLOCK;
    let writer = rustix::fs::openat(CWD, &fifo, writing, Mode::empty());
    assert_eq!(writer.unwrap_err(), Errno::NXIO);
}

#[test]
fn cached_file_with_changed_permissions_is_reopened() {
    let world = World::new(&["file root/f one"]);
    let cache = FileCache::<()>::default();
    let open = || try_open_nowait(&world.view(), &path("/r/f"), 100, &cache).unwrap();
    let first = open();
    fs::set_permissions(world.host("root/f"), fs::Permissions::from_mode(0o600)).unwrap();
    let second = open();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &open()));
}

#[test]
fn link_swapped_for_a_device_tree_is_not_walked() {
    let world = World::new(&["dir root/d"]);
    symlink("/dev", world.host("root/dev")).unwrap();
    for kernel in KernelMode::ALL {
        let got = kernel.run(|| world.run(|view| text(view, "/r/dev/zero")));
        assert_eq!(got, Err(Code::NotFound));
    }
}
