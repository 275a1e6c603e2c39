//! Answers to a question as a short list of named options, for clients that show buttons.
//!
//! The format is that of the Agent Client Protocol's `session/request_permission`: an option has an id, a name and a
//! kind. Each option is a breadth and a lifetime; the list is short, the narrowest first. Denying is an option of its
//! own: ACP's outcome `cancelled` ends the agent's turn and is not an answer here.

use std::num::NonZeroU32;

use serde::Serialize;

use super::{Answer, Choice, Lifetime, Question};

/// Kind of an option in the Agent Client Protocol (ACP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    /// Allows this call.
    AllowOnce,
    /// Allows this and later calls.
    AllowAlways,
    /// Denies this call.
    RejectOnce,
    /// Denies this and later calls.
    RejectAlways,
}

/// One answer that a client of the Agent Client Protocol can offer.
///
/// ```
/// # fn shown(question: &bailiwick::Question) -> serde_json::Result<serde_json::Value> {
/// let options = serde_json::to_value(question.options())?; // `options` of `session/request_permission`
/// # Ok(options) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerOption {
    /// Its id, for [`Question::chosen`].
    pub option_id: String,
    /// Text for people: what it allows, and for how long.
    pub name: String,
    /// Its kind.
    pub kind: OptionKind,
}

const REJECT: &str = "reject";
const REJECT_KIND: &str = "reject-session";
/// Prefix of the number of waiting calls that an option allows.
const WAITING: &str = "waiting-";

impl Question {
    /// Returns the answers to offer as buttons: exactly what is asked, once; that and the other choices that need no
    /// confirmation, for the session; a denial; and a denial of every call of the kind for the rest of the session. Choices
    /// that need a confirmation ([`Choice::needs_confirmation`]) are for a host's own page or the terminal.
    #[must_use]
    pub fn options(&self) -> Vec<AnswerOption> {
        let option = |(option_id, index, lifetime): (String, usize, Lifetime)| {
            let choice = self.request.choices.get(index);
            let covered = choice.map(|one| one.sentence(&self.request.roots));
            let covered = covered.unwrap_or_default();
            let time = match lifetime {
                Lifetime::Once => match self.all_waiting() {
                    Some(calls) => format!("one of {calls} equal calls that wait"),
                    None => "this call".to_owned(),
                },
                Lifetime::Waiting(calls) => format!("{calls} equal calls that wait"),
                // Of these, only the session is offered.
                Lifetime::Session | Lifetime::Uses(_) | Lifetime::For(_) | Lifetime::Agent => {
                    "this session".to_owned()
                }
            };
            AnswerOption {
                option_id,
                name: format!("Allow for {time}: {}", crate::text::escape(&covered)),
                kind: match lifetime.waiting_calls() {
                    Some(_) => OptionKind::AllowOnce,
                    None => OptionKind::AllowAlways,
                },
            }
        };
        let mut options: Vec<AnswerOption> = self.offers().into_iter().map(option).collect();
        options.push(AnswerOption {
            option_id: REJECT.to_owned(),
            name: "Deny".to_owned(),
            kind: OptionKind::RejectOnce,
        });
        let kinds = crate::text::escape(&self.request.kinds()).into_owned();
        options.push(AnswerOption {
            option_id: REJECT_KIND.to_owned(),
            name: format!("Deny for this session: {kinds}"),
            kind: OptionKind::RejectAlways,
        });
        options
    }

    /// Returns the answer of an option; `None` if this question does not offer it.
    #[must_use]
    pub fn chosen(&self, option_id: &str) -> Option<Answer> {
        match option_id {
            REJECT => return Some(Answer::DENY),
            REJECT_KIND => return Some(Answer::DENY_KIND),
            _ => {}
        }
        let (_, index, lifetime) = match option_id.strip_prefix(WAITING) {
            // The number may have changed since the option was shown.
            Some(calls) => (String::new(), 0, Lifetime::Waiting(calls.parse().ok()?)),
            None => self.offers().into_iter().find(|(id, ..)| id == option_id)?,
        };
        let choice = self.request.choices.get(index)?;
        Some(Answer::allow(choice.patterns.clone(), lifetime))
    }

