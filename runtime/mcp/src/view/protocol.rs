//! Protocol state of a view, without clock and I/O: turns messages into actions.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::app::{AppInfo, ToolUpdate, ToolUpdates};
use super::host::{ModelContext, ViewEvent};
use super::request::{self, AppRequest, ParsedRequest};
use super::spec::ViewLimits;
use super::wire::{self, Fields, INVALID_REQUEST, Id, Message, REFUSED, RpcError};
use crate::rate::{Rate, RateLimiter};

/// The request that the page receives before its view is closed, also while suspended.
pub(super) const TEARDOWN: &str = "ui/resource-teardown";
/// The supported version of MCP Apps.
const VERSION: &str = "2026-01-26";
/// The rate of notifications of the page; further ones are ignored.
const NOTIFICATION_RATE: Rate = Rate {
    calls: 100,
    per: Duration::from_secs(1),
};
/// The largest number of pending requests to the page.
const MAX_PENDING: usize = 64;

/// The initialization phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was received yet.
    New,
    /// `ui/initialize` was received.
    Initializing,
    /// `initialized` was received; requests are allowed in both directions.
    Ready,
}

/// Why a request to the page has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoResponse {
    /// The page returned an error.
    Error(RpcError),
    /// The page is not initialized yet.
    NotReady,
    Suspended,
    /// Too many requests are pending.
    Busy,
    /// The request timed out.
    TimedOut,
    Closed,
}

/// An action for the actor.
#[derive(Debug, PartialEq)]
pub(super) enum Action<W> {
    /// Send a message to the page.
    Send(Value),
    /// Serve the page's request with this number.
    Serve(u64, AppRequest),
    /// Cancel serving this request.
    Cancel(u64),
    /// Complete a request to the page.
    Respond(W, Result<Fields, NoResponse>),
    /// Notify the host.
    Event(ViewEvent),
    /// Store the context for the model.
    Context(ModelContext),
    /// Store what the page reported about itself.
    AppInfo(AppInfo),
    /// List the tools of the page.
    List,
}

/// The protocol state of one view; `W` is the waiter for a response of the page.
pub(super) struct ViewProtocol<W> {
    phase: Phase,
    suspended: bool,
    limits: ViewLimits,
    /// The result of `ui/initialize`.
    initialize_result: Fields,
    context: Fields,
    /// Context changes that were not sent yet.
    changes: Fields,
    app: AppInfo,
    pending: HashMap<u64, W>,
    /// Pending requests of the page: local numbers, which are never reused, and the page's ids, which may be.
    serving: HashMap<u64, Id>,
    /// The last used number.
    last_number: u64,
    updates: ToolUpdates,
    limiter: RateLimiter,
}

