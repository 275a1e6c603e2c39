//! Long calls as tasks that their client asks after; only the worker that began one may ask. Beyond a bound on their
//! number and on the bytes of their results, calls are answered when they end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData};
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use tokio::task::JoinHandle;

/// How long a call may take before it becomes a task.
const SOON: Duration = Duration::from_secs(2);
/// How many tasks one gateway keeps, running and ended.
const MAX_KEPT: usize = 256;
/// How many bytes the results of tasks may take together.
const MAX_BYTES: usize = 64 << 20;
/// How many bytes are set aside for a result that is still to come.
const EXPECTED: usize = 1 << 20;

type Finished = Result<CallToolResult, ErrorData>;

/// The tasks of all connections of a gateway.
#[derive(Default)]
pub(super) struct Tasks {
    manager: TaskManager,
    kept: Mutex<HashMap<String, Kept>>,
}

/// One task that can be asked after.
#[derive(Debug)]
struct Kept {
    owner: String,
    /// How long its result is, or is expected to be, in bytes.
    bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

/// A call under way; dropping it withdraws the call.
pub(super) struct Underway(pub(super) JoinHandle<Finished>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Underway {
    async fn finished(&mut self) -> Finished {
        (&mut self.0)
            .await
            .unwrap_or_else(|_| Err(ErrorData::internal_error("the call was lost", None)))
    }
}

impl Tasks {
    /// The answer of a call, or the task that it becomes if that does not come soon.
    pub(super) async fn answer(
        &self,
        owner: &str,
        mut underway: Underway,
    ) -> Result<CallToolResponse, ErrorData> {
        let waited = tokio::time::timeout(SOON, underway.finished()).await;
        if let Ok(finished) = waited {
            return finished.map(Into::into);
        }
        if !self.has_room() {
            return underway.finished().await.map(Into::into);
        }
        let bytes = Arc::new(AtomicUsize::new(EXPECTED));
        let taken = Arc::clone(&bytes);
        let task = self.manager.spawn(TaskOptions::new(), |context| {
            Box::pin(async move {
                tokio::select! {
                    finished = underway.finished() => {
                        let length = finished.as_ref().ok().and_then(|result| {
                            serde_json::to_vec(result).ok().map(|text| text.len())
                        });
                        taken.store(length.unwrap_or_default(), Ordering::Relaxed);
                        finished.map_err(TaskExit::Error)
                    }
                    () = context.cancelled() => {
                        taken.store(0, Ordering::Relaxed);
                        Err(TaskExit::Cancelled)
                    }
                }
            })
        });
        let owner = owner.to_owned();
        let kept = Kept { owner, bytes };
        self.kept().insert(task.task_id.clone(), kept);
        Ok(CreateTaskResult::new(task).into())
    }

    /// Whether one more task can be kept; those that the manager has forgotten make room.
    fn has_room(&self) -> bool {
        let mut kept = self.kept();
        kept.retain(|id, _| self.manager.get_task(id).is_ok());
        let bytes = kept.values().map(|task| task.bytes.load(Ordering::Relaxed));
        kept.len() < MAX_KEPT && bytes.sum::<usize>() + EXPECTED <= MAX_BYTES
    }

    pub(super) fn get(&self, id: &str, asker: &str) -> Result<DetailedTask, ErrorData> {
        self.owned(id, asker)?;
        self.manager.get_task(id)
    }

    pub(super) fn cancel(&self, id: &str, asker: &str) -> Result<(), ErrorData> {
        self.owned(id, asker)?;
        self.manager.cancel_task(id)
    }

    /// Tasks here ask for no input, so what comes for one that is known is passed over.
    pub(super) fn update(&self, id: &str, asker: &str) -> Result<(), ErrorData> {
        self.owned(id, asker)
    }

    /// The same error for a task that is not there and one of somebody else.
    fn owned(&self, id: &str, asker: &str) -> Result<(), ErrorData> {
        if self.kept().get(id).is_some_and(|task| task.owner == asker) {
            return Ok(());
        }
        Err(ErrorData::invalid_params("there is no such task", None))
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ContentBlock, TaskStatus};

    fn done() -> Finished {
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_call_answers_and_a_slow_one_becomes_its_owners_task() {
        let tasks = Tasks::default();
        let owner = "a/w1";
        let quick = Underway(tokio::spawn(async { done() }));
        let answer = tasks.answer(owner, quick).await.unwrap();
        assert!(matches!(answer, CallToolResponse::Complete(_)));

        let slow = Underway(tokio::spawn(async {
            tokio::time::sleep(SOON * 5).await;
            done()
        }));
        let CallToolResponse::Task(task) = tasks.answer(owner, slow).await.unwrap() else {
            panic!("no task");
        };
        let id = task.task.task_id;
        assert!(tasks.get(&id, "a/w2").is_err(), "a task is its owner's");
        assert!(tasks.cancel(&id, "a/w2").is_err());
        assert!(tasks.get(&id, owner).unwrap().status() == TaskStatus::Working);
        tokio::time::sleep(SOON * 5).await;
        assert_eq!(
            tasks.get(&id, owner).unwrap().status(),
            TaskStatus::Completed
        );
    }

    /// A call that takes long, and ends with a text of so many bytes.
    fn long(bytes: usize) -> Underway {
        Underway(tokio::spawn(async move {
            tokio::time::sleep(SOON * 2).await;
            let text = "x".repeat(bytes);
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn results_that_are_kept_are_bounded_in_bytes() {
        let tasks = Tasks::default();
        let mut kept = 0;
        while let CallToolResponse::Task(_) = tasks.answer("a/w1", long(8 << 20)).await.unwrap() {
            tokio::time::sleep(SOON * 2).await;
            kept += 1;
            assert!(kept < 100, "nothing bounds the tasks");
        }
        assert!((4..=10).contains(&kept), "{kept} results of 8 MiB");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_are_kept_are_bounded_in_number() {
        let tasks = Tasks::default();
        for _ in 0..MAX_KEPT {
            let task = tasks.answer("a/w1", long(1)).await.unwrap();
            assert!(matches!(task, CallToolResponse::Task(_)));
            tokio::time::sleep(SOON * 2).await;
        }
        let beyond = tasks.answer("a/w1", long(1)).await.unwrap();
        assert!(matches!(beyond, CallToolResponse::Complete(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_task_withdraws_its_call() {
        let tasks = Tasks::default();
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let slow = Underway(tokio::spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
            done()
        }));
        let CallToolResponse::Task(task) = tasks.answer("a/w1", slow).await.unwrap() else {
            panic!("no task");
        };
        tasks.cancel(&task.task.task_id, "a/w1").unwrap();
        assert!(gone.await.is_err(), "the call was dropped");
    }
}
