//! Previews that a model requests by arguments, if its worker must preview every change.
//!
//! A host requests previews by `_meta.preview` or [`Worker::preview`](super::Worker::preview). Most clients let a model
//! send only arguments, so if previews are required, mutating tools also take the arguments `preview` and
//! `preview_token`.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::{Value, json};

use super::Shared;
use super::admission::Done;
use crate::call::Call;
use crate::effect::{Content, Output, Preview, PreviewToken, Reply, Utf8};
use crate::error::{CallError, Code};
use crate::policy::Flag;
use crate::tool::{Entry, ToolInfo};

const PREVIEW: &str = "preview";
const TOKEN: &str = "preview_token";
const DIFF: &str = "diff";

/// Maximum lines and bytes of a diff for a model, the same as for a file that it reads.
const MAX_LINES: usize = 2_000;
const MAX_BYTES: usize = 100_000;

/// Adds the arguments to a tool definition.
pub(super) fn describe(info: &mut ToolInfo) {
    if !info.previews {
        return;
    }
    let mut schema = Value::clone(&info.input_schema);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let preview = json!({
            "type": "boolean",
            "description": "Show the change without making it. Required before the change is made.",
        });
        let token = json!({
            "type": "string",
            "description": "The `preview_token` of this call's preview, to make the change.",
        });
        properties.entry(PREVIEW).or_insert(preview);
        properties.entry(TOKEN).or_insert(token);
    }
    info.input_schema = schema.into();
}

/// Removes the arguments from a call whose worker requires previews. Returns whether the call requests a preview.
pub(super) fn take(shared: &Shared, call: &mut Call) -> Result<bool, CallError> {
    if !is_required(shared, call) {
        return Ok(false);
    }
    let entry = shared.tool(call.tool.as_str());
    let (Some(entry), Value::Object(arguments)) = (entry, &mut call.arguments) else {
        return Ok(false);
    };
    if !entry.previews() || has_own(&entry) {
        return Ok(false);
    }
    let invalid = |name: &str, expected: &str| {
        let message = format!("invalid argument `/{name}`: expected {expected}");
        CallError::new(Code::InvalidArguments, message).with("field", format!("/{name}"))
    };
    let preview = match arguments.shift_remove(PREVIEW) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(preview)) => preview,
        Some(Value::String(text)) if text == "true" || text == "false" => text == "true",
        Some(_) => return Err(invalid(PREVIEW, "`true` or `false`")),
    };
    let token = match arguments.shift_remove(TOKEN) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.is_empty() => None,
        Some(token) => {
            let token = token.as_str().and_then(|text| text.parse().ok());
            Some(token.ok_or_else(|| invalid(TOKEN, "the `preview_token` of a preview"))?)
        }
    };
    call.meta.preview_token = call.meta.preview_token.or(token);
    Ok(preview)
}

/// Whether the worker, or the call's own policy, requires that changes are previewed.
fn is_required(shared: &Shared, call: &Call) -> bool {
    let fragments = match &call.meta.policy {
        Some(Value::Array(fragments)) => fragments.as_slice(),
        Some(fragment) => std::slice::from_ref(fragment),
        None => &[],
    };
    shared.authority.flag(Flag::RequirePreview)
        || fragments
            .iter()
            .any(|fragment| fragment.get("require_preview") == Some(&Value::Bool(true)))
}

/// Whether the tool itself has an argument of one of these names.
fn has_own(entry: &Entry) -> bool {
    let properties = entry.input_schema.get("properties");
    properties.is_some_and(|own| own.get(PREVIEW).is_some() || own.get(TOKEN).is_some())
}

/// Adds the diff and the token of a preview to its reply, which models read.
pub(super) fn for_model(done: Done) -> Done {
    match done {
        Done::Preview(mut preview) => {
            preview.reply = described(&preview);
            Done::Preview(preview)
        }
        outcome @ Done::Outcome(_) => outcome,
    }
}

/// The reply of the preview with diff and token. All of it is in the first text block, since some clients give their
/// model only that.
fn described(preview: &Preview) -> Reply {
    let diff = cut(preview.diff());
    let token = preview.token;
    let notice = format!(
        "{diff}[preview: nothing was changed; to make the change, send the same call with preview_token {token}]"
    );
    let mut content = preview.reply.content.clone();
    let first = content.iter_mut().find_map(|content| match content {
        Content::Text(text) => Some(text),
        _ => None,
    });
    match first {
        Some(text) => *text = Utf8::from(format!("{}\n{notice}", text.as_str())),
        None => content.push(Content::Text(Utf8::from(notice))),
    }
    let output = Arc::clone(&preview.reply.output);
    Reply {
        content,
        output: Arc::new(PreviewOutput {
            output,
            diff,
            token,
        }),
    }
}

/// Truncates a diff that is too long for a model and adds a line that states this.
fn cut(mut diff: String) -> String {
    let lines = diff.split_inclusive('\n').take(MAX_LINES);
    let ends = lines.scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    });
    let kept = ends.take_while(|end| *end <= MAX_BYTES).last();
    // A single line that exceeds the limit is cut, too.
    let boundary = || {
        (0..=MAX_BYTES)
            .rev()
            .find(|end| diff.is_char_boundary(*end))
    };
    let kept = kept.or_else(boundary).unwrap_or_default();
    let (shown, all) = (diff.get(..kept).unwrap_or_default(), diff.lines().count());
    let shown = shown.lines().count();
    if kept < diff.len() {
        diff.truncate(kept);
        if !diff.ends_with('\n') {
            diff.push('\n');
        }
        let _ = writeln!(
            diff,
            "[the diff is cut: {shown} of {all} lines; preview smaller changes to see all of it]"
        );
    }
    diff
}

/// Output of a tool with the diff and the token of the preview.
#[derive(Debug)]
struct PreviewOutput {
    output: Arc<dyn Output>,
    diff: String,
    token: PreviewToken,
}

impl Serialize for PreviewOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut output = self.output.to_json().map_err(S::Error::custom)?;
        if let Value::Object(output) = &mut output {
            output.insert(PREVIEW.into(), true.into());
            output.insert(TOKEN.into(), self.token.to_string().into());
            output.insert(DIFF.into(), self.diff.as_str().into());
        }
        output.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_for_a_model_is_cut_at_whole_lines() {
        let whole = "+a\n".repeat(MAX_LINES);
        assert_eq!(cut(whole.clone()), whole);
        let long = cut("+a\n".repeat(MAX_LINES + 1));
        assert!(long.contains("2000 of 2001 lines"), "{long}");
        assert_eq!(long.lines().count(), MAX_LINES + 1);
        let wide = cut(format!("+{}\n", "x".repeat(99)).repeat(1_000));
        assert!(wide.contains("990 of 1000 lines"));
        assert!(wide.len() < MAX_BYTES + 200);
    }

    #[test]
    fn single_overlong_line_is_cut() {
        let cut = cut(format!("+{}\n", "\u{e9}".repeat(MAX_BYTES)));
        assert!(cut.len() < MAX_BYTES + 200);
        assert!(cut.ends_with(
            "[the diff is cut: 1 of 1 lines; preview smaller changes to see all of it]\n"
        ));
    }
}
