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
const TASK_DELAY: Duration = Duration::from_secs(2);
/// How many tasks one gateway keeps, running and ended.
const MAX_TASKS: usize = 256;
/// How many bytes the results of tasks may take together.
const MAX_BYTES: usize = 64 << 20;
/// How many bytes are set aside for a result that is still to come.
const EXPECTED_RESULT_BYTES: usize = 1 << 20;

type CallResult = Result<CallToolResult, ErrorData>;

/// The tasks of all connections of a gateway.
#[derive(Default)]
pub(super) struct Tasks {
    manager: TaskManager,
    tasks: Mutex<HashMap<String, TaskEntry>>,
}

/// One task that can be asked after.
#[derive(Debug)]
struct TaskEntry {
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
pub(super) struct CallTask(pub(super) JoinHandle<CallResult>);

impl Drop for CallTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl CallTask {
    async fn finished(&mut self) -> CallResult {
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
        mut call: CallTask,
    ) -> Result<CallToolResponse, ErrorData> {
        let waited = tokio::time::timeout(TASK_DELAY, call.finished()).await;
        if let Ok(finished) = waited {
            return finished.map(Into::into);
        }
        if !self.has_room() {
            return call.finished().await.map(Into::into);
        }
        let bytes = Arc::new(AtomicUsize::new(EXPECTED_RESULT_BYTES));
        let taken = Arc::clone(&bytes);
        let task = self.manager.spawn(TaskOptions::new(), |context| {
            Box::pin(async move {
                tokio::select! {
                    finished = call.finished() => {
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
        let entry = TaskEntry { owner, bytes };
        self.lock().insert(task.task_id.clone(), entry);
        Ok(CreateTaskResult::new(task).into())
    }

    /// Whether one more task can be kept; those that the manager has forgotten make room.
    fn has_room(&self) -> bool {
        let mut tasks = self.lock();
        tasks.retain(|id, _| self.manager.get_task(id).is_ok());
        let bytes = tasks
            .values()
            .map(|task| task.bytes.load(Ordering::Relaxed));
        tasks.len() < MAX_TASKS && bytes.sum::<usize>() + EXPECTED_RESULT_BYTES <= MAX_BYTES
    }

    pub(super) fn get(&self, id: &str, caller: &str) -> Result<DetailedTask, ErrorData> {
        self.check_owner(id, caller)?;
        self.manager.get_task(id)
    }

    pub(super) fn cancel(&self, id: &str, caller: &str) -> Result<(), ErrorData> {
        self.check_owner(id, caller)?;
        self.manager.cancel_task(id)
    }

    /// Tasks here ask for no input, so what comes for one that is known is passed over.
    pub(super) fn update(&self, id: &str, caller: &str) -> Result<(), ErrorData> {
        self.check_owner(id, caller)
    }

    /// The same error for a task that is not there and one of somebody else.
    fn check_owner(&self, id: &str, caller: &str) -> Result<(), ErrorData> {
        if self.lock().get(id).is_some_and(|task| task.owner == caller) {
            return Ok(());
        }
        Err(ErrorData::invalid_params("there is no such task", None))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, TaskEntry>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ContentBlock, TaskStatus};

    fn done() -> CallResult {
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_call_answers_and_a_slow_one_becomes_its_owners_task() {
        let tasks = Tasks::default();
        let owner = "a/w1";
        let quick = CallTask(tokio::spawn(async { done() }));
        let answer = tasks.answer(owner, quick).await.unwrap();
        assert!(matches!(answer, CallToolResponse::Complete(_)));

        let slow = CallTask(tokio::spawn(async {
            tokio::time::sleep(TASK_DELAY * 5).await;
            done()
        }));
        let CallToolResponse::Task(task) = tasks.answer(owner, slow).await.unwrap() else {
            panic!("no task");
        };
        let id = task.task.task_id;
        assert!(tasks.get(&id, "a/w2").is_err(), "a task is its owner's");
        assert!(tasks.cancel(&id, "a/w2").is_err());
        assert!(tasks.get(&id, owner).unwrap().status() == TaskStatus::Working);
        tokio::time::sleep(TASK_DELAY * 5).await;
        assert_eq!(
            tasks.get(&id, owner).unwrap().status(),
            TaskStatus::Completed
        );
    }

    /// A call that takes long, and ends with a text of so many bytes.
    fn long(bytes: usize) -> CallTask {
        CallTask(tokio::spawn(async move {
            tokio::time::sleep(TASK_DELAY * 2).await;
            let text = "x".repeat(bytes);
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn results_that_are_kept_are_bounded_in_bytes() {
        let tasks = Tasks::default();
        let mut count = 0;
        while let CallToolResponse::Task(_) = tasks.answer("a/w1", long(8 << 20)).await.unwrap() {
            tokio::time::sleep(TASK_DELAY * 2).await;
            count += 1;
            assert!(count < 100, "nothing bounds the tasks");
        }
        assert!((4..=10).contains(&count), "{count} results of 8 MiB");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_are_kept_are_bounded_in_number() {
        let tasks = Tasks::default();
        for _ in 0..MAX_TASKS {
            let task = tasks.answer("a/w1", long(1)).await.unwrap();
            assert!(matches!(task, CallToolResponse::Task(_)));
            tokio::time::sleep(TASK_DELAY * 2).await;
        }
        let beyond = tasks.answer("a/w1", long(1)).await.unwrap();
        assert!(matches!(beyond, CallToolResponse::Complete(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_task_withdraws_its_call() {
        let tasks = Tasks::default();
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let slow = CallTask(tokio::spawn(async move {
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
