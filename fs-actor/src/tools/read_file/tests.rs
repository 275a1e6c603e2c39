//! Tests of `read_file`.

use std::fs;

use serde_json::json;

use bailiwick::effect::ContentHash;
use bytes::Bytes;

use super::render::{MAX_BUFFERED, Source, render};
use super::*;
use crate::testing::{KernelMode, World, path};

fn job(requested: &str) -> Job {
    Job {
        paths: vec![path(requested)],
        selection: LineSelection {
            offset: 1,
            limit: u64::MAX,
            max_bytes: u64::MAX,
            line_numbers: false,
        },
        binary_bytes: u64::MAX,
        known_hash: None,
        binary: false,
    }
}

fn range(requested: &str, offset: i64, limit: Option<u64>) -> Job {
    let selection = LineSelection {
        offset,
        limit: limit.unwrap_or(u64::MAX),
        ..job(requested).selection
    };
    Job {
        selection,
        ..job(requested)
    }
}

fn texts(reply: &Reply) -> Vec<&str> {
    let texts = reply.content.iter().map(|content| match content {
        Content::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

fn first(reply: &Reply) -> serde_json::Value {
    reply.output.to_json().unwrap()["files"][0].clone()
}

fn read(world: &World, job: &Job) -> Result<Reply, Code> {
    world.run(|view| read_files(view, job))
}

#[track_caller]
fn check(bytes: &[u8], job: &Job, expected: &[&str], facts: &serde_json::Value) {
    let world = World::new(&[]);
    world.write("root/f", bytes);
    let slow = read(&world, job).unwrap();
    assert_eq!(texts(&slow), expected);
    let mut got = first(&slow);
    let mut take = |key: &str| got.as_object_mut().unwrap().remove(key).unwrap();
    assert_eq!(
        take("hash"),
        json!(HashPrefix::from(ContentHash::of(bytes)))
    );
    assert_eq!(take("text"), json!(expected[0]));
    assert_eq!(got, *facts);
    if bytes.len() as u64 <= MAX_NOWAIT_BYTES {
        let view = world.view();
        let fast = try_read_nowait(&view, job, &FileCache::default())
            .expect("a small file that was just written is at hand");
        let fast = fast.unwrap();
        assert_eq!(texts(&fast), expected);
    }
}

#[test]
fn text_is_returned_unchanged() {
    let facts = json!({"path": "/r/f", "bytes": 6, "lines": 2, "first_line": 1, "last_line": 2});
    check(b"a\r\nb\r\n", &job("/r/f"), &["a\r\nb\r\n"], &facts);
    let facts = json!({"path": "/r/f", "bytes": 3, "lines": 2, "first_line": 1, "last_line": 2});
    check(b"a\nb", &job("/r/f"), &["a\nb"], &facts);
    check(
        b"",
        &job("/r/f"),
        &[""],
        &json!({"path": "/r/f", "bytes": 0, "lines": 0}),
    );
}

#[test]
fn byte_order_mark_is_reported_and_not_shown() {
    let facts = json!({"path": "/r/f", "bytes": 4, "lines": 1, "first_line": 1, "last_line": 1, "bom": true});
    check(b"\xef\xbb\xbfa", &job("/r/f"), &["a"], &facts);
}

#[test]
fn range_has_totals_and_next_offset() {
    let facts = json!({"path": "/r/f", "bytes": 8, "lines": 4, "first_line": 2, "last_line": 3, "next_offset": 4});
    check(
        b"1\n2\n3\n4\n",
        &range("/r/f", 2, Some(2)),
        &["2\n3\n", "[lines 2-3 of 4; continue with offset 4]"],
        &facts,
    );
    let facts = json!({"path": "/r/f", "bytes": 8, "lines": 4, "first_line": 3, "last_line": 4});
    check(
        b"1\n2\n3\n4\n",
        &range("/r/f", -2, None),
        &["3\n4\n"],
        &facts,
    );
    let mut numbered = range("/r/f", 3, None);
    numbered.selection.line_numbers = true;
    let facts = json!({"path": "/r/f", "bytes": 8, "lines": 4, "first_line": 3, "last_line": 4});
    check(b"1\n2\n3\n4\n", &numbered, &["3\t3\n4\t4\n"], &facts);
}

#[test]
fn range_beyond_the_end_is_refused_with_the_total() {
    let world = World::new(&["file root/f one"]);
    let interrupt = read_files(&world.view(), &range("/r/f", 5, None)).unwrap_err();
    assert!(
        interrupt.to_string().contains("the file has 1 lines"),
        "{interrupt}"
    );
}

#[test]
fn byte_limit_cuts_at_a_line_end() {
    let mut world = World::new(&[]);
    world.max_bytes = 5;
    world.write("root/f", "aaa\nbbb\n");
    let reply = read(&world, &job("/r/f")).unwrap();
    assert_eq!(
        texts(&reply),
        ["aaa\n", "[lines 1-1 of 2; continue with offset 2]"]
    );
    world.write("root/f", "ééééé\nb\n");
    let reply = read(&world, &job("/r/f")).unwrap();
    assert_eq!(texts(&reply)[0], "éé");
    assert_eq!(first(&reply)["line_cut"], true);
}

#[test]
fn file_with_known_hash_is_not_returned() {
    let world = World::new(&["file root/f text"]);
    let known = |text: &[u8]| Job {
        known_hash: Some(ContentHash::of(text).into()),
        ..job("/r/f")
    };
    let same = read(&world, &known(b"text")).unwrap();
    assert_eq!(texts(&same), ["[unchanged since it was read]"]);
    assert_eq!(first(&same)["unchanged"], true);
    let other = read(&world, &known(b"other")).unwrap();
    assert_eq!(texts(&other), ["text"]);
}

#[test]
fn images_and_audio_are_returned_and_other_bytes_on_request() {
    let world = World::new(&[]);
    let write = |bytes: &[u8]| world.write("root/f", bytes);
    let only = |binary: bool| {
        let reply = read(
            &world,
            &Job {
                binary,
                ..job("/r/f")
            },
        );
        reply.map(|mut reply| reply.content.remove(0))
    };
    write(b"\x89PNG\r\n\x1a\n\0rest");
    assert!(matches!(
        only(false),
        Ok(Content::Image {
            mime: "image/png",
            ..
        })
    ));
    write(b"RIFF\0\0\0\0WAVEfmt ");
    assert!(matches!(
        only(false),
        Ok(Content::Audio {
            mime: "audio/wav",
            ..
        })
    ));
    write(b"a\0b");
    assert_eq!(only(false), Err(Code::NotText));
    assert_eq!(
        only(true),
        Ok(Content::Blob {
            path: path("/r/f"),
            bytes: Bytes::from_static(b"a\0b")
        })
    );
    write(b"caf\xe9");
    assert_eq!(only(false), Err(Code::NotText));
    assert_eq!(
        only(true),
        Ok(Content::Blob {
            path: path("/r/f"),
            bytes: Bytes::from_static(b"caf\xe9")
        })
    );
    write("caf\u{e9}".as_bytes());
    assert_eq!(
        only(true),
        Ok(Content::Text(Utf8::from("caf\u{e9}".to_owned())))
    );
}

#[test]
fn large_file_in_another_encoding_is_returned_as_bytes_on_request() {
    let mut world = World::new(&[]);
    world.max_bytes = 8 << 20;
    let text = "caf\u{e9} ".repeat(300_000);
    assert!(text.len() as u64 > MAX_BUFFERED);
    let latin: Vec<u8> = text.chars().filter_map(|c| u8::try_from(c).ok()).collect();
    for (bytes, is_text) in [(text.as_bytes(), true), (&latin, false)] {
        world.write("root/f", bytes);
        let binary = Job {
            binary: true,
            ..job("/r/f")
        };
        let reply = read(&world, &binary);
        let reply = reply.unwrap();
        assert_eq!(matches!(reply.content[0], Content::Text(_)), is_text);
        assert!(is_text || reply.content[0].len() == bytes.len());
    }
}

fn requested(arguments: serde_json::Value) -> Job {
    let args: ReadFileArgs = serde_json::from_value(arguments).unwrap();
    let paths: Vec<&String> = args.path.iter().chain(&args.paths).collect();
    Job {
        paths: paths.iter().map(|requested| path(requested)).collect(),
        selection: LineSelection::of(&args),
        binary_bytes: args.max_bytes.unwrap_or(u64::MAX),
        known_hash: None,
        binary: args.binary,
    }
}

#[test]
fn default_read_is_bounded_and_more_is_read_when_asked_for() {
    let world = World::new(&[]);
    world.write("root/lines", "x\n".repeat(5_000));
    world.write("root/wide", format!("{}\n", "y".repeat(999)).repeat(150));
    let read = |arguments| read(&world, &requested(arguments)).unwrap();
    let reply = read(json!({"path": "/r/lines"}));
    assert_eq!(texts(&reply)[0].lines().count(), 2_000);
    assert_eq!(
        texts(&reply)[1],
        "[lines 1-2000 of 5000; continue with offset 2001]"
    );
    assert_eq!(first(&reply)["next_offset"], 2_001);
    let whole = read(json!({"path": "/r/lines", "limit": 9_999}));
    assert_eq!(texts(&whole), ["x\n".repeat(5_000)]);
    let reply = read(json!({"path": "/r/wide"}));
    assert_eq!(texts(&reply)[0].len(), 100_000);
    assert_eq!(first(&reply)["next_offset"], 101);
    let whole = read(json!({"path": "/r/wide", "max_bytes": 200_000}));
    assert_eq!(texts(&whole)[0].len(), 150_000);
    let both = read(json!({"paths": ["/r/wide", "/r/lines"]}));
    let text: usize = both.content.iter().map(Content::len).sum();
    assert!(text < 101_000, "{text}");
    assert!(both.output.to_json().unwrap()["files"][1]["error"].is_string());
}

#[test]
fn missing_file_does_not_fail_the_others() {
    let world = World::new(&[
        "file root/a one",
        "file root/b two",
        "file root/secrets/key x",
    ]);
    let paths = ["/r/a", "/r/none", "/r/b"].map(path).into();
    let reply = read(
        &world,
        &Job {
            paths,
            ..job("/r/a")
        },
    )
    .unwrap();
    let got = texts(&reply);
    assert_eq!((got[0], got[1]), ("== /r/a", "one"));
    assert!(got[2].starts_with("== /r/none NOT_FOUND"));
    assert_eq!((got[3], got[4]), ("== /r/b", "two"));
    let files = reply.output.to_json().unwrap();
    assert!(files["files"][1]["error"].is_string() && files["files"][2]["error"].is_null());
}

#[test]
fn large_text_is_streamed() {
    let mut world = World::new(&[]);
    let text: String = (1..=300_000).map(|n| format!("line {n}\n")).collect();
    assert!(text.len() as u64 > MAX_BUFFERED);
    world.write("root/f", &text);
    for (offset, expected) in [(299_999, 299_999), (-2, 299_999), (150_000, 150_000)] {
        let reply = read(&world, &range("/r/f", offset, Some(2))).unwrap();
        assert_eq!(
            texts(&reply)[0],
            format!("line {expected}\nline {}\n", expected + 1)
        );
        let facts = first(&reply);
        assert_eq!(
            (&facts["lines"], &facts["first_line"]),
            (&json!(300_000), &json!(expected))
        );
        assert_eq!(
            facts["hash"],
            json!(HashPrefix::from(ContentHash::of(text.as_bytes())))
        );
    }
    world.max_bytes = 100;
    let reply = read(&world, &job("/r/f")).unwrap();
    assert!(texts(&reply)[0].len() <= 100);
    assert_eq!(first(&reply)["next_offset"], json!(14));
}

#[test]
fn large_file_that_is_replaced_while_it_is_read_is_reported_as_opened() {
    // It looks like text until its end.
    let former = [
        "a".repeat(usize::try_from(MAX_BUFFERED).unwrap())
            .as_bytes(),
        b"\n\xff",
    ]
    .concat();
    let world = World::new(&["file root/new \u{0}"]);
    world.write("root/f", &former);
    let (view, at) = (world.view(), path("/r/f"));
    let binary = Job {
        binary: true,
        ..job("/r/f")
    };
    let opened = resolve::file(&view, &at).unwrap();
    rustix::fs::rename(world.host("root/new"), world.host("root/f")).unwrap();
    let budget = ByteBudget {
        text: u64::MAX,
        all: u64::MAX,
    };
    let mut content = Vec::new();
    let source = Source::Streamed(opened);
    let facts = render(&view, &binary, &at, budget, source, &mut content).unwrap();
    assert_eq!(facts.bytes, Some(former.len() as u64));
    let expected = Content::Blob {
        path: at,
        bytes: former.into(),
    };
    assert!(content == [expected]);
}

#[test]
fn sparse_file_of_one_tebibyte_is_cheap() {
    let world = World::new(&[]);
    let file = fs::File::create(world.host("root/zeros")).unwrap();
    file.set_len(1 << 40).unwrap();
    let text = fs::File::create(world.host("root/text")).unwrap();
    std::io::Write::write_all(&mut &text, "head\n".repeat(4000).as_bytes()).unwrap();
    text.set_len(1 << 40).unwrap();
    for kernel in KernelMode::ALL {
        kernel.run(|| {
            assert_eq!(read(&world, &job("/r/zeros")).unwrap_err(), Code::NotText);
            let binary = Job {
                binary: true,
                ..job("/r/zeros")
            };
            assert_eq!(read(&world, &binary).unwrap_err(), Code::TooLarge);
            let reply = read(&world, &range("/r/text", 1, Some(2))).unwrap();
            assert_eq!(texts(&reply)[0], "head\nhead\n");
            assert_eq!(first(&reply)["lines"], serde_json::Value::Null);
            let beyond = read(&world, &range("/r/text", 1_000_000, Some(2)));
            assert_eq!(beyond.unwrap_err(), Code::TooLarge);
        });
    }
}

#[test]
fn nowait_reads_exclude_links_fifos_and_large_files() {
    let world = World::new(&["file root/f x", "link root/l f"]);
    world.write(
        "root/large",
        vec![b'x'; usize::try_from(MAX_NOWAIT_BYTES).unwrap() + 1],
    );
    let view = world.view();
    assert!(try_read_nowait(&view, &job("/r/f"), &FileCache::default()).is_some());
    for requested in ["/r/l", "/r/large", "/r", "/r/none"] {
        assert!(
            try_read_nowait(&view, &job(requested), &FileCache::default()).is_none(),
            "{requested}"
        );
    }
}

#[test]
fn kept_content_is_returned_only_while_the_file_has_it() {
    let world = World::new(&["file root/f one"]);
    world.write("root/large", vec![b'x'; MAX_CACHED_BYTES + 1]);
    let view = world.view();
    let cache = FileCache::default();
    let open = |requested: &str| {
        let file = resolve::try_open_nowait(&view, &path(requested), MAX_NOWAIT_BYTES, &cache);
        file.unwrap()
    };
    let text_of = |file: &CachedFile<FileBytes>| try_read_bytes(file).unwrap().text().unwrap();
    let file = open("/r/f");
    let first = text_of(&file);
    assert_eq!(first.as_str(), "one");
    assert_eq!(text_of(&file).as_str().as_ptr(), first.as_str().as_ptr());
    // As if the file had changed, and its metadata had not.
    file.set_computed(FileBytes::new("two".into()));
    assert_eq!(text_of(&file).as_str(), "one");
    world.write("root/f", "six");
    assert_eq!(text_of(&open("/r/f")).as_str(), "six");

    let large = open("/r/large");
    assert_eq!(text_of(&large).as_str().len(), MAX_CACHED_BYTES + 1);
    assert!(large.computed().is_none());
}

#[test]
fn links_are_resolved_before_any_file_is_read() {
    let mut lines = vec!["file root/f text".to_owned()];
    lines.extend((0..60).map(|index| format!("link root/l{index} f")));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let world = World::new(&lines);
    let paths = (0..60).map(|index| path(&format!("/r/l{index}"))).collect();
    let job = Job {
        paths,
        ..job("/r/f")
    };
    let rounds = std::cell::Cell::new(0);
    let reply = world.run(|view| {
        rounds.set(rounds.get() + 1);
        read_files(view, &job)
    });
    assert_eq!(texts(&reply.unwrap()).len(), 120);
    assert_eq!(rounds.get(), 2);
}

/// Creates `root/f`: text, zeros and `end`, 100 MiB in total.
fn write_very_large(world: &World, end: &str) {
    use std::os::unix::fs::FileExt as _;
    let length = 100 << 20;
    let file = fs::File::create(world.host("root/f")).unwrap();
    file.write_all_at("head\n".repeat(4000).as_bytes(), 0)
        .unwrap();
    file.write_all_at(end.as_bytes(), length - end.len() as u64)
        .unwrap();
}

#[test]
fn last_lines_of_a_very_large_file_are_counted_from_its_end() {
    let world = World::new(&[]);
    let lines: String = (1..=600).rev().map(|n| format!("{n:>1999}\n")).collect();
    write_very_large(&world, &format!("\n{lines}"));
    let read = |arguments| read(&world, &requested(arguments));
    let numbers = |reply: &Reply| -> Vec<u32> {
        let lines = texts(reply)[0].lines();
        lines.map(|line| line.trim().parse().unwrap()).collect()
    };
    let some = read(json!({"path": "/r/f", "offset": -100, "limit": 10})).unwrap();
    assert_eq!(numbers(&some), (91..=100).rev().collect::<Vec<_>>());
    assert_eq!(
        texts(&some)[1..],
        ["[lines -100 to -91; continue with offset -90]"]
    );
    let facts = first(&some);
    for unknown in ["lines", "first_line", "last_line", "next_offset"] {
        assert!(facts[unknown].is_null(), "{unknown}");
    }
    let end = read(json!({"path": "/r/f", "offset": -3})).unwrap();
    assert_eq!(numbers(&end), [3, 2, 1]);
    assert_eq!(texts(&end).len(), 1);
    let bounded = read(json!({"path": "/r/f", "offset": -524})).unwrap();
    assert_eq!(numbers(&bounded), (475..=524).rev().collect::<Vec<_>>());
    assert_eq!(
        texts(&bounded)[1..],
        ["[lines -524 to -475; continue with offset -474]"]
    );
}

#[test]
fn line_before_the_last_bytes_of_a_very_large_file_is_an_error() {
    let world = World::new(&[]);
    let offset = |offset: i64| {
        let read = read_files(
            &world.view(),
            &requested(json!({"path": "/r/f", "offset": offset})),
        );
        read.map_err(|interrupt| interrupt.to_string())
    };
    let too_far = |offset: u64| {
        format!(
            "line {offset} from the end is before the last 1048576 bytes; search for it with `grep`"
        )
    };
    write_very_large(&world, &format!("\n{}", "x\n".repeat(9)));
    assert!(offset(-9).is_ok());
    let error = offset(-100).unwrap_err();
    assert!(error.contains(&too_far(100)), "{error}");
    write_very_large(&world, &"y".repeat(2 << 20));
    let error = offset(-1).unwrap_err();
    assert!(error.contains(&too_far(1)), "{error}");
}

#[test]
fn long_last_line_of_a_very_large_file_is_cut_with_a_notice() {
    let world = World::new(&[]);
    write_very_large(&world, &format!("\n{}\n", "y".repeat(200_000)));
    let reply = read(&world, &requested(json!({"path": "/r/f", "offset": -1}))).unwrap();
    assert_eq!(texts(&reply)[0].len(), 100_000);
    assert_eq!(
        texts(&reply)[1..],
        ["[line -1 is longer than the limit and was cut; set `max_bytes` for more]"]
    );
    assert_eq!(first(&reply)["line_cut"], true);
}

#[test]
fn error_for_a_file_in_another_encoding_names_the_requested_path() {
    let world = World::new(&["file root/a.txt text", "link root/link latin"]);
    let streamed = "caf\u{e9} ".repeat(300_000);
    for text in ["caf\u{e9}", &streamed] {
        let latin: Vec<u8> = text.chars().filter_map(|c| u8::try_from(c).ok()).collect();
        world.write("root/latin", latin);
        let reply = read(
            &world,
            &requested(json!({"paths": ["/r/a.txt", "/r/link"]})),
        )
        .unwrap();
        let files = reply.output.to_json().unwrap();
        let error = files["files"][1]["error"].as_str().unwrap();
        assert!(error.contains("`/r/link` is not UTF-8 text"), "{error}");
    }
}
