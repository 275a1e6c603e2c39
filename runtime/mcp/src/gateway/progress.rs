//! Progress notifications of calls.

use std::pin::{Pin, pin};
use std::time::Duration;

use rmcp::model::ProgressNotificationParam;
use rmcp::service::{RequestContext, RoleServer};

use bailiwick::call::Progress;

/// Minimum time between progress notifications of a call.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long an answer waits for a notification that was begun. One that waits longer, because the client does not read,
/// has its place before the answer already.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// A call that ended.
#[derive(Debug)]
pub(super) struct Ended<T, N> {
    result: T,
    /// The notification that was being sent when it ended.
    unsent: Option<Pin<Box<N>>>,
}

impl<T, N: Future<Output = ()>> Ended<T, N> {
    /// The result, once the last notification is sent, since none may follow the answer (MCP, "Progress").
    pub(super) async fn after_progress(self) -> T {
        if let Some(unsent) = self.unsent {
            let _ = tokio::time::timeout(SEND_TIMEOUT, unsent).await;
        }
        self.result
    }
}

/// Runs `call`, and sends progress notifications if the client asked for them.
pub(super) async fn with_progress<T>(
    context: &RequestContext<RoleServer>,
    progress: Option<Progress>,
    call: impl Future<Output = T>,
) -> Ended<T, impl Future<Output = ()>> {
    let Some((progress, token)) = progress.zip(context.meta.get_progress_token()) else {
        return Ended {
            result: call.await,
            unsent: None,
        };
    };
    let notify = |done: u64| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "MCP counts in floating point; a count beyond 2^53 may be rounded"
        )]
        let mut update = ProgressNotificationParam::new(token.clone(), done as f64);
        update.message = progress.message().map(String::from);
        // A failure to send shows when the answer is sent.
        async move { drop(context.peer.notify_progress(update).await) }
    };
    notifying(call, &progress, notify).await
}

/// Runs `call`, and meanwhile calls `notify` with the units of work that are done.
async fn notifying<T, N: Future<Output = ()>>(
    call: impl Future<Output = T>,
    progress: &Progress,
    mut notify: impl FnMut(u64) -> N,
) -> Ended<T, N> {
    let (mut call, mut reported) = (pin!(call), 0);
    loop {
        if let Ok(result) = tokio::time::timeout(INTERVAL, &mut call).await {
            return Ended {
                result,
                unsent: None,
            };
        }
        let done = progress.done();
        if done <= reported {
            continue;
        }
        reported = done;
        let mut sent = Box::pin(notify(done));
        tokio::select! {
            () = &mut sent => {}
            result = &mut call => {
                return Ended { result, unsent: Some(sent) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::{Notify, oneshot};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_notification_does_not_follow_the_answer() {
        let (progress, begun, gate) = (Progress::default(), Notify::new(), Notify::new());
        progress.step();
        let (end, ended) = oneshot::channel();
        let order = Arc::new(Mutex::new(Vec::new()));
        let notify = |done: u64| {
            let (begun, gate, order) = (&begun, &gate, Arc::clone(&order));
            async move {
                begun.notify_one();
                gate.notified().await;
                order.lock().unwrap().push(format!("{done} done"));
            }
        };
        let call = async {
            ended.await.unwrap();
            gate.notify_one();
        };
        let answered = async {
            let ended = notifying(call, &progress, notify).await;
            ended.after_progress().await;
            order.lock().unwrap().push("answer".to_owned());
        };
        let client = async {
            begun.notified().await;
            end.send(()).unwrap();
        };
        tokio::join!(answered, client);
        assert_eq!(*order.lock().unwrap(), ["1 done", "answer"]);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_reported_only_if_there_is_some() {
        let progress = Progress::default();
        let reports = Mutex::new(Vec::new());
        let call = async {
            for steps in [1, 0, 2] {
                (0..steps).for_each(|_| progress.step());
                tokio::time::sleep(INTERVAL + Duration::from_millis(1)).await;
            }
        };
        let notify = |done: u64| {
            reports.lock().unwrap().push(done);
            std::future::ready(())
        };
        let ended = notifying(call, &progress, notify).await;
        ended.after_progress().await;
        assert_eq!(*reports.lock().unwrap(), [1, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_waits_only_briefly_for_a_notification() {
        let progress = Progress::default();
        progress.step();
        let call = tokio::time::sleep(INTERVAL * 2);
        let never = |_: u64| std::future::pending();
        let ended = notifying(call, &progress, never).await;
        let since = tokio::time::Instant::now();
        ended.after_progress().await;
        assert!(since.elapsed() <= SEND_TIMEOUT * 2);
    }
}