    /// Returns the choices that are offered beyond one call, the narrowest first. Those that need a confirmation are
    /// not offered as a button or in a form.
    #[doc(hidden)]
    pub fn lasting_choices(&self) -> impl Iterator<Item = (usize, &Choice)> {
        let choices = self.request.choices.iter().enumerate();
        choices.filter(|(_, choice)| !choice.needs_confirmation(Lifetime::Session))
    }

    /// Returns how many equal calls wait, if there are several.
    #[doc(hidden)]
    #[must_use]
    pub fn all_waiting(&self) -> Option<NonZeroU32> {
        let calls = u32::try_from(self.waiting()).ok()?;
        NonZeroU32::new(calls).filter(|calls| calls.get() > 1)
    }

    /// The allowing options: id, choice and lifetime.
    fn offers(&self) -> Vec<(String, usize, Lifetime)> {
        let mut offers = vec![("once".to_owned(), 0, Lifetime::Once)];
        offers.extend(self.all_waiting().map(|calls| {
            let id = format!("{WAITING}{calls}");
            (id, 0, Lifetime::Waiting(calls))
        }));
        let lasting = self.lasting_choices();
        offers.extend(
            lasting.map(|(index, _)| (format!("session-{index}"), index, Lifetime::Session)),
        );
        offers
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures::{changing, request};
    use crate::id::QuestionId;
    use crate::permission::Run;

    fn question(sensitive: bool) -> Question {
        let mut request = request(1, 1, &["write:file:/r/a/x"]);
        request.sensitive = sensitive;
        let request = changing(request);
        Question {
            id: QuestionId(1),
            run: Run::default(),
            asked_at: Duration::ZERO,
            expires_at: Duration::from_secs(600),
            request,
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    #[test]
    fn options_have_the_acp_format() {
        let shown = serde_json::to_value(question(false).options()).unwrap();
        let expected = json!([
            {"optionId": "once", "name": "Allow for this call: change /r/a/x", "kind": "allow_once"},
            {"optionId": "session-0", "name": "Allow for this session: change /r/a/x", "kind": "allow_always"},
            {"optionId": "session-2", "name": "Allow for this session: change /r/a and everything in it; protected names stay closed", "kind": "allow_always"},
            {"optionId": "reject", "name": "Deny", "kind": "reject_once"},
            {"optionId": "reject-session", "name": "Deny for this session: create, change, delete or move any file", "kind": "reject_always"},
        ]);
        assert_eq!(shown, expected);
    }

    #[test]
    fn options_count_waiting_calls_and_can_allow_all_of_them() {
        let question = question(false);
        question.calls.set(3);
        let options = serde_json::to_value(question.options()).unwrap();
        let expected = json!([
            {"optionId": "once", "name": "Allow for one of 3 equal calls that wait: change /r/a/x", "kind": "allow_once"},
            {"optionId": "waiting-3", "name": "Allow for 3 equal calls that wait: change /r/a/x", "kind": "allow_once"},
        ]);
        assert_eq!(
            options.as_array().unwrap()[..2],
            expected.as_array().unwrap()[..]
        );
        let Some(Answer::Allow { lifetime, .. }) = question.chosen("waiting-3") else {
            panic!("no answer");
        };
        assert_eq!(lifetime.waiting_calls().unwrap().get(), 3);
        assert_eq!(question.chosen("waiting-0"), None);
        assert_eq!(question.chosen("waiting-"), None);
    }

    #[test]
    fn each_option_is_a_valid_answer_and_other_ids_are_rejected() {
        let question = question(false);
        for option in question.options() {
            match question.chosen(&option.option_id).unwrap() {
                Answer::Allow { patterns, .. } => assert!(question.request.fits(&patterns)),
                Answer::Deny {
                    rest_of_session, ..
                } => {
                    let expected = match rest_of_session {
                        None => OptionKind::RejectOnce,
                        Some(_) => OptionKind::RejectAlways,
                    };
                    assert_eq!(option.kind, expected);
                }
            }
        }
        for wrong in [
            "",
            "always",
            "agent",
            "session-1",
            "session-3",
            "session-",
            "Once",
        ] {
            assert_eq!(question.chosen(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sensitive_needs_are_offered_exactly_and_never_permanently() {
        let ids: Vec<String> = question(true)
            .options()
            .into_iter()
            .map(|option| option.option_id)
            .collect();
        assert_eq!(ids, ["once", "session-0", "reject", "reject-session"]);
    }
}
