//! The gateway with its tools and page.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bailiwick::permission::AskLimits;
use bailiwick::{Deferred, Policy, Runtime, ToolSet, WorkerSpec};
use bailiwick_examples::BoxError;
use bailiwick_mcp::gateway::{
    AppPage, Backend, BackendError, BackendFactory, Gateway, GatewayInfo, Trust,
};
use serde_json::Value;

#[path = "file.rs"]
mod file;
#[path = "read_tools.rs"]
mod read_tools;
#[path = "staff.rs"]
mod staff;
#[path = "write_tools.rs"]
mod write_tools;

use read_tools::{EmployeeDetails, ListEmployees, ListRaises, PAGE, ShowDashboard};
use write_tools::{RaiseSalaries, UpdateEmployee};

/// Sample data.
pub(crate) const SEED: &str = include_str!("employees.json");
const QUESTION_TIMEOUT: Duration = Duration::from_secs(600);

struct HrServer {
    dir: PathBuf,
}

impl HrServer {
    async fn open_runtime(&self) -> Result<Backend, BackendError> {
        let tools = ToolSet::new()
            .reader(ShowDashboard)
            .reader(ListEmployees)
            .reader(EmployeeDetails)
            .reader(ListRaises)
            .writer(RaiseSalaries)
            .writer(UpdateEmployee);
        // Calls of the model need approval, too. Calls of the page always do.
        let builder = Runtime::builder()
            .root("hr", &self.dir)
            .policy(Policy::inherit().require_approval(true))
            .tools(tools)
            .approver(Deferred)
            .asks(AskLimits::default(), QUESTION_TIMEOUT);
        let (runtime, grants) = builder.build().await?;
        let spec = WorkerSpec::new("hr").policy(Policy::inherit());
        let worker = runtime.spawn(spec).await?;
        Ok(Backend::new(runtime, &worker, Some(grants)))
    }
}

impl BackendFactory for HrServer {
    fn create(
        &self,
        _configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(self.open_runtime())
    }
}

/// Writes the sample data, unless the file exists.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn seed(dir: &Path) -> Result<(), BoxError> {
    let file = dir.join("employees.json");
    if !file.try_exists()? {
        fs::write(file, SEED)?;
    }
    Ok(())
}

/// Creates a gateway for the employees in `dir`. Changes are approved by elicitation.
///
/// # Errors
/// If the system has no random numbers.
pub(crate) fn gateway(dir: PathBuf) -> Result<Gateway, BoxError> {
    let about = GatewayInfo {
        name: "hr-dashboard".into(),
        title: "Staff".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: "Shows people a dashboard of the staff and raises salaries. You see sums and nobody's salary.".into(),
    };
    let page = AppPage {
        uri: PAGE.into(),
        name: "hr-dashboard".into(),
        title: "Staff".into(),
        description: "Everybody, what they earn, and raises to look at before they are given"
            .into(),
        html: include_str!("dashboard.html").into(),
        application: true,
    };
    let gateway = Gateway::with_factory(HrServer { dir }, Trust::Host, about).page(page);
    Ok(gateway.ask_client()?.build())
}
