//! Plans a batch without the hunks that a person excluded.

use bailiwick::effect::{ExcludedHunks, Hunk, Op};
use bailiwick::{CallError, Change, Code, Plan};
use bytes::Bytes;

use super::{ApplyBatchOutput, BatchCounts, BatchExcluded, BatchSteps, reply};
use crate::change::{State, Step};
use crate::diff::{self, with_hunks};
use crate::tools::edit_file::ExcludedEdit;

/// The same plan over the same state of the files with the remaining hunks. A file of which no hunk remains is not changed.
pub(super) fn divide(
    plan: Plan<BatchSteps>,
    excluded: &[ExcludedHunks],
) -> Result<Plan<BatchSteps>, CallError> {
    let output = plan.reply.output.as_any().downcast_ref();
    let output: &ApplyBatchOutput = output.ok_or_else(not_divisible)?;
    let mut output = output.clone();
    let (mut changes, mut cost) = (plan.changes, plan.cost);
    let BatchSteps {
        mut change_set,
        mut rollback,
    } = plan.steps;
    for part in excluded.iter().filter(|part| !part.hunks.is_empty()) {
        let is_part = |change: &Change| change.op == Op::Modify && change.path == part.path;
        let change = changes.iter().position(is_part).ok_or_else(not_divisible)?;
        let is_write = |step: &Step| matches!(step, Step::Write { path, .. } if *path == part.path);
        let mut steps = change_set.steps.iter();
        let step = steps.position(is_write).ok_or_else(not_divisible)?;
        let (content, old) = match (change_set.steps.get_mut(step), rollback.get(step)) {
            (Some(Step::Write { content, .. }), Some(undo)) => match undo.as_slice() {
                [Step::Write { content: old, .. }] => (content, old.clone()),
                _ => return Err(not_divisible()),
            },
            _ => return Err(not_divisible()),
        };
        let before = content.len() as u64;
        let divided = changes.get_mut(change).ok_or_else(not_divisible)?;
        let hunks = divided.diff.hunks.iter().enumerate();
        let (left_out, made): (Vec<_>, Vec<_>) =
            hunks.partition(|(index, _)| part.hunks.contains(index));
        let text = std::str::from_utf8(&old).map_err(|_| not_divisible())?;
        let made: Vec<&Hunk> = made.into_iter().map(|(_, hunk)| hunk).collect();
        let is_whole = made.is_empty();
        *content = Bytes::from(with_hunks(text, made).ok_or_else(not_divisible)?);
        output
            .left_out
            .extend(left_out.into_iter().map(|(_, hunk)| BatchExcluded {
                path: part.path.to_string(),
                edit: hunk.into(),
            }));
        cost.bytes -= before;
        if is_whole {
            cost.files -= 1;
            changes.remove(change);
            change_set.steps.remove(step);
            rollback.remove(step);
            continue;
        }
        cost.bytes += content.len() as u64;
        let after = State::of_file(content);
        divided.after = after.entry();
        let whole = divided.diff.whole;
        divided.diff = diff::of_bytes(&old, content);
        divided.diff.whole = whole;
        for undo in rollback.get_mut(step).into_iter().flatten() {
            if let Step::Write { existing, .. } = undo {
                *existing = after.clone();
            }
        }
    }
    output.counts = BatchCounts::of(&changes);
    let inverse: Vec<Step> = rollback.iter().rev().flatten().cloned().collect();
    Ok(Plan {
        changes,
        resources: plan.resources,
        reply: reply::reply(output),
        cost,
        inverse: Some(inverse.into()),
        steps: BatchSteps {
            change_set,
            rollback,
        },
    })
}

fn not_divisible() -> CallError {
    CallError::new(Code::Internal, "the plan cannot be divided")
}

impl BatchExcluded {
    /// Such as `/r/a line 4 (+1 -2)`.
    pub(super) fn text(&self) -> String {
        let ExcludedEdit {
            line,
            added,
            removed,
        } = self.edit;
        let path = bailiwick::text::escape(&self.path);
        format!("{path} line {line} (+{added} -{removed})")
    }
}
