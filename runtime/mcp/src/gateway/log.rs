//! Log notifications about finished calls.
#![expect(
    deprecated,
    reason = "MCP deprecates logging, and clients of every revision may still ask for it"
)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::{CallToolResponse, ErrorData, LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use super::Gateway;
use super::call::{CallAnswer, is_stateless};

/// The severity of a level, from 1.
pub(super) fn severity(level: LoggingLevel) -> u8 {
    level as u8 + 1
}

/// How long a call waits for its log notification to be sent. Meanwhile, a large result counts as a job of the worker.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

impl Gateway {
    /// Sends a log notification about a call if the client's level allows it.
    pub(super) async fn log(
        &self,
        context: &RequestContext<RoleServer>,
        tool: &str,
        answer: &Result<CallAnswer, ErrorData>,
    ) {
        // Stateless clients set the level in each request.
        let threshold = if is_stateless(context) {
            context.meta.log_level().map_or(0, severity)
        } else {
            self.session.log_level.load(Ordering::Relaxed)
        };
        if threshold == 0 {
            return;
        }
        let (level, code) = summary(answer);
        if severity(level) < threshold {
            return;
        }
        let data = json!({"tool": tool, "code": code});
        let message = LoggingMessageNotificationParam::new(level, data).with_logger("calls");
        let sending = context.peer.notify_logging_message(message);
        // Failures are reported when the answer is sent. After the timeout, a queued notification is sent once the client reads
        // again, and one that was not queued is dropped.
        let _ = tokio::time::timeout(SEND_TIMEOUT, sending).await;
    }
}

/// Severity of a result, and its error code.
fn summary(answer: &Result<CallAnswer, ErrorData>) -> (LoggingLevel, Value) {
    let code = |data: Option<&Value>| {
        let code = data.and_then(|data| data.get("code").cloned());
        code.unwrap_or_default()
    };
    match answer {
        Ok(CallAnswer::Response(response)) => match &**response {
            CallToolResponse::Complete(result) if result.is_error == Some(true) => {
                let data = result.structured_content.as_ref();
                (LoggingLevel::Warning, code(data))
            }
            _ => (LoggingLevel::Info, Value::Null),
        },
        Ok(CallAnswer::Done(_)) => (LoggingLevel::Info, Value::Null),
        Err(error) => (LoggingLevel::Error, code(error.data.as_ref())),
    }
}
