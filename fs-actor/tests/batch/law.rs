//! A batch does what its operations do one after the other, or nothing.

use bailiwick::Code;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;
use serde_json::{Value, json};

use super::World;

/// Runs `BAILIWICK_CASES` cases, or `default` if it is not set.
fn cases(default: u32) -> Config {
    let asked = std::env::var("BAILIWICK_CASES").ok();
    Config::with_cases(asked.map_or(default, |cases| cases.parse().unwrap()))
}

fn path() -> impl Strategy<Value = &'static str> {
    select(vec![
        "/r/a", "/r/b", "/r/d", "/r/d/a", "/r/d/e", "/r/d/e/a", "/r/d/n", "/r/x", "/r/x/y",
        "/r/x/y/z", "/s/b", "/s/d", "/s/d/a",
    ])
}

/// Two paths of which none contains the other. Others are refused before anything is planned.
fn apart() -> impl Strategy<Value = (&'static str, &'static str)> {
    let contains = |one: &str, other: &str| format!("{other}/").starts_with(&format!("{one}/"));
    (path(), path()).prop_filter("one contains the other", move |(from, to)| {
        !contains(from, to) && !contains(to, from)
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let flag = any::<bool>;
    prop_oneof![
        3 => (path(), "[ab]{0,2}\n?", select(vec!["create", "overwrite", "append"]), flag()).prop_map(
            |(path, content, mode, create_parents)| json!({
                "tool": "write_file", "path": path, "content": content, "mode": mode,
                "create_parents": create_parents,
            })
        ),
        2 => (path(), select(vec!["one", "a", "b", "foo"]), flag()).prop_map(|(path, old, all)| json!({
            "tool": "edit_file", "path": path,
            "edits": [{"old_text": old, "new_text": "new", "replace_all": all}],
        })),
        2 => (path(), flag()).prop_map(|(path, create_parents)| json!({
            "tool": "make_directory", "path": path, "create_parents": create_parents,
        })),
        3 => (select(vec!["move", "copy"]), apart(), flag(), flag()).prop_map(
            |(tool, (from, to), overwrite, create_parents)| json!({
                "tool": tool, "from": from, "to": to, "overwrite": overwrite,
                "create_parents": create_parents,
            })
        ),
        2 => (path(), flag()).prop_map(|(path, recursive)| json!({
            "tool": "delete", "path": path, "recursive": recursive,
        })),
    ]
}

/// Makes the operations one by one, and returns the first error.
async fn one_by_one(world: &World, operations: &[Value]) -> Option<(usize, Code)> {
    for (index, operation) in operations.iter().enumerate() {
        let mut arguments = operation.clone();
        let tool = arguments.as_object_mut().unwrap().remove("tool").unwrap();
        let done = world.worker.call(tool.as_str().unwrap(), arguments).await;
        if let Err(error) = done {
            return Some((index, error.code()));
        }
    }
    None
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut executor = tokio::runtime::Builder::new_current_thread();
    executor.enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn batch_does_what_its_operations_do_one_by_one(operations in prop::collection::vec(operation(), 1..5)) {
        run(async {
            let (single, world) = (World::new().await, World::new().await);
            let first = world.tree();
            let failed = one_by_one(&single, &operations).await;
            let preview = world.worker.preview("apply_batch", json!({"operations": operations})).await;
            assert_eq!(world.tree(), first);
            match (failed, world.batch(json!(operations)).await) {
                (None, Ok(outcome)) => {
                    assert_eq!(world.tree(), single.tree(), "{operations:#?}");
                    assert_eq!(outcome.changes, preview.unwrap().changes);
                    if !outcome.changes.is_empty() {
                        world.undo().await;
                        assert_eq!(world.tree(), first, "{operations:#?}");
                    }
                }
                (Some((index, code)), Err(error)) => {
                    assert_eq!(error.code(), code, "{index}: {error:#?}\n{operations:#?}");
                    assert_eq!(world.tree(), first);
                }
                (None, Err(error)) => {
                    assert_eq!(error.code(), Code::TooLarge, "{error:#?}\n{operations:#?}");
                    assert!(error.message().contains("separate call"), "{error}");
                    assert_eq!(world.tree(), first);
                }
                (failed, done) => panic!("{failed:?} {done:?} {operations:#?}"),
            }
        });
    }

    #[test]
    fn operations_that_succeed_one_by_one_succeed_as_a_batch(candidates in prop::collection::vec(operation(), 1..24)) {
        run(async {
            let (single, world) = (World::new().await, World::new().await);
            let first = world.tree();
            let mut operations = Vec::new();
            for operation in candidates {
                if one_by_one(&single, std::slice::from_ref(&operation)).await.is_none() {
                    operations.push(operation);
                }
            }
            prop_assume!(!operations.is_empty());
            match world.batch(json!(operations)).await {
                Ok(outcome) => {
                    assert_eq!(world.tree(), single.tree(), "{operations:#?}");
                    if !outcome.changes.is_empty() {
                        world.undo().await;
                        assert_eq!(world.tree(), first, "{operations:#?}");
                        world.worker.call("redo", json!({})).await.unwrap();
                        assert_eq!(world.tree(), single.tree(), "{operations:#?}");
                    }
                }
                Err(error) => {
                    assert_eq!(error.code(), Code::TooLarge, "{error:#?}\n{operations:#?}");
                    assert!(error.message().contains("separate call"), "{error}");
                    assert_eq!(world.tree(), first);
                }
            }
            Ok(())
        })?;
    }
}
