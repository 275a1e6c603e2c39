//! Answers to several questions together.

use serde::{Deserialize, Serialize};

use super::{Lifetime, Request};
use crate::scope::Coverage;

/// One answer to the selected questions of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BatchAnswer {
    /// Allow the calls.
    Allow {
        /// What is allowed; `None` for exactly what each question asks.
        #[serde(default)]
        pattern: Option<Coverage>,
        /// How long it is allowed. [`Lifetime::Uses`] counts separately for each question: ten uses for three questions
        /// are thirty uses, and a later call may use those that remain of any question.
        lifetime: Lifetime,
        /// Whether descendants of the workers that ask may use it, too.
        #[serde(default)]
        descendants: bool,
    },
    /// Deny the calls.
    Deny {
        /// A note for the agents.
        #[serde(default)]
        note: Option<String>,
    },
}

/// Why a question must be answered by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotBatchable {
    /// It asks to change something protected.
    #[error("it affects a protected file")]
    Sensitive,
    /// The tool is provided by a third-party server, so a person has to see the server and the arguments.
    #[error("it calls a third-party server")]
    Server,
    /// It has no preview.
    #[error("it has no preview")]
    Unshown,
    /// It belongs to another session than the others.
    #[error("it belongs to another session")]
    Session,
}

impl Request {
    /// Returns why the question about this call must be answered by itself; `None` if it may be allowed together with others.
    #[must_use]
    pub fn not_batchable(&self) -> Option<NotBatchable> {
        if self.sensitive {
            Some(NotBatchable::Sensitive)
        } else if self.server.is_some() {
            Some(NotBatchable::Server)
        } else {
            self.preview.is_none().then_some(NotBatchable::Unshown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{request, shown};

    #[test]
    fn answer_with_unknown_member_is_rejected() {
        let read = |more: &str| {
            let text = format!(r#"{{"allow":{{"lifetime":"once"{more}}}}}"#);
            serde_json::from_str::<BatchAnswer>(&text).is_ok()
        };
        assert!(read("") && read(r#","descendants":true"#));
        assert!(!read(r#","descendant":true"#));
    }

    #[test]
    fn sensitive_and_unseen_changes_and_servers_are_not_batchable() {
        let asked = || shown(request(1, 1, &["write:file:/r/a"]));
        assert_eq!(asked().not_batchable(), None);
        let check = |change: fn(&mut Request), expected| {
            let mut request = asked();
            change(&mut request);
            assert_eq!(request.not_batchable(), Some(expected));
        };
        check(|request| request.sensitive = true, NotBatchable::Sensitive);
        check(
            |request| request.server = Some("hub".into()),
            NotBatchable::Server,
        );
        check(|request| request.preview = None, NotBatchable::Unshown);
    }
}
