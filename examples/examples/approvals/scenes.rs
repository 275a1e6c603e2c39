//! The agents and the person in, one idea of the story played and held to its end out.

use std::fs;
use std::io::BufReader;
use std::num::NonZeroU32;

use bailiwick::{
    Answer, Asks, Call, CallMeta, CallProgress, Code, Decision, GrantFilter, GrantStore, History,
    HistoryEntry, HistoryEvent, HistoryFilter, Lifetime, PendingCall, StoredGrant, Tally, Worker,
    escape, listed, verify,
};
use serde_json::json;

use super::desk::{Desk, Team, Told, go_on, write};
use super::{Failure, ensure};

const OF_EDITOR: &str = "/repo/notes/editor.md";
const OF_TESTER: &str = "/repo/notes/tester.md";
const LIMITS: &str = "/repo/limits.toml";
const CHANGES: &str = "/repo/CHANGELOG.md";

/// What was said to each agent in the beginning.
pub(crate) struct Said {
    pub(crate) editor: Answer,
    pub(crate) tester: Answer,
}

/// The file that the editor edits: two lines with enough between them to be hunks of their own.
pub(crate) fn limits(retries: u32, timeout: u32) -> String {
    let between: String = (1..=10).map(|n| format!("# {n}\n")).collect();
    format!("retries = {retries}\n{between}timeout = {timeout}\n")
}

async fn must_ask(worker: &Worker, call: Call) -> Result<PendingCall, Failure> {
    match worker.begin(call).await? {
        CallProgress::Pending(pending) => Ok(*pending),
        CallProgress::Ended(_) => Err("a change was made that nobody had allowed".into()),
    }
}

/// Both agents work at once, and their questions are looked at and answered together.
pub(crate) async fn both_at_once(desk: &mut Desk, team: &Team) -> Result<Said, Failure> {
    println!("\nBoth agents want to leave a note. Neither waits for the other:");
    let (of_editor, of_tester) = tokio::join!(
        must_ask(&team.editor, write(OF_EDITOR, "take 1\n")),
        must_ask(&team.tester, write(OF_TESTER, "take 1\n")),
    );
    let (of_editor, of_tester) = (of_editor?, of_tester?);
    let batches = desk.people.batches().await?;
    let [batch] = batches.as_slice() else {
        return Err("two questions of one kind were not shown together".into());
    };
    let folder = batch.folder.as_ref().map_or("", |folder| folder.as_str());
    println!("  One batch: {} {} in {folder}", batch.verb, batch.resource);
    for item in &batch.items {
        println!(
            "    {} {}: {}",
            item.question,
            item.agent,
            escape(&item.intent)
        );
    }
    ensure(batch.items.len() == 2, "a question is missing in the batch")?;
    let all = batch.items.iter().all(|item| item.covered);
    let pattern = batch.pattern.as_ref().filter(|_| all);
    let pattern = pattern.ok_or("no answer may serve for the whole batch")?;
    println!("  One answer could serve for both: {pattern}. Here each gets its own:");

    let editor = desk.person.decide(of_editor.question()).await?;
    let tester = desk.person.decide(of_tester.question()).await?;
    let answers = [
        (of_editor.question().id, editor.clone()),
        (of_tester.question().id, tester.clone()),
    ];
    for (_, told) in desk.people.answer_each(answers).await {
        told?;
    }
    let (first, second) = tokio::join!(
        go_on(of_editor, editor.clone()),
        go_on(of_tester, tester.clone())
    );
    for (told, answer, path) in [(first?, &editor, OF_EDITOR), (second?, &tester, OF_TESTER)] {
        desk.count(answer);
        told.show();
        told.is_as_said()?;
        let written = desk.on_disk(path)?.is_some();
        ensure(written == told.ended.is_ok(), "the tree is not as was said")?;
    }
    Ok(Said { editor, tester })
}

