//! Compiles JSON Schemas of servers and validates values in bounded time.

use std::sync::Arc;
use std::time::Duration;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::schema_cost::{SchemaFault, check_schema, is_affordable};

/// The largest compiled pattern and the largest DFA, in bytes.
const MAX_PROGRAM_BYTES: usize = 64 << 10;
const MAX_DFA_BYTES: usize = 256 << 10;
/// The largest number of concurrent validations per server.
const MAX_CONCURRENT: usize = 2;
/// How long a validation may take.
const VALIDATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits shared by the schemas of one server: the number of patterns, and the slots for concurrent validations.
#[derive(Debug)]
pub(super) struct SchemaBudget {
    patterns: usize,
    slots: Arc<Semaphore>,
}

impl Default for SchemaBudget {
    fn default() -> Self {
        Self {
            patterns: 256,
            slots: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }
}

/// Validates values against an untrusted JSON Schema, in bounded time and memory. References to other documents are not
/// fetched, and formats are not validated.
///
/// ```
/// # use bailiwick_mcp::upstream::SchemaValidator;
/// # use serde_json::json;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let validator = SchemaValidator::new(json!({"properties": {"n": {"type": "integer"}}})).await?;
/// assert_eq!(validator.mismatch(json!({"n": 1})).await?, None);
/// let mismatch = validator.mismatch(json!({"n": "one"})).await?;
/// assert_eq!(mismatch.as_deref(), Some(r#"`/n`: value is not of type "integer""#));
///
/// let error = SchemaValidator::new(json!({"type": "strong"})).await.unwrap_err();
/// assert_eq!(error.fault, bailiwick_mcp::upstream::SchemaFault::Invalid);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SchemaValidator(Arc<CompiledSchema>);

#[derive(Debug)]
struct CompiledSchema {
    schema: Value,
    validator: Validator,
    slots: Arc<Semaphore>,
}

/// Why a schema cannot be used for validation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}{}", .detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}")))]
#[non_exhaustive]
pub struct SchemaError {
    /// What is wrong with the schema.
    pub fault: SchemaFault,
    /// The first invalid location and the reason.
    pub detail: Option<String>,
}

impl From<SchemaFault> for SchemaError {
    fn from(fault: SchemaFault) -> Self {
        Self {
            fault,
            detail: None,
        }
    }
}

impl SchemaValidator {
    /// Compiles a schema on the blocking pool.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema is invalid, unsupported or too expensive.
    pub async fn new(schema: Value) -> Result<Self, SchemaError> {
        let compile = move || Self::compile(schema, &mut SchemaBudget::default());
        let compiled = tokio::task::spawn_blocking(compile).await;
        // The task is never aborted, so it panicked.
        compiled.unwrap_or_else(|_| Err(SchemaFault::Unsupported.into()))
    }

    /// This is CPU-bound and must not run on an async thread.
    pub(super) fn compile(schema: Value, budget: &mut SchemaBudget) -> Result<Self, SchemaError> {
        let left = budget.patterns.checked_sub(check_schema(&schema)?);
        budget.patterns = left.ok_or(SchemaFault::Pattern)?;
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PROGRAM_BYTES)
            .dfa_size_limit(MAX_DFA_BYTES);
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .build(&schema);
        let validator = validator.map_err(|error| match error.kind() {
            ValidationErrorKind::Format { format } if format == "regex" => {
                SchemaFault::Pattern.into()
            }
            _ => SchemaError {
                fault: SchemaFault::Invalid,
                detail: Some(error_text(&error)),
            },
        })?;
        Ok(Self(Arc::new(CompiledSchema {
            schema,
            validator,
            slots: Arc::clone(&budget.slots),
        })))
    }

    /// Why `value` does not match the schema; `None` if it does.
    ///
    /// # Errors
    /// [`SchemaFault::Costly`] if validation is too expensive or takes too long.
    pub async fn mismatch(&self, value: Value) -> Result<Option<String>, SchemaFault> {
        let mismatch = |validator: &Validator, value: &Value| {
            let error = validator.validate(value).err();
            error.map(|error| error_text(&error))
        };
        self.run(value, mismatch).await
    }

    /// Whether `value` matches the schema; an error as in [`mismatch`](Self::mismatch).
    pub(super) async fn is_valid(&self, value: Value) -> Result<bool, SchemaFault> {
        let is_valid = |validator: &Validator, value: &Value| validator.is_valid(value);
        self.run(value, is_valid).await
    }

