//! Messages of a guest and words of its host in, what is to be done about them out. It knows no clock and no channel.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::asks::{self, Ask, Asked};
use super::guest::{Guest, Noise, Tale, Told};
use super::host::{ModelContext, ViewNews};
use super::lists::Lists;
use super::spec::ViewLimits;
use super::wire::{self, Fault, Fields, INVALID_REQUEST, Id, Message, REFUSED};

/// The one revision that the wire has.
const REVISION: &str = "2026-01-26";
/// The most requests of ours that are open.
const MOST_ASKED: usize = 64;

/// How far the two have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The guest said nothing yet.
    Silent,
    /// It introduced itself.
    Greeted,
    /// It heard the answer, and may ask and be asked.
    Ready,
}

/// Why the guest gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unanswered {
    /// It says so itself.
    Fault(Fault),
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
pub(super) enum Act<W> {
    /// Say this to the guest.
    Send(Value),
    /// Find the answer to one of its requests, which has this number here.
    Serve(u64, Ask),
    /// Stop looking for that answer.
    Withdraw(u64),
    /// Tell whoever waits.
    Tell(W, Result<Fields, Unanswered>),
    /// Tell the host.
    News(ViewNews),
    /// This is what the model is to know.
    Context(ModelContext),
    /// This is who the guest is.
    Known(Guest),
    /// Look which tools it offers.
    List,
    /// Say when the pause between two such looks is over.
    Rest,
}

/// One guest and its host; `W` is who waits for an answer of the guest.
pub(super) struct Talk<W> {
    stage: Stage,
    suspended: bool,
    limits: ViewLimits,
    /// What the guest is told of its host when they meet.
    greeting: Fields,
    context: Fields,
    /// What of the context the guest was not told yet.
    news: Fields,
    guest: Guest,
    asked: HashMap<u64, W>,
    /// Requests of the guest that are not answered: their numbers here, of which none comes twice, and its own ids, which
    /// it may use again.
    serving: HashMap<u64, Id>,
    /// The last of those numbers.
    last: u64,
    tale: Tale,
    noise: Noise,
    lists: Lists,
}

