//! The employees, their JSON form, and diffs of it.

use bailiwick::effect::{FileDiff, Hunk, HunkLine};
use bailiwick::{CallError, Code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An employee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Employee {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) department: String,
    pub(crate) title: String,
    /// The salary in a year.
    pub(crate) salary: u32,
    pub(crate) since: String,
    pub(crate) email: String,
}

/// All employees, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staff(pub(crate) Vec<Employee>);

impl Staff {
    pub(crate) fn read(text: &str) -> Result<Self, CallError> {
        serde_json::from_str(text).map(Self).map_err(|error| {
            let message = format!("invalid employees file: {error}");
            CallError::new(Code::NotText, message)
        })
    }

    /// The JSON form, with one line for each employee so that diffs are readable.
    pub(crate) fn text(&self) -> Result<String, CallError> {
        let lines: Result<Vec<_>, _> = self.0.iter().map(serde_json::to_string).collect();
        let lines = lines.map_err(|error| CallError::new(Code::Internal, error.to_string()))?;
        Ok(format!("[\n  {}\n]\n", lines.join(",\n  ")))
    }

    /// The employees of a department, or all.
    pub(crate) fn of<'s>(&'s self, department: Option<&str>) -> impl Iterator<Item = &'s Employee> {
        let wanted = department.map(str::to_owned);
        let is_in = move |one: &&Employee| wanted.as_ref().is_none_or(|it| *it == one.department);
        self.0.iter().filter(is_in)
    }

    pub(crate) fn find(&self, id: &str) -> Result<&Employee, CallError> {
        let unknown = || CallError::new(Code::NotFound, "unknown employee id");
        self.0.iter().find(|one| one.id == id).ok_or_else(unknown)
    }

    /// A copy with `change` applied to each employee.
    pub(crate) fn with(&self, change: impl Fn(&mut Employee)) -> Self {
        let mut after = self.clone();
        after.0.iter_mut().for_each(change);
        after
    }

    /// The sum of all salaries.
    pub(crate) fn payroll(&self) -> u64 {
        payroll(self.0.iter())
    }
}

pub(crate) fn payroll<'e>(employees: impl Iterator<Item = &'e Employee>) -> u64 {
    employees.map(|one| u64::from(one.salary)).sum()
}

/// A salary after a raise, in whole units.
pub(crate) fn raised(salary: u32, percent: u8) -> u32 {
    let after = (u64::from(salary) * (100 + u64::from(percent)) + 50) / 100;
    u32::try_from(after).unwrap_or(u32::MAX)
}

/// A line diff of two texts with the same number of lines.
pub(crate) fn diff(before: &str, after: &str) -> FileDiff {
    let line = |op, text: &str| HunkLine {
        op,
        text: format!("{text}\n"),
    };
    let mut hunks: Vec<Hunk> = Vec::new();
    let pairs = before.lines().zip(after.lines()).enumerate();
    for (at, (old, new)) in pairs.filter(|(_, (old, new))| old != new) {
        hunks.push(Hunk {
            old_start: at + 1,
            old_lines: 1,
            new_start: at + 1,
            new_lines: 1,
            lines: vec![line('-', old), line('+', new)],
        });
    }
    FileDiff {
        added: hunks.len(),
        removed: hunks.len(),
        hunks: hunks.into(),
        old: Some(before.to_owned().into()),
        ..FileDiff::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_is_rounded_to_whole_units() {
        assert_eq!(raised(60_000, 5), 63_000);
        assert_eq!(raised(33_333, 3), 34_333);
        assert_eq!(raised(u32::MAX, 25), u32::MAX);
    }

    #[test]
    fn change_of_one_employee_changes_one_line() {
        let before = include_str!("employees.json");
        let staff = Staff::read(before).unwrap();
        assert_eq!(staff.text().unwrap(), before);
        let after = staff.with(|one| {
            if one.id == "e-002" {
                one.salary += 1;
            }
        });
        let diff = diff(before, &after.text().unwrap());
        assert_eq!((diff.added, diff.removed), (1, 1));
        assert_eq!(diff.hunks[0].old_start, 3);
    }
}
