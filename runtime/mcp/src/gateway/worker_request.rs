//! A request of a client, with the worker that serves it.

use std::sync::Arc;

use rmcp::model::{ErrorData, Tool};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;

use super::backend::Backend;
use super::meta::RequestOptions;
use super::{Gateway, apps, convert, view_tools};
use bailiwick::CallError;
use bailiwick::call::{Asks, Call, CallMeta};
use bailiwick::effect::Outcome;
use bailiwick::policy::Authority;
use bailiwick::tool::Catalog;
use bailiwick::worker::Worker;

/// A request of a client, with the worker that serves it.
pub(super) struct WorkerRequest<'g> {
    pub(super) gateway: &'g Gateway,
    pub(super) backend: Arc<Backend>,
    pub(super) options: RequestOptions,
    /// The client supports views.
    pub(super) views: bool,
}

impl Gateway {
    pub(super) async fn worker_request(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<WorkerRequest<'_>, ErrorData> {
        let options = RequestOptions::read(&context.meta, self.state.trust)?;
        let backend = self.backend().await?;
        let capabilities = context.client_capabilities().unwrap_or_default();
        Ok(WorkerRequest {
            gateway: self,
            backend,
            options,
            views: apps::shows_views(&capabilities),
        })
    }
}

impl WorkerRequest<'_> {
    pub(super) fn worker(&self) -> &Worker {
        self.backend.worker()
    }

    /// The authority of the worker under the policy of the request.
    pub(super) async fn authority(&self) -> Result<Authority, ErrorData> {
        let policy = self.options.policy.as_ref();
        let authority = self.worker().authority_under(policy, self.options.origin);
        let to_error = |error: CallError| convert::request_error(&error);
        authority.await.map_err(to_error)
    }

    /// The tools that the worker and the request's policy allow, and those for views if the client supports views.
    pub(super) async fn list_tools(&self) -> Result<Vec<Tool>, ErrorData> {
        let (worker, authority) = (self.worker(), self.authority().await?);
        let tools = worker.tools_left(&authority, false);
        if !self.views {
            return Ok(tools
                .iter()
                .map(|tool| convert::tool(tool, &tools))
                .collect());
        }
        let for_views = worker.tools_left(&authority, true);
        let shown = tools.iter().chain(&for_views);
        let files = self.gateway.state.files.is_some();
        let shown = shown.map(|tool| convert::tool_for_views(tool, &tools, files));
        let mut shown: Vec<Tool> = shown.collect();
        // A policy that lists the allowed tools cannot list these.
        if self.options.policy.is_none() {
            let own = self.gateway_tools();
            shown.extend(own.filter(|tool| !worker.has_tool(&tool.name)));
        }
        Ok(shown)
    }

    /// The tools of the gateway for views.
    pub(super) fn gateway_tools(&self) -> impl Iterator<Item = Tool> {
        let own = view_tools::tools().into_iter();
        own.chain(self.gateway.file_browser_tools())
    }

    /// The resources and prompts of third-party servers that the worker and the request's policy allow.
    pub(super) async fn catalogs(&self) -> Result<Vec<Catalog>, ErrorData> {
        Ok(self.worker().catalogs(&self.authority().await?))
    }

    /// Calls a tool that only reads, for the client.
    pub(super) async fn run_tool(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<Outcome, CallError> {
        self.run_tool_asking(tool, arguments, self.gateway.state.asks_without_elicitation)
            .await
    }

    /// Calls a tool like [`WorkerRequest::run_tool`]; `asks` says how needs that require approval are handled.
    pub(super) async fn run_tool_asking(
        &self,
        tool: &str,
        arguments: Value,
        asks: Asks,
    ) -> Result<Outcome, CallError> {
        let (worker, options) = (self.worker(), &self.options);
        if let Err(wait) = self.gateway.session.rate_limiter.take() {
            return Err(worker.reject_rate_limited(tool, options.origin, wait));
        }
        let call = Call::new(tool, arguments).meta(CallMeta {
            asks,
            ..options.call_meta()
        });
        if !options.ignored_grants.is_empty() {
            worker.audit_ignored_grants(&call, &options.ignored_grants);
        }
        match &self.backend.grants {
            Some(grants) if !options.granted.is_empty() => {
                grants.submit(worker, call, options.granted.clone()).await
            }
            _ => worker.submit(call).await,
        }
    }
}
