//! A folder in, a gateway that serves the employees in it, with their page, out.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bailiwick::{
    About, AppPage, AskLimits, Deferred, Gateway, OpenError, Opener, Policy, Runtime, Served,
    ToolSet, Trust, WorkerSpec,
};
use bailiwick_examples::BoxError;
use serde_json::Value;

#[path = "file.rs"]
mod file;
#[path = "reading.rs"]
mod reading;
#[path = "staff.rs"]
mod staff;
#[path = "writing.rs"]
mod writing;

use reading::{EmployeeDetails, ListEmployees, ListRaises, PAGE, ShowDashboard};
use writing::{RaiseSalaries, UpdateEmployee};

/// People who do not exist.
pub(crate) const SEED: &str = include_str!("employees.json");
const PATIENCE: Duration = Duration::from_secs(600);

struct Office {
    folder: PathBuf,
}

impl Office {
    async fn served(&self) -> Result<Served, OpenError> {
        let tools = ToolSet::new()
            .reader(ShowDashboard)
            .reader(ListEmployees)
            .reader(EmployeeDetails)
            .reader(ListRaises)
            .writer(RaiseSalaries)
            .writer(UpdateEmployee);
        // A model may change nobody without a word either; a page could not even if this allowed it.
        let builder = Runtime::builder()
            .root("hr", &self.folder)
            .policy(Policy::new().require_approval(true))
            .tools(tools)
            .approver(Deferred)
            .asks(AskLimits::default(), PATIENCE);
        let (runtime, grants) = builder.build().await?;
        let spec = WorkerSpec::new("hr").policy(Policy::new());
        let worker = runtime.spawn(spec).await?;
        Ok(Served::new(runtime, &worker, Some(grants)))
    }
}

impl Opener for Office {
    fn open(
        &self,
        _configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Served, OpenError>> + Send + '_>> {
        Box::pin(self.served())
    }
}

/// Puts the employees there, unless there are some.
///
/// # Errors
/// The system's.
pub(crate) fn seed(folder: &Path) -> Result<(), BoxError> {
    let file = folder.join("employees.json");
    if !file.try_exists()? {
        fs::write(file, SEED)?;
    }
    Ok(())
}

/// Serves the employees in `folder`. What changes them is asked of the person behind the client.
///
/// # Errors
/// If there are no random bits.
pub(crate) fn gateway(folder: PathBuf) -> Result<Gateway, BoxError> {
    let about = About {
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
    let gateway = Gateway::opening(Office { folder }, Trust::Host, about).page(page);
    Ok(gateway.ask_client()?.build())
}
