//! Example and failures of `edit_file` for its documentation.

use bailiwick::Code;
use bailiwick::tool::{Example, Failure};

pub(super) const EXAMPLES: &[Example] = &[Example {
    description: "Change a word that occurs once",
    input: r#"{"path": "src/main.rs", "edits": [{"old_text": "hi", "new_text": "hello"}]}"#,
    output: r#"{"added": 1, "removed": 1, "edits": [{"strategy": "exact", "count": 1, "lines": [2]}]}"#,
}];
pub(super) const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NoMatch,
        when: "the old text does not occur",
        resolution: "Read the file again, or use the similar lines in the message",
    },
    Failure {
        code: Code::AmbiguousMatch,
        when: "the old text occurs more than once",
        resolution: "Include more of the surrounding lines, or set `occurrence`, `expected_count` or `replace_all`",
    },
    Failure {
        code: Code::Conflict,
        when: "the file does not match `expected_hash`",
        resolution: "Read it again",
    },
    Failure {
        code: Code::NotText,
        when: "the file is not UTF-8",
        resolution: "Replace the whole file",
    },
    Failure {
        code: Code::NotFound,
        when: "there is no such file",
        resolution: "Create it with `write_file`",
    },
];
