//! Act tools as entries of the registry.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::registry::{AnyPlan, Job, ToolSet};
use super::schema::{self, ToolSchema};
use super::{ActTool, Foreseen, Rights, ToolSpec};
use crate::capability::ActPermit;
use crate::effect::{Cost, Plan, Reply, ResourceChange};
use crate::error::CallError;

/// A running call of an act tool; dropping it cancels the call.
pub(crate) type ActFuture = Pin<Box<dyn Future<Output = Result<Reply, CallError>> + Send>>;

/// A prepared call of an act tool.
pub trait ActJob: Send + Sync + fmt::Debug {
    /// The changes that the call may make, as a plan without steps.
    fn plan(&self, rights: &Rights<'_>) -> AnyPlan;
    fn act(self: Arc<Self>, permit: ActPermit) -> ActFuture;
}

impl ToolSet {
    /// Adds an act tool.
    #[must_use]
    pub fn actor<T: ActTool>(self, tool: T) -> Self {
        let (spec, tool) = (tool.spec(), Arc::new(tool));
        let output_schema = ToolSchema::new(|| {
            let mut schema = schema::output::<T::Output>();
            if let Value::Object(schema) = &mut schema {
                // Previews have an empty output, so no member is required.
                schema.shift_remove("required");
            }
            schema
        });
        self.add(spec, output_schema, true, move |args, names, _| {
            let prepared = tool.prepare(args, names)?;
            let job = Acting {
                tool: Arc::clone(&tool),
                job: prepared.job,
            };
            Ok((prepared.needs, Job::Act(Arc::new(job))))
        })
    }
}

struct Acting<T: ActTool> {
    tool: Arc<T>,
    job: T::Job,
}

impl<T: ActTool> fmt::Debug for Acting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

impl<T: ActTool> ActJob for Acting<T> {
    fn plan(&self, rights: &Rights<'_>) -> AnyPlan {
        let resources = foreseen(self.tool.foresee(&self.job, rights), &self.tool.spec());
        Plan {
            changes: Vec::new(),
            resources,
            reply: Reply::text("The result is known only after the call.", Map::new()),
            cost: Cost::default(),
            steps: Box::new(()),
            inverse: None,
        }
    }

    fn act(self: Arc<Self>, permit: ActPermit) -> ActFuture {
        let progress = permit.progress();
        Box::pin(async move { self.tool.act(&self.job, permit, progress).await })
    }
}

/// The changes that people see before they allow the call.
fn foreseen(foreseen: Foreseen, spec: &ToolSpec) -> Vec<ResourceChange> {
    match foreseen {
        Foreseen::Changes(changes) if !changes.is_empty() => changes,
        Foreseen::Changes(_) | Foreseen::Unknown => {
            let unknown = "what the call changes is known only afterwards";
            vec![ResourceChange::new(&*spec.name, unknown)]
        }
    }
}
