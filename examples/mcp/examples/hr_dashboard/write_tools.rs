//! The tools that change employees.

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{CallError, Code, Plan, ToolSpec, WriteTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{self, Replace};
use super::staff::raised;

/// The highest raise, in percent.
const MAX_PERCENT: u8 = 25;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RaiseArgs {
    /// Whose salaries; everybody's if absent.
    #[serde(default)]
    pub(crate) department: Option<String>,
    /// By how much, from 1 to 25.
    #[schemars(range(min = 1, max = 25))]
    pub(crate) percent: u8,
}

impl RaiseArgs {
    pub(crate) fn check(&self) -> Result<(), CallError> {
        if (1..=MAX_PERCENT).contains(&self.percent) {
            return Ok(());
        }
        let message = format!("a raise must be from 1 to {MAX_PERCENT} percent");
        Err(CallError::new(Code::InvalidArguments, message))
    }
}

/// The totals of a raise. It is also for the model, so it names no employees.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct RaiseSummary {
    employees: usize,
    /// The additional cost in a year.
    cost: u64,
    payroll: u64,
}

/// Raises the salaries of a department, or of everybody.
pub(crate) struct RaiseSalaries;

impl WriteTool for RaiseSalaries {
    type Args = RaiseArgs;
    type Output = RaiseSummary;
    type Job = RaiseArgs;
    type Steps = Replace;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "raise_salaries",
            "Raise salaries",
            "Raises the salaries of a department, or of everybody, by some percent. Preview it first; a person decides.",
        )
        .intent("Raise all salaries [in {department}] by {percent} %")
        .scopes(&["read:file", "write:file"])
        .destructive()
    }

    fn prepare(&self, args: RaiseArgs, _: &Namespace) -> Result<Prepared<RaiseArgs>, CallError> {
        args.check()?;
        let needs = file::write_needs()?;
        Ok(Prepared { needs, job: args })
    }

    fn plan(&self, args: &RaiseArgs, permit: &ReadPermit) -> Result<Plan<Replace>, Interrupt> {
        let department = args.department.as_deref();
        let change = |staff: &super::staff::Staff| {
            if staff.of(department).next().is_none() {
                return Err(CallError::new(
                    Code::NotFound,
                    "unknown or empty department",
                ));
            }
            Ok(staff.with(|one| {
                if department.is_none_or(|it| it == one.department) {
                    one.salary = raised(one.salary, args.percent);
                }
            }))
        };
        file::plan(permit, change, |before, after| {
            let summary = RaiseSummary {
                employees: before.of(department).count(),
                cost: after.payroll().saturating_sub(before.payroll()),
                payroll: after.payroll(),
            };
            let text = format!("{} raises for {} a year", summary.employees, summary.cost);
            (text, summary)
        })
    }

    fn apply(&self, steps: Replace, permit: WritePermit) -> Result<(), CallError> {
        file::apply(&steps, &permit)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateArgs {
    /// The employee's id.
    id: String,
    /// Their new title.
    #[serde(default)]
    title: Option<String>,
    /// Their new department.
    #[serde(default)]
    department: Option<String>,
    /// Their new salary in a year.
    #[serde(default)]
    salary: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Updated {
    id: String,
    changed: bool,
}

/// Changes the title, department or salary of an employee.
pub(crate) struct UpdateEmployee;

fn is_plain(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= 80 && !text.contains(char::is_control)
}

impl WriteTool for UpdateEmployee {
    type Args = UpdateArgs;
    type Output = Updated;
    type Job = UpdateArgs;
    type Steps = Replace;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "update_employee",
            "Change an employee",
            "Changes the title, department or salary of one employee. Preview it first; a person decides.",
        )
        .intent("Change {id}[: title {title}][: department {department}][: salary {salary}]")
        .scopes(&["read:file", "write:file"])
        .destructive()
        .idempotent()
    }

    fn prepare(&self, args: UpdateArgs, _: &Namespace) -> Result<Prepared<UpdateArgs>, CallError> {
        let texts = [&args.title, &args.department];
        if !texts.into_iter().flatten().all(|text| is_plain(text)) {
            let message = "a title or department must be a line of at most 80 characters";
            return Err(CallError::new(Code::InvalidArguments, message));
        }
        let needs = file::write_needs()?;
        Ok(Prepared { needs, job: args })
    }

    fn plan(&self, args: &UpdateArgs, permit: &ReadPermit) -> Result<Plan<Replace>, Interrupt> {
        let change = |staff: &super::staff::Staff| {
            staff.find(&args.id)?;
            Ok(staff.with(|one| {
                if one.id != args.id {
                    return;
                }
                one.title = args.title.clone().unwrap_or_else(|| one.title.clone());
                let department = args.department.clone();
                one.department = department.unwrap_or_else(|| one.department.clone());
                one.salary = args.salary.unwrap_or(one.salary);
            }))
        };
        file::plan(permit, change, |before, after| {
            let changed = before != after;
            let text = if changed { "changed" } else { "unchanged" };
            let id = args.id.clone();
            (text.to_owned(), Updated { id, changed })
        })
    }

    fn apply(&self, steps: Replace, permit: WritePermit) -> Result<(), CallError> {
        file::apply(&steps, &permit)
    }
}
