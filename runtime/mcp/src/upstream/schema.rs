//! Compiles JSON Schemas of servers and validates values in bounded time.

use std::sync::Arc;
use std::time::Duration;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::schema_cost::{SchemaCost, SchemaFault};

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

/// A compiled schema with bounded validation cost.
#[derive(Debug)]
pub(super) struct CompiledSchema {
    cost: SchemaCost,
    validator: Validator,
    slots: Arc<Semaphore>,
}

impl CompiledSchema {
    /// This is CPU-bound and must not run on an async thread.
    pub(super) fn of(schema: &Value, budget: &mut SchemaBudget) -> Result<Self, SchemaFault> {
        let cost = SchemaCost::of(schema)?;
        let left = budget.patterns.checked_sub(cost.patterns());
        budget.patterns = left.ok_or(SchemaFault::Pattern)?;
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PROGRAM_BYTES)
            .dfa_size_limit(MAX_DFA_BYTES);
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .build(schema);
        let invalid = |_| {
            if cost.patterns() > 0 {
                SchemaFault::Pattern
            } else {
                SchemaFault::Invalid
            }
        };
        Ok(Self {
            validator: validator.map_err(invalid)?,
            slots: Arc::clone(&budget.slots),
            cost,
        })
    }

    /// Whether `value` is valid; `None` if validation is too expensive or takes too long.
    pub(super) async fn is_valid(self: Arc<Self>, value: Value) -> Option<bool> {
        let is_valid = |validator: &Validator, value: &Value| validator.is_valid(value);
        self.run(value, is_valid).await
    }

    /// Runs `f` on the blocking pool; `None` if validating `value` is too expensive or takes too long.
    async fn run<T: Send + 'static>(
        self: Arc<Self>,
        value: Value,
        f: fn(&Validator, &Value) -> T,
    ) -> Option<T> {
        let outcome = async {
            let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
            // The task cannot be aborted, so it keeps its slot after a timeout.
            let task = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                let is_affordable = self.cost.is_affordable(&value);
                is_affordable.then(|| f(&self.validator, &value))
            });
            task.await.ok().flatten()
        };
        tokio::time::timeout(VALIDATION_TIMEOUT, outcome)
            .await
            .ok()
            .flatten()
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

/// Why a schema cannot be used for validation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}{}", suffix(.detail.as_deref()))]
#[non_exhaustive]
pub struct SchemaError {
    /// What is wrong with the schema.
    pub fault: SchemaFault,
    /// The first invalid location and the reason.
    pub detail: Option<String>,
}

impl SchemaError {
    fn new(fault: SchemaFault) -> Self {
        Self {
            fault,
            detail: None,
        }
    }
}

fn suffix(detail: Option<&str>) -> String {
    detail.map_or_else(String::new, |detail| format!(": {detail}"))
}

impl SchemaValidator {
    /// Compiles a schema on the blocking pool.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema is invalid, unsupported or too expensive.
    pub async fn new(schema: Value) -> Result<Self, SchemaError> {
        let compiled = tokio::task::spawn_blocking(move || Self::compile(&schema));
        // The task is never aborted, so it panicked.
        let unsupported = |_| Err(SchemaError::new(SchemaFault::Unsupported));
        compiled.await.unwrap_or_else(unsupported)
    }

    fn compile(schema: &Value) -> Result<Self, SchemaError> {
        match CompiledSchema::of(schema, &mut SchemaBudget::default()) {
            Ok(shape) => Ok(Self(Arc::new(shape))),
            // These faults occur only in schemas of bounded size and known version.
            Err(fault @ (SchemaFault::Invalid | SchemaFault::Pattern)) => {
                let error = jsonschema::meta::validate(schema).err();
                let detail = error.map(|error| error_text(&error));
                let fault = detail.as_ref().map_or(fault, |_| SchemaFault::Invalid);
                Err(SchemaError { fault, detail })
            }
            Err(fault) => Err(SchemaError::new(fault)),
        }
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
        let outcome = Arc::clone(&self.0).run(value, mismatch).await;
        outcome.ok_or(SchemaFault::Costly)
    }
}

/// Describes a validation error without the value.
fn error_text(error: &jsonschema::ValidationError<'_>) -> String {
    format!("`{}`: {}", error.instance_path(), error.masked())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compiled(schema: &Value) -> Result<CompiledSchema, SchemaFault> {
        CompiledSchema::of(schema, &mut SchemaBudget::default())
    }

    #[track_caller]
    fn check(schema: &Value, expected: Result<(), SchemaFault>) {
        assert_eq!(compiled(schema).map(|_| ()), expected, "{schema}");
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
        check(&json!({"type": 7}), Err(SchemaFault::Invalid));
    }

    #[test]
    fn invalid_schema_error_names_the_location() {
        let fault = |schema: &Value| SchemaValidator::compile(schema).unwrap_err();
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
        assert!(CompiledSchema::of(&many(200), &mut budget).is_ok());
        let refused = CompiledSchema::of(&many(100), &mut budget).map(|_| ());
        assert_eq!(refused, Err(SchemaFault::Pattern));
        assert!(CompiledSchema::of(&many(56), &mut budget).is_ok());
    }

    #[tokio::test]
    async fn validation_is_valid_invalid_or_too_costly() {
        let schema = json!({"type": "object", "properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let compiled = Arc::new(compiled(&schema).unwrap());
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({ "x": inner }));
        let is_valid = |value| Arc::clone(&compiled).is_valid(value);
        assert_eq!(is_valid(nested(5)).await, Some(true));
        assert_eq!(is_valid(json!({"x": 7})).await, Some(false));
        assert_eq!(is_valid(nested(40)).await, None);
    }

    #[test]
    fn deepest_accepted_value_fits_a_pool_thread_stack() {
        let round = super::super::schema_cost::tests::chain(
            15,
            1,
            json!({"properties": {"x": {"$ref": "#"}}}),
        );
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({ "x": inner }));
        let pool = std::thread::Builder::new().stack_size(2 << 20);
        let look = move || {
            let compiled = compiled(&round).unwrap();
            let is_affordable = |levels: &usize| compiled.cost.is_affordable(&nested(*levels));
            let deepest = (0..64).take_while(is_affordable).last().unwrap();
            assert!((20..40).contains(&deepest), "{deepest}");
            compiled.validator.is_valid(&nested(deepest))
        };
        assert!(pool.spawn(look).unwrap().join().unwrap());
    }
}
