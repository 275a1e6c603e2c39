//! Example and failures of `apply_batch` for its documentation.

use bailiwick::Code;
use bailiwick::tool::{Example, Failure};

pub(super) const EXAMPLES: &[Example] = &[Example {
    description: "Create a directory with a file, and rename another file",
    input: r#"{"operations": [{"tool": "make_directory", "path": "docs"}, {"tool": "write_file", "path": "docs/a.md", "content": "hello\n"}, {"tool": "move", "from": "notes.txt", "to": "docs/notes.txt"}]}"#,
    output: r#"{"operations": 3, "created": 1, "moved": 1, "made": 1}"#,
}];
pub(super) const FAILURES: &[Failure] = &[
    Failure {
        code: Code::InvalidArguments,
        when: "an operation is unknown or has invalid arguments",
        resolution: "Correct the operation that the message names",
    },
    Failure {
        code: Code::NotFound,
        when: "an operation names something that does not exist at that point",
        resolution: "Correct the operation, or one before it",
    },
    Failure {
        code: Code::TooLarge,
        when: "the batch is too large, or one of its operations could not be rolled back",
        resolution: "Split the batch",
    },
];
