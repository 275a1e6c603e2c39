//! What is to become of some employees in, a plan of it and then the file with it out.

use bailiwick::{
    CallError, Code, Interrupt, Namespace, Plan, Prepared, ReadPermit, ToolSpec, WritePermit,
    WriteTool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{self, Replace};
use super::staff::raised;

/// The highest raise at once, in percent.
const MOST: u8 = 25;

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
        if (1..=MOST).contains(&self.percent) {
            return Ok(());
        }
        let message = format!("a raise is from 1 to {MOST} percent");
        Err(CallError::new(Code::InvalidArguments, message))
    }
}

/// What a raise comes to. It names nobody: it is for the model, too.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct RaisesMade {
    employees: usize,
    /// What it costs in a year.
    cost: u64,
    payroll: u64,
}

/// Raises the salaries of a department, or of everybody.
pub(crate) struct RaiseSalaries;

impl WriteTool for RaiseSalaries {
    type Args = RaiseArgs;
    type Output = RaisesMade;
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
        let needs = file::to_write()?;
        Ok(Prepared { needs, job: args })
    }

    fn plan(&self, args: &RaiseArgs, permit: &ReadPermit) -> Result<Plan<Replace>, Interrupt> {
        let department = args.department.as_deref();
        let change = |staff: &super::staff::Staff| {
            if staff.of(department).next().is_none() {
                return Err(CallError::new(
                    Code::NotFound,
                    "nobody is in that department",
                ));
            }
            Ok(staff.with(|one| {
                if department.is_none_or(|it| it == one.department) {
                    one.salary = raised(one.salary, args.percent);
                }
            }))
        };
        file::plan(permit, change, |before, after| {
            let made = RaisesMade {
                employees: before.of(department).count(),
                cost: after.payroll().saturating_sub(before.payroll()),
                payroll: after.payroll(),
            };
            let said = format!("{} raises for {} a year", made.employees, made.cost);
            (said, made)
        })
    }

    fn apply(&self, steps: Replace, permit: WritePermit) -> Result<(), CallError> {
        file::apply(&steps, &permit)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateArgs {
    /// Whom.
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

/// Changes what somebody does, where, or for how much.
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
            let message = "a title or department is a line of at most 80 characters";
            return Err(CallError::new(Code::InvalidArguments, message));
        }
        let needs = file::to_write()?;
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
            let said = if changed { "changed" } else { "as it was" };
            let id = args.id.clone();
            (said.to_owned(), Updated { id, changed })
        })
    }

    fn apply(&self, steps: Replace, permit: WritePermit) -> Result<(), CallError> {
        file::apply(&steps, &permit)
    }
}
