//! Messages of a guest and words of its host in, what is to be done about them out. It knows no clock and no channel.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::app::{AppInfo, NotificationLimiter, ToolUpdate, ToolUpdates};
use super::host::{ModelContext, ViewEvent};
use super::list_refresh::ListRefresh;
use super::request::{self, AppRequest, ParsedRequest};
use super::spec::ViewLimits;
use super::wire::{self, Fields, INVALID_REQUEST, Id, Message, REFUSED, RpcError};

/// The one revision that the wire has.
const VERSION: &str = "2026-01-26";
/// The most requests of ours that are open.
const MAX_PENDING: usize = 64;

/// How far the two have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The guest said nothing yet.
    New,
    /// It introduced itself.
    Initializing,
    /// It heard the answer, and may ask and be asked.
    Ready,
}

/// Why the guest gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoResponse {
    /// It says so itself.
    Error(RpcError),
    /// It is not ready yet.
    Early,
    /// It is suspended.
    Suspended,
    /// Too much is asked of it already.
    Busy,
    /// It took too long.
    Late,
    /// It is gone.
    Closed,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Action<W> {
    /// Say this to the guest.
    Send(Value),
    /// Find the answer to one of its requests, which has this number here.
    Serve(u64, AppRequest),
    /// Stop looking for that answer.
    Cancel(u64),
    /// Tell whoever waits.
    Respond(W, Result<Fields, NoResponse>),
    /// Tell the host.
    Event(ViewEvent),
    /// This is what the model is to know.
    Context(ModelContext),
    /// This is who the guest is.
    AppInfo(AppInfo),
    /// Look which tools it offers.
    List,
    /// Say when the pause between two such looks is over.
    Pause,
}

/// One guest and its host; `W` is who waits for an answer of the guest.
pub(super) struct ViewProtocol<W> {
    phase: Phase,
    suspended: bool,
    limits: ViewLimits,
    /// What the guest is told of its host when they meet.
    initialize_result: Fields,
    context: Fields,
    /// What of the context the guest was not told yet.
    changes: Fields,
    app: AppInfo,
    pending: HashMap<u64, W>,
    /// Requests of the guest that are not answered: their numbers here, of which none comes twice, and its own ids, which
    /// it may use again.
    serving: HashMap<u64, Id>,
    /// The last of those numbers.
    last_number: u64,
    updates: ToolUpdates,
    limiter: NotificationLimiter,
    refresh: ListRefresh,
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
            limiter: NotificationLimiter::default(),
            refresh: ListRefresh::default(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// What the guest said; `now` is the time since it was mounted.
    pub(super) fn on_message(&mut self, text: &str, now: Duration) -> Vec<Action<W>> {
        match wire::read(text, self.limits.message) {
            None => Vec::new(),
            Some(Message::Invalid { id, error }) => vec![reject(&id, error)],
            Some(Message::Response { id, result }) => self.on_response(id, result),
            Some(Message::Request { id, method, params }) => self.on_request(id, &method, params),
            Some(Message::Notification { method, params }) if self.limiter.allow(now) => {
                self.on_notification(&method, params)
            }
            Some(Message::Notification { .. }) => Vec::new(),
        }
    }

    /// What answers no question of ours is passed over.
    fn on_response(&mut self, id: u64, result: Result<Fields, RpcError>) -> Vec<Action<W>> {
        let waiting = self.pending.remove(&id);
        let tell = |waiting| Action::Respond(waiting, result.map_err(NoResponse::Error));
        waiting.map(tell).into_iter().collect()
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
        let pending = match request::read(method, params) {
            Ok(pending) => pending,
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
        match pending {
            ParsedRequest::Context(context) => {
                let done = Action::Send(wire::response(&id, Ok(json!({}))));
                let event = Action::Event(ViewEvent::ModelContextChanged);
                vec![Action::Context(context), done, event]
            }
            ParsedRequest::Serve(ask) => {
                self.last_number += 1;
                self.serving.insert(self.last_number, id);
                vec![Action::Serve(self.last_number, ask)]
            }
        }
    }

    /// The number of the request that has this id, if one is open.
    fn number_of(&self, id: &Id) -> Option<u64> {
        let mut open = self.serving.iter();
        open.find(|(_, theirs)| *theirs == id)
            .map(|(ours, _)| *ours)
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
                let Some(ours) = id.and_then(|id| self.number_of(&id)) else {
                    return Vec::new();
                };
                self.serving.remove(&ours);
                vec![Action::Cancel(ours)]
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
                self.refresh_tools()
            }
            _ => Vec::new(),
        }
    }

