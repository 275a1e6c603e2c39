//! A call that takes long in, a task that the client asks after out; only the worker that began it may ask.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData};
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use tokio::task::JoinHandle;

/// How long a call may take before it becomes a task.
const SOON: Duration = Duration::from_secs(2);
/// How many tasks one gateway keeps that have not ended.
const MOST_RUNNING: usize = 256;

type Finished = Result<CallToolResult, ErrorData>;

/// The tasks of all connections of a gateway.
#[derive(Default)]
pub(super) struct Tasks {
    manager: TaskManager,
    owners: Mutex<HashMap<String, String>>,
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
        if self.manager.running_task_count() >= MOST_RUNNING {
            return underway.finished().await.map(Into::into);
        }
        let task = self.manager.spawn(TaskOptions::new(), |context| {
            Box::pin(async move {
                tokio::select! {
                    finished = underway.finished() => finished.map_err(TaskExit::Error),
                    () = context.cancelled() => Err(TaskExit::Cancelled),
                }
            })
        });
        let mut owners = self.owners();
        // Tasks that are no longer kept need no owner.
        owners.retain(|id, _| self.manager.get_task(id).is_ok());
        owners.insert(task.task_id.clone(), owner.to_owned());
        Ok(CreateTaskResult::new(task).into())
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
        if self.owners().get(id).is_some_and(|owner| owner == asker) {
            return Ok(());
        }
        Err(ErrorData::invalid_params("there is no such task", None))
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
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
