//! The plan of an edit and the hunks a person refused in, the plan without them out.

use bailiwick::{CallError, Code, ExcludedHunks, Hunk, Plan};
use bytes::Bytes;

use super::making::Making;
use super::{FileEdited, NotMade};
use crate::change::{Step, Work};
use crate::diff::with_hunks;

/// Plans the same edit anew with the hunks that are left, over the same state of the file.
pub(super) fn divided(
    plan: Plan<Work>,
    left_out: &[ExcludedHunks],
) -> Result<Plan<Work>, CallError> {
    let foreign = || CallError::new(Code::Internal, "the plan is not one that can be divided");
    let edited = plan.reply.output.as_any().downcast_ref::<FileEdited>();
    let edits = edited.ok_or_else(foreign)?.edits.clone();
    let [change] = plan.changes.as_slice() else {
        return Err(foreign());
    };
    let old = match plan.inverse.as_ref().map(|work| work.steps.as_slice()) {
        Some([Step::Write { content, .. }]) => content.clone(),
        _ => return Err(foreign()),
    };
    let Ok([Step::Write { path, over, .. }]) = <[Step; 1]>::try_from(plan.steps.steps) else {
        return Err(foreign());
    };
    let refused = |index: usize| {
        let mut parts = left_out.iter().filter(|part| part.path == change.path);
        parts.any(|part| part.hunks.contains(&index))
    };
    let (mut made, mut not_made) = (Vec::new(), Vec::new());
    for (index, hunk) in change.diff.hunks.iter().enumerate() {
        if refused(index) {
            not_made.push(NotMade::from(hunk));
        } else {
            made.push(hunk);
        }
    }
    let text = std::str::from_utf8(&old).map_err(|_| foreign())?;
    let content = with_hunks(text, made).ok_or_else(foreign)?;
    let making = Making {
        path,
        before: over,
        content: Bytes::from(content),
        old,
        durability: plan.steps.durability,
    };
    Ok(making.plan(edits, not_made))
}

impl From<&Hunk> for NotMade {
    fn from(hunk: &Hunk) -> Self {
        let count = |op| hunk.lines.iter().filter(|line| line.op == op).count();
        let context = hunk.lines.iter().take_while(|line| line.op == ' ').count();
        Self {
            line: hunk.old_start + context,
            added: count('+'),
            removed: count('-'),
        }
    }
}
