//! A call of somebody else's MCP server in, its answer out: if the server asks for permission, a person is asked and
//! the call is made once more with what they granted.
//!
//! The server keeps no permission and the model sees none: between the two calls stands this runtime's broker. What a
//! server asks for is asked in its own name, so that a grant for one server is none for another, nor for the tools of
//! this runtime: its `write:file:/a/b` is `write:mcp:SERVER:file:a:b` here. The names of a path are segments, so that
//! policies and grants of a folder cover what is in it; `%`, `:` and `*` in a name are `%25`, `%3A` and `%2A`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde_json::{Map, Value};

use super::asking::ruled;
use super::inbox::{MAX_NESTING, weight};
use super::{Shared, Worker};
use crate::audit::Step as AuditStep;
use crate::call::Origin;
use crate::capability::{Gate, Pass, StopFlag, revoked};
use crate::error::{CallError, Code};
use crate::id::ToolName;
use crate::permission::{Redeemed, Request};
use crate::pipeline::{Facts, Mode, canonical};
use crate::policy::Verdict;
use crate::scope::{Detail, Scope};

/// How a key of `_meta` is written by clients and servers that keep to MCP's advice.
const PREFIX: &str = "dev.bailiwick/";
/// The most scopes that one answer may ask for, and the longest, in bytes.
const MOST_SCOPES: usize = 64;
const LONGEST_SCOPE: usize = 4096;
/// The longest name of a tool, in bytes.
const MOST_NAME: usize = 128;

/// Why a call of a server came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ServerCallError<E> {
    /// It was refused here.
    #[error(transparent)]
    Refused(#[from] CallError),
    /// It could not be sent, or was not answered.
    #[error("the call was not carried")]
    Carrier(#[source] E),
}

impl Worker {
    /// Makes a call of the MCP server `server` for this worker, by `send`: it takes the parameters of `tools/call` and
    /// returns the result, both as they stand on the wire. If the result asks for scopes (`_meta.requested_scopes`), they
    /// are judged by this worker's policy; what must be asked is asked, and the call is sent once more, the same but for
    /// `_meta.granted_scopes`. Grants that the parameters bring are taken out: a model wrote them.
    ///
    /// The first sending is the caller's decision: what a server does without asking is between the two of them. Each has
    /// the runtime's limit of a call, and a revocation of the worker, or of a grant it uses, ends it.
    ///
    /// Where nobody can be asked, and for scopes that cannot be read, the server's own refusal is the result.
    ///
    /// # Errors
    /// [`ServerCallError`]: `PERMISSION_DENIED` and the like from here, `DEADLINE` if the server does not answer, or what
    /// `send` says.
    pub async fn call_server<F, R, E>(
        &self,
        server: &str,
        params: Value,
        send: F,
    ) -> Result<Value, ServerCallError<E>>
    where
        F: Fn(Value) -> R,
        R: Future<Output = Result<Value, E>>,
    {
        let mut params = Params::read(server, params)?;
        let spent = self.shared.meter.charge_call();
        spent.map_err(|spent| CallError::new(Code::Budget, spent.to_string()))?;
        let first = self.shared.carried(&[], send(params.whole.clone())).await?;
        let Some((requested, needs)) = requested(&first, server) else {
            return Ok(first);
        };
        let Some(consent) = self.shared.consented(&params, needs).await? else {
            return Ok(first);
        };
        params.grant(requested);
        self.shared
            .carried(&consent.gates, send(params.whole))
            .await
    }
}

/// The parameters of a `tools/call`.
struct Params {
    server: String,
    tool: ToolName,
    whole: Value,
}

impl Params {
    fn read(server: &str, mut whole: Value) -> Result<Self, CallError> {
        let invalid = |why: &str| CallError::new(Code::InvalidArguments, why);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if server.is_empty() || server.len() > 64 || !server.chars().all(plain) {
            return Err(invalid(
                "the server has no plain name: use [A-Za-z0-9._-]{1,64}",
            ));
        }
        if weight(&whole, MAX_NESTING).is_none() {
            return Err(invalid("the call nests too deeply"));
        }
        let meta = whole.get("_meta").unwrap_or(&Value::Null);
        if !(meta.is_null() || meta.is_object()) {
            return Err(invalid("`_meta` must be an object"));
        }
        let name = whole.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| invalid("the parameters name no tool"))?;
        let visible = |c: char| !c.is_whitespace() && !crate::is_deceptive(c);
        if name.len() > MOST_NAME || !name.chars().all(visible) {
            return Err(invalid("the tool has no plain name"));
        }
        let tool = ToolName::new(name);
        // A model may name a tool and its arguments: answers to questions are not its to give.
        if let Some(params) = whole.as_object_mut() {
            params.retain(|key, _| matches!(key.as_str(), "name" | "arguments" | "_meta"));
        }
        if let Some(meta) = whole.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.retain(|key, _| {
                let key = key.strip_prefix(PREFIX).unwrap_or(key);
                !matches!(key, "granted_scopes" | "policy_origin")
            });
        }
        Ok(Self {
            server: server.to_owned(),
            tool,
            whole,
        })
    }

    fn arguments(&self) -> Value {
        self.whole
            .get("arguments")
            .map(canonical)
            .unwrap_or_default()
    }

    fn grant(&mut self, scopes: Vec<String>) {
        if let Some(params) = self.whole.as_object_mut() {
            let mut meta = match params.remove("_meta") {
                Some(Value::Object(meta)) => meta,
                _ => Map::new(),
            };
            meta.insert("granted_scopes".into(), scopes.into());
            params.insert("_meta".into(), Value::Object(meta));
        }
    }
}