    /// Runs `f` on the blocking pool, unless validating `value` is too expensive.
    async fn run<T: Send + 'static>(
        &self,
        value: Value,
        f: fn(&Validator, &Value) -> T,
    ) -> Result<T, SchemaFault> {
        let compiled = Arc::clone(&self.0);
        let outcome = async {
            let slot = Arc::clone(&compiled.slots).acquire_owned().await.ok()?;
            // The task cannot be aborted, so it keeps its slot after a timeout.
            let task = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                let is_affordable = is_affordable(&compiled.schema, &value);
                is_affordable.then(|| f(&compiled.validator, &value))
            });
            task.await.ok().flatten()
        };
        let outcome = tokio::time::timeout(VALIDATION_TIMEOUT, outcome).await;
        outcome.ok().flatten().ok_or(SchemaFault::Costly)
    }
}

/// Describes a validation error without the value.
fn error_text(error: &ValidationError<'_>) -> String {
    format!("`{}`: {}", error.instance_path(), error.masked())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compiled(schema: &Value) -> Result<SchemaValidator, SchemaError> {
        SchemaValidator::compile(schema.clone(), &mut SchemaBudget::default())
    }

    #[track_caller]
    fn check(schema: &Value, expected: Result<(), SchemaFault>) {
        let fault = compiled(schema).map(|_| ()).map_err(|error| error.fault);
        assert_eq!(fault, expected, "{schema}");
    }

    #[test]
    fn patterns_are_linear_and_bounded() {
        for usual in [r"^\d{4}-\d{2}-\d{2}$", r"^[^@\s]+@[^@\s]+$", r"\p{Lu}"] {
            check(&json!({ "pattern": usual }), Ok(()));
        }
        let large = "(a{1000}){1000}";
        for hostile in [large, "((a{100}){100}){100}", r"(?=a)b", r"(a)\1"] {
            check(&json!({ "pattern": hostile }), Err(SchemaFault::Pattern));
        }
        check(
            &json!({"patternProperties": {large: {}}}),
            Err(SchemaFault::Pattern),
        );
    }

    #[test]
    fn values_that_are_no_schema_are_rejected() {
        for invalid in [json!(7), json!({"type": 7}), json!({"properties": []})] {
            check(&invalid, Err(SchemaFault::Invalid));
        }
    }

    #[test]
    fn invalid_schema_error_names_the_location() {
        let fault = |schema: &Value| compiled(schema).unwrap_err();
        let error = fault(&json!({"properties": {"a": {"type": "strong"}}}));
        assert_eq!(error.fault, SchemaFault::Invalid);
        let detail = error.detail.unwrap();
        assert!(detail.starts_with("`/properties/a/type`: "), "{detail}");
        let error = fault(&json!({"pattern": "a", "type": "strong"}));
        assert_eq!(error.fault, SchemaFault::Invalid);
        for (schema, fault_expected) in [
            (json!({"pattern": "(?=a)b"}), SchemaFault::Pattern),
            (json!({"allOf": [{"$ref": "#"}]}), SchemaFault::Costly),
        ] {
            let error = fault(&schema);
            assert_eq!((error.fault, error.detail), (fault_expected, None));
        }
    }

    #[test]
    fn schemas_of_one_server_share_a_pattern_budget() {
        let mut budget = SchemaBudget::default();
        let many = |patterns: usize| json!({"allOf": vec![json!({"pattern": "a"}); patterns]});
        assert!(SchemaValidator::compile(many(200), &mut budget).is_ok());
        let refused = SchemaValidator::compile(many(100), &mut budget).map(|_| ());
        assert_eq!(refused, Err(SchemaFault::Pattern.into()));
        assert!(SchemaValidator::compile(many(56), &mut budget).is_ok());
    }

    #[tokio::test]
    async fn validation_is_valid_invalid_or_too_costly() {
        let schema = json!({"type": "object", "properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let compiled = compiled(&schema).unwrap();
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({ "x": inner }));
        let is_valid = |value| compiled.is_valid(value);
        assert_eq!(is_valid(nested(5)).await, Ok(true));
        assert_eq!(is_valid(json!({"x": 7})).await, Ok(false));
        assert_eq!(is_valid(nested(40)).await, Err(SchemaFault::Costly));
    }
}
