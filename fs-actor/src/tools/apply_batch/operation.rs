//! Parses the operations of a batch as calls of their tools.

use bailiwick::config::Namespace;
use bailiwick::tool::{ArgumentReader, Prepared, ReadPermit};
use bailiwick::{CallError, Scope, VirtualPath, WriteTool};
use serde_json::Value;

use super::{BatchOperation, BatchTool};
use crate::change::StepExecutor;
use crate::tools::copy::Copy;
use crate::tools::delete::{self, Delete};
use crate::tools::edit_file::{self, EditFile};
use crate::tools::make_directory::{self, MakeDirectory};
use crate::tools::move_entry::Move;
use crate::tools::transfer;
use crate::tools::write_file::{self, WriteFile};

/// A parsed operation.
#[derive(Debug)]
pub(super) enum Operation {
    Write(write_file::Job),
    Edit(edit_file::Job),
    MakeDirectory(make_directory::Job),
    Move(transfer::Job),
    Copy(transfer::Job),
    Delete(delete::Job),
}

impl Operation {
    pub(super) fn tool(&self) -> BatchTool {
        match self {
            Self::Write(_) => BatchTool::WriteFile,
            Self::Edit(_) => BatchTool::EditFile,
            Self::MakeDirectory(_) => BatchTool::MakeDirectory,
            Self::Move(_) => BatchTool::Move,
            Self::Copy(_) => BatchTool::Copy,
            Self::Delete(_) => BatchTool::Delete,
        }
    }

    /// The paths that it names, each with whether a link at its end is followed.
    pub(super) fn paths(&self) -> Vec<(&VirtualPath, bool)> {
        match self {
            Self::Write(job) => vec![(&job.path, true)],
            Self::Edit(job) => vec![(&job.path, true)],
            Self::MakeDirectory(job) => vec![(&job.path, true)],
            Self::Move(job) => vec![(&job.from, false), (&job.to, false)],
            Self::Copy(job) => vec![(&job.from, true), (&job.to, false)],
            Self::Delete(job) => vec![(&job.path, false)],
        }
    }
}

/// The tools that parse operations. They carry out nothing.
#[derive(Debug)]
pub(super) struct Operations {
    write: Parser<WriteFile>,
    edit: Parser<EditFile>,
    make_directory: Parser<MakeDirectory>,
    moves: Parser<Move>,
    copy: Parser<Copy>,
    delete: Parser<Delete>,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            write: Parser::new(WriteFile(StepExecutor::default())),
            edit: Parser::new(EditFile(StepExecutor::default())),
            make_directory: Parser::new(MakeDirectory(StepExecutor::default())),
            moves: Parser::new(Move(StepExecutor::default())),
            copy: Parser::new(Copy(StepExecutor::default())),
            delete: Parser::new(Delete(StepExecutor::default())),
        }
    }
}

impl Operations {
    /// Parses an operation, and returns what it needs.
    pub(super) fn prepare(
        &self,
        operation: &BatchOperation,
        names: &Namespace,
    ) -> Result<(Operation, Vec<Scope>), CallError> {
        let arguments = Value::Object(operation.arguments.clone());
        match operation.tool {
            BatchTool::WriteFile => self.write.parse(&arguments, names, Operation::Write),
            BatchTool::EditFile => self.edit.parse(&arguments, names, Operation::Edit),
            BatchTool::MakeDirectory => {
                let made = Operation::MakeDirectory;
                self.make_directory.parse(&arguments, names, made)
            }
            BatchTool::Move => self.moves.parse(&arguments, names, Operation::Move),
            BatchTool::Copy => self.copy.parse(&arguments, names, Operation::Copy),
            BatchTool::Delete => self.delete.parse(&arguments, names, Operation::Delete),
        }
    }

    pub(super) fn also_needs(&self, operation: &Operation, permit: &ReadPermit) -> Vec<Scope> {
        match operation {
            Operation::Write(job) => self.write.tool.also_needs(job, permit),
            Operation::Edit(job) => self.edit.tool.also_needs(job, permit),
            Operation::MakeDirectory(job) => self.make_directory.tool.also_needs(job, permit),
            Operation::Move(job) => self.moves.tool.also_needs(job, permit),
            Operation::Copy(job) => self.copy.tool.also_needs(job, permit),
            Operation::Delete(job) => self.delete.tool.also_needs(job, permit),
        }
    }
}

/// A tool with the reader of its arguments.
#[derive(Debug)]
struct Parser<T: WriteTool> {
    tool: T,
    arguments: ArgumentReader<T::Args>,
}

impl<T: WriteTool> Parser<T> {
    fn new(tool: T) -> Self {
        Self {
            tool,
            arguments: ArgumentReader::default(),
        }
    }

    fn parse(
        &self,
        arguments: &Value,
        names: &Namespace,
        operation: impl FnOnce(T::Job) -> Operation,
    ) -> Result<(Operation, Vec<Scope>), CallError> {
        let arguments = self.arguments.read(arguments)?;
        let Prepared { needs, job } = self.tool.prepare(arguments, names)?;
        Ok((operation(job), needs))
    }
}

/// The error of one operation of a batch.
pub(super) fn in_operation(index: usize, tool: BatchTool, error: &CallError) -> CallError {
    let name = serde_json::to_value(tool).unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    let mut message = error.message().to_owned();
    let field = error.details().get("field").and_then(Value::as_str);
    let field_of_batch = field.map(|field| {
        let field_of_batch = format!("/operations/{index}{field}");
        message = message.replacen(&format!("`{field}`"), &format!("`{field_of_batch}`"), 1);
        field_of_batch
    });
    let message = format!("operation {index} (`{name}`): {message}");
    let details = error.details().iter();
    let error = details.fold(
        CallError::new(error.code(), message),
        |error, (key, value)| error.with(key, value.clone()),
    );
    let error = error.with("operation", index);
    match field_of_batch {
        Some(field) => error.with("field", field),
        None => error,
    }
}
