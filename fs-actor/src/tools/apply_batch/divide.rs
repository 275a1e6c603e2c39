//! Plans a batch without what a person excluded.

use bailiwick::effect::{Cost, ExcludedChange, Hunk};
use bailiwick::{CallError, Change, Code, Plan};
use bytes::Bytes;

use super::{ApplyBatchOutput, BatchCounts, BatchExcluded, BatchSteps, reply};
use crate::change::{State, Step};
use crate::diff::{self, with_hunks};
use crate::tools::edit_file::ExcludedEdit;

/// The same plan over the same state of the files with the remaining changes and hunks, on which none of the excluded ones
/// has an influence. A file of which no hunk remains is not changed.
pub(super) fn divide(
    plan: Plan<BatchSteps>,
    excluded: &[ExcludedChange],
) -> Result<Plan<BatchSteps>, CallError> {
    let output = plan.reply.output.as_any().downcast_ref();
    let output: &ApplyBatchOutput = output.ok_or_else(not_divisible)?;
    let mut output = output.clone();
    let BatchSteps {
        mut change_set,
        rollback,
        sizes,
    } = plan.steps;
    let mut all_changes = plan.changes.into_iter();
    let mut divided = BatchSteps::from(Vec::new());
    let (mut changes, mut cost) = (Vec::new(), Cost::default());
    let steps = std::mem::take(&mut change_set.steps);
    for ((step, undo), (count, size)) in steps.into_iter().zip(rollback).zip(sizes) {
        let mut part = Part {
            step,
            undo,
            changes: all_changes.by_ref().take(count).collect(),
            cost: size,
        };
        if !part.exclude(excluded, &mut output.left_out)? {
            continue;
        }
        cost.bytes += part.cost.bytes;
        cost.files += part.cost.files;
        divided.sizes.push((part.changes.len(), part.cost));
        divided.rollback.push(part.undo);
        change_set.steps.push(part.step);
        changes.extend(part.changes);
    }
    divided.change_set = change_set;
    output.counts = BatchCounts::of(&changes);
    let inverse: Vec<Step> = divided.rollback.iter().rev().flatten().cloned().collect();
    Ok(Plan {
        changes,
        resources: plan.resources,
        reply: reply::reply(output),
        cost,
        inverse: Some(inverse.into()),
        steps: divided,
    })
}

/// One step with what is known about it.
struct Part {
    step: Step,
    /// The steps that undo it.
    undo: Vec<Step>,
    /// The changes that people see; for a file that another one replaces, the replacement comes last.
    changes: Vec<Change>,
    cost: Cost,
}

impl Part {
    /// Excludes what `excluded` says. Returns whether something remains.
    fn exclude(
        &mut self,
        excluded: &[ExcludedChange],
        left_out: &mut Vec<BatchExcluded>,
    ) -> Result<bool, CallError> {
        let change = self.changes.last_mut().ok_or_else(not_divisible)?;
        let path = change.path.to_string();
        let mut own = excluded.iter().filter(|part| part.path == change.path);
        let Some(own) = own.find(|part| part.hunks.as_ref().is_none_or(|hunks| !hunks.is_empty()))
        else {
            return Ok(true);
        };
        if own.hunks.is_none() {
            left_out.push(BatchExcluded { path, edit: None });
            return Ok(false);
        }
        let (Step::Write { content, .. }, [undo]) = (&mut self.step, self.undo.as_mut_slice())
        else {
            return Err(not_divisible());
        };
        let Step::Write {
            content: old,
            existing: written,
            ..
        } = undo
        else {
            return Err(not_divisible());
        };
        let mut made: Vec<&Hunk> = Vec::new();
        for (index, hunk) in change.diff.hunks.iter().enumerate() {
            if own.includes(index) {
                left_out.push(BatchExcluded {
                    path: path.clone(),
                    edit: Some(hunk.into()),
                });
            } else {
                made.push(hunk);
            }
        }
        if made.is_empty() {
            return Ok(false);
        }
        let text = std::str::from_utf8(old).map_err(|_| not_divisible())?;
        *content = Bytes::from(with_hunks(text, made).ok_or_else(not_divisible)?);
        self.cost.bytes = content.len() as u64;
        *written = State::of_file(content);
        change.after = written.entry();
        let whole = change.diff.whole;
        change.diff = diff::of_bytes(old, content);
        change.diff.whole = whole;
        Ok(true)
    }
}

fn not_divisible() -> CallError {
    CallError::new(Code::Internal, "the plan cannot be divided")
}

impl BatchExcluded {
    /// Such as `/r/a line 4 (+1 -2)`, or `/r/a`.
    pub(super) fn text(&self) -> String {
        let path = bailiwick::text::escape(&self.path);
        let Some(ExcludedEdit {
            line,
            added,
            removed,
        }) = self.edit
        else {
            return path.into_owned();
        };
        format!("{path} line {line} (+{added} -{removed})")
    }
}