/// What a server's refusal asks for, in its words and as needs of this runtime.
pub(crate) fn requested(result: &Value, server: &str) -> Option<(Vec<String>, Vec<Scope>)> {
    if result.get("isError") != Some(&Value::Bool(true)) {
        return None;
    }
    let meta = result.get("_meta")?;
    let scopes = meta
        .get("requested_scopes")
        .or_else(|| meta.get(format!("{PREFIX}requested_scopes")))?;
    let scopes = scopes.as_array()?;
    if scopes.is_empty() || scopes.len() > MOST_SCOPES {
        return None;
    }
    let mut read = Vec::with_capacity(scopes.len());
    for scope in scopes {
        let text = scope.as_str().filter(|text| text.len() <= LONGEST_SCOPE)?;
        read.push((text.to_owned(), ours(&text.parse().ok()?, server)?));
    }
    Some(read.into_iter().unzip())
}

/// What a scope of `server` is called here.
fn ours(theirs: &Scope, server: &str) -> Option<Scope> {
    let (verb, resource) = (theirs.verb(), theirs.resource().as_str());
    let mut text = format!("{verb}:mcp:{server}:{resource}");
    match theirs.detail() {
        Detail::None => {}
        Detail::Path(path) => {
            for name in path.names() {
                let name = name.replace('%', "%25").replace(':', "%3A");
                text.push(':');
                text.push_str(&name.replace('*', "%2A"));
            }
        }
        Detail::Segments(segments) => {
            text.push(':');
            text.push_str(segments);
        }
    }
    text.parse().ok()
}

