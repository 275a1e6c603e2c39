//! Calls of every file tool.

use serde_json::{Value, json};

/// The names of the file tools, sorted.
#[cfg(feature = "runtime")]
pub fn names() -> Vec<String> {
    let tools = bailiwick_fs::tools();
    tools.names().map(str::to_owned).collect()
}

/// Calls of every tool, some of which fail and some of which are previews.
pub fn calls() -> Value {
    let call = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "fails": false, "preview": false});
    let fails = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "fails": true, "preview": false});
    let preview = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "fails": false, "preview": true});
    let edit =
        |old: &str| json!({"path": "new.txt", "edits": [{"old_text": old, "new_text": "2"}]});
    json!([
        call("list_roots", json!({})),
        call("list_directory", json!({"path": "src"})),
        call("stat", json!({"path": "a.txt"})),
        call("read_file", json!({"path": "a.txt"})),
        fails("read_file", json!({"path": "none"})),
        call("find", json!({"pattern": "*"})),
        call("grep", json!({"pattern": "one"})),
        preview("write_file", json!({"path": "new.txt", "content": "one\n"})),
        fails("stat", json!({"path": "new.txt"})),
        call("write_file", json!({"path": "new.txt", "content": "one\n"})),
        preview("edit_file", edit("one")),
        call("edit_file", edit("one")),
        fails("edit_file", edit("three")),
        call("make_directory", json!({"path": "made"})),
        call("copy", json!({"from": "new.txt", "to": "made/copy.txt"})),
        preview(
            "move",
            json!({"from": "made/copy.txt", "to": "made/moved.txt"})
        ),
        call(
            "move",
            json!({"from": "made/copy.txt", "to": "made/moved.txt"})
        ),
        call(
            "apply_batch",
            json!({"operations": [
                {"tool": "write_file", "path": "made/batch.txt", "content": "one\n"},
                {"tool": "edit_file", "path": "made/batch.txt", "edits": [{"old_text": "one", "new_text": "2"}]},
            ]})
        ),
        preview("delete", json!({"path": "made", "recursive": true})),
        call("delete", json!({"path": "made", "recursive": true})),
    ])
}
