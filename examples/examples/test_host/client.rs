//! Requests in, their responses out, over one connection whose every message is logged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_examples::Failure;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::link::{self, Incoming, Link};
use super::wire::{Side, Wire};

type Waiting = HashMap<i64, oneshot::Sender<Result<Value, String>>>;

/// A client of one server.
pub(crate) struct Client {
    shared: Arc<Shared>,
    next: AtomicI64,
    /// What is added to the `_meta` of each request.
    stamp: Map<String, Value>,
    ended: watch::Receiver<Option<String>>,
    tasks: Mutex<Option<JoinSet<()>>>,
}

struct Shared {
    wire: Arc<Wire>,
    waiting: Mutex<Waiting>,
    outgoing: Mutex<Option<mpsc::UnboundedSender<Value>>>,
    /// A person is there to answer what the server asks.
    attended: bool,
}

impl Client {
    pub(crate) fn over(
        link: Link,
        wire: &Arc<Wire>,
        stamp: Map<String, Value>,
        attended: bool,
    ) -> Self {
        let shared = Arc::new(Shared {
            wire: Arc::clone(wire),
            waiting: Mutex::default(),
            outgoing: Mutex::new(Some(link.outgoing)),
            attended,
        });
        let (end, ended) = watch::channel(None);
        let mut tasks = link.tasks;
        let listener = Arc::clone(&shared);
        let mut incoming = link.incoming;
        tasks.spawn(async move {
            let reason = listener.listen(&mut incoming).await;
            end.send_replace(Some(reason));
            listener.close();
        });
        Self {
            shared,
            next: AtomicI64::new(1),
            stamp,
            ended,
            tasks: Mutex::new(Some(tasks)),
        }
    }

    /// Sends a request and waits for its whole response, an error too.
    ///
    /// # Errors
    /// If the server is gone, or goes before it answers.
    pub(crate) async fn request(&self, method: &str, mut params: Value) -> Result<Value, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if let (false, Value::Object(params)) = (self.stamp.is_empty(), &mut params) {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.extend(self.stamp.clone());
            }
        }
        let (answer, answered) = oneshot::channel();
        self.shared.waiting().insert(id, answer);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let sent = self.shared.send(message);
        if !sent {
            self.shared.waiting().remove(&id);
            return Err(self.reason().into());
        }
        match answered.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(reason)) => Err(reason.into()),
            Err(_) => Err(self.reason().into()),
        }
    }

    pub(crate) fn notify(&self, method: &str) {
        self.shared
            .send(json!({"jsonrpc": "2.0", "method": method}));
    }

    /// Answers what the server asked.
    pub(crate) fn reply(&self, id: &Value, result: &Value) {
        self.shared
            .send(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Why the connection is over, if it is.
    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    fn reason(&self) -> String {
        let ended = self.ended();
        ended.unwrap_or_else(|| "the server is gone".to_owned())
    }

    /// Closes the connection, and ends the server if it was started for it.
    pub(crate) async fn close(&self) {
        self.shared.close();
        let tasks = lock(&self.tasks).take();
        if let Some(tasks) = tasks {
            link::end(tasks).await;
        }
    }
}

impl Shared {
    async fn listen(&self, incoming: &mut mpsc::Receiver<Incoming>) -> String {
        while let Some(incoming) = incoming.recv().await {
            match incoming {
                Incoming::Message(message) => {
                    self.wire.message(Side::Received, &message);
                    self.heard(message);
                }
                Incoming::Broken { text, fault } => self.wire.broken(text, fault),
                Incoming::Said(line) => self.wire.said(line),
                Incoming::Failed { id, reason } => {
                    self.wire.broken(reason.clone(), reason.clone());
                    self.settle(&id, Err(reason));
                }
                Incoming::Ended(reason) => {
                    self.wire.state(&format!("ended: {reason}"));
                    return reason;
                }
            }
        }
        "the connection was closed".to_owned()
    }

    fn heard(&self, message: Value) {
        let id = message.get("id").cloned().unwrap_or_default();
        match message.get("method").and_then(Value::as_str) {
            None => self.settle(&id, Ok(message)),
            Some(_) if id.is_null() => {}
            Some("ping") => {
                self.send(json!({"jsonrpc": "2.0", "id": id, "result": {}}));
            }
            Some("elicitation/create") if self.attended => {}
            Some("elicitation/create") => {
                self.send(json!({"jsonrpc": "2.0", "id": id, "result": {"action": "cancel"}}));
            }
            Some(_) => {
                let error = json!({"code": -32601, "message": "this host does not do that"});
                self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        }
    }

    fn settle(&self, id: &Value, answer: Result<Value, String>) {
        let waiting = id.as_i64().and_then(|id| self.waiting().remove(&id));
        if let Some(waiting) = waiting {
            // Whoever asked may have stopped waiting.
            let _ = waiting.send(answer);
        }
    }

    /// Whether there is still somebody to send it to.
    fn send(&self, message: Value) -> bool {
        let outgoing = lock(&self.outgoing);
        let Some(outgoing) = outgoing.as_ref() else {
            return false;
        };
        self.wire.message(Side::Sent, &message);
        outgoing.send(message).is_ok()
    }

    fn close(&self) {
        lock(&self.outgoing).take();
        self.waiting().clear();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
