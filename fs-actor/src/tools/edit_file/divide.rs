//! Plans an edit without the hunks that a person excluded.

use bailiwick::effect::{ExcludedChange, Hunk};
use bailiwick::{CallError, Code, Plan};
use bytes::Bytes;

use super::{EditFile, EditFileOutput, ExcludedEdit};
use crate::change::{ChangeSet, Step};
use crate::diff::with_hunks;

impl EditFile {
    /// Plans the same edit with the remaining hunks, over the same state of the file.
    pub(super) fn without_hunks(
        &self,
        plan: Plan<ChangeSet>,
        excluded: &[ExcludedChange],
    ) -> Result<Plan<ChangeSet>, CallError> {
        let not_divisible = || CallError::new(Code::Internal, "the plan cannot be divided");
        let edited = plan.reply.output.as_any().downcast_ref::<EditFileOutput>();
        let edits = edited.ok_or_else(not_divisible)?.edits.clone();
        let [change] = plan.changes.as_slice() else {
            return Err(not_divisible());
        };
        let old = match plan
            .inverse
            .as_ref()
            .map(|change_set| change_set.steps.as_slice())
        {
            Some([Step::Write { content, .. }]) => content.clone(),
            _ => return Err(not_divisible()),
        };
        let Ok([Step::Write { path, .. }]) = <[Step; 1]>::try_from(plan.steps.steps) else {
            return Err(not_divisible());
        };
        let is_excluded = |index: usize| {
            let mut parts = excluded.iter().filter(|part| part.path == change.path);
            parts.any(|part| part.includes(index))
        };
        let (mut made, mut not_made) = (Vec::new(), Vec::new());
        for (index, hunk) in change.diff.hunks.iter().enumerate() {
            if is_excluded(index) {
                not_made.push(ExcludedEdit::from(hunk));
            } else {
                made.push(hunk);
            }
        }
        let text = std::str::from_utf8(&old).map_err(|_| not_divisible())?;
        let content = with_hunks(text, made).ok_or_else(not_divisible)?;
        let contents = (old, Bytes::from(content));
        Ok(self.rewrite(None, path, contents, edits, not_made))
    }
}

impl From<&Hunk> for ExcludedEdit {
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
