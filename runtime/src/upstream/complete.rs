//! Completes arguments of servers' prompts and resource templates for workers, through the pipeline.
//!
//! Completing an argument needs what getting the prompt needs, or `read:mcp:SERVER:resources/read:TEMPLATE`: the server
//! learns what was typed. It is a call that no list names.

use std::sync::Arc;

use rmcp::model::{
    ArgumentInfo, CompleteRequestParams, CompletionContext, PromptReference, Reference,
};
use serde_json::{Value, json};

use super::catalog::{Kind, broke, carried, invalid, is_usable};
use super::server::Server;
use crate::capability::CallPermit;
use crate::error::CallError;
use crate::id::ToolName;
use crate::tool::{
    Arguments, Entry, Job, Remote, RemoteContext, RemoteFuture, RemoteJob, ToolSpec,
};

/// MCP's method.
pub(crate) const COMPLETE: &str = "completion/complete";
/// The most values that MCP lets one completion name.
const MAX_VALUES: usize = 100;

/// The entry by which workers complete arguments of a server. It is listed nowhere, and no tool has such a name.
pub(super) fn entry(server: &Arc<Server>) -> Option<Entry> {
    let name = server.spec.name.as_str();
    let remote = Remote {
        server: name.into(),
        shown: format!("the server `{name}`").into(),
        tool: COMPLETE.into(),
        need: format!("read:mcp:{}", server.label).parse().ok()?,
        previews: false,
        listed: false,
        views: false,
    };
    let entry_name = format!("{name}__{COMPLETE}");
    let server = Arc::clone(server);
    Some(Entry {
        name: ToolName::new(&entry_name),
        spec: ToolSpec::new("", "Complete an argument", ""),
        intent: None,
        input_schema: json!({"type": "object"}),
        output_schema: json!({"type": "object"}),
        mutates: false,
        remote: Some(remote),
        prepare: Box::new(move |arguments: Arguments<'_>, _: &_| {
            let Arguments::Json(arguments) = arguments else {
                return Err(invalid("the arguments must be a JSON object"));
            };
            let (request, kind, which) = understood(arguments)
                .ok_or_else(|| invalid("that is not an argument that can be completed"))?;
            let need = kind.need(&server.label, &which);
            let need =
                need.ok_or_else(|| invalid("that is not an argument that can be completed"))?;
            let complete = Complete {
                server: Arc::clone(&server),
                request,
            };
            Ok((vec![need], Job::Remote(Arc::new(complete))))
        }),
    })
}

/// What the server is asked, and of which of its prompts or templates.
fn understood(arguments: &Value) -> Option<(CompleteRequestParams, Kind, String)> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let (kind, which) = match (text("prompt"), text("template")) {
        (Some(prompt), None) => (Kind::Prompt, prompt),
        (None, Some(template)) => (Kind::Resource, template),
        _ => return None,
    };
    let (name, value) = (text("argument")?, text("value")?);
    if ![which, name].into_iter().all(is_usable) {
        return None;
    }
    let reference = match kind {
        Kind::Prompt => Reference::Prompt(PromptReference::new(which)),
        Kind::Resource => Reference::for_resource(which),
    };
    let mut request = CompleteRequestParams::new(reference, ArgumentInfo::new(name, value));
    if let Some(others) = arguments.get("others").filter(|it| !it.is_null()) {
        let mut context = CompletionContext::new();
        context.arguments = Some(serde_json::from_value(others.clone()).ok()?);
        request.context = Some(context);
    }
    Some((request, kind, which.to_owned()))
}

/// One completion.
#[derive(Debug)]
struct Complete {
    server: Arc<Server>,
    request: CompleteRequestParams,
}

impl RemoteJob for Complete {
    fn target(&self) -> (Arc<str>, Arc<str>) {
        (self.server.spec.name.as_str().into(), COMPLETE.into())
    }

    fn carry(
        self: Arc<Self>,
        _: &CallPermit,
        _: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError> {
        let server = Arc::clone(&self.server);
        carried(server, context, move |peer| async move {
            let completed = peer.complete(self.request.clone()).await;
            let completion = completed
                .map_err(|error| broke(&self.server, &error))?
                .completion;
            let values = completion.values.into_iter();
            let values: Vec<String> = values.filter(|it| is_usable(it)).take(MAX_VALUES).collect();
            Ok(json!({
                "values": values, "total": completion.total, "has_more": completion.has_more,
            }))
        })
    }

    fn mutates(&self) -> bool {
        false
    }
}