/// Returns once one of these has.
pub(super) async fn any<F: Future<Output = ()> + Unpin>(mut ends: Vec<F>) {
    std::future::poll_fn(|context| {
        let ended = |end: &mut F| Pin::new(end).poll(context).is_ready();
        if ends.iter_mut().any(ended) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// What lets a call be sent once more.
struct Consent {
    gates: Vec<Arc<Gate>>,
}

impl Shared {
    /// What a server answers, within the limit of a call and while the worker and the grants `by` are not revoked: a
    /// revocation waits for nothing here, it ends the sending.
    async fn carried<E>(
        &self,
        by: &[Arc<Gate>],
        sending: impl Future<Output = Result<Value, E>>,
    ) -> Result<Value, ServerCallError<E>> {
        let gates = || std::iter::once(self.gate()).chain(by.iter().map(Arc::as_ref));
        let passes = gates().map(|gate| gate.pass().ok_or_else(revoked));
        let _passes: Vec<Pass<'_>> = passes.collect::<Result<_, _>>()?;
        let late = |_| CallError::new(Code::Deadline, "the server did not answer in time");
        let revocation = gates().map(|gate| Box::pin(gate.closed()));
        tokio::select! {
            biased;
            () = any(revocation.collect()) => Err(revoked().into()),
            answered = tokio::time::timeout(self.core.limit(None), sending) => {
                answered.map_err(late)?.map_err(ServerCallError::Carrier)
            }
        }
    }

    /// Whether this worker may have `needs`: by its policy, by live grants or by a person's word; none if there is
    /// nobody to ask.
    async fn consented(
        &self,
        params: &Params,
        needs: Vec<Scope>,
    ) -> Result<Option<Consent>, CallError> {
        let facts = Facts {
            id: self.core.next_call(),
            worker: self.id,
            tool: params.tool.clone(),
            origin: Origin::Model,
            mode: Mode::Apply,
            token: None,
            confirm: false,
            arguments: params.arguments(),
            stop: Arc::new(StopFlag::counting(None)),
        };
        let asks = self.judged(&facts, &needs).inspect_err(|error| {
            self.refused(&facts, error);
        })?;
        if asks.is_empty() {
            return Ok(Some(Consent { gates: Vec::new() }));
        }
        let live = self
            .core
            .broker
            .redeem(self.claimant(), asks.clone().into());
        let redeemed = match live.await? {
            Some(redeemed) => redeemed,
            None if !self.core.asks => {
                let message = "nobody can be asked for what the server wants";
                self.refused(&facts, &CallError::new(Code::ScopeRequired, message));
                return Ok(None);
            }
            None => {
                let request = self.wanted(params, &facts, asks);
                let ruling = self.core.broker.ask(request, self.claimant(), None).await;
                let ruled = ruling.and_then(ruled);
                ruled.inspect_err(|error| self.refused(&facts, error))?.0
            }
        };
        let Redeemed { gates, .. } = &redeemed;
        self.redeemed(&facts, &redeemed)?;
        Ok(Some(Consent {
            gates: gates.clone(),
        }))
    }

    /// The needs that must be asked, once the verdict is audited.
    fn judged(&self, facts: &Facts, needs: &[Scope]) -> Result<Vec<Scope>, CallError> {
        let judge = |need: &Scope| self.authority.judge(need, &[]);
        let verdict = needs.iter().map(judge).max().unwrap_or_default();
        let decisive = needs.iter().find(|need| judge(need) == verdict);
        let why = decisive.map(|need| self.authority.explain(need, &[]));
        let step = AuditStep::Judged {
            verdict,
            needs: needs.into(),
            rule: why.map(|why| why.to_string().into()),
        };
        self.audit(facts, step)?;
        match (verdict, decisive) {
            (Verdict::Deny, Some(need)) => {
                let need = need.to_string();
                let message = format!("this worker may not {}", crate::escape(&need));
                Err(CallError::new(Code::PermissionDenied, message))
            }
            _ => {
                let asks = needs.iter().filter(|need| judge(need) == Verdict::Ask);
                Ok(asks.cloned().collect())
            }
        }
    }

    fn wanted(&self, params: &Params, facts: &Facts, needs: Vec<Scope>) -> Request {
        let whole = |need: &Scope| format!("{}:mcp:{}", need.verb(), params.server).parse();
        let ceiling = needs.iter().filter_map(|need| whole(need).ok()).collect();
        let (tool, server) = (facts.tool.as_str(), params.server.as_str());
        Request {
            intent: format!("Call `{tool}` of the server `{server}`"),
            server: Some(server.into()),
            ..self.about(facts, facts.arguments.clone(), needs, ceiling)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scope::ScopePattern;

    #[track_caller]
    fn check(meta: &Value, expected: Option<&[&str]>) {
        let result = json!({"isError": true, "content": [], "_meta": meta});
        let ours = requested(&result, "disk").map(|(_, needs)| needs);
        let ours = ours.map(|needs| needs.iter().map(ToString::to_string).collect::<Vec<_>>());
        let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(ours, expected, "{meta}");
    }

    #[test]
    fn what_a_server_asks_for_is_asked_in_its_name() {
        check(
            &json!({"requested_scopes": ["write:file:/a/b", "execute:cli:git:push"]}),
            Some(&["write:mcp:disk:file:a:b", "execute:mcp:disk:cli:git:push"]),
        );
        check(
            &json!({"requested_scopes": ["write:file:/a//./b", "read:file:/50%/a:b/c*d", "read:file:/"]}),
            Some(&[
                "write:mcp:disk:file:a:b",
                "read:mcp:disk:file:50%25:a%3Ab:c%2Ad",
                "read:mcp:disk:file",
            ]),
        );
        check(
            &json!({"dev.bailiwick/requested_scopes": ["read:clock"]}),
            Some(&["read:mcp:disk:clock"]),
        );
    }

    #[test]
    fn a_folder_of_a_server_covers_what_is_in_it_and_nothing_else() {
        let folder: ScopePattern = "write:mcp:disk:file:etc".parse().unwrap();
        let covers = |path: &str| {
            let theirs: Scope = format!("write:file:{path}").parse().unwrap();
            folder.covers(&ours(&theirs, "disk").unwrap())
        };
        assert!(covers("/etc") && covers("/etc/passwd") && covers("//etc/./passwd"));
        assert!(!covers("/etc2") && !covers("/etc:passwd") && !covers("/x/etc"));
    }

    #[test]
    fn what_cannot_be_read_is_not_asked_for() {
        for wrong in [
            json!({}),
            json!({"requested_scopes": []}),
            json!({"requested_scopes": "write:file:/a"}),
            json!({"requested_scopes": [1]}),
            json!({"requested_scopes": ["write:file:/a", "*"]}),
            json!({"requested_scopes": ["write"]}),
            json!({"requested_scopes": ["write:file:/a/../b"]}),
            json!({"requested_scopes": vec!["read:clock"; 65]}),
        ] {
            check(&wrong, None);
        }
        let fine = json!({"isError": false, "_meta": {"requested_scopes": ["read:clock"]}});
        assert!(requested(&fine, "disk").is_none());
    }

    #[test]
    fn grants_of_a_model_are_taken_out_and_those_of_a_person_put_in() {
        let written = json!({
            "name": "write", "arguments": {"b": 1, "a": 2},
            "_meta": {"granted_scopes": ["*"], "dev.bailiwick/granted_scopes": ["*"], "progressToken": 1},
            "requestState": "sealed", "inputResponses": {"permission": {"action": "accept"}},
        });
        let mut params = Params::read("disk", written).unwrap();
        assert_eq!(
            params.whole,
            json!({
                "name": "write", "arguments": {"b": 1, "a": 2}, "_meta": {"progressToken": 1},
            })
        );
        params.grant(vec!["write:file:/a".into()]);
        assert_eq!(
            params.whole["_meta"],
            json!({"progressToken": 1, "granted_scopes": ["write:file:/a"]})
        );
        for name in ["", "a:b", "a b", "*", "ä"] {
            assert!(
                Params::read(name, json!({"name": "write"})).is_err(),
                "{name}"
            );
        }
        assert!(Params::read("disk", json!({})).is_err());
        assert!(Params::read("disk", json!({"name": "write", "_meta": []})).is_err());
    }
}
