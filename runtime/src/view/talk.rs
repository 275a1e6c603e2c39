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
    served: u64,
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
            served: 0,
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
        if self.open(&id).is_some() {
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
                self.served += 1;
                self.serving.insert(self.served, id);
                vec![Act::Serve(self.served, ask)]
            }
        }
    }

    /// The number of the request that has this id, if one is open.
    fn open(&self, id: &Id) -> Option<u64> {
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
                let ours = id.and_then(|id| self.open(&id));
                let taken = ours.inspect(|ours| drop(self.serving.remove(ours)));
                taken.map(Act::Withdraw).into_iter().collect()
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
}
