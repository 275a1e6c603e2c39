//! Answers to a question as a short list of named options, for clients that show buttons.
//!
//! The format is that of the Agent Client Protocol's `session/request_permission`: an option has an id, a name and a
//! kind. Each option is a breadth and a lifetime; the list is short, the narrowest first. Denying is an option of its
//! own: ACP's outcome `cancelled` ends the agent's turn and is not an answer here.

use std::num::NonZeroU32;

use serde::Serialize;

use super::{Answer, Choice, DeniedCalls, Lifetime, Question, description};

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
/// Suffix of an option that a person has confirmed.
const CONFIRMED: &str = "-confirmed";

/// What a selected option means.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Chosen {
    /// The answer to the question.
    Answer(Answer),
    /// The option allows more than usual ([`Choice::needs_confirmation`](super::Choice::needs_confirmation)), so the person
    /// is asked again, with these options.
    Confirm(Vec<AnswerOption>),
}

/// One option before it is described: a choice and a lifetime.
struct Offer {
    option_id: String,
    index: usize,
    lifetime: Lifetime,
}

impl Question {
    /// Returns the answers to offer as buttons: exactly what is asked, once; every choice for the session; a denial; and
    /// a denial of every call of the kind for the rest of the session.
    #[must_use]
    pub fn options(&self) -> Vec<AnswerOption> {
        let offers = self.offers();
        let mut options: Vec<AnswerOption> = offers
            .iter()
            .map(|offer| self.option(offer, "Allow"))
            .collect();
        options.push(reject());
        let kinds = crate::text::escape(&self.request.kinds()).into_owned();
        options.push(AnswerOption {
            option_id: REJECT_KIND.to_owned(),
            name: format!("Deny for this session: {kinds}"),
            kind: OptionKind::RejectAlways,
        });
        options
    }

    /// Returns what the selection of an option means; `None` if this question does not offer it.
    #[must_use]
    pub fn chosen(&self, option_id: &str) -> Option<Chosen> {
        match option_id {
            REJECT => return Some(Chosen::Answer(Answer::DENY)),
            REJECT_KIND => {
                return Some(Chosen::Answer(Answer::deny_rest_of_session(
                    DeniedCalls::Kind,
                )));
            }
            _ => {}
        }
        let (id, confirmed) = match option_id.strip_suffix(CONFIRMED) {
            Some(id) => (id, true),
            None => (option_id, false),
        };
        let offer = match id.strip_prefix(WAITING) {
            // The number may have changed since the option was shown.
            Some(calls) => Offer {
                option_id: id.to_owned(),
                index: 0,
                lifetime: Lifetime::Waiting(calls.parse().ok()?),
            },
            None => self
                .offers()
                .into_iter()
                .find(|offer| offer.option_id == id)?,
        };
        let choice = self.request.choices.get(offer.index)?;
        if choice.needs_confirmation(offer.lifetime) == confirmed {
            return Some(Chosen::Answer(Answer::allow_choice(choice, offer.lifetime)));
        }
        (!confirmed).then(|| {
            let mut yes = self.option(&offer, "Yes, allow");
            yes.option_id += CONFIRMED;
            Chosen::Confirm(vec![yes, reject()])
        })
    }

    /// Returns how many equal calls wait, if there are several.
    #[doc(hidden)]
    #[must_use]
    pub fn all_waiting(&self) -> Option<NonZeroU32> {
        let calls = u32::try_from(self.waiting()).ok()?;
        NonZeroU32::new(calls).filter(|calls| calls.get() > 1)
    }

    /// Returns how many equal calls an answer can allow together, if there are several. Equal changes of files are not
    /// offered together: the first that is applied makes the previews of the others stale.
    #[doc(hidden)]
    #[must_use]
    pub fn allowed_together(&self) -> Option<NonZeroU32> {
        let shown = description::changes(&self.request);
        self.all_waiting().filter(|_| shown.is_none())
    }

