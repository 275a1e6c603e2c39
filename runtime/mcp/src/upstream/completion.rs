//! Completes arguments of servers' prompts and resource templates for workers, through the pipeline.
//!
//! Completing an argument needs the same scope as getting the prompt, or `read:mcp:SERVER:resources/read:TEMPLATE`,
//! because the server learns the typed text. The entry is not listed.

use std::sync::Arc;

use rmcp::model::{
    ArgumentInfo, CompleteRequestParams, CompletionContext, PromptReference, Reference,
};
use serde_json::{Value, json};

use super::catalog::{CatalogKind, invalid, is_usable, request_error, run_request};
use super::server::Server;
use bailiwick::capability::CallPermit;
use bailiwick::error::CallError;
use bailiwick::id::ToolName;
use bailiwick::tool::{
    Arguments, Entry, Job, Remote, RemoteContext, RemoteFuture, RemoteJob, ToolSpec,
};

pub(crate) const COMPLETE: &str = "completion/complete";
/// The largest number of values in an MCP completion.
const MAX_VALUES: usize = 100;

/// The hidden entry through which workers complete arguments of a server. Its name cannot collide with tools.
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
            let (request, kind, target) = parse_request(arguments)
                .ok_or_else(|| invalid("that is not an argument that can be completed"))?;
            let need = kind.need(&server.label, &target);
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

/// Parses the arguments into the request and the prompt or template that it is for.
fn parse_request(arguments: &Value) -> Option<(CompleteRequestParams, CatalogKind, String)> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let (kind, target) = match (text("prompt"), text("template")) {
        (Some(prompt), None) => (CatalogKind::Prompt, prompt),
        (None, Some(template)) => (CatalogKind::Resource, template),
        _ => return None,
    };
    let (name, value) = (text("argument")?, text("value")?);
    if ![target, name].into_iter().all(is_usable) {
        return None;
    }
    let reference = match kind {
        CatalogKind::Prompt => Reference::Prompt(PromptReference::new(target)),
        CatalogKind::Resource => Reference::for_resource(target),
    };
    let mut request = CompleteRequestParams::new(reference, ArgumentInfo::new(name, value));
    if let Some(others) = arguments.get("others").filter(|it| !it.is_null()) {
        let mut context = CompletionContext::new();
        context.arguments = Some(serde_json::from_value(others.clone()).ok()?);
        request.context = Some(context);
    }
    Some((request, kind, target.to_owned()))
}

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
        run_request(server, context, move |peer| async move {
            let completed = peer.complete(self.request.clone()).await;
            let completion = completed
                .map_err(|error| request_error(&self.server, &error))?
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
