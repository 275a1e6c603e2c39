//! Built-in prompts.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};

const REVIEW: &str = "review-changes";

/// The built-in prompts.
pub(super) fn list() -> Vec<Prompt> {
    let path = PromptArgument::new("path")
        .with_description("The file or directory whose changes are to be reviewed")
        .with_required(true);
    let focus = PromptArgument::new("focus")
        .with_description("What to look for, such as `error handling`")
        .with_required(false);
    vec![Prompt::new(
        REVIEW,
        Some("Asks for a review of what was changed at a path"),
        Some(vec![path, focus]),
    )]
}

/// A prompt with its arguments filled in.
pub(super) fn get(
    name: &str,
    arguments: Option<&JsonObject>,
) -> Result<GetPromptResult, ErrorData> {
    if name != REVIEW {
        let reason = format!("unknown prompt `{}`", bailiwick::text::escape(name));
        return Err(ErrorData::invalid_params(reason, None));
    }
    let argument = |key: &str| arguments.and_then(|all| all.get(key)?.as_str());
    let path = argument("path")
        .filter(|path| !path.is_empty())
        .ok_or_else(|| {
            ErrorData::invalid_params(
                "the argument `path` is required, and must be a string",
                None,
            )
        })?;
    let focus = argument("focus").map_or_else(String::new, |focus| {
        format!(" Look above all for {}.", bailiwick::text::escape(focus))
    });
    let text = format!(
        "Review what was changed in `{}`. Read it with `read_file`, or list it first if it is a directory. \
         Name each fault with its line and what to do about it; do not change anything.{focus}",
        bailiwick::text::escape(path)
    );
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description("A review of what was changed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompt_needs_its_required_argument() {
        let arguments = |value: serde_json::Value| value.as_object().cloned();
        let given = arguments(json!({"path": "/r/a\u{202e}b", "focus": "races"}));
        let result = get(REVIEW, given.as_ref()).unwrap();
        let text = serde_json::to_string(&result).unwrap();
        assert!(text.contains("/r/a") && text.contains("races") && !text.contains('\u{202e}'));
        assert!(get(REVIEW, None).is_err());
        assert!(get(REVIEW, arguments(json!({"path": 1})).as_ref()).is_err());
        assert!(get("none", given.as_ref()).is_err());
    }
}
