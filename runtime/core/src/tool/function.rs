//! Tools made of functions, for tools that are small or made at run time.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ActTool, Foreseen, Prepared, ReadTool, Rights, ToolSet, ToolSpec};
use crate::capability::{ActPermit, ActProgress, Interrupt, ReadPermit};
use crate::config::Namespace;
use crate::effect::Reply;
use crate::error::CallError;
use crate::scope::Scope;

impl ToolSet {
    /// Adds a read tool made of two functions: `needs` returns the scopes that a call needs, and `read` answers it, as
    /// [`ReadTool::read`] does.
    ///
    /// ```
    /// use bailiwick::{Reply, ToolSet, ToolSpec};
    ///
    /// #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    /// struct Text {
    ///     text: String,
    /// }
    ///
    /// let spec = ToolSpec::new("count_words", "Count words", "Counts the words of a text.");
    /// let tools = ToolSet::new().read_function(
    ///     spec,
    ///     |_: &Text, _| Ok(Vec::new()),
    ///     |args, _| {
    ///         let words = args.text.split_whitespace().count();
    ///         Ok(Reply::text(words.to_string(), ()))
    ///     },
    /// );
    /// assert!(tools.names().eq(["count_words"]));
    /// ```
    #[must_use]
    pub fn read_function<A, N, R>(self, spec: ToolSpec, needs: N, read: R) -> Self
    where
        A: DeserializeOwned + JsonSchema + fmt::Debug + Send + Sync + 'static,
        N: Fn(&A, &Namespace) -> Result<Vec<Scope>, CallError> + Send + Sync + 'static,
        R: Fn(&A, &ReadPermit) -> Result<Reply, Interrupt> + Send + Sync + 'static,
    {
        self.reader(Function::new(spec, needs, read))
    }

    /// Adds an act tool made of two functions: `needs` returns the scopes that a call needs, and `act` carries it out, as
    /// [`ActTool::act`] does. People are told that its changes are unknown; implement [`ActTool`] to state them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bailiwick::{Reply, ToolSet, ToolSpec};
    ///
    /// #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    /// struct Text {
    ///     text: String,
    /// }
    ///
    /// // The scopes decide which workers are offered the tool.
    /// let spec = ToolSpec::new("say", "Say", "Says a text aloud.").scopes(&["execute:speaker"]);
    /// let tools = ToolSet::new().act_function(
    ///     spec,
    ///     |_: &Text, _| Ok(vec!["execute:speaker".parse().expect("a constant scope is valid")]),
    ///     |args: Arc<Text>, permit, _| async move {
    ///         let _act = permit.begin()?;
    ///         Ok(Reply::text(format!("said: {}", args.text), ()))
    ///     },
    /// );
    /// assert!(tools.infos()[0].mutates);
    /// ```
    #[must_use]
    pub fn act_function<A, N, R, F>(self, spec: ToolSpec, needs: N, act: R) -> Self
    where
        A: DeserializeOwned + JsonSchema + fmt::Debug + Send + Sync + 'static,
        N: Fn(&A, &Namespace) -> Result<Vec<Scope>, CallError> + Send + Sync + 'static,
        R: Fn(Arc<A>, ActPermit, ActProgress) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Reply, CallError>> + Send + 'static,
    {
        self.actor(Function::new(spec, needs, act))
    }
}

/// A tool made of functions; its job is its arguments.
struct Function<A, N, R> {
    spec: ToolSpec,
    needs: N,
    run: R,
    arguments: PhantomData<fn(A)>,
}

impl<A, N, R> Function<A, N, R>
where
    N: Fn(&A, &Namespace) -> Result<Vec<Scope>, CallError>,
{
    fn new(spec: ToolSpec, needs: N, run: R) -> Self {
        Self {
            spec,
            needs,
            run,
            arguments: PhantomData,
        }
    }

    fn prepared(&self, args: A, names: &Namespace) -> Result<Prepared<Arc<A>>, CallError> {
        Ok(Prepared {
            needs: (self.needs)(&args, names)?,
            job: Arc::new(args),
        })
    }
}

impl<A, N, R> ReadTool for Function<A, N, R>
where
    A: DeserializeOwned + JsonSchema + fmt::Debug + Send + Sync + 'static,
    N: Fn(&A, &Namespace) -> Result<Vec<Scope>, CallError> + Send + Sync + 'static,
    R: Fn(&A, &ReadPermit) -> Result<Reply, Interrupt> + Send + Sync + 'static,
{
    type Args = A;
    type Output = Value;
    type Job = Arc<A>;

    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn prepare(&self, args: A, names: &Namespace) -> Result<Prepared<Arc<A>>, CallError> {
        self.prepared(args, names)
    }

    fn read(&self, args: &Arc<A>, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        (self.run)(args, permit)
    }
}

impl<A, N, R, F> ActTool for Function<A, N, R>
where
    A: DeserializeOwned + JsonSchema + fmt::Debug + Send + Sync + 'static,
    N: Fn(&A, &Namespace) -> Result<Vec<Scope>, CallError> + Send + Sync + 'static,
    R: Fn(Arc<A>, ActPermit, ActProgress) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Reply, CallError>> + Send + 'static,
{
    type Args = A;
    type Output = Value;
    type Job = Arc<A>;

    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn prepare(&self, args: A, names: &Namespace) -> Result<Prepared<Arc<A>>, CallError> {
        self.prepared(args, names)
    }

    fn foresee(&self, _: &Arc<A>, _: &Rights<'_>) -> Foreseen {
        Foreseen::Unknown
    }

    fn act(
        &self,
        args: &Arc<A>,
        permit: ActPermit,
        progress: ActProgress,
    ) -> impl Future<Output = Result<Reply, CallError>> + Send {
        (self.run)(Arc::clone(args), permit, progress)
    }
}
