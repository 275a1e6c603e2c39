//! The tools that read: totals for models, and employee data for the page.

use std::collections::BTreeMap;

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, ReadTool, Reply, ToolSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file;
use super::staff::{Employee, payroll, raised};
use super::write_tools::RaiseArgs;

/// The URI of the page.
pub(crate) const PAGE: &str = "ui://hr/dashboard";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoArgs {}

/// The totals of a department.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Department {
    headcount: usize,
    payroll: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Totals {
    headcount: usize,
    payroll: u64,
    departments: BTreeMap<String, Department>,
}

/// Opens the page. Its result is for the model and has no individual salaries.
pub(crate) struct ShowDashboard;

impl ReadTool for ShowDashboard {
    type Args = NoArgs;
    type Output = Totals;
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

    fn prepare(&self, _: NoArgs, _: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = file::read_needs()?;
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
        let text = format!("{headcount} employees, payroll {payroll}");
        let totals = Totals {
            headcount,
            payroll,
            departments,
        };
        Ok(Reply::text(text, totals))
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
pub(crate) struct EmployeeList {
    employees: Vec<Row>,
}

/// Lists all employees, for the page.
pub(crate) struct ListEmployees;

impl ReadTool for ListEmployees {
    type Args = NoArgs;
    type Output = EmployeeList;
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

    fn prepare(&self, _: NoArgs, _: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = file::read_needs()?;
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
        let text = format!("{} employees", employees.len());
        Ok(Reply::text(text, EmployeeList { employees }))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DetailsArgs {
    /// The employee's id.
    id: String,
}

/// Returns all data of an employee, for the page.
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
        let needs = file::read_needs()?;
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

/// A salary before and after a raise.
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
    /// The additional cost in a year.
    cost: u64,
}

/// Lists the salaries that a raise would change, for the page. The result of `raise_salaries` names no employees.
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
        let needs = file::read_needs()?;
        Ok(Prepared { needs, job: args })
    }

    fn read(&self, args: &RaiseArgs, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        let staff = file::read(permit)?;
        let selected = || staff.of(args.department.as_deref());
        let rows: Vec<_> = selected()
            .map(|one| Raised {
                id: one.id.clone(),
                name: one.name.clone(),
                before: one.salary,
                after: raised(one.salary, args.percent),
            })
            .collect();
        let after: u64 = rows.iter().map(|row| u64::from(row.after)).sum();
        let cost = after.saturating_sub(payroll(selected()));
        let text = format!("{} raises", rows.len());
        Ok(Reply::text(text, RaiseRows { rows, cost }))
    }
}
