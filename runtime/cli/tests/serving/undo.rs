//! Tests of `serve --journal`, `bailiwick journal` and `bailiwick undo`.

use std::fs;
use std::path::Path;
use std::process::Command;

use bailiwick_test_support::server::Server;
use bailiwick_test_support::temp_files::TempFiles;
use serde_json::{Value, json};

use crate::{PROGRAM, program};

/// The program with a directory and a journal, after a handshake.
fn started(files: &TempFiles, journal: &Path) -> Server {
    let dir = files.dir().to_str().unwrap();
    let journal = journal.to_str().unwrap();
    let mut server = program::start(&["--journal", journal, dir], &[]);
    let answer = server.initialize(&json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    server
}

fn write(server: &mut Server, path: &str, content: &str) {
    let arguments = json!({ "path": path, "content": content, "mode": "overwrite" });
    server.text("write_file", arguments);
}

/// The exit code, and standard output and error, of the program with these arguments.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).args(arguments).env_clear().output();
    let output = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The newest change.
fn newest(journal: &str) -> Value {
    let (_, list, _) = run(&["journal", journal, "--json"]);
    serde_json::from_str(list.lines().next().unwrap()).unwrap()
}

/// The name of the client in the journal.
fn agent(journal: &str) -> String {
    newest(journal)["agent"].as_str().unwrap().to_owned()
}

#[test]
fn undo_is_offered_only_with_a_journal() {
    let (files, journal) = (TempFiles::new(&[]), tempfile::tempdir().unwrap());
    let has_tool = |server: &mut Server| {
        let tools = server.result("tools/list", json!({}))["tools"].clone();
        let mut tools = tools.as_array().unwrap().iter();
        tools.any(|tool| tool["name"] == "undo")
    };
    assert!(has_tool(&mut started(&files, journal.path())));
    let mut without = program::start(&[files.dir().to_str().unwrap()], &[]);
    without.initialize(&json!({}));
    assert!(!has_tool(&mut without));
}

#[test]
fn changes_of_a_client_are_undone_by_the_client_and_by_a_person() {
    let (files, folder) = (
        TempFiles::new(&[("a.txt", "old")]),
        tempfile::tempdir().unwrap(),
    );
    let journal = folder.path().join("journal");
    let (dir, place) = (files.dir().to_str().unwrap(), journal.to_str().unwrap());
    let mut server = started(&files, &journal);
    write(&mut server, "a.txt", "one");
    write(&mut server, "b.txt", "new");
    server.text("undo", json!({}));
    assert!(!files.dir().join("b.txt").exists());
    server.text("redo", json!({}));

    let client = agent(place);
    let undo = ["undo", place, "--root", dir, "--agent", &client];
    let (code, _, error) = run(&undo);
    assert_eq!(code, Some(1));
    assert!(error.contains("in use"), "{error}");
    server.close_input();
    assert!(server.end().0.success());

    let (code, list, _) = run(&["journal", place, "--agent", &client, "--json"]);
    assert_eq!(code, Some(0));
    let states: Vec<Value> = list
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone())
        .collect();
    assert!(states.iter().any(|state| state == "applied"), "{list}");
    let (_, table, _) = run(&["journal", place]);
    assert!(table.contains("in effect"), "{table}");

    let (code, shown, _) = run(&[&undo[..], &["--preview"]].concat());
    assert_eq!(code, Some(0));
    assert!(
        shown.contains(&format!("would delete {dir}/b.txt")),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("would change {dir}/a.txt")),
        "{shown}"
    );
    assert_eq!(fs::read(files.dir().join("a.txt")).unwrap(), b"one");

    let (code, done, error) = run(&undo);
    assert_eq!(code, Some(0), "{error}");
    assert!(done.contains(&format!("deleted {dir}/b.txt")), "{done}");
    assert_eq!(fs::read(files.dir().join("a.txt")).unwrap(), b"old");
    assert!(!files.dir().join("b.txt").exists());
    let (code, _, error) = run(&undo);
    assert_eq!(code, Some(1));
    let none = format!("no changes of `{client}`");
    assert!(error.contains(&none), "{error}");
    let (code, list, _) = run(&["journal", place, "--agent", "another"]);
    assert_eq!((code, list.as_str()), (Some(0), "No changes.\n"));
}

#[test]
fn undo_names_files_that_others_changed_and_changes_nothing() {
    let (files, folder) = (TempFiles::new(&[]), tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal");
    let (dir, place) = (files.dir().to_str().unwrap(), journal.to_str().unwrap());
    let mut server = started(&files, &journal);
    write(&mut server, "a.txt", "one");
    write(&mut server, "b.txt", "two");
    server.close_input();
    assert!(server.end().0.success());
    fs::write(files.dir().join("a.txt"), "by others").unwrap();
    let (code, _, error) = run(&["undo", place, "--root", dir, "--agent", &agent(place)]);
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("{dir}/a.txt")), "{error}");
    assert!(files.dir().join("b.txt").exists());
    // The other change can be undone alone.
    let change = newest(place)["id"].to_string();
    let (code, done, error) = run(&["undo", place, "--root", dir, "--change", &change]);
    assert_eq!(code, Some(0), "{done}{error}");
    assert!(!files.dir().join("b.txt").exists());
}

#[test]
fn damaged_journal_is_set_aside_and_the_server_says_so() {
    let (files, folder) = (TempFiles::new(&[]), tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal");
    let mut server = started(&files, &journal);
    write(&mut server, "a.txt", "one");
    write(&mut server, "b.txt", "two");
    server.close_input();
    assert!(server.end().0.success());
    let segment = journal.join("changes.00000001");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[30] ^= 1;
    fs::write(&segment, bytes).unwrap();

    let place = journal.to_str().unwrap();
    let (code, _, error) = run(&["journal", place]);
    assert_eq!(code, Some(1));
    assert!(error.contains("damaged"), "{error}");
    let dir = files.dir().to_str().unwrap();
    let (code, _, log) = run(&["serve", "--journal", place, dir]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("is damaged"), "{log}");
    assert!(log.contains("was kept as"), "{log}");
    let mut server = started(&files, &journal);
    write(&mut server, "c.txt", "three");
    server.close_input();
    assert!(server.end().0.success());
    let (code, table, _) = run(&["journal", place]);
    assert_eq!(code, Some(0));
    assert_eq!(table.lines().count(), 2, "{table}");
}

#[test]
fn journals_that_do_not_exist_and_those_in_a_root_are_rejected() {
    let files = TempFiles::new(&[]);
    let dir = files.dir().to_str().unwrap();
    let missing = files.dir().join("missing");
    for command in [
        &["journal", missing.to_str().unwrap()][..],
        &[
            "undo",
            missing.to_str().unwrap(),
            "--root",
            dir,
            "--change",
            "1",
        ],
    ] {
        let (code, _, error) = run(command);
        assert_eq!(code, Some(1), "{error}");
        assert!(!missing.exists());
    }
    let (code, _, error) = run(&["serve", "--journal", missing.to_str().unwrap(), dir]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("contains"), "{error}");
}
