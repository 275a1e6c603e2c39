//! What a model or a view wants to know in, sums for both and people for views alone out.

use std::collections::BTreeMap;

use bailiwick::{CallError, Interrupt, Namespace, Prepared, ReadPermit, ReadTool, Reply, ToolSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file;
use super::staff::{Employee, payroll, raised};
use super::writing::RaiseArgs;

/// Where the page stands.
pub(crate) const PAGE: &str = "ui://hr/dashboard";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// A department in figures.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Department {
    headcount: usize,
    payroll: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Figures {
    headcount: usize,
    payroll: u64,
    departments: BTreeMap<String, Department>,
}

/// Opens the page. Its answer has sums and nobody's salary: it is for the model.
pub(crate) struct ShowDashboard;

impl ReadTool for ShowDashboard {
    type Args = Nothing;
    type Output = Figures;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "show_dashboard",
            "Show the staff dashboard",
            "Shows people a page with all employees, on which they look at salaries and change them. You get headcount and payroll of each department.",
        )
        .intent("Show the staff dashboard")
        .scopes(&["read:file"])
        .idempotent()
        .page(PAGE)
    }

    fn prepare(&self, _: Nothing, _: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = file::to_read()?;
        Ok(Prepared { needs, job: () })
    }

    fn read(&self, (): &(), permit: &ReadPermit) -> Result<Reply, Interrupt> {
        let staff = file::read(permit)?;
        let mut departments: BTreeMap<String, Department> = BTreeMap::new();
        for one in staff.of(None) {
            let department = departments.entry(one.department.clone()).or_default();
            department.headcount += 1;
            department.payroll += u64::from(one.salary);
        }
        let (headcount, payroll) = (staff.0.len(), staff.payroll());
        let said = format!("{headcount} employees, payroll {payroll}");
        let figures = Figures {
            headcount,
            payroll,
            departments,
        };
        Ok(Reply::text(said, figures))
    }
}

/// A row of the table.
#[derive(Debug, Serialize, JsonSchema)]
struct Row {
    id: String,
    name: String,
    department: String,
    title: String,
    salary: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    employees: Vec<Row>,
}

/// Everybody, for the page.
pub(crate) struct ListEmployees;

impl ReadTool for ListEmployees {
    type Args = Nothing;
    type Output = Listed;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "list_employees",
            "List employees",
            "Lists everybody, for the page.",
        )
        .scopes(&["read:file"])
        .idempotent()
        .app_only()
    }

    fn prepare(&self, _: Nothing, _: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = file::to_read()?;
        Ok(Prepared { needs, job: () })
    }

    fn read(&self, (): &(), permit: &ReadPermit) -> Result<Reply, Interrupt> {
        let row = |one: Employee| Row {
            id: one.id,
            name: one.name,
            department: one.department,
            title: one.title,
            salary: one.salary,
        };
        let employees: Vec<_> = file::read(permit)?.0.into_iter().map(row).collect();
        let said = format!("{} employees", employees.len());
        Ok(Reply::text(said, Listed { employees }))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DetailsArgs {
    /// Whose.
    id: String,
}

/// All that is known of one of them, for the page.
pub(crate) struct EmployeeDetails;

impl ReadTool for EmployeeDetails {
    type Args = DetailsArgs;
    type Output = Employee;
    type Job = String;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "employee_details",
            "Show an employee",
            "Tells all that is known of one, for the page.",
        )
        .intent("Show {id}")
        .scopes(&["read:file"])
        .idempotent()
        .app_only()
    }

    fn prepare(&self, args: DetailsArgs, _: &Namespace) -> Result<Prepared<String>, CallError> {
        let needs = file::to_read()?;
        Ok(Prepared {
            needs,
            job: args.id,
        })
    }

    fn read(&self, id: &String, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        let found = file::read(permit)?.find(id)?.clone();
        Ok(Reply::text(found.name.clone(), found))
    }
}

/// What somebody earns before and after.
#[derive(Debug, Serialize, JsonSchema)]
struct Raised {
    id: String,
    name: String,
    before: u32,
    after: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RaiseRows {
    rows: Vec<Raised>,
    /// What it costs in a year.
    cost: u64,
}

/// Whom a raise would concern, for the page: the answer of `raise_salaries` is for the model and names nobody.
pub(crate) struct ListRaises;

impl ReadTool for ListRaises {
    type Args = RaiseArgs;
    type Output = RaiseRows;
    type Job = RaiseArgs;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "list_raises",
            "List raises",
            "Lists what a raise would make of salaries, for the page.",
        )
        .scopes(&["read:file"])
        .idempotent()
        .app_only()
    }

    fn prepare(&self, args: RaiseArgs, _: &Namespace) -> Result<Prepared<RaiseArgs>, CallError> {
        args.check()?;
        let needs = file::to_read()?;
        Ok(Prepared { needs, job: args })
    }

    fn read(&self, args: &RaiseArgs, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        let staff = file::read(permit)?;
        let of = || staff.of(args.department.as_deref());
        let rows: Vec<_> = of()
            .map(|one| Raised {
                id: one.id.clone(),
                name: one.name.clone(),
                before: one.salary,
                after: raised(one.salary, args.percent),
            })
            .collect();
        let after: u64 = rows.iter().map(|row| u64::from(row.after)).sum();
        let cost = after.saturating_sub(payroll(of()));
        let said = format!("{} raises", rows.len());
        Ok(Reply::text(said, RaiseRows { rows, cost }))
    }
}