    fn option(&self, offer: &Offer, verb: &str) -> AnswerOption {
        let choice = self.request.choices.get(offer.index);
        let roots = &self.request.roots;
        let covered = choice.map(|one| match offer.lifetime.waiting_calls() {
            Some(_) => one.sentence_of_call(roots),
            None => one.sentence(roots),
        });
        let covered = covered.unwrap_or_default();
        let time = match offer.lifetime {
            Lifetime::Once => match self.all_waiting() {
                Some(calls) => format!("only one of {calls} equal calls that wait"),
                None => "only this call".to_owned(),
            },
            Lifetime::Waiting(calls) => format!("only the {calls} equal calls that wait"),
            // Of these, only the session is offered.
            Lifetime::Session | Lifetime::Uses(_) | Lifetime::For(_) | Lifetime::Agent => {
                let label = choice.map_or("exactly this", Choice::label);
                format!("until this agent or its session ends, for {label}")
            }
        };
        let (kind, careful) = match offer.lifetime.waiting_calls() {
            Some(_) => (OptionKind::AllowOnce, self.request.warning()),
            None => (OptionKind::AllowAlways, String::new()),
        };
        AnswerOption {
            option_id: offer.option_id.clone(),
            name: format!("{verb} {time}: {}{careful}", crate::text::escape(&covered)),
            kind,
        }
    }

    /// The allowing options.
    fn offers(&self) -> Vec<Offer> {
        let offer = |option_id, index, lifetime| Offer {
            option_id,
            index,
            lifetime,
        };
        let mut offers = vec![offer("once".to_owned(), 0, Lifetime::Once)];
        offers.extend(self.allowed_together().map(|calls| {
            let id = format!("{WAITING}{calls}");
            offer(id, 0, Lifetime::Waiting(calls))
        }));
        let choices = self.request.choices.iter().enumerate();
        let lasting = choices.filter(|(_, choice)| choice.may_last());
        offers.extend(
            lasting.map(|(index, _)| offer(format!("session-{index}"), index, Lifetime::Session)),
        );
        offers
    }
}

