//! Random trees with files that a worker may not read, while it moves, copies and deletes directories.
#![expect(
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bailiwick::journal::Journal;
use bailiwick::{Policy, Runtime, Worker};
use bailiwick_fs::Durability;
use bailiwick_test_support::cases;
use bailiwick_test_support::stage::started;
use bailiwick_test_support::temp_files::tree;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::Config;
use serde_json::{Value, json};

const NAMES: [&str; 10] = [
    "a", "k", "d/a", "d/k", "d/e/a", "d/e/k", "e/a", "e/k", "e/f/a", "e/f/k",
];

/// A policy, and whether what it forbids to read it forbids to change, too.
#[derive(Clone, Debug)]
struct Rules {
    policy: Policy,
    whole: bool,
}

fn rules() -> impl Strategy<Value = Rules> {
    let globs = vec!["**/k", "d/a", "e/f", "d/e/**", "**/f/a"];
    prop_oneof![
        3 => subsequence(globs, 1..3).prop_map(|globs| Rules {
            policy: globs.into_iter().fold(Policy::new(), Policy::deny_glob),
            whole: true,
        }),
        1 => select(vec!["/r/e", "/r/d/e"]).prop_map(|readable| Rules {
            policy: Policy::new()
                .allow("write:file")
                .allow(&format!("read:file:{readable}")),
            whole: false,
        }),
    ]
}

fn calls() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let path = || {
        select(vec![
            "a", "d", "d/a", "d/e", "d/e/a", "e", "e/a", "e/f", "x", "x/y", "e/x",
        ])
        .prop_map(|path| format!("/r/{path}"))
    };
    let transfer = (select(vec!["move", "copy"]), path(), path(), any::<bool>());
    let transfer = transfer.prop_map(|(tool, from, to, overwrite)| {
        let arguments =
            json!({"from": from, "to": to, "overwrite": overwrite, "create_parents": true});
        (tool, arguments)
    });
    let batched = proptest::collection::vec(transfer.clone(), 2..4).prop_map(|calls| {
        let named = calls.into_iter().map(|(tool, mut arguments)| {
            arguments["tool"] = tool.into();
            arguments
        });
        let operations: Vec<Value> = named.collect();
        ("apply_batch", json!({ "operations": operations }))
    });
    let call = prop_oneof![
        5 => transfer,
        2 => batched,
        1 => path().prop_map(|path| ("delete", json!({"path": path, "recursive": true}))),
        1 => Just(("undo", json!({}))),
        1 => Just(("redo", json!({}))),
    ];
    proptest::collection::vec(call, 1..8)
}

fn content(name: &str) -> String {
    format!("content of {name}.")
}

/// The names of the files beneath `root` whose content, made by [`content`], the worker can read at any path.
async fn readable(root: &Path, worker: &Worker) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for path in tree(root).keys() {
        let path = format!("/r/{path}");
        if let Ok(outcome) = worker.call("read_file", json!({ "path": path })).await {
            found.extend(
                NAMES
                    .iter()
                    .filter(|name| outcome.text().contains(&content(name))),
            );
        }
    }
    found
}

proptest! {
    #![proptest_config(Config::with_cases(cases(48)))]

    #[test]
    fn no_move_copy_or_undo_makes_a_file_readable_or_takes_a_denied_one(
        names in subsequence(NAMES.to_vec(), 1..NAMES.len()),
        Rules { policy, whole } in rules(),
        calls in calls(),
    ) {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        executor.unwrap().block_on(async {
            let temp = tempfile::tempdir().unwrap();
            let root = temp.path().join("r");
            fs::create_dir(&root).unwrap();
            for name in &names {
                let file = root.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, content(name)).unwrap();
            }
            let builder = Runtime::builder()
                .root("r", &root)
                .journal(Journal::open(temp.path().join("journal")).unwrap())
                .tools(bailiwick_fs::tools())
                .tools(bailiwick_fs::undo_tools(Durability::Visible));
            let (_runtime, worker) = started(builder, policy).await;
            let first = readable(&root, &worker).await;
            let hidden: Vec<&str> = names.iter().filter(|name| !first.contains(*name)).copied().collect();
            for (tool, arguments) in &calls {
                let told = match worker.call(tool, arguments.clone()).await {
                    Ok(outcome) => format!("{} {:?}", outcome.text(), outcome.structured()),
                    Err(error) => format!("{error:?}"),
                };
                for name in &hidden {
                    assert!(!told.contains(&content(name)), "{tool} {arguments}: {told}");
                    if whole {
                        let kept = fs::read_to_string(root.join(name)).unwrap();
                        assert_eq!(kept, content(name), "{tool} {arguments}");
                    }
                }
                let now = readable(&root, &worker).await;
                assert!(now.is_subset(&first), "{tool} {arguments}: {now:?}");
            }
        });
    }
}