    fn on_initialized(&mut self) -> Vec<Action<W>> {
        self.phase = Phase::Ready;
        let mut actions = vec![Action::Event(ViewEvent::Ready)];
        actions.extend(self.send_context());
        actions.extend(self.updates.due().into_iter().map(Action::Send));
        // Whoever does not say that it has tools is not asked for them.
        if self.app.tools {
            actions.extend(self.refresh_tools());
        }
        actions
    }

    /// Looks at the guest's tools, if it is time; of a guest that is suspended, once it is not.
    fn refresh_tools(&mut self) -> Vec<Action<W>> {
        if self.suspended {
            self.refresh.defer();
            Vec::new()
        } else if self.refresh.changed() {
            vec![Action::List, Action::Pause]
        } else {
            Vec::new()
        }
    }

    /// Asks the guest for something, by an id that was not used before.
    pub(super) fn request(
        &mut self,
        id: u64,
        method: &str,
        params: Value,
        waiting: W,
    ) -> Action<W> {
        if self.is_ready() && self.suspended {
            return Action::Respond(waiting, Err(NoResponse::Suspended));
        }
        self.send_request(id, method, params, waiting)
    }

    fn send_request(&mut self, id: u64, method: &str, params: Value, waiting: W) -> Action<W> {
        let refused = match self.phase {
            Phase::New | Phase::Initializing => Some(NoResponse::Early),
            Phase::Ready if self.pending.len() >= MAX_PENDING => Some(NoResponse::Busy),
            Phase::Ready => None,
        };
        if let Some(why) = refused {
            return Action::Respond(waiting, Err(why));
        }
        self.pending.insert(id, waiting);
        Action::Send(wire::request(id, method, params))
    }

    /// Asks the guest to put its things away, whether or not it may be asked for anything else.
    pub(super) fn teardown(&mut self, id: u64, waiting: W) -> Action<W> {
        self.send_request(id, "ui/resource-teardown", json!({}), waiting)
    }

    /// Nobody waits for that answer any more.
    pub(super) fn cancel(&mut self, id: u64) -> Option<Action<W>> {
        self.pending.remove(&id)?;
        let params = json!({"requestId": id, "reason": "nobody waits"});
        Some(Action::Send(wire::notification(
            "notifications/cancelled",
            params,
        )))
    }

    /// One of the guest's requests is answered, unless it took it back.
    pub(super) fn served(
        &mut self,
        ours: u64,
        result: Result<Value, RpcError>,
    ) -> Option<Action<W>> {
        let id = self.serving.remove(&ours)?;
        Some(Action::Send(wire::response(&id, result)))
    }

    /// Tells the guest of the call that it was opened for, as soon as it may be told.
    pub(super) fn update(&mut self, update: ToolUpdate) -> Vec<Action<W>> {
        self.updates.add(update);
        if !self.is_ready() {
            return Vec::new();
        }
        self.updates.due().into_iter().map(Action::Send).collect()
    }

    /// Changes what the guest knows of its host.
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

    /// A look at the guest's tools has ended; if it fell into the time that the guest is suspended, it is made again.
    pub(super) fn listed(&mut self, missed: bool) -> Vec<Action<W>> {
        self.refresh.finished();
        if missed {
            self.refresh.defer();
        }
        self.refresh_if_due()
    }

    /// The pause between two looks is over.
    pub(super) fn pause_over(&mut self) -> Vec<Action<W>> {
        self.refresh.pause_over();
        self.refresh_if_due()
    }

    fn refresh_if_due(&mut self) -> Vec<Action<W>> {
        if self.refresh.is_due() && !self.suspended {
            self.refresh_tools()
        } else {
            Vec::new()
        }
    }

    pub(super) fn suspend(&mut self, suspended: bool) -> Vec<Action<W>> {
        self.suspended = suspended;
        self.refresh_if_due()
    }

    /// Whoever still waits, to be told that nothing comes.
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

