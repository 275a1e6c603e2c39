//! The scenarios, one per feature. Each checks its result.

use std::fs;
use std::io::BufReader;
use std::num::NonZeroU32;

use bailiwick::audit::verify;
use bailiwick::call::Asks;
use bailiwick::permission::{
    Decision, GrantFilter, GrantStore, History, HistoryEntry, HistoryEvent, HistoryFilter,
    Lifetime, StoredGrant, Tally,
};
use bailiwick::text::{escape, listed};
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Call, CallMeta, Code, PendingCall, Worker};
use serde_json::json;

use super::host::{CallResult, Host, Team, resume, write};
use super::{BoxError, ensure};

const EDITOR_NOTE: &str = "/repo/notes/editor.md";
const TESTER_NOTE: &str = "/repo/notes/tester.md";
const LIMITS: &str = "/repo/limits.toml";
const CHANGELOG: &str = "/repo/CHANGELOG.md";

/// The answers to the first question of each agent.
pub(crate) struct FirstAnswers {
    pub(crate) editor: Answer,
    pub(crate) tester: Answer,
}

/// The content of `limits.toml`. Its two values are far enough apart to be in different hunks.
pub(crate) fn limits(retries: u32, timeout: u32) -> String {
    let between: String = (1..=10).map(|n| format!("# {n}\n")).collect();
    format!("retries = {retries}\n{between}timeout = {timeout}\n")
}

async fn expect_question(worker: &Worker, call: Call) -> Result<PendingCall, BoxError> {
    match worker.begin(call).await? {
        CallProgress::Pending(pending) => Ok(*pending),
        CallProgress::Ended(_) => Err("a change was made without approval".into()),
    }
}

/// Two agents ask at the same time, and their questions are answered together.
pub(crate) async fn batched_questions(
    host: &mut Host,
    team: &Team,
) -> Result<FirstAnswers, BoxError> {
    println!("\nBoth agents write a note at the same time:");
    let (editor_call, tester_call) = tokio::join!(
        expect_question(&team.editor, write(EDITOR_NOTE, "version 1\n")),
        expect_question(&team.tester, write(TESTER_NOTE, "version 1\n")),
    );
    let (editor_call, tester_call) = (editor_call?, tester_call?);
    let questions = host.grants.questions().await?;
    for question in &questions {
        let agent = question.request.agent_path.join("/");
        println!(
            "    {} {agent}: {}",
            question.id,
            question.request.summary()
        );
    }
    ensure(questions.len() == 2, "expected two questions")?;
    println!("  Each is answered separately:");

    let editor = host.answers.answer(editor_call.question()).await?;
    let tester = host.answers.answer(tester_call.question()).await?;
    let answers = [
        (editor_call.question().id, editor.clone()),
        (tester_call.question().id, tester.clone()),
    ];
    for (_, result) in host.grants.answer_each(answers).await {
        result?;
    }
    let (first, second) = tokio::join!(
        resume(editor_call, editor.clone()),
        resume(tester_call, tester.clone())
    );
    for (result, answer, path) in [
        (first?, &editor, EDITOR_NOTE),
        (second?, &tester, TESTER_NOTE),
    ] {
        host.count(answer);
        result.print();
        result.check()?;
        let written = host.read(path)?.is_some();
        ensure(written == result.result.is_ok(), "unexpected file content")?;
    }
    Ok(FirstAnswers { editor, tester })
}

/// A grant with a number of uses allows that many calls; the next call asks again.
pub(crate) async fn use_limit(
    host: &mut Host,
    team: &Team,
    answer: &Answer,
) -> Result<(), BoxError> {
    println!("\nThe editor uses its grant until no uses are left:");
    let Answer::Allow {
        lifetime: Lifetime::Uses(uses),
        ..
    } = answer
    else {
        return host.skip("a grant with a number of uses");
    };
    let uses = NonZeroU32::get(*uses);
    for version in 2..=uses {
        let result = overwrite(host, &team.editor, EDITOR_NOTE, version).await?;
        ensure(result.answers.is_empty(), "the grant was not used")?;
    }
    println!("  That was use {uses} of {uses}. The next call asks again:");
    let result = overwrite(host, &team.editor, EDITOR_NOTE, uses + 1).await?;
    ensure(result.answers.len() == 1, "a used-up grant was used")?;
    match result.answers.as_slice() {
        [Answer::Deny { note: Some(_), .. }] => Ok(()),
        _ => host.skip("a denial with a note"),
    }
}

/// Overwrites a note, and checks that it changes only if the call succeeds.
async fn overwrite(
    host: &mut Host,
    worker: &Worker,
    path: &str,
    version: u32,
) -> Result<CallResult, BoxError> {
    let before = host.read(path)?;
    let content = format!("version {version}\n");
    let result = host.call(worker, write(path, &content)).await?;
    result.check()?;
    let expected = if result.result.is_ok() {
        Some(content)
    } else {
        before
    };
    ensure(host.read(path)? == expected, "unexpected file content")?;
    Ok(result)
}