fn reject() -> AnswerOption {
    AnswerOption {
        option_id: REJECT.to_owned(),
        name: "Deny".to_owned(),
        kind: OptionKind::RejectOnce,
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
            request: request.into(),
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    #[test]
    fn options_have_the_acp_format() {
        let shown = serde_json::to_value(question(false).options()).unwrap();
        let expected = json!([
            {"optionId": "once", "name": "Allow only this call: change /r/a/x", "kind": "allow_once"},
            {"optionId": "session-0", "name": "Allow until this agent or its session ends, for this file: change /r/a/x", "kind": "allow_always"},
            {"optionId": "session-1", "name": "Allow until this agent or its session ends, for its folder: change /r/a and everything in it; sensitive files still ask", "kind": "allow_always"},
            {"optionId": "session-2", "name": "Allow until this agent or its session ends, for the whole project: change /r and everything in it; sensitive files still ask", "kind": "allow_always"},
            {"optionId": "reject", "name": "Deny", "kind": "reject_once"},
            {"optionId": "reject-session", "name": "Deny for this session: create, change, delete or move any file", "kind": "reject_always"},
        ]);
        assert_eq!(shown, expected);
    }

    #[test]
    fn option_for_the_call_does_not_offer_other_arguments() {
        let needs = ["execute:command:ls", "read:mcp:hub:list"];
        let options = crate::fixtures::question(request(1, 1, &needs)).options();
        let names: Vec<&str> = options.iter().map(|option| option.name.as_str()).collect();
        let once = "Allow only this call: run ls; read things with list of hub. Careful: ";
        assert!(names[0].starts_with(once), "{names:?}");
        let later =
            ": run ls with any arguments; read things with list of hub, whatever it is given";
        assert!(names[1].contains(later), "{names:?}");
    }

    #[test]
    fn options_count_waiting_calls_and_can_allow_all_of_them() {
        let question = question(false);
        question.calls.set(3);
        let options = serde_json::to_value(question.options()).unwrap();
        let expected = json!([
            {"optionId": "once", "name": "Allow only one of 3 equal calls that wait: change /r/a/x", "kind": "allow_once"},
            {"optionId": "waiting-3", "name": "Allow only the 3 equal calls that wait: change /r/a/x", "kind": "allow_once"},
        ]);
        assert_eq!(
            options.as_array().unwrap()[..2],
            expected.as_array().unwrap()[..]
        );
        let Some(Chosen::Answer(Answer::Allow { lifetime, .. })) = question.chosen("waiting-3")
        else {
            panic!("no answer");
        };
        assert_eq!(lifetime.waiting_calls().unwrap().get(), 3);
        assert_eq!(question.chosen("waiting-0"), None);
        assert_eq!(question.chosen("waiting-"), None);
    }

    #[test]
    fn equal_changes_of_files_are_not_offered_together() {
        let mut request = crate::fixtures::shown(request(1, 1, &["write:file:/r/old"]));
        let change = crate::fixtures::deleted_directory("/r/old", 0, 0);
        request.preview.as_mut().unwrap().changes = vec![change];
        let question = crate::fixtures::question(request);
        question.calls.set(3);
        let options = question.options();
        assert!(options[0].name.contains("only one of 3 equal calls"));
        assert_eq!(options[1].option_id, "session-0");
    }

    #[test]
    fn each_option_is_a_valid_answer_and_other_ids_are_rejected() {
        let question = question(false);
        for option in question.options() {
            match question.chosen(&option.option_id).unwrap() {
                Chosen::Answer(Answer::Allow { patterns, .. }) => {
                    assert!(question.request.fits(&patterns));
                }
                Chosen::Answer(Answer::Deny {
                    rest_of_session, ..
                }) => {
                    let expected = match rest_of_session {
                        None => OptionKind::RejectOnce,
                        Some(_) => OptionKind::RejectAlways,
                    };
                    assert_eq!(option.kind, expected);
                }
                Chosen::Confirm(options) => {
                    assert_eq!(option.option_id, "session-2");
                    let names: Vec<&str> = options.iter().map(|it| it.name.as_str()).collect();
                    assert_eq!(
                        names,
                        [&option.name.replacen("Allow", "Yes, allow", 1), "Deny"]
                    );
                    let confirmed = question.chosen(&options[0].option_id).unwrap();
                    assert!(matches!(confirmed, Chosen::Answer(Answer::Allow { .. })));
                }
            }
        }
        for wrong in [
            "",
            "always",
            "agent",
            "session-3",
            "session-",
            "session-0-confirmed",
            "once-confirmed",
            "reject-confirmed",
            "Once",
        ] {
            assert_eq!(question.chosen(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn options_and_blocks_offer_the_same_choices_as_every_other_prompt() {
        for (question, expected) in crate::fixtures::offered_choices() {
            let lasting = question.options().into_iter();
            let lasting = lasting.filter(|option| option.kind == OptionKind::AllowAlways);
            let offered = lasting.map(|option| {
                let chosen = question.chosen(&option.option_id).unwrap();
                let title = option
                    .name
                    .strip_prefix("Allow until this agent or its session ends, for ");
                (
                    title.unwrap().to_owned(),
                    matches!(chosen, Chosen::Confirm(_)),
                )
            });
            let texts = expected.iter();
            let texts =
                texts.map(|(label, covers, confirm)| (format!("{label}: {covers}"), *confirm));
            assert_eq!(offered.collect::<Vec<_>>(), texts.collect::<Vec<_>>());
            let block = crate::permission::PermissionBlock::of(&question, &Default::default());
            let offered = block.extra.choices.iter();
            let offered = offered.map(|one| (one.label.as_str(), one.covers.as_str(), one.confirm));
            assert_eq!(offered.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn options_for_the_call_and_the_summary_name_its_dangers() {
        let mut request = crate::fixtures::shown(request(1, 1, &["write:file:/r/old"]));
        let change = crate::fixtures::deleted_directory("/r/old", 0, 0);
        request.preview.as_mut().unwrap().changes = vec![change];
        request.describe();
        let careful = ". Careful: Deletes the folder old/, which is empty";
        assert_eq!(
            request.summary(),
            format!("Delete the folder old/{careful}")
        );
        let options = crate::fixtures::question(request).options();
        assert!(options[0].name.ends_with(careful), "{options:?}");
        assert!(!options[1].name.contains("Careful"), "{options:?}");
    }

    #[test]
    fn needs_that_are_too_many_to_read_are_offered_once() {
        let offered = |count: usize| -> Vec<String> {
            let needs = (0..count).map(|n| format!("write:file:/r/a/{n}"));
            let needs: Vec<String> = needs.collect();
            let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
            let mut asked = question(true);
            asked.request = changing(request(1, 1, &needs)).into();
            let options = asked.options().into_iter();
            options.map(|option| option.option_id).collect()
        };
        let folder = |id: &String| id == "session-1";
        assert!(offered(20).contains(&"session-0".to_owned()));
        assert!(!offered(21).contains(&"session-0".to_owned()));
        assert!(offered(21).iter().any(folder), "{:?}", offered(21));
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