impl<W> Talk<W> {
    pub(super) fn new(limits: ViewLimits, greeting: Fields, context: Fields) -> Self {
        Self {
            stage: Stage::Silent,
            suspended: false,
            limits,
            greeting,
            context,
            news: Fields::new(),
            guest: Guest::default(),
            asked: HashMap::new(),
            serving: HashMap::new(),
            last: 0,
            tale: Tale::default(),
            noise: Noise::default(),
            lists: Lists::default(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// What the guest said; `now` is the time since it was mounted.
    pub(super) fn hear(&mut self, text: &str, now: Duration) -> Vec<Act<W>> {
        match wire::read(text, self.limits.message) {
            None => Vec::new(),
            Some(Message::Unfit { id, fault }) => vec![refuse(&id, fault)],
            Some(Message::Answer { id, result }) => self.answered(id, result),
            Some(Message::Request { id, method, params }) => self.asks(id, &method, params),
            Some(Message::Notice { method, params }) if self.noise.is_heard(now) => {
                self.notices(&method, params)
            }
            Some(Message::Notice { .. }) => Vec::new(),
        }
    }

    /// What answers no question of ours is passed over.
    fn answered(&mut self, id: u64, result: Result<Fields, Fault>) -> Vec<Act<W>> {
        let waiting = self.asked.remove(&id);
        let tell = |waiting| Act::Tell(waiting, result.map_err(Unanswered::Fault));
        waiting.map(tell).into_iter().collect()
    }

    fn asks(&mut self, id: Id, method: &str, params: Fields) -> Vec<Act<W>> {
        match method {
            "ping" => return vec![Act::Send(wire::answer(&id, Ok(json!({}))))],
            "ui/initialize" => return self.greeted(&id, &params),
            _ => {}
        }
        if self.number_of(&id).is_some() {
            let fault = Fault::new(INVALID_REQUEST, "a request with this id is still open");
            return vec![refuse(&id, fault)];
        }
        let asked = match asks::read(method, params) {
            Ok(asked) => asked,
            Err(fault) => return vec![refuse(&id, fault)],
        };
        let refused = match self.stage {
            Stage::Silent | Stage::Greeted => Some("nothing is answered before `initialized`"),
            Stage::Ready if self.suspended => Some("the view is suspended"),
            Stage::Ready if self.serving.len() >= self.limits.requests => {
                Some("too many requests at once")
            }
            Stage::Ready => None,
        };
        if let Some(why) = refused {
            return vec![refuse(&id, Fault::new(REFUSED, why))];
        }
        match asked {
            Asked::Context(context) => {
                let done = Act::Send(wire::answer(&id, Ok(json!({}))));
                let news = Act::News(ViewNews::ModelContext);
                vec![Act::Context(context), done, news]
            }
            Asked::Serve(ask) => {
                self.last += 1;
                self.serving.insert(self.last, id);
                vec![Act::Serve(self.last, ask)]
            }
        }
    }

    /// The number of the request that has this id, if one is open.
    fn number_of(&self, id: &Id) -> Option<u64> {
        let mut open = self.serving.iter();
        open.find(|(_, theirs)| *theirs == id)
            .map(|(ours, _)| *ours)
    }

    fn greeted(&mut self, id: &Id, params: &Fields) -> Vec<Act<W>> {
        if self.stage != Stage::Silent {
            let fault = Fault::new(INVALID_REQUEST, "`ui/initialize` comes once");
            return vec![refuse(id, fault)];
        }
        self.stage = Stage::Greeted;
        self.guest = Guest::read(params);
        self.news.clear();
        let mut greeting = self.greeting.clone();
        greeting.insert("protocolVersion".into(), REVISION.into());
        greeting.insert("hostContext".into(), self.context.clone().into());
        let answer = wire::answer(id, Ok(greeting.into()));
        vec![Act::Known(self.guest.clone()), Act::Send(answer)]
    }

    fn notices(&mut self, method: &str, params: Fields) -> Vec<Act<W>> {
        let pixels = |key: &str| params.get(key).and_then(Value::as_f64);
        match (method, self.stage) {
            ("notifications/cancelled", _) => {
                let id = params.get("requestId").and_then(Id::read);
                let Some(ours) = id.and_then(|id| self.number_of(&id)) else {
                    return Vec::new();
                };
                self.serving.remove(&ours);
                vec![Act::Withdraw(ours)]
            }
            ("ui/notifications/initialized", Stage::Greeted) => self.ready(),
            (_, Stage::Silent | Stage::Greeted) => Vec::new(),
            ("ui/notifications/size-changed", Stage::Ready) => {
                vec![Act::News(ViewNews::Size(pixels("width"), pixels("height")))]
            }
            ("ui/notifications/request-teardown", Stage::Ready) => {
                vec![Act::News(ViewNews::WantsClose)]
            }
            ("notifications/message", Stage::Ready) => {
                vec![Act::News(ViewNews::Log(params.into()))]
            }
            ("notifications/tools/list_changed", Stage::Ready) if self.guest.list_changed => {
                self.look()
            }
            _ => Vec::new(),
        }
    }

    fn ready(&mut self) -> Vec<Act<W>> {
        self.stage = Stage::Ready;
        let mut acts = vec![Act::News(ViewNews::Ready)];
        acts.extend(self.tell_context());
        acts.extend(self.tale.due().into_iter().map(Act::Send));
        // Whoever does not say that it has tools is not asked for them.
        if self.guest.tools {
            acts.extend(self.look());
        }
        acts
    }

    /// Looks at the guest's tools, if it is time; of a guest that is suspended, once it is not.
    fn look(&mut self) -> Vec<Act<W>> {
        if self.suspended {
            self.lists.later();
            Vec::new()
        } else if self.lists.changed() {
            vec![Act::List, Act::Rest]
        } else {
            Vec::new()
        }
    }

    /// Asks the guest for something, by an id that was not used before.
    pub(super) fn ask(&mut self, id: u64, method: &str, params: Value, waiting: W) -> Act<W> {
        if self.is_ready() && self.suspended {
            return Act::Tell(waiting, Err(Unanswered::Suspended));
        }
        self.put(id, method, params, waiting)
    }

    fn put(&mut self, id: u64, method: &str, params: Value, waiting: W) -> Act<W> {
        let refused = match self.stage {
            Stage::Silent | Stage::Greeted => Some(Unanswered::Early),
            Stage::Ready if self.asked.len() >= MOST_ASKED => Some(Unanswered::Busy),
            Stage::Ready => None,
        };
        if let Some(why) = refused {
            return Act::Tell(waiting, Err(why));
        }
        self.asked.insert(id, waiting);
        Act::Send(wire::request(id, method, params))
    }

    /// Asks the guest to put its things away, whether or not it may be asked for anything else.
    pub(super) fn part(&mut self, id: u64, waiting: W) -> Act<W> {
        self.put(id, "ui/resource-teardown", json!({}), waiting)
    }

    /// Nobody waits for that answer any more.
    pub(super) fn forget(&mut self, id: u64) -> Option<Act<W>> {
        self.asked.remove(&id)?;
        let params = json!({"requestId": id, "reason": "nobody waits"});
        Some(Act::Send(wire::notice("notifications/cancelled", params)))
    }

    /// One of the guest's requests is answered, unless it took it back.
    pub(super) fn served(&mut self, ours: u64, result: Result<Value, Fault>) -> Option<Act<W>> {
        let id = self.serving.remove(&ours)?;
        Some(Act::Send(wire::answer(&id, result)))
    }

    /// Tells the guest of the call that it was opened for, as soon as it may be told.
    pub(super) fn tell(&mut self, told: Told) -> Vec<Act<W>> {
        self.tale.take(told);
        if !self.is_ready() {
            return Vec::new();
        }
        self.tale.due().into_iter().map(Act::Send).collect()
    }

    /// Changes what the guest knows of its host.
    pub(super) fn change_context(&mut self, changes: Fields) -> Option<Act<W>> {
        self.context.extend(changes.clone());
        self.news.extend(changes);
        self.is_ready().then(|| self.tell_context())?
    }

    fn tell_context(&mut self) -> Option<Act<W>> {
        let news = std::mem::take(&mut self.news);
        let told =
            |news: Fields| wire::notice("ui/notifications/host-context-changed", news.into());
        (!news.is_empty()).then(|| Act::Send(told(news)))
    }

    /// A look at the guest's tools has ended; if it fell into the time that the guest is suspended, it is made again.
    pub(super) fn listed(&mut self, missed: bool) -> Vec<Act<W>> {
        self.lists.ended();
        if missed {
            self.lists.later();
        }
        self.look_again()
    }

    /// The pause between two looks is over.
    pub(super) fn rested(&mut self) -> Vec<Act<W>> {
        self.lists.rested();
        self.look_again()
    }

    fn look_again(&mut self) -> Vec<Act<W>> {
        if self.lists.is_due() && !self.suspended {
            self.look()
        } else {
            Vec::new()
        }
    }

    pub(super) fn suspend(&mut self, suspended: bool) -> Vec<Act<W>> {
        self.suspended = suspended;
        self.look_again()
    }

    /// Whoever still waits, to be told that nothing comes.
    pub(super) fn close(&mut self) -> impl Iterator<Item = W> + use<'_, W> {
        self.serving.clear();
        self.asked.drain().map(|(_, waiting)| waiting)
    }
}

fn refuse<W>(id: &Id, fault: Fault) -> Act<W> {
    Act::Send(wire::answer(id, Err(fault)))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Acts = Vec<Act<&'static str>>;

    /// One guest and its host, from the guest's first word on; whoever waits is a name.
    struct Stage(Talk<&'static str>);

    fn silent() -> Stage {
        let fields = |key: &str| Fields::from_iter([(key.to_owned(), json!(1))]);
        let limits = ViewLimits {
            requests: 3,
            ..ViewLimits::default()
        };
        Stage(Talk::new(limits, fields("greeting"), fields("context")))
    }

    /// A guest that introduced itself and heard the answer, with these tools among what it can do.
    fn ready(tools: &Value) -> Stage {
        let mut stage = silent();
        let params = json!({"appCapabilities": {"tools": tools}});
        stage.asks(0, "ui/initialize", params);
        stage.notes("ui/notifications/initialized", json!({}));
        stage
    }

    impl Stage {
        fn says(&mut self, message: &Value) -> Acts {
            self.0.hear(&message.to_string(), Duration::ZERO)
        }

        fn asks(&mut self, id: u64, method: &str, params: Value) -> Acts {
            self.says(&wire::request(id, method, params))
        }

        fn notes(&mut self, method: &str, params: Value) -> Acts {
            self.says(&wire::notice(method, params))
        }

        fn calls(&mut self, id: u64) -> Acts {
            self.asks(id, "tools/call", json!({"name": "t"}))
        }

        fn takes_back(&mut self, id: u64) -> Acts {
            self.notes("notifications/cancelled", json!({"requestId": id}))
        }

        fn answers(&mut self, id: u64) -> Acts {
            self.says(&json!({"jsonrpc": "2.0", "id": id, "result": {"by": id}}))
        }
    }

    fn call() -> Ask {
        Ask::Tool {
            name: "t".into(),
            arguments: Fields::new(),
        }
    }

    fn answer(id: u64, result: Value) -> Act<&'static str> {
        let id = Id::Number(id.cast_signed());
        Act::Send(wire::answer(&id, Ok(result)))
    }

    /// That one request is refused so.
    #[track_caller]
    fn refused(acts: &Acts, id: u64, code: i64) {
        let [Act::Send(said)] = acts.as_slice() else {
            panic!("{acts:?}")
        };
        assert_eq!(
            (&said["id"], &said["error"]["code"]),
            (&id.into(), &code.into())
        );
    }

    #[test]
    fn nothing_is_answered_or_asked_before_the_guest_heard_who_its_host_is() {
        let mut stage = silent();
        for greets in [true, false] {
            refused(&stage.calls(1), 1, REFUSED);
            refused(
                &stage.asks(2, "ui/update-model-context", json!({})),
                2,
                REFUSED,
            );
            assert_eq!(stage.notes("ui/notifications/size-changed", json!({})), []);
            let early = Act::Tell("me", Err(Unanswered::Early));
            assert_eq!(stage.0.ask(1, "tools/list", json!({}), "me"), early);
            assert_eq!(stage.asks(3, "ping", json!({})), [answer(3, json!({}))]);
            assert!(!stage.0.is_ready());
            if greets {
                assert_eq!(stage.notes("ui/notifications/initialized", json!({})), []);
                stage.asks(4, "ui/initialize", json!({}));
            }
        }
        let heard = stage.notes("ui/notifications/initialized", json!({}));
        assert_eq!(heard, [Act::News(ViewNews::Ready)]);
        assert_eq!(stage.calls(1), [Act::Serve(1, call())]);
        assert_eq!(stage.notes("ui/notifications/initialized", json!({})), []);
    }

    #[test]
    fn the_two_introduce_themselves_once() {
        let mut stage = silent();
        let params = json!({"appInfo": {"name": "board", "version": "2"}});
        let acts = stage.asks(7, "ui/initialize", params);
        let host =
            json!({"greeting": 1, "protocolVersion": REVISION, "hostContext": {"context": 1}});
        let guest = Guest {
            name: "board".into(),
            version: "2".into(),
            ..Guest::default()
        };
        assert_eq!(acts, [Act::Known(guest), answer(7, host)]);
        refused(
            &stage.asks(8, "ui/initialize", json!({})),
            8,
            INVALID_REQUEST,
        );
    }

    #[test]
    fn what_changes_around_the_guest_is_told_once_it_listens_and_not_what_it_was_told_at_first() {
        let change = |value: u64| Fields::from_iter([("theme".to_owned(), value.into())]);
        let told = |value: u64| {
            let method = "ui/notifications/host-context-changed";
            Act::Send(wire::notice(method, change(value).into()))
        };
        let mut stage = silent();
        let before = Fields::from_iter([("locale".to_owned(), json!("x"))]);
        assert_eq!(stage.0.change_context(before), None);
        let acts = stage.asks(0, "ui/initialize", json!({}));
        let [_, Act::Send(greeting)] = acts.as_slice() else {
            panic!("{acts:?}")
        };
        let context = json!({"context": 1, "locale": "x"});
        assert_eq!(greeting["result"]["hostContext"], context);
        assert_eq!(stage.0.change_context(change(2)), None);
        let acts = stage.notes("ui/notifications/initialized", json!({}));
        assert_eq!(acts, [Act::News(ViewNews::Ready), told(2)]);
        assert_eq!(stage.0.change_context(change(3)), Some(told(3)));
        assert_eq!(stage.0.change_context(Fields::new()), None);
    }

    #[test]
    fn a_request_is_answered_once_under_the_guest_s_own_id() {
        let mut stage = ready(&Value::Null);
        assert_eq!(stage.calls(70), [Act::Serve(1, call())]);
        refused(&stage.calls(70), 70, INVALID_REQUEST);
        assert_eq!(stage.calls(71), [Act::Serve(2, call())]);
        let second = stage.0.served(2, Ok(json!({"n": 2})));
        assert_eq!(second, Some(answer(71, json!({"n": 2}))));
        let first = stage.0.served(1, Ok(json!({"n": 1})));
        assert_eq!(first, Some(answer(70, json!({"n": 1}))));
        assert_eq!(stage.0.served(1, Ok(json!({}))), None);
    }

    #[test]
    fn what_a_request_that_was_taken_back_came_to_answers_no_later_one_of_its_id() {
        let mut stage = ready(&Value::Null);
        assert_eq!(stage.calls(7), [Act::Serve(1, call())]);
        assert_eq!(stage.takes_back(7), [Act::Withdraw(1)]);
        assert_eq!(stage.takes_back(7), []);
        assert_eq!(stage.calls(7), [Act::Serve(2, call())]);
        // It had ended before anybody could stop it.
        assert_eq!(stage.0.served(1, Ok(json!({"of": "the first"}))), None);
        let second = stage.0.served(2, Ok(json!({"of": "the second"})));
        assert_eq!(second, Some(answer(7, json!({"of": "the second"}))));
    }

    #[test]
    fn so_many_requests_are_open_and_no_more() {
        let mut stage = ready(&Value::Null);
        for id in 1..=3 {
            assert_eq!(stage.calls(id), [Act::Serve(id, call())]);
        }
        refused(&stage.calls(4), 4, REFUSED);
        stage.takes_back(2);
        assert_eq!(stage.calls(4), [Act::Serve(4, call())]);
        refused(&stage.calls(5), 5, REFUSED);
        stage.0.served(1, Ok(json!({})));
        assert_eq!(stage.calls(5), [Act::Serve(5, call())]);
    }

    #[test]
    fn what_the_model_is_to_know_is_taken_down_at_once() {
        let mut stage = ready(&Value::Null);
        let context = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        for (id, text) in [(1, "first"), (2, "second")] {
            let acts = stage.asks(id, "ui/update-model-context", context(text));
            let [
                Act::Context(context),
                done,
                Act::News(ViewNews::ModelContext),
            ] = acts.as_slice()
            else {
                panic!("{acts:?}")
            };
            assert_eq!(
                (context.text().as_str(), done),
                (text, &answer(id, json!({})))
            );
        }
    }

    #[test]
    fn an_answer_counts_once_and_for_whom_it_is() {
        let mut stage = ready(&Value::Null);
        let asked = |id: u64| Act::Send(wire::request(id, "tools/list", json!({})));
        assert_eq!(stage.0.ask(1, "tools/list", json!({}), "one"), asked(1));
        assert_eq!(stage.0.ask(2, "tools/list", json!({}), "two"), asked(2));
        assert_eq!(stage.answers(3), []);
        let said = |id: u64| Ok(Fields::from_iter([("by".to_owned(), id.into())]));
        assert_eq!(stage.answers(2), [Act::Tell("two", said(2))]);
        assert_eq!(stage.answers(2), []);
        let cancelled = json!({"requestId": 1, "reason": "nobody waits"});
        let cancelled = wire::notice("notifications/cancelled", cancelled);
        assert_eq!(stage.0.forget(1), Some(Act::Send(cancelled)));
        assert_eq!(stage.0.forget(1), None);
        assert_eq!(stage.answers(1), []);
    }

    #[test]
    fn so_much_is_asked_of_the_guest_and_no_more() {
        let mut stage = ready(&Value::Null);
        let most = u64::try_from(MOST_ASKED).unwrap();
        for id in 1..=most {
            let asked = stage.0.ask(id, "tools/list", json!({}), "me");
            assert!(matches!(asked, Act::Send(_)), "{asked:?}");
        }
        let busy = Act::Tell("me", Err(Unanswered::Busy));
        assert_eq!(stage.0.ask(most + 1, "tools/list", json!({}), "me"), busy);
        stage.answers(1);
        let asked = stage.0.ask(most + 2, "tools/list", json!({}), "me");
        assert!(matches!(asked, Act::Send(_)), "{asked:?}");
        assert_eq!(stage.0.close().count(), MOST_ASKED);
        assert_eq!(stage.answers(most + 2), []);
    }

    #[test]
    fn out_of_sight_the_guest_neither_asks_nor_is_asked_but_to_part() {
        let mut stage = ready(&Value::Null);
        assert_eq!(stage.calls(1), [Act::Serve(1, call())]);
        assert_eq!(stage.0.suspend(true), []);
        refused(&stage.calls(2), 2, REFUSED);
        let suspended = Act::Tell("me", Err(Unanswered::Suspended));
        assert_eq!(stage.0.ask(1, "tools/list", json!({}), "me"), suspended);
        let part = wire::request(2, "ui/resource-teardown", json!({}));
        assert_eq!(stage.0.part(2, "me"), Act::Send(part));
        // What is under way goes on.
        let done = stage.0.served(1, Ok(json!({})));
        assert_eq!(done, Some(answer(1, json!({}))));
        assert_eq!(stage.0.suspend(false), []);
        assert_eq!(stage.calls(2), [Act::Serve(2, call())]);
    }

    #[test]
    fn of_its_call_the_guest_is_told_once_it_listens_and_in_order() {
        let mut stage = silent();
        assert_eq!(stage.0.tell(Told::Result(json!({"end": 1}))), []);
        assert_eq!(stage.0.tell(Told::Input(json!({"arguments": {}}))), []);
        stage.asks(0, "ui/initialize", json!({}));
        let acts = stage.notes("ui/notifications/initialized", json!({}));
        let told = |method: &str, params: Value| Act::Send(wire::notice(method, params));
        let input = told("ui/notifications/tool-input", json!({"arguments": {}}));
        let end = told("ui/notifications/tool-result", json!({"end": 1}));
        assert_eq!(acts, [Act::News(ViewNews::Ready), input, end]);
        let reason = json!({"reason": "x"});
        let cancelled = told("ui/notifications/tool-cancelled", reason.clone());
        assert_eq!(stage.0.tell(Told::Cancelled(reason)), [cancelled]);
    }

    #[test]
    fn only_a_guest_that_says_that_it_has_tools_is_asked_for_them() {
        let news = || Act::News(ViewNews::Ready);
        for (tools, looks, again) in [
            (json!(null), false, false),
            (json!({}), true, false),
            (json!({"listChanged": true}), true, true),
        ] {
            let mut stage = silent();
            let params = json!({"appCapabilities": {"tools": tools}});
            stage.asks(0, "ui/initialize", params);
            let acts = stage.notes("ui/notifications/initialized", json!({}));
            let look = || [Act::List, Act::Rest];
            let expected: Acts = match looks {
                true => [news()].into_iter().chain(look()).collect(),
                false => vec![news()],
            };
            assert_eq!(acts, expected, "{tools}");
            assert_eq!(stage.0.listed(false), []);
            assert_eq!(stage.0.rested(), []);
            let acts = stage.notes("notifications/tools/list_changed", json!({}));
            let expected: Acts = if again { look().into() } else { vec![] };
            assert_eq!(acts, expected, "{tools}");
        }
    }

    #[test]
    fn a_look_that_the_guest_was_out_of_sight_for_is_made_again_when_it_is_back() {
        let look = [Act::List, Act::Rest];
        let mut missed = ready(&json!({}));
        missed.0.suspend(true);
        assert_eq!(missed.0.listed(true), []);
        assert_eq!(missed.0.rested(), []);
        assert_eq!(missed.0.suspend(false), look);

        let mut changed = ready(&json!({"listChanged": true}));
        changed.0.listed(false);
        changed.0.rested();
        changed.0.suspend(true);
        let acts = changed.notes("notifications/tools/list_changed", json!({}));
        assert_eq!(acts, []);
        assert_eq!(changed.0.suspend(false), look);
    }

    #[test]
    fn a_flood_of_notices_is_passed_over_and_requests_are_not() {
        let mut stage = ready(&Value::Null);
        let mut close = |now| {
            let notice = wire::notice("ui/notifications/request-teardown", json!({}));
            stage.0.hear(&notice.to_string(), now)
        };
        let heard = (0..1000).filter(|_| !close(Duration::ZERO).is_empty());
        assert!((1..1000).contains(&heard.count()));
        assert_eq!(close(Duration::ZERO), []);
        let second = Duration::from_secs(1);
        assert_eq!(close(second), [Act::News(ViewNews::WantsClose)]);
        assert_eq!(stage.calls(1), [Act::Serve(1, call())]);
    }

    #[test]
    fn once_closed_nobody_waits_and_nothing_is_answered() {
        let mut stage = ready(&Value::Null);
        stage.calls(1);
        stage.0.ask(1, "tools/list", json!({}), "one");
        stage.0.part(2, "two");
        let mut waiting: Vec<_> = stage.0.close().collect();
        waiting.sort_unstable();
        assert_eq!(waiting, ["one", "two"]);
        assert_eq!(stage.0.served(1, Ok(json!({}))), None);
        assert_eq!(stage.answers(1), []);
    }
}
