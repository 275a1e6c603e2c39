//! Calls in progress: a call ends or waits for a question.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::admission::{self, CallOptions, Done, ResultHold};
use super::{Worker, outcome};
use crate::call::{Call, Mode};
use crate::effect::Outcome;
use crate::error::CallError;
use crate::permission::{Question, QuestionSender};

/// Progress of a call.
#[derive(Debug)]
pub enum CallProgress {
    /// The call has ended.
    Ended(Box<Outcome>),
    /// The call waits for approval.
    Pending(Box<PendingCall>),
}

/// A call that waits for approval; dropping it cancels the call and withdraws its question.
#[derive(Debug)]
pub struct PendingCall {
    question: Question,
    running: RunningCall,
}

impl PendingCall {
    /// Returns the question that the call waits for. Equal calls share a question.
    #[must_use]
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Waits until the question has ended, and then until the call ends or needs another answer.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::submit`].
    pub async fn resume(self) -> Result<CallProgress, CallError> {
        self.running.begun().await
    }
}

impl Worker {
    /// Begins a call and returns when it has ended or waits for approval.
    ///
    /// # Errors
    /// [`CallError`], as from [`Worker::submit`].
    pub async fn begin(&self, call: Call) -> Result<CallProgress, CallError> {
        self.start_call(call, Mode::Apply).begun().await
    }

    /// Starts a call whose questions [`RunningCall::next`] returns.
    #[doc(hidden)]
    #[must_use]
    pub fn start_call(&self, call: Call, mode: Mode) -> RunningCall {
        let (question_tx, questions) = mpsc::unbounded_channel();
        let running = self.start(call, mode, Some(question_tx));
        RunningCall {
            questions: Some(questions),
            ..running
        }
    }

    /// Starts a call whose questions are not returned; its [`Asks`](crate::call::Asks) say whether an approver is asked.
    #[doc(hidden)]
    #[must_use]
    pub fn start_call_without_questions(&self, call: Call, mode: Mode) -> RunningCall {
        self.start(call, mode, None)
    }

    fn start(&self, call: Call, mode: Mode, question_tx: Option<QuestionSender>) -> RunningCall {
        let hold = ResultHold::new(&self.shared);
        let options = CallOptions {
            question_tx,
            hold: Some(Arc::clone(&hold)),
            ..CallOptions::new(mode)
        };
        let shared = Arc::clone(&self.shared);
        let call = async move { admission::submit(&shared, call, options).await };
        RunningCall {
            hold: Some(hold),
            ..RunningCall::without_questions(call)
        }
    }
}

/// Event of a running call.
#[derive(Debug)]
#[doc(hidden)]
pub enum CallEvent {
    End(Box<Done>),
    Question(Box<Question>),
}

/// A call in flight; dropping it cancels the call.
#[doc(hidden)]
pub struct RunningCall {
    call: Pin<Box<dyn Future<Output = Result<Done, CallError>> + Send>>,
    /// Its questions, if they are returned.
    questions: Option<mpsc::UnboundedReceiver<Box<Question>>>,
    hold: Option<Arc<ResultHold>>,
}

impl RunningCall {
    /// Wraps a call whose questions are not returned.
    pub fn without_questions(
        call: impl Future<Output = Result<Done, CallError>> + Send + 'static,
    ) -> Self {
        Self {
            call: Box::pin(call),
            questions: None,
            hold: None,
        }
    }

    /// Waits until the call ends or asks a question. Cancel safe; must not be called after the end.
    #[doc(hidden)]
    pub async fn next(&mut self) -> Result<CallEvent, CallError> {
        let questions = &mut self.questions;
        let question = async { questions.as_mut()?.recv().await };
        tokio::select! {
            biased;
            done = &mut self.call => Ok(CallEvent::End(Box::new(done?))),
            Some(question) = question => Ok(CallEvent::Question(question)),
        }
    }

    /// Takes what lets a large result count as a job of the worker until it is dropped.
    pub fn take_hold(&mut self) -> Option<Arc<ResultHold>> {
        self.hold.take()
    }

    async fn begun(mut self) -> Result<CallProgress, CallError> {
        Ok(match self.next().await? {
            CallEvent::End(done) => CallProgress::Ended(Box::new(outcome(*done)?)),
            CallEvent::Question(question) => CallProgress::Pending(Box::new(PendingCall {
                question: *question,
                running: self,
            })),
        })
    }
}

impl fmt::Debug for RunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCall").finish_non_exhaustive()
    }
}