/// A grant of a number of uses serves so many calls; the next one asks again.
pub(crate) async fn runs_out(desk: &mut Desk, team: &Team, said: &Answer) -> Result<(), Failure> {
    println!("\nThe editor goes on with its note, by the uses that it was granted:");
    let Answer::Allow {
        lifetime: Lifetime::Uses(uses),
        ..
    } = said
    else {
        return desk.not_shown("how a grant runs out");
    };
    let uses = NonZeroU32::get(*uses);
    for take in 2..=uses {
        let told = overwrite(desk, &team.editor, OF_EDITOR, take).await?;
        ensure(told.answers.is_empty(), "a live grant was not used")?;
    }
    println!("  That was use {uses} of {uses}. Once more:");
    let told = overwrite(desk, &team.editor, OF_EDITOR, uses + 1).await?;
    ensure(told.answers.len() == 1, "a spent grant was used")?;
    match told.answers.as_slice() {
        [Answer::Deny { note: Some(_), .. }] => Ok(()),
        _ => desk.not_shown("a no whose note reaches the agent"),
    }
}

/// Writes take number `take` of a note; it stands there if it was allowed, and the one before if not.
async fn overwrite(
    desk: &mut Desk,
    worker: &Worker,
    path: &str,
    take: u32,
) -> Result<Told, Failure> {
    let before = desk.on_disk(path)?;
    let content = format!("take {take}\n");
    let told = desk.call(worker, write(path, &content)).await?;
    told.is_as_said()?;
    let expected = if told.ended.is_ok() {
        Some(content)
    } else {
        before
    };
    ensure(
        desk.on_disk(path)? == expected,
        "the note is not as was said",
    )?;
    Ok(told)
}

/// An edit of two places is allowed in one of them.
pub(crate) async fn without_a_hunk(desk: &mut Desk, team: &Team) -> Result<(), Failure> {
    println!("\nThe editor wants to change two limits in one edit:");
    let edits = json!([
        { "old_text": "retries = 3", "new_text": "retries = 5" },
        { "old_text": "timeout = 10", "new_text": "timeout = 600" },
    ]);
    let edit = Call::new("edit_file", json!({ "path": LIMITS, "edits": edits }));
    let told = desk.call(&team.editor, edit).await?;
    told.is_as_said()?;
    let left_out: Vec<usize> = match told.answers.as_slice() {
        [Answer::Allow { left_out, .. }] => {
            let hunks = left_out.iter().flat_map(|part| &part.hunks);
            hunks.copied().collect()
        }
        _ => Vec::new(),
    };
    let is_made = |hunk| told.ended.is_ok() && !left_out.contains(&hunk);
    let retries = if is_made(0) { 5 } else { 3 };
    let timeout = if is_made(1) { 600 } else { 10 };
    ensure(
        desk.on_disk(LIMITS)? == Some(limits(retries, timeout)),
        "the edit is not what was allowed of it",
    )?;
    if left_out.is_empty() {
        return desk.not_shown("an edit without one of its hunks");
    }
    let read = told.ended?.structured()?;
    let named = read.get("left_out").and_then(|parts| parts.as_array());
    ensure(
        named.is_some_and(|named| named.len() == left_out.len()),
        "the agent does not know what was left out",
    )?;
    println!("  The file has the first, and not the second; the agent knows.");
    Ok(())
}

/// A grant that is taken back does not serve the next call.
pub(crate) async fn taken_back(desk: &mut Desk, team: &Team, said: &Answer) -> Result<(), Failure> {
    println!("\nThe tester goes on with its note, for as long as the session lasts:");
    let Answer::Allow {
        lifetime: Lifetime::Session,
        ..
    } = said
    else {
        return desk.not_shown("how a grant is taken back");
    };
    let told = overwrite(desk, &team.tester, OF_TESTER, 2).await?;
    ensure(told.answers.is_empty(), "a live grant was not used")?;
    println!("  You take back what it was granted. Once more:");
    let its = GrantFilter {
        worker: Some(team.tester.id()),
        ..GrantFilter::default()
    };
    let revoked = desk.people.revoke_where(its).await?;
    ensure(
        revoked.grants > 0 && revoked.unfinished == 0,
        "the grant was not taken back",
    )?;
    let told = overwrite(desk, &team.tester, OF_TESTER, 3).await?;
    ensure(
        told.answers.len() == 1,
        "a grant that was taken back was used",
    )
}

