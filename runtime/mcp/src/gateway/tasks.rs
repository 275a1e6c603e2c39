//! Long calls as MCP tasks, which only the worker that started them can query. The number of tasks and the size of
//! their results are limited; beyond the limits calls are answered when they end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData};
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use tokio_util::task::AbortOnDropHandle;

/// Calls that take longer become tasks.
const TASK_DELAY: Duration = Duration::from_secs(2);
/// Maximum number of tasks per gateway, running and ended.
const MAX_TASKS: usize = 256;
/// Maximum total size of results, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Bytes reserved for the result of a running task.
const EXPECTED_RESULT_BYTES: usize = 1 << 20;

type CallResult = Result<CallToolResult, ErrorData>;

/// The tasks of a gateway.
#[derive(Default)]
pub(super) struct Tasks {
    manager: TaskManager,
    tasks: Mutex<HashMap<String, TaskEntry>>,
}

/// A task.
#[derive(Debug)]
struct TaskEntry {
    owner: String,
    /// Size of the result, or the reserved size.
    bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

/// A running call; dropping it cancels the call.
type CallTask = AbortOnDropHandle<CallResult>;

async fn finished(call: &mut CallTask) -> CallResult {
    let lost = |_| Err(ErrorData::internal_error("the call was lost", None));
    call.await.unwrap_or_else(lost)
}

/// Whether another task fits.
fn has_room(tasks: &HashMap<String, TaskEntry>) -> bool {
    let bytes = tasks
        .values()
        .map(|task| task.bytes.load(Ordering::Relaxed));
    tasks.len() < MAX_TASKS && bytes.sum::<usize>() + EXPECTED_RESULT_BYTES <= MAX_BYTES
}

impl Tasks {
    /// The result of a call, or a task if it takes long.
    pub(super) async fn answer(
        &self,
        owner: &str,
        mut call: CallTask,
    ) -> Result<CallToolResponse, ErrorData> {
        let waited = tokio::time::timeout(TASK_DELAY, finished(&mut call)).await;
        if let Ok(finished) = waited {
            return finished.map(Into::into);
        }
        match self.create(owner, call) {
            Ok(created) => Ok(created.into()),
            Err(mut call) => finished(&mut call).await.map(Into::into),
        }
    }

    /// Creates a task for a call. Returns the call if there are too many tasks.
    fn create(&self, owner: &str, mut call: CallTask) -> Result<CreateTaskResult, CallTask> {
        // Locked until the task is added, so that concurrent calls do not exceed the limits.
        let mut tasks = self.tasks.lock();
        // The manager drops tasks some time after they have ended.
        tasks.retain(|id, _| self.manager.get_task(id).is_ok());
        if !has_room(&tasks) {
            return Err(call);
        }
        let bytes = Arc::new(AtomicUsize::new(EXPECTED_RESULT_BYTES));
        let taken = Arc::clone(&bytes);
        let task = self.manager.spawn(TaskOptions::new(), |context| {
            Box::pin(async move {
                tokio::select! {
                    finished = finished(&mut call) => {
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
        tasks.insert(task.task_id.clone(), entry);
        Ok(CreateTaskResult::new(task))
    }

    pub(super) fn get(&self, id: &str, caller: &str) -> Result<DetailedTask, ErrorData> {
        self.check_owner(id, caller)?;
        self.manager.get_task(id)
    }

    pub(super) fn cancel(&self, id: &str, caller: &str) -> Result<(), ErrorData> {
        self.check_owner(id, caller)?;
        self.manager.cancel_task(id)
    }

    /// Tasks never request input, so updates of a known task are ignored.
    pub(super) fn update(&self, id: &str, caller: &str) -> Result<(), ErrorData> {
        self.check_owner(id, caller)
    }

    /// The error is the same for an absent task and one of another worker.
    fn check_owner(&self, id: &str, caller: &str) -> Result<(), ErrorData> {
        if self
            .tasks
            .lock()
            .get(id)
            .is_some_and(|task| task.owner == caller)
        {
            return Ok(());
        }
        Err(ErrorData::invalid_params("there is no such task", None))
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
    async fn slow_call_becomes_a_task_of_its_owner() {
        let tasks = Tasks::default();
        let owner = "a/w1";
        let quick = CallTask::new(tokio::spawn(async { done() }));
        let answer = tasks.answer(owner, quick).await.unwrap();
        assert!(matches!(answer, CallToolResponse::Complete(_)));

        let slow = CallTask::new(tokio::spawn(async {
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

    /// A slow call whose result has that many bytes.
    fn long(bytes: usize) -> CallTask {
        CallTask::new(tokio::spawn(async move {
            tokio::time::sleep(TASK_DELAY * 2).await;
            let text = "x".repeat(bytes);
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn task_results_are_bounded_in_bytes() {
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
    async fn tasks_are_bounded_in_number() {
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
    async fn cancelled_task_cancels_its_call() {
        let tasks = Tasks::default();
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let slow = CallTask::new(tokio::spawn(async move {
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
