//! Tests of the walker: races, limits and ignore files.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Command;

use bailiwick::Code;

use super::*;
use crate::testing::{KernelMode, TestView, World, cases, in_child, path, race};

/// The content of a file.
fn content(found: &WalkEntry<'_>) -> Option<String> {
    let name = found.name().filter(|_| found.kind == Kind::File)?;
    let opened = found.holder.read(name).ok()?;
    let mut text = String::new();
    opened.file.take(100).read_to_string(&mut text).unwrap();
    Some(text)
}

/// The contents of all files beneath `/r`, without duplicates, joined.
fn contents(view: &TestView<'_>) -> Result<String, Interrupt> {
    let mut texts = BTreeSet::new();
    let (dir, at) = start(view, &path("/r"))?;
    walk(view, dir, &at, None, &mut |found| {
        texts.extend(content(found));
        Ok(WalkControl::Enter)
    })?;
    Ok(String::from_iter(texts))
}

/// The same by an unordered walk.
fn unordered_contents(view: &TestView<'_>) -> Result<String, Interrupt> {
    let (dir, at) = start(view, &path("/r"))?;
    let visit = |texts: &mut BTreeSet<_>, found: &WalkEntry<'_>| texts.extend(content(found));
    let (texts, _) = walk_unordered(view, dir, &at, None, BTreeSet::new, visit)?;
    Ok(texts.into_iter().flatten().collect())
}

#[track_caller]
fn check_race(lines: &[&str], pairs: &[(&str, &str)]) {
    check_race_of(contents, lines, pairs, cases() / 4);
}

#[track_caller]
fn check_race_of(
    contents: fn(&TestView<'_>) -> Result<String, Interrupt>,
    lines: &[&str],
    pairs: &[(&str, &str)],
    tries: usize,
) {
    let world = World::new(lines);
    for kernel in [KernelMode::Native, KernelMode::Missing] {
        // A walk that sees only the links reads nothing.
        let look = || {
            world.run(contents).and_then(|text| {
                if text.is_empty() {
                    Err(Code::NotFound)
                } else {
                    Ok(text)
                }
            })
        };
        race(&world, pairs, kernel, tries, look);
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
fn no_race_makes_an_unordered_walk_leave_the_root() {
    // In a chain of directories, the queue has room for each after the first ones.
    let chain = ["d"; unordered::MIN_DIRECTORIES + 1].join("/");
    let raced = format!("root/{chain}/a");
    let link = format!("root/{chain}/l");
    let lines = [
        &*format!("file {raced}/f in"),
        "file outside/f out",
        &*format!("link {link} @/outside"),
    ];
    check_race_of(unordered_contents, &lines, &[(&raced, &link)], cases() / 16);
}

#[test]
fn walk_skips_mounts_with_a_notice() {
    const NAME: &str = "walk::tests::walk_skips_mounts_with_a_notice";
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
        for kernel in KernelMode::ALL {
            assert_eq!(
                kernel.run(|| world.run(contents)).as_deref(),
                Ok(expected),
                "{kernel:?}"
            );
        }
        let skipped = world.run(|view| {
            let (dir, at) = start(view, &path("/r"))?;
            walk(view, dir, &at, None, &mut |_| Ok(WalkControl::Enter))
        });
        assert_eq!(skipped.unwrap().directories, u64::from(!crosses));
    }
}

#[test]
fn walk_stops_on_request() {
    let world = World::new(&["file root/a x", "file root/b x", "file root/c/d x"]);
    let walked = |onward: fn(&str) -> WalkControl| {
        let mut seen = Vec::new();
        let (dir, at) = start(&world.view(), &path("/r")).unwrap();
        let walked = walk(&world.view(), dir, &at, None, &mut |found| {
            seen.push(found.path().to_string());
            Ok(onward(found.path().as_str()))
        });
        assert_eq!(walked.unwrap(), WalkSkipped::default());
        seen
    };
    assert_eq!(
        walked(|_| WalkControl::Enter),
        ["/r/a", "/r/b", "/r/c", "/r/c/d"]
    );
    assert_eq!(walked(|_| WalkControl::Skip), ["/r/a", "/r/b", "/r/c"]);
    assert_eq!(
        walked(|path| if path == "/r/b" {
            WalkControl::Stop
        } else {
            WalkControl::Enter
        }),
        ["/r/a", "/r/b"]
    );
}

#[test]
fn walk_and_search_stop_at_a_checkpoint() {
    let mut world = World::new(&[]);
    for n in 0..2000 {
        world.make(&format!("file root/{:02}/{n} x", n % 20));
    }
    let visited = std::cell::Cell::new(0);
    let count = |view: &TestView<'_>| {
        visited.set(0);
        let (dir, at) = start(view, &path("/r"))?;
        walk(view, dir, &at, None, &mut |_| {
            visited.set(visited.get() + 1);
            Ok(WalkControl::Enter)
        })
    };
    assert_eq!(
        (world.run(count), visited.get()),
        (Ok(WalkSkipped::default()), 2020)
    );
    world.checkpoints_left = 3.into();
    assert_eq!(world.run(count), Err(Code::Cancelled));
    assert!(
        visited.get() < 2 * usize::try_from(CHECKPOINT_INTERVAL).unwrap() + 200,
        "{}",
        visited.get()
    );
}

#[test]
fn cost_of_ignore_files_is_bounded() {
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
    let view = world.view();
    let mut ignore_rules = IgnoreRules::for_ancestors(&view, &path("/r/d"));
    for level in &levels {
        let opened = crate::resolve::directory(&view, level).unwrap();
        ignore_rules.enter(&view, &opened, level, |_| true);
    }
    assert!(ignore_rules.spent() <= 512 * 1024);

    let found = world.run(|view| {
        let (top, at) = start(view, &path("/r"))?;
        let ignore_rules = IgnoreRules::for_ancestors(view, &at);
        let mut found = 0;
        walk(view, top, &at, Some(ignore_rules), &mut |entry| {
            let name = entry.name();
            assert_ne!(name, Some("x1.o"), "what was heeded stays heeded");
            found += usize::from(name == Some("f"));
            Ok(WalkControl::Enter)
        })?;
        Ok(found)
    });
    assert_eq!(found, Ok(60));
}