/// An edit is approved without one of its hunks.
pub(crate) async fn excluded_hunk(host: &mut Host, team: &Team) -> Result<(), BoxError> {
    println!("\nThe editor changes two limits in one edit:");
    let edits = json!([
        { "old_text": "retries = 3", "new_text": "retries = 5" },
        { "old_text": "timeout = 10", "new_text": "timeout = 600" },
    ]);
    let edit = Call::new("edit_file", json!({ "path": LIMITS, "edits": edits }));
    let result = host.call(&team.editor, edit).await?;
    result.check()?;
    let excluded: Vec<usize> = match result.answers.as_slice() {
        [Answer::Allow { left_out, .. }] => {
            let hunks = left_out.iter().filter_map(|part| part.hunks.as_ref());
            hunks.flatten().copied().collect()
        }
        _ => Vec::new(),
    };
    let is_applied = |hunk| result.result.is_ok() && !excluded.contains(&hunk);
    let retries = if is_applied(0) { 5 } else { 3 };
    let timeout = if is_applied(1) { 600 } else { 10 };
    ensure(
        host.read(LIMITS)? == Some(limits(retries, timeout)),
        "unexpected file content",
    )?;
    if excluded.is_empty() {
        return host.skip("an edit with an excluded hunk");
    }
    let output = result.result?.structured()?;
    let reported = output.get("left_out").and_then(|parts| parts.as_array());
    ensure(
        reported.is_some_and(|reported| reported.len() == excluded.len()),
        "the reply does not name the excluded hunk",
    )?;
    println!("  Only the first hunk is applied, and the reply says so.");
    Ok(())
}

/// A revoked grant does not allow the next call.
pub(crate) async fn revoked_grant(
    host: &mut Host,
    team: &Team,
    answer: &Answer,
) -> Result<(), BoxError> {
    println!("\nThe tester uses its grant for the session:");
    let Answer::Allow {
        lifetime: Lifetime::Session,
        ..
    } = answer
    else {
        return host.skip("a revoked grant");
    };
    let result = overwrite(host, &team.tester, TESTER_NOTE, 2).await?;
    ensure(result.answers.is_empty(), "the grant was not used")?;
    println!("  The grant is revoked. The next call asks again:");
    let filter = GrantFilter {
        worker: Some(team.tester.id()),
        ..GrantFilter::default()
    };
    let revoked = host.grants.revoke_where(filter).await?;
    ensure(
        revoked.grants > 0 && revoked.unfinished == 0,
        "the grant was not revoked",
    )?;
    let result = overwrite(host, &team.tester, TESTER_NOTE, 3).await?;
    ensure(result.answers.len() == 1, "a revoked grant was used")
}

/// A grant for an agent is stored, and used by the next runtime.
pub(crate) async fn stored_grant(host: &mut Host, team: &Team) -> Result<(), BoxError> {
    println!("\nThe editor writes the changelog:");
    let result = overwrite(host, &team.editor, CHANGELOG, 1).await?;
    let [
        Answer::Allow {
            lifetime: Lifetime::Agent,
            ..
        },
    ] = result.answers.as_slice()
    else {
        return host.skip("a stored grant");
    };
    let stored = GrantStore::read(host.grant_store())?;
    let is_editors = |grant: &StoredGrant| *grant.agent == *team.editor.agent();
    ensure(stored.iter().any(is_editors), "the grant is not stored")?;
    host.restart().await?;
    println!("  After a restart, with new workers of the same names:");
    let team = host.spawn_team().await?;
    let result = overwrite(host, &team.editor, CHANGELOG, 2).await?;
    ensure(result.answers.is_empty(), "the stored grant was not used")?;
    let meta = CallMeta {
        asks: Asks::Refuse,
        ..CallMeta::default()
    };
    let call = write(CHANGELOG, "mine\n").meta(meta);
    let result = team.tester.submit(call).await;
    let error = result.err().ok_or("the tester used the editor's grant")?;
    println!("  The tester cannot use it: {}", error.code());
    ensure(
        error.code() == Code::ScopeRequired,
        "unexpected error for the tester",
    )
}

/// The audit logs are intact, and the history has every answer.
pub(crate) async fn history(host: &Host) -> Result<(), BoxError> {
    host.shutdown().await?;
    let unused = host.answers.unused();
    ensure(unused == 0, &format!("{unused} answers were not used"))?;
    println!("\nHistory:");
    let mut history = History::new();
    for log in host.logs() {
        let read = history.read(BufReader::new(fs::File::open(log)?))?;
        let verified = verify(BufReader::new(fs::File::open(log)?))?;
        ensure(verified == read, "the audit log changed while it was read")?;
    }
    history.entries().for_each(print_entry);
    let report = history.report(&HistoryFilter::default());
    for (agent, tally) in &report.agents {
        let Tally {
            granted, denied, ..
        } = tally;
        println!("  {agent}: {granted} granted, {denied} denied");
    }
    for grant in &report.grants {
        let (run, id, uses) = (grant.run, grant.grant, grant.uses);
        let pattern = grant.pattern.as_ref().ok_or("a grant has no pattern")?;
        println!("  {id} of run {run}, {pattern}: {uses} uses");
    }
    let all = report.all;
    ensure(
        (all.granted, all.denied, all.questions())
            == (host.allowed, host.denied, host.allowed + host.denied),
        "the history differs from the answers",
    )?;
    println!("  The {} audit logs are intact.", host.logs().len());
    Ok(())
}

fn print_entry(entry: &HistoryEntry) {
    let needs = listed(entry.event.needs(), ", ");
    let text = match &entry.event {
        HistoryEvent::Question(question) => {
            let decision = entry.decision.map_or("open", decision_name);
            let note = question.note.as_deref().map(escape);
            let note = note.map_or_else(String::new, |note| format!(": \"{note}\""));
            format!("question for {needs}: {decision}{note}")
        }
        HistoryEvent::Call(call) => format!("{needs}: {}", call.outcome.as_str()),
        HistoryEvent::Revoked { grant, .. } => format!("{grant} revoked"),
        other => format!("{other:?}"),
    };
    println!("  run {}, {}: {text}", entry.run, entry.agent);
}

fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Granted => "granted",
        Decision::Denied => "denied",
        Decision::Expired => "expired",
        Decision::Cancelled => "cancelled",
    }
}