    /// One guest and its host, from the guest's first word on; whoever waits is a name.
    struct Fixture(ViewProtocol<&'static str>);

    fn silent() -> Fixture {
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

    /// A guest that introduced itself and heard the answer, with these tools among what it can do.
    fn ready(tools: &Value) -> Fixture {
        let mut fixture = silent();
        let params = json!({"appCapabilities": {"tools": tools}});
        fixture.asks(0, "ui/initialize", params);
        fixture.notes("ui/notifications/initialized", json!({}));
        fixture
    }

    impl Fixture {
        fn says(&mut self, message: &Value) -> Actions {
            self.0.on_message(&message.to_string(), Duration::ZERO)
        }

        fn asks(&mut self, id: u64, method: &str, params: Value) -> Actions {
            self.says(&wire::request(id, method, params))
        }

        fn notes(&mut self, method: &str, params: Value) -> Actions {
            self.says(&wire::notification(method, params))
        }

        fn calls(&mut self, id: u64) -> Actions {
            self.asks(id, "tools/call", json!({"name": "t"}))
        }

        fn takes_back(&mut self, id: u64) -> Actions {
            self.notes("notifications/cancelled", json!({"requestId": id}))
        }

        fn answers(&mut self, id: u64) -> Actions {
            self.says(&json!({"jsonrpc": "2.0", "id": id, "result": {"by": id}}))
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

    /// That one request is refused so.
    #[track_caller]
    fn refused(actions: &Actions, id: u64, code: i64) {
        let [Action::Send(said)] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert_eq!(
            (&said["id"], &said["error"]["code"]),
            (&id.into(), &code.into())
        );
    }

    #[test]
    fn nothing_is_answered_or_asked_before_the_guest_heard_who_its_host_is() {
        let mut fixture = silent();
        for greets in [true, false] {
            refused(&fixture.calls(1), 1, REFUSED);
            refused(
                &fixture.asks(2, "ui/update-model-context", json!({})),
                2,
                REFUSED,
            );
            assert_eq!(
                fixture.notes("ui/notifications/size-changed", json!({})),
                []
            );
            let early = Action::Respond("me", Err(NoResponse::Early));
            assert_eq!(fixture.0.request(1, "tools/list", json!({}), "me"), early);
            assert_eq!(fixture.asks(3, "ping", json!({})), [answer(3, json!({}))]);
            assert!(!fixture.0.is_ready());
            if greets {
                assert_eq!(fixture.notes("ui/notifications/initialized", json!({})), []);
                fixture.asks(4, "ui/initialize", json!({}));
            }
        }
        let heard = fixture.notes("ui/notifications/initialized", json!({}));
        assert_eq!(heard, [Action::Event(ViewEvent::Ready)]);
        assert_eq!(fixture.calls(1), [Action::Serve(1, call())]);
        assert_eq!(fixture.notes("ui/notifications/initialized", json!({})), []);
    }

    #[test]
    fn the_two_introduce_themselves_once() {
        let mut fixture = silent();
        let params = json!({"appInfo": {"name": "board", "version": "2"}});
        let actions = fixture.asks(7, "ui/initialize", params);
        let host =
            json!({"greeting": 1, "protocolVersion": VERSION, "hostContext": {"context": 1}});
        let app = AppInfo {
            name: "board".into(),
            version: "2".into(),
            ..AppInfo::default()
        };
        assert_eq!(actions, [Action::AppInfo(app), answer(7, host)]);
        refused(
            &fixture.asks(8, "ui/initialize", json!({})),
            8,
            INVALID_REQUEST,
        );
    }

    #[test]
    fn what_changes_around_the_guest_is_told_once_it_listens_and_not_what_it_was_told_at_first() {
        let change = |value: u64| Fields::from_iter([("theme".to_owned(), value.into())]);
        let told = |value: u64| {
            let method = "ui/notifications/host-context-changed";
            Action::Send(wire::notification(method, change(value).into()))
        };
        let mut fixture = silent();
        let before = Fields::from_iter([("locale".to_owned(), json!("x"))]);
        assert_eq!(fixture.0.change_context(before), None);
        let actions = fixture.asks(0, "ui/initialize", json!({}));
        let [_, Action::Send(greeting)] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        let context = json!({"context": 1, "locale": "x"});
        assert_eq!(greeting["result"]["hostContext"], context);
        assert_eq!(fixture.0.change_context(change(2)), None);
        let actions = fixture.notes("ui/notifications/initialized", json!({}));
        assert_eq!(actions, [Action::Event(ViewEvent::Ready), told(2)]);
        assert_eq!(fixture.0.change_context(change(3)), Some(told(3)));
        assert_eq!(fixture.0.change_context(Fields::new()), None);
    }

    #[test]
    fn a_request_is_answered_once_under_the_guest_s_own_id() {
        let mut fixture = ready(&Value::Null);
        assert_eq!(fixture.calls(70), [Action::Serve(1, call())]);
        refused(&fixture.calls(70), 70, INVALID_REQUEST);
        assert_eq!(fixture.calls(71), [Action::Serve(2, call())]);
        let second = fixture.0.served(2, Ok(json!({"n": 2})));
        assert_eq!(second, Some(answer(71, json!({"n": 2}))));
        let first = fixture.0.served(1, Ok(json!({"n": 1})));
        assert_eq!(first, Some(answer(70, json!({"n": 1}))));
        assert_eq!(fixture.0.served(1, Ok(json!({}))), None);
    }

    #[test]
    fn what_a_request_that_was_taken_back_came_to_answers_no_later_one_of_its_id() {
        let mut fixture = ready(&Value::Null);
        assert_eq!(fixture.calls(7), [Action::Serve(1, call())]);
        assert_eq!(fixture.takes_back(7), [Action::Cancel(1)]);
        assert_eq!(fixture.takes_back(7), []);
        assert_eq!(fixture.calls(7), [Action::Serve(2, call())]);
        // It had ended before anybody could stop it.
        assert_eq!(fixture.0.served(1, Ok(json!({"of": "the first"}))), None);
        let second = fixture.0.served(2, Ok(json!({"of": "the second"})));
        assert_eq!(second, Some(answer(7, json!({"of": "the second"}))));
    }

    #[test]
    fn so_many_requests_are_open_and_no_more() {
        let mut fixture = ready(&Value::Null);
        for id in 1..=3 {
            assert_eq!(fixture.calls(id), [Action::Serve(id, call())]);
        }
        refused(&fixture.calls(4), 4, REFUSED);
        fixture.takes_back(2);
        assert_eq!(fixture.calls(4), [Action::Serve(4, call())]);
        refused(&fixture.calls(5), 5, REFUSED);
        fixture.0.served(1, Ok(json!({})));
        assert_eq!(fixture.calls(5), [Action::Serve(5, call())]);
    }

    #[test]
    fn what_the_model_is_to_know_is_taken_down_at_once() {
        let mut fixture = ready(&Value::Null);
        let context = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        for (id, text) in [(1, "first"), (2, "second")] {
            let actions = fixture.asks(id, "ui/update-model-context", context(text));
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
    fn an_answer_counts_once_and_for_whom_it_is() {
        let mut fixture = ready(&Value::Null);
        let asked = |id: u64| Action::Send(wire::request(id, "tools/list", json!({})));
        assert_eq!(
            fixture.0.request(1, "tools/list", json!({}), "one"),
            asked(1)
        );
        assert_eq!(
            fixture.0.request(2, "tools/list", json!({}), "two"),
            asked(2)
        );
        assert_eq!(fixture.answers(3), []);
        let said = |id: u64| Ok(Fields::from_iter([("by".to_owned(), id.into())]));
        assert_eq!(fixture.answers(2), [Action::Respond("two", said(2))]);
        assert_eq!(fixture.answers(2), []);
        let cancelled = json!({"requestId": 1, "reason": "nobody waits"});
        let cancelled = wire::notification("notifications/cancelled", cancelled);
        assert_eq!(fixture.0.cancel(1), Some(Action::Send(cancelled)));
        assert_eq!(fixture.0.cancel(1), None);
        assert_eq!(fixture.answers(1), []);
    }

    #[test]
    fn so_much_is_asked_of_the_guest_and_no_more() {
        let mut fixture = ready(&Value::Null);
        let most = u64::try_from(MAX_PENDING).unwrap();
        for id in 1..=most {
            let asked = fixture.0.request(id, "tools/list", json!({}), "me");
            assert!(matches!(asked, Action::Send(_)), "{asked:?}");
        }
        let busy = Action::Respond("me", Err(NoResponse::Busy));
        assert_eq!(
            fixture.0.request(most + 1, "tools/list", json!({}), "me"),
            busy
        );
        fixture.answers(1);
        let asked = fixture.0.request(most + 2, "tools/list", json!({}), "me");
        assert!(matches!(asked, Action::Send(_)), "{asked:?}");
        assert_eq!(fixture.0.close().count(), MAX_PENDING);
        assert_eq!(fixture.answers(most + 2), []);
    }

    #[test]
    fn out_of_sight_the_guest_neither_asks_nor_is_asked_but_to_part() {
        let mut fixture = ready(&Value::Null);
        assert_eq!(fixture.calls(1), [Action::Serve(1, call())]);
        assert_eq!(fixture.0.suspend(true), []);
        refused(&fixture.calls(2), 2, REFUSED);
        let suspended = Action::Respond("me", Err(NoResponse::Suspended));
        assert_eq!(
            fixture.0.request(1, "tools/list", json!({}), "me"),
            suspended
        );
        let part = wire::request(2, "ui/resource-teardown", json!({}));
        assert_eq!(fixture.0.teardown(2, "me"), Action::Send(part));
        // What is under way goes on.
        let done = fixture.0.served(1, Ok(json!({})));
        assert_eq!(done, Some(answer(1, json!({}))));
        assert_eq!(fixture.0.suspend(false), []);
        assert_eq!(fixture.calls(2), [Action::Serve(2, call())]);
    }

    #[test]
    fn of_its_call_the_guest_is_told_once_it_listens_and_in_order() {
        let mut fixture = silent();
        assert_eq!(fixture.0.update(ToolUpdate::Result(json!({"end": 1}))), []);
        assert_eq!(
            fixture
                .0
                .update(ToolUpdate::Input(json!({"arguments": {}}))),
            []
        );
        fixture.asks(0, "ui/initialize", json!({}));
        let actions = fixture.notes("ui/notifications/initialized", json!({}));
        let told = |method: &str, params: Value| Action::Send(wire::notification(method, params));
        let input = told("ui/notifications/tool-input", json!({"arguments": {}}));
        let end = told("ui/notifications/tool-result", json!({"end": 1}));
        assert_eq!(actions, [Action::Event(ViewEvent::Ready), input, end]);
        let reason = json!({"reason": "x"});
        let cancelled = told("ui/notifications/tool-cancelled", reason.clone());
        assert_eq!(fixture.0.update(ToolUpdate::Cancelled(reason)), [cancelled]);
    }

    #[test]
    fn only_a_guest_that_says_that_it_has_tools_is_asked_for_them() {
        let news = || Action::Event(ViewEvent::Ready);
        for (tools, looks, again) in [
            (json!(null), false, false),
            (json!({}), true, false),
            (json!({"listChanged": true}), true, true),
        ] {
            let mut fixture = silent();
            let params = json!({"appCapabilities": {"tools": tools}});
            fixture.asks(0, "ui/initialize", params);
            let actions = fixture.notes("ui/notifications/initialized", json!({}));
            let look = || [Action::List, Action::Pause];
            let expected: Actions = match looks {
                true => [news()].into_iter().chain(look()).collect(),
                false => vec![news()],
            };
            assert_eq!(actions, expected, "{tools}");
            assert_eq!(fixture.0.listed(false), []);
            assert_eq!(fixture.0.pause_over(), []);
            let actions = fixture.notes("notifications/tools/list_changed", json!({}));
            let expected: Actions = if again { look().into() } else { vec![] };
            assert_eq!(actions, expected, "{tools}");
        }
    }

    #[test]
    fn a_look_that_the_guest_was_out_of_sight_for_is_made_again_when_it_is_back() {
        let look = [Action::List, Action::Pause];
        let mut missed = ready(&json!({}));
        missed.0.suspend(true);
        assert_eq!(missed.0.listed(true), []);
        assert_eq!(missed.0.pause_over(), []);
        assert_eq!(missed.0.suspend(false), look);

        let mut changed = ready(&json!({"listChanged": true}));
        changed.0.listed(false);
        changed.0.pause_over();
        changed.0.suspend(true);
        let actions = changed.notes("notifications/tools/list_changed", json!({}));
        assert_eq!(actions, []);
        assert_eq!(changed.0.suspend(false), look);
    }

    #[test]
    fn a_flood_of_notices_is_passed_over_and_requests_are_not() {
        let mut fixture = ready(&Value::Null);
        let mut close = |now| {
            let notice = wire::notification("ui/notifications/request-teardown", json!({}));
            fixture.0.on_message(&notice.to_string(), now)
        };
        let heard = (0..1000).filter(|_| !close(Duration::ZERO).is_empty());
        assert!((1..1000).contains(&heard.count()));
        assert_eq!(close(Duration::ZERO), []);
        let second = Duration::from_secs(1);
        assert_eq!(close(second), [Action::Event(ViewEvent::CloseRequested)]);
        assert_eq!(fixture.calls(1), [Action::Serve(1, call())]);
    }

    #[test]
    fn once_closed_nobody_waits_and_nothing_is_answered() {
        let mut fixture = ready(&Value::Null);
        fixture.calls(1);
        fixture.0.request(1, "tools/list", json!({}), "one");
        fixture.0.teardown(2, "two");
        let mut waiting: Vec<_> = fixture.0.close().collect();
        waiting.sort_unstable();
        assert_eq!(waiting, ["one", "two"]);
        assert_eq!(fixture.0.served(1, Ok(json!({}))), None);
        assert_eq!(fixture.answers(1), []);
    }
}
