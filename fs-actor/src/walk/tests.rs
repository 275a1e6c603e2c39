//! Trees that change or lead astray while they are walked in, what the walk saw out.

use std::io::Read as _;
use std::process::Command;

use bailiwick::Code;

use super::*;
use crate::testing::{Kernel, View, World, cases, in_child, path, race};

/// The texts of all files beneath `/r`, each once, joined.
fn contents(view: &View<'_>) -> Result<String, Interrupt> {
    let mut texts = Vec::new();
    let (dir, at) = start(view, &path("/r"))?;
    walk(view, dir, &at, None, &mut |found| {
        if found.kind == Kind::File {
            let mut text = String::new();
            if let Some(Ok(opened)) = found.path.name().map(|name| found.holder.read(name)) {
                opened.file.take(100).read_to_string(&mut text).unwrap();
                texts.push(text);
            }
        }
        Ok(Onward::Enter)
    })?;
    texts.sort();
    texts.dedup();
    Ok(texts.concat())
}

#[track_caller]
fn check_race(lines: &[&str], pairs: &[(&str, &str)]) {
    let world = World::new(lines);
    for kernel in [Kernel::Whole, Kernel::Old] {
        // A walk that meets but the links, in both places, reads nothing.
        let look = || {
            world.run(contents).and_then(|text| {
                if text.is_empty() {
                    Err(Code::NotFound)
                } else {
                    Ok(text)
                }
            })
        };
        race(&world, pairs, kernel, cases() / 4, look);
    }
}

#[test]
fn no_race_makes_a_walk_leave_the_root() {
    let lines = [
        "file root/a/d/f in",
        "file outside/f out",
        "link root/a/l @/outside",
    ];
    check_race(&lines, &[("root/a/d", "root/a/l")]);
    let lines = [
        "file root/a/f in",
        "file outside/f out",
        "link root/a/l ../../outside/f",
    ];
    check_race(&lines, &[("root/a/f", "root/a/l")]);
}

#[test]
fn no_race_makes_a_walk_read_a_denied_file_through_a_link() {
    let lines = [
        "file root/a/d/f in",
        "file root/secrets/f out",
        "link root/a/l ../secrets",
    ];
    check_race(&lines, &[("root/a/d", "root/a/l")]);
}

#[test]
fn a_walk_enters_no_mount_and_says_so() {
    const NAME: &str = "walk::tests::a_walk_enters_no_mount_and_says_so";
    if !in_child(NAME, "") {
        return;
    }
    let mut world = World::new(&["dir root/m", "file root/f in", "file outside/f out"]);
    let (from, onto) = (world.host("outside"), world.host("root/m"));
    assert!(
        Command::new("mount")
            .arg("--bind")
            .args([from, onto])
            .status()
            .unwrap()
            .success()
    );
    for (crosses, expected) in [(false, "in"), (true, "inout")] {
        world.crosses_mounts = crosses;
        for kernel in Kernel::ALL {
            assert_eq!(
                kernel.run(|| world.run(contents)).as_deref(),
                Ok(expected),
                "{kernel:?}"
            );
        }
        let left_out = world.run(|view| {
            let (dir, at) = start(view, &path("/r"))?;
            walk(view, dir, &at, None, &mut |_| Ok(Onward::Enter))
        });
        assert_eq!(left_out.unwrap().directories, u64::from(!crosses));
    }
}

#[test]
fn a_walk_stops_where_it_is_told_to() {
    let world = World::new(&["file root/a x", "file root/b x", "file root/c/d x"]);
    let walked = |onward: fn(&str) -> Onward| {
        let mut seen = Vec::new();
        let (dir, at) = start(&world.lens(), &path("/r")).unwrap();
        let walked = walk(&world.lens(), dir, &at, None, &mut |found| {
            seen.push(found.path.to_string());
            Ok(onward(found.path.as_str()))
        });
        assert_eq!(walked.unwrap(), LeftOut::default());
        seen
    };
    assert_eq!(
        walked(|_| Onward::Enter),
        ["/r/a", "/r/b", "/r/c", "/r/c/d"]
    );
    assert_eq!(walked(|_| Onward::Pass), ["/r/a", "/r/b", "/r/c"]);
    assert_eq!(
        walked(|path| if path == "/r/b" {
            Onward::Stop
        } else {
            Onward::Enter
        }),
        ["/r/a", "/r/b"]
    );
}

#[test]
fn a_walk_and_a_search_end_soon_after_the_call_must_stop() {
    let mut world = World::new(&[]);
    for n in 0..2000 {
        world.make(&format!("file root/{:02}/{n} x", n % 20));
    }
    let visited = std::cell::Cell::new(0);
    let count = |view: &View<'_>| {
        visited.set(0);
        let (dir, at) = start(view, &path("/r"))?;
        walk(view, dir, &at, None, &mut |_| {
            visited.set(visited.get() + 1);
            Ok(Onward::Enter)
        })
    };
    assert_eq!(
        (world.run(count), visited.get()),
        (Ok(LeftOut::default()), 2020)
    );
    world.patience = 3.into();
    assert_eq!(world.run(count), Err(Code::Cancelled));
    assert!(
        visited.get() < 2 * usize::try_from(STRIDE).unwrap() + 200,
        "{}",
        visited.get()
    );
}

#[test]
fn ignore_files_cost_a_search_no_more_than_a_bound_however_many_there_are() {
    let patterns: String = (0..1_000).map(|index| format!("x{index}*\n")).collect();
    let world = World::new(&["file root/.gitignore *.o"]);
    let mut dir = "root".to_owned();
    let mut levels = Vec::new();
    for _ in 0..60 {
        dir.push_str("/d");
        world.make(&format!("dir {dir}"));
        world.write(format!("{dir}/.gitignore"), &patterns);
        world.write(format!("{dir}/f"), "in");
        world.write(format!("{dir}/x1.o"), "in");
        levels.push(path(&dir.replacen("root", "/r", 1)));
    }
    let lens = world.lens();
    let mut ignoring = Ignoring::above(&lens, &path("/r/d"));
    for level in &levels {
        let opened = crate::resolve::directory(&lens, level).unwrap();
        ignoring.enter(&lens, &opened, level);
    }
    assert!(ignoring.spent() <= 512 * 1024);

    let found = world.run(|view| {
        let (top, at) = start(view, &path("/r"))?;
        let ignoring = Ignoring::above(view, &at);
        let mut found = 0;
        walk(view, top, &at, Some(ignoring), &mut |entry| {
            let name = entry.path.name();
            assert_ne!(name, Some("x1.o"), "what was heeded stays heeded");
            found += usize::from(name == Some("f"));
            Ok(Onward::Enter)
        })?;
        Ok(found)
    });
    assert_eq!(found, Ok(60));
}