impl<W> ViewProtocol<W> {
    pub(super) fn new(limits: ViewLimits, initialize_result: Fields, context: Fields) -> Self {
        Self {
            phase: Phase::New,
            suspended: false,
            limits,
            initialize_result,
            context,
            changes: Fields::new(),
            app: AppInfo::default(),
            pending: HashMap::new(),
            serving: HashMap::new(),
            last_number: 0,
            updates: ToolUpdates::default(),
            limiter: RateLimiter::new(&NOTIFICATION_RATE),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Handles a message of the page.
    pub(super) fn on_message(&mut self, text: &str) -> Vec<Action<W>> {
        match wire::read(text, self.limits.message) {
            None => Vec::new(),
            Some(Message::Invalid { id, error }) => vec![reject(&id, error)],
            Some(Message::Response { id, result }) => self.on_response(id, result),
            Some(Message::Request { id, method, params }) => self.on_request(id, &method, params),
            Some(Message::Notification { method, params }) if self.limiter.take().is_ok() => {
                self.on_notification(&method, params)
            }
            Some(Message::Notification { .. }) => Vec::new(),
        }
    }

    /// Unexpected responses are ignored.
    fn on_response(&mut self, id: u64, result: Result<Fields, RpcError>) -> Vec<Action<W>> {
        let waiting = self.pending.remove(&id);
        let respond = |waiting| Action::Respond(waiting, result.map_err(NoResponse::Error));
        waiting.map(respond).into_iter().collect()
    }

    fn on_request(&mut self, id: Id, method: &str, params: Fields) -> Vec<Action<W>> {
        match method {
            "ping" => return vec![Action::Send(wire::response(&id, Ok(json!({}))))],
            "ui/initialize" => return self.on_initialize(&id, &params),
            _ => {}
        }
        if self.number_of(&id).is_some() {
            let error = RpcError::new(INVALID_REQUEST, "a request with this id is still open");
            return vec![reject(&id, error)];
        }
        let parsed = match request::read(method, params) {
            Ok(parsed) => parsed,
            Err(error) => return vec![reject(&id, error)],
        };
        let refused = match self.phase {
            Phase::New | Phase::Initializing => Some("nothing is answered before `initialized`"),
            Phase::Ready if self.suspended => Some("the view is suspended"),
            Phase::Ready if self.serving.len() >= self.limits.requests => {
                Some("too many requests at once")
            }
            Phase::Ready => None,
        };
        if let Some(why) = refused {
            return vec![reject(&id, RpcError::new(REFUSED, why))];
        }
        match parsed {
            ParsedRequest::Context(context) => {
                let done = Action::Send(wire::response(&id, Ok(json!({}))));
                let event = Action::Event(ViewEvent::ModelContextChanged);
                vec![Action::Context(context), done, event]
            }
            ParsedRequest::Serve(request) => {
                self.last_number += 1;
                self.serving.insert(self.last_number, id);
                vec![Action::Serve(self.last_number, request)]
            }
        }
    }

    /// The number of the pending request with this id.
    fn number_of(&self, id: &Id) -> Option<u64> {
        let mut open = self.serving.iter();
        open.find(|(_, open_id)| *open_id == id)
            .map(|(number, _)| *number)
    }

    fn on_initialize(&mut self, id: &Id, params: &Fields) -> Vec<Action<W>> {
        if self.phase != Phase::New {
            let error = RpcError::new(INVALID_REQUEST, "`ui/initialize` comes once");
            return vec![reject(id, error)];
        }
        self.phase = Phase::Initializing;
        self.app = AppInfo::read(params);
        self.changes.clear();
        let mut initialize_result = self.initialize_result.clone();
        initialize_result.insert("protocolVersion".into(), VERSION.into());
        initialize_result.insert("hostContext".into(), self.context.clone().into());
        let answer = wire::response(id, Ok(initialize_result.into()));
        vec![Action::AppInfo(self.app.clone()), Action::Send(answer)]
    }

    fn on_notification(&mut self, method: &str, params: Fields) -> Vec<Action<W>> {
        let pixels = |key: &str| params.get(key).and_then(Value::as_f64);
        match (method, self.phase) {
            ("notifications/cancelled", _) => {
                let id = params.get("requestId").and_then(Id::read);
                let Some(number) = id.and_then(|id| self.number_of(&id)) else {
                    return Vec::new();
                };
                self.serving.remove(&number);
                vec![Action::Cancel(number)]
            }
            ("ui/notifications/initialized", Phase::Initializing) => self.on_initialized(),
            (_, Phase::New | Phase::Initializing) => Vec::new(),
            ("ui/notifications/size-changed", Phase::Ready) => {
                vec![Action::Event(ViewEvent::Size(
                    pixels("width"),
                    pixels("height"),
                ))]
            }
            ("ui/notifications/request-teardown", Phase::Ready) => {
                vec![Action::Event(ViewEvent::CloseRequested)]
            }
            ("notifications/message", Phase::Ready) => {
                vec![Action::Event(ViewEvent::Log(params.into()))]
            }
            ("notifications/tools/list_changed", Phase::Ready) if self.app.list_changed => {
                vec![Action::List]
            }
            _ => Vec::new(),
        }
    }

    fn on_initialized(&mut self) -> Vec<Action<W>> {
        self.phase = Phase::Ready;
        let mut actions = vec![Action::Event(ViewEvent::Ready)];
        actions.extend(self.send_context());
        actions.extend(self.updates.due().into_iter().map(Action::Send));
        // Tools are listed only if the page declares the capability.
        if self.app.tools {
            actions.push(Action::List);
        }
        actions
    }

    /// Sends a request to the page, with an unused id.
    pub(super) fn request(
        &mut self,
        id: u64,
        method: &str,
        params: Value,
        waiting: W,
    ) -> Action<W> {
        let refused = match self.phase {
            Phase::New | Phase::Initializing => Some(NoResponse::NotReady),
            Phase::Ready if self.suspended && method != TEARDOWN => Some(NoResponse::Suspended),
            Phase::Ready if self.pending.len() >= MAX_PENDING => Some(NoResponse::Busy),
            Phase::Ready => None,
        };
        if let Some(why) = refused {
            return Action::Respond(waiting, Err(why));
        }
        self.pending.insert(id, waiting);
        Action::Send(wire::request(id, method, params))
    }

    /// Cancels a request to the page.
    pub(super) fn cancel(&mut self, id: u64) -> Option<Action<W>> {
        self.pending.remove(&id)?;
        let params = json!({"requestId": id, "reason": "nobody waits"});
        Some(Action::Send(wire::notification(
            "notifications/cancelled",
            params,
        )))
    }

    /// Answers a request of the page, unless it was cancelled.
    pub(super) fn served(
        &mut self,
        number: u64,
        result: Result<Value, RpcError>,
    ) -> Option<Action<W>> {
        let id = self.serving.remove(&number)?;
        Some(Action::Send(wire::response(&id, result)))
    }

    /// Queues an update, and sends it once the page is initialized.
    pub(super) fn update(&mut self, update: ToolUpdate) -> Vec<Action<W>> {
        self.updates.add(update);
        if !self.is_ready() {
            return Vec::new();
        }
        self.updates.due().into_iter().map(Action::Send).collect()
    }

    /// Changes the host context.
    pub(super) fn change_context(&mut self, changes: Fields) -> Option<Action<W>> {
        self.context.extend(changes.clone());
        self.changes.extend(changes);
        self.is_ready().then(|| self.send_context())?
    }

    fn send_context(&mut self) -> Option<Action<W>> {
        let changes = std::mem::take(&mut self.changes);
        let update = |changes: Fields| {
            wire::notification("ui/notifications/host-context-changed", changes.into())
        };
        (!changes.is_empty()).then(|| Action::Send(update(changes)))
    }

    pub(super) fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    /// Returns all waiters for responses.
    pub(super) fn close(&mut self) -> impl Iterator<Item = W> + use<'_, W> {
        self.serving.clear();
        self.pending.drain().map(|(_, waiting)| waiting)
    }
}

fn reject<W>(id: &Id, error: RpcError) -> Action<W> {
    Action::Send(wire::response(id, Err(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Actions = Vec<Action<&'static str>>;

    /// Protocol state with named waiters.
    struct Fixture(ViewProtocol<&'static str>);

    fn new_view() -> Fixture {
        let fields = |key: &str| Fields::from_iter([(key.to_owned(), json!(1))]);
        let limits = ViewLimits {
            requests: 3,
            ..ViewLimits::default()
        };
        Fixture(ViewProtocol::new(
            limits,
            fields("greeting"),
            fields("context"),
        ))
    }

    /// Protocol state after initialization, with these tools in the capabilities.
    fn ready(tools: &Value) -> Fixture {
        let mut view = new_view();
        let params = json!({"appCapabilities": {"tools": tools}});
        view.request(0, "ui/initialize", params);
        view.notify("ui/notifications/initialized", json!({}));
        view
    }

    impl Fixture {
        fn receive(&mut self, message: &Value) -> Actions {
            self.0.on_message(&message.to_string())
        }

        fn request(&mut self, id: u64, method: &str, params: Value) -> Actions {
            self.receive(&wire::request(id, method, params))
        }

        fn notify(&mut self, method: &str, params: Value) -> Actions {
            self.receive(&wire::notification(method, params))
        }

        fn call_tool(&mut self, id: u64) -> Actions {
            self.request(id, "tools/call", json!({"name": "t"}))
        }

        fn cancels(&mut self, id: u64) -> Actions {
            self.notify("notifications/cancelled", json!({"requestId": id}))
        }

        fn respond(&mut self, id: u64) -> Actions {
            self.receive(&json!({"jsonrpc": "2.0", "id": id, "result": {"by": id}}))
        }
    }

    fn call() -> AppRequest {
        AppRequest::Tool {
            name: "t".into(),
            arguments: Fields::new(),
        }
    }

    fn answer(id: u64, result: Value) -> Action<&'static str> {
        let id = Id::Number(id.cast_signed());
        Action::Send(wire::response(&id, Ok(result)))
    }

    /// Asserts that one request is rejected with this code.
    #[track_caller]
    fn refused(actions: &Actions, id: u64, code: i64) {
        let [Action::Send(response)] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert_eq!(
            (&response["id"], &response["error"]["code"]),
            (&id.into(), &code.into())
        );
    }

    #[test]
    fn no_requests_before_initialized() {
        let mut view = new_view();
        for initializes in [true, false] {
            refused(&view.call_tool(1), 1, REFUSED);
            refused(
                &view.request(2, "ui/update-model-context", json!({})),
                2,
                REFUSED,
            );
            assert_eq!(view.notify("ui/notifications/size-changed", json!({})), []);
            let early = Action::Respond("me", Err(NoResponse::NotReady));
            assert_eq!(view.0.request(1, "tools/list", json!({}), "me"), early);
            assert_eq!(view.request(3, "ping", json!({})), [answer(3, json!({}))]);
            assert!(!view.0.is_ready());
            if initializes {
                assert_eq!(view.notify("ui/notifications/initialized", json!({})), []);
                view.request(4, "ui/initialize", json!({}));
            }
        }
        let handled = view.notify("ui/notifications/initialized", json!({}));
        assert_eq!(handled, [Action::Event(ViewEvent::Ready)]);
        assert_eq!(view.call_tool(1), [Action::Serve(1, call())]);
        assert_eq!(view.notify("ui/notifications/initialized", json!({})), []);
    }

    #[test]
    fn initialize_is_accepted_once() {
        let mut view = new_view();
        let params = json!({"appInfo": {"name": "board", "version": "2"}});
        let actions = view.request(7, "ui/initialize", params);
        let host =
            json!({"greeting": 1, "protocolVersion": VERSION, "hostContext": {"context": 1}});
        let app = AppInfo {
            name: "board".into(),
            version: "2".into(),
            ..AppInfo::default()
        };
        assert_eq!(actions, [Action::AppInfo(app), answer(7, host)]);
        refused(
            &view.request(8, "ui/initialize", json!({})),
            8,
            INVALID_REQUEST,
        );
    }

    #[test]
    fn context_changes_are_sent_after_initialization() {
        let change = |value: u64| Fields::from_iter([("theme".to_owned(), value.into())]);
        let notified = |value: u64| {
            let method = "ui/notifications/host-context-changed";
            Action::Send(wire::notification(method, change(value).into()))
        };
        let mut view = new_view();
        let before = Fields::from_iter([("locale".to_owned(), json!("x"))]);
        assert_eq!(view.0.change_context(before), None);
        let actions = view.request(0, "ui/initialize", json!({}));
        let [_, Action::Send(response)] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        let context = json!({"context": 1, "locale": "x"});
        assert_eq!(response["result"]["hostContext"], context);
        assert_eq!(view.0.change_context(change(2)), None);
        let actions = view.notify("ui/notifications/initialized", json!({}));
        assert_eq!(actions, [Action::Event(ViewEvent::Ready), notified(2)]);
        assert_eq!(view.0.change_context(change(3)), Some(notified(3)));
        assert_eq!(view.0.change_context(Fields::new()), None);
    }

    #[test]
    fn requests_are_answered_once_by_their_own_id() {
        let mut view = ready(&Value::Null);
        assert_eq!(view.call_tool(70), [Action::Serve(1, call())]);
        refused(&view.call_tool(70), 70, INVALID_REQUEST);
        assert_eq!(view.call_tool(71), [Action::Serve(2, call())]);
        let second = view.0.served(2, Ok(json!({"n": 2})));
        assert_eq!(second, Some(answer(71, json!({"n": 2}))));
        let first = view.0.served(1, Ok(json!({"n": 1})));
        assert_eq!(first, Some(answer(70, json!({"n": 1}))));
        assert_eq!(view.0.served(1, Ok(json!({}))), None);
    }

    #[test]
    fn cancelled_request_result_does_not_answer_a_reused_id() {
        let mut view = ready(&Value::Null);
        assert_eq!(view.call_tool(7), [Action::Serve(1, call())]);
        assert_eq!(view.cancels(7), [Action::Cancel(1)]);
        assert_eq!(view.cancels(7), []);
        assert_eq!(view.call_tool(7), [Action::Serve(2, call())]);
        // It ended before it could be cancelled.
        assert_eq!(view.0.served(1, Ok(json!({"of": "the first"}))), None);
        let second = view.0.served(2, Ok(json!({"of": "the second"})));
        assert_eq!(second, Some(answer(7, json!({"of": "the second"}))));
    }

    #[test]
    fn open_requests_of_the_page_are_bounded() {
        let mut view = ready(&Value::Null);
        for id in 1..=3 {
            assert_eq!(view.call_tool(id), [Action::Serve(id, call())]);
        }
        refused(&view.call_tool(4), 4, REFUSED);
        view.cancels(2);
        assert_eq!(view.call_tool(4), [Action::Serve(4, call())]);
        refused(&view.call_tool(5), 5, REFUSED);
        view.0.served(1, Ok(json!({})));
        assert_eq!(view.call_tool(5), [Action::Serve(5, call())]);
    }

    #[test]
    fn model_context_is_stored_at_once() {
        let mut view = ready(&Value::Null);
        let context = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        for (id, text) in [(1, "first"), (2, "second")] {
            let actions = view.request(id, "ui/update-model-context", context(text));
            let [
                Action::Context(context),
                done,
                Action::Event(ViewEvent::ModelContextChanged),
            ] = actions.as_slice()
            else {
                panic!("{actions:?}")
            };
            assert_eq!(
                (context.text().as_str(), done),
                (text, &answer(id, json!({})))
            );
        }
    }

    #[test]
    fn responses_are_matched_by_id_once() {
        let mut view = ready(&Value::Null);
        let sent = |id: u64| Action::Send(wire::request(id, "tools/list", json!({})));
        assert_eq!(view.0.request(1, "tools/list", json!({}), "one"), sent(1));
        assert_eq!(view.0.request(2, "tools/list", json!({}), "two"), sent(2));
        assert_eq!(view.respond(3), []);
        let response = |id: u64| Ok(Fields::from_iter([("by".to_owned(), id.into())]));
        assert_eq!(view.respond(2), [Action::Respond("two", response(2))]);
        assert_eq!(view.respond(2), []);
        let cancelled = json!({"requestId": 1, "reason": "nobody waits"});
        let cancelled = wire::notification("notifications/cancelled", cancelled);
        assert_eq!(view.0.cancel(1), Some(Action::Send(cancelled)));
        assert_eq!(view.0.cancel(1), None);
        assert_eq!(view.respond(1), []);
    }

    #[test]
    fn pending_requests_to_the_page_are_bounded() {
        let mut view = ready(&Value::Null);
        let limit = u64::try_from(MAX_PENDING).unwrap();
        for id in 1..=limit {
            let sent = view.0.request(id, "tools/list", json!({}), "me");
            assert!(matches!(sent, Action::Send(_)), "{sent:?}");
        }
        let busy = Action::Respond("me", Err(NoResponse::Busy));
        assert_eq!(
            view.0.request(limit + 1, "tools/list", json!({}), "me"),
            busy
        );
        view.respond(1);
        let sent = view.0.request(limit + 2, "tools/list", json!({}), "me");
        assert!(matches!(sent, Action::Send(_)), "{sent:?}");
        assert_eq!(view.0.close().count(), MAX_PENDING);
        assert_eq!(view.respond(limit + 2), []);
    }

    #[test]
    fn suspended_page_exchanges_only_teardown() {
        let mut view = ready(&Value::Null);
        assert_eq!(view.call_tool(1), [Action::Serve(1, call())]);
        view.0.suspend(true);
        refused(&view.call_tool(2), 2, REFUSED);
        let suspended = Action::Respond("me", Err(NoResponse::Suspended));
        assert_eq!(view.0.request(1, "tools/list", json!({}), "me"), suspended);
        let part = wire::request(2, "ui/resource-teardown", json!({}));
        assert_eq!(
            view.0.request(2, TEARDOWN, json!({}), "me"),
            Action::Send(part)
        );
        // Calls in progress continue.
        let done = view.0.served(1, Ok(json!({})));
        assert_eq!(done, Some(answer(1, json!({}))));
        view.0.suspend(false);
        assert_eq!(view.call_tool(2), [Action::Serve(2, call())]);
    }

    #[test]
    fn tool_updates_are_sent_in_order_after_initialization() {
        let mut view = new_view();
        assert_eq!(view.0.update(ToolUpdate::Result(json!({"end": 1}))), []);
        assert_eq!(
            view.0.update(ToolUpdate::Input(json!({"arguments": {}}))),
            []
        );
        view.request(0, "ui/initialize", json!({}));
        let actions = view.notify("ui/notifications/initialized", json!({}));
        let notified =
            |method: &str, params: Value| Action::Send(wire::notification(method, params));
        let input = notified("ui/notifications/tool-input", json!({"arguments": {}}));
        let end = notified("ui/notifications/tool-result", json!({"end": 1}));
        assert_eq!(actions, [Action::Event(ViewEvent::Ready), input, end]);
        let reason = json!({"reason": "x"});
        let cancelled = notified("ui/notifications/tool-cancelled", reason.clone());
        assert_eq!(view.0.update(ToolUpdate::Cancelled(reason)), [cancelled]);
    }

    #[test]
    fn tools_are_listed_only_if_the_page_declares_them() {
        let ready_event = || Action::Event(ViewEvent::Ready);
        for (tools, lists, again) in [
            (json!(null), false, false),
            (json!({}), true, false),
            (json!({"listChanged": true}), true, true),
        ] {
            let mut view = new_view();
            let params = json!({"appCapabilities": {"tools": tools}});
            view.request(0, "ui/initialize", params);
            let actions = view.notify("ui/notifications/initialized", json!({}));
            let expected: Actions = match lists {
                true => vec![ready_event(), Action::List],
                false => vec![ready_event()],
            };
            assert_eq!(actions, expected, "{tools}");
            let actions = view.notify("notifications/tools/list_changed", json!({}));
            let expected: Actions = if again { vec![Action::List] } else { vec![] };
            assert_eq!(actions, expected, "{tools}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn excess_notifications_are_ignored_and_requests_are_not() {
        let mut view = ready(&Value::Null);
        let mut close = || view.notify("ui/notifications/request-teardown", json!({}));
        let handled = (0..1000).filter(|_| !close().is_empty());
        assert!((1..1000).contains(&handled.count()));
        assert_eq!(close(), []);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(close(), [Action::Event(ViewEvent::CloseRequested)]);
        assert_eq!(view.call_tool(1), [Action::Serve(1, call())]);
    }

    #[test]
    fn close_ends_all_requests() {
        let mut view = ready(&Value::Null);
        view.call_tool(1);
        view.0.request(1, "tools/list", json!({}), "one");
        view.0.request(2, TEARDOWN, json!({}), "two");
        let mut waiting: Vec<_> = view.0.close().collect();
        waiting.sort_unstable();
        assert_eq!(waiting, ["one", "two"]);
        assert_eq!(view.0.served(1, Ok(json!({}))), None);
        assert_eq!(view.respond(1), []);
    }
}