/// A grant for an agent is there in the next runtime.
pub(crate) async fn for_good(desk: &mut Desk, team: &Team) -> Result<(), Failure> {
    println!("\nThe editor wants to keep the changelog, as it will again:");
    let told = overwrite(desk, &team.editor, CHANGES, 1).await?;
    let [
        Answer::Allow {
            lifetime: Lifetime::Agent,
            ..
        },
    ] = told.answers.as_slice()
    else {
        return desk.not_shown("a grant that outlives its runtime");
    };
    let stored = GrantStore::read(desk.grant_store())?;
    let its = |grant: &StoredGrant| *grant.agent == *team.editor.agent();
    ensure(stored.iter().any(its), "the grant is not on the disk")?;
    desk.reopen().await?;
    println!("  The runtime was shut down. In another, with new workers of the same names:");
    let team = desk.team().await?;
    let told = overwrite(desk, &team.editor, CHANGES, 2).await?;
    ensure(told.answers.is_empty(), "the stored grant was not used")?;
    let meta = CallMeta {
        asks: Asks::Refuse,
        ..CallMeta::default()
    };
    let others = write(CHANGES, "mine\n").meta(meta);
    let refused = team.tester.submit(others).await;
    let refused = refused
        .err()
        .ok_or("the tester used what the editor was granted")?;
    println!(
        "  It is the editor's alone: the tester is told {}",
        refused.code()
    );
    ensure(
        refused.code() == Code::ScopeRequired,
        "the tester was refused for another reason",
    )
}

/// The record tells what was asked and said, and nobody changed it since.
pub(crate) async fn looked_back(desk: &Desk) -> Result<(), Failure> {
    desk.close().await?;
    let left = desk.person.left();
    ensure(
        left == 0,
        &format!("nobody asked for {left} of the answers"),
    )?;
    println!("\nWhat the record tells of permissions:");
    let mut history = History::new();
    for log in desk.logs() {
        let read = history.read(BufReader::new(fs::File::open(log)?))?;
        let verified = verify(BufReader::new(fs::File::open(log)?))?;
        ensure(
            verified == read,
            "the record is not the same to all readers",
        )?;
    }
    history.entries().for_each(show);
    let report = history.report(&HistoryFilter::default());
    for (agent, tally) in &report.agents {
        let Tally {
            granted, denied, ..
        } = tally;
        println!("  {agent}: {granted} granted, {denied} denied");
    }
    for grant in &report.grants {
        let (run, id, uses) = (grant.run, grant.grant, grant.uses);
        let pattern = grant
            .pattern
            .as_ref()
            .ok_or("the record has half of a grant")?;
        println!("  {id} of run {run}, {pattern}: used by {uses} calls");
    }
    let all = report.all;
    ensure(
        (all.granted, all.denied, all.questions())
            == (desk.granted, desk.denied, desk.granted + desk.denied),
        "the record tells of other answers than were given",
    )?;
    println!("  The records of {} runs have no break.", desk.logs().len());
    Ok(())
}

/// One entry on one line.
fn show(entry: &HistoryEntry) {
    let needs = listed(entry.event.needs(), ", ");
    let what = match &entry.event {
        HistoryEvent::Question(question) => {
            let how = entry.decision.map_or("open", name);
            let note = question.note.as_deref().map(escape);
            let note = note.map_or_else(String::new, |note| format!(": \"{note}\""));
            format!("asked for {needs}: {how}{note}")
        }
        HistoryEvent::Call(call) => format!("{needs}: {}", call.outcome.as_str()),
        HistoryEvent::Revoked { grant, .. } => format!("{grant} was taken back"),
        other => format!("{other:?}"),
    };
    println!("  run {}, {}: {}", entry.run, entry.agent, what);
}

fn name(decision: Decision) -> &'static str {
    match decision {
        Decision::Granted => "granted",
        Decision::Denied => "denied",
        Decision::Expired => "expired",
        Decision::Cancelled => "cancelled",
    }
}
