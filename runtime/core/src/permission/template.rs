//! Permission templates: named sets of patterns with the directories that they apply to.

use super::store::MAX_GRANTS;
use super::{GrantHolder, Lifetime, NewGrant};
use crate::json::read_json;
use crate::path::VirtualPath;
use crate::scope::{Scope, ScopeError, ScopePattern};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Placeholder of the directories that a template is applied to.
const ROOT: &str = "{root}";
/// Maximum size of a template in bytes: each example is matched with each pattern.
const MAX_BYTES: usize = 64 << 10;
/// The directory for which the examples of a template are checked.
const SAMPLE: &str = "/example";

/// Why a template is invalid or cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// It is not valid JSON, or has the wrong form.
    #[error("the template cannot be read: {0}")]
    Form(Arc<str>),
    /// It has no name, or grants nothing.
    #[error("the template has no `{0}`")]
    Lacks(&'static str),
    /// A pattern or an example is not a scope.
    #[error("`{text}` in the template `{template}` is not a scope")]
    Scope {
        /// The template.
        template: String,
        /// The invalid text.
        text: String,
        /// Why it is invalid.
        #[source]
        source: ScopeError,
    },
    /// An example that should be covered is not.
    #[error("the template `{template}` does not cover its example `{example}`")]
    NotCovered {
        /// The template.
        template: String,
        /// The example.
        example: String,
    },
    /// An example that should be rejected is covered.
    #[error("the template `{template}` covers `{example}`, which it must not cover")]
    Covered {
        /// The template.
        template: String,
        /// The example.
        example: String,
    },
    /// It is too large.
    #[error("the template is larger than {MAX_BYTES} bytes")]
    Large,
    /// It would add more grants than a grant store can hold.
    #[error("the template `{0}` would grant more than {MAX_GRANTS} patterns")]
    TooMany(String),
    /// It needs a directory and none was given.
    #[error("the template `{0}` needs a directory")]
    NoRoot(String),
}

/// A named set of patterns, such as `reviewer`, that a person applies to directories.
///
/// It has no effect until [`GrantAuthority::apply`](super::GrantAuthority::apply), which no model can reach. It grants only
/// what a person could grant by hand, and overrides no deny, protected name or worker's policy.
///
/// ```
/// use bailiwick::permission::Template;
/// use bailiwick::VirtualPath;
/// let docs = Template::parse(r#"{
///     "name": "docs",
///     "allows": ["read:file:{root}", "write:file:{root}/docs"],
///     "covers": ["write:file:{root}/docs/guide.md"],
///     "refuses": ["write:file:{root}/src/main.rs"]
/// }"#)?;
/// let rules = docs.rules(&[VirtualPath::parse("/repo", None)?])?;
/// assert_eq!(rules[1].to_string(), "write:file:/repo/docs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Template {
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: String,
    #[serde(default)]
    about: String,
    allows: Vec<String>,
    covers: Vec<String>,
    refuses: Vec<String>,
}

/// The built-in templates.
const BUILT_IN: &str = include_str!("templates.json");

impl Template {
    /// Returns the built-in templates: `read-only`, `reviewer`, `editor`, `builder`, `scratch`. Only
    /// `builder` allows commands; the first use of any other program asks.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        // A test reads them.
        let forms: Vec<Form> = read_json(BUILT_IN.as_bytes()).unwrap_or_default();
        forms.into_iter().map(|form| Self { form }).collect()
    }

    /// Parses a template with `name`, `about`, the patterns that it `allows`, and example scopes that it `covers` and
    /// `refuses`. The examples are checked. `{root}` is the placeholder of the directories that it is applied to.
    ///
    /// # Errors
    /// [`TemplateError`] for an unknown or missing member, an invalid scope, a failing example, or more than 64 KiB.
    pub fn parse(json: &str) -> Result<Self, TemplateError> {
        if json.len() > MAX_BYTES {
            return Err(TemplateError::Large);
        }
        let form = read_json(json.as_bytes())
            .map_err(|error| TemplateError::Form(error.to_string().into()))?;
        let this = Self { form };
        this.check()?;
        Ok(this)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.form.name
    }

    /// Returns its description.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.form.about
    }

    /// Returns the patterns that it allows, with `{root}` as placeholder of the directories.
    #[must_use]
    pub fn allows(&self) -> &[String] {
        &self.form.allows
    }

    /// Returns the patterns that it grants for `roots`, each once.
    ///
    /// # Errors
    /// [`TemplateError::NoRoot`] if it needs a directory and `roots` is empty; [`TemplateError::Scope`] if a pattern is
    /// invalid for a directory; [`TemplateError::Covered`] if it would grant one of its refused examples there;
    /// [`TemplateError::TooMany`] if there are more than a grant store can hold.
    pub fn rules(&self, roots: &[VirtualPath]) -> Result<Vec<ScopePattern>, TemplateError> {
        let (mut rules, mut known) = (Vec::new(), BTreeSet::new());
        for text in &self.form.allows {
            let texts: Vec<String> = if text.contains(ROOT) {
                let put = |root: &VirtualPath| text.replace(ROOT, root.as_str());
                roots.iter().map(put).collect()
            } else {
                vec![text.clone()]
            };
            if texts.is_empty() {
                return Err(TemplateError::NoRoot(self.form.name.clone()));
            }
            for text in texts {
                let rule: ScopePattern =
                    text.parse().map_err(|source| self.no_scope(text, source))?;
                if !known.insert(rule.clone()) {
                    continue;
                }
                if rules.len() >= MAX_GRANTS {
                    return Err(TemplateError::TooMany(self.form.name.clone()));
                }
                rules.push(rule);
            }
        }
        self.refused(&rules, roots)?;
        Ok(rules)
    }

    /// Checks the refused examples for all directories that it is applied to.
    fn refused(&self, rules: &[ScopePattern], roots: &[VirtualPath]) -> Result<(), TemplateError> {
        for example in &self.form.refuses {
            for root in roots {
                if self.is_covered(example, rules, root)? {
                    return Err(TemplateError::Covered {
                        template: self.form.name.clone(),
                        example: example.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether one of `rules` covers an example in the directory `root`.
    fn is_covered(
        &self,
        example: &str,
        rules: &[ScopePattern],
        root: &VirtualPath,
    ) -> Result<bool, TemplateError> {
        let text = example.replace(ROOT, root.as_str());
        let scope: Scope = text
            .parse()
            .map_err(|source| self.no_scope(example.to_owned(), source))?;
        Ok(rules.iter().any(|rule| rule.covers(&scope)))
    }

    /// Returns the grants to `holder`, without its descendants, for `roots`.
    ///
    /// # Errors
    /// As [`Self::rules`].
    pub fn grants(
        &self,
        roots: &[VirtualPath],
        holder: &GrantHolder,
        lifetime: Lifetime,
    ) -> Result<Vec<NewGrant>, TemplateError> {
        let grant = |pattern: ScopePattern| NewGrant {
            pattern: pattern.into(),
            holder: holder.clone(),
            lifetime,
            descendants: false,
        };
        Ok(self.rules(roots)?.into_iter().map(grant).collect())
    }

    fn check(&self) -> Result<(), TemplateError> {
        let Form {
            name,
            about: _,
            allows,
            covers,
            refuses,
        } = &self.form;
        let lacks = [
            ("name", name.is_empty()),
            ("allows", allows.is_empty()),
            ("covers", covers.is_empty()),
            ("refuses", refuses.is_empty()),
        ];
        if let Some((member, _)) = lacks.into_iter().find(|(_, empty)| *empty) {
            return Err(TemplateError::Lacks(member));
        }
        let root = VirtualPath::parse(SAMPLE, None).map_err(|error| {
            self.no_scope(
                SAMPLE.to_owned(),
                ScopeError::Path(SAMPLE.to_owned(), error),
            )
        })?;
        let rules = self.rules(std::slice::from_ref(&root))?;
        for example in covers {
            if !self.is_covered(example, &rules, &root)? {
                return Err(TemplateError::NotCovered {
                    template: name.clone(),
                    example: example.clone(),
                });
            }
        }
        Ok(())
    }

    fn no_scope(&self, text: String, source: ScopeError) -> TemplateError {
        TemplateError::Scope {
            template: self.form.name.clone(),
            text,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_examples_are_checked_for_every_directory() {
        let json = r#"{"name":"t","about":"","allows":["write:file:{root}"],
            "covers":["write:file:{root}/a"],"refuses":["write:file:/etc/passwd"]}"#;
        let template = Template::parse(json).unwrap();
        let rules = |root: &str| template.rules(&[VirtualPath::parse(root, None).unwrap()]);
        assert!(matches!(rules("/etc"), Err(TemplateError::Covered { .. })));
        assert_eq!(
            rules("/repo").unwrap(),
            ["write:file:/repo".parse().unwrap()]
        );
    }
    use crate::id::WorkerId;

    fn roots(paths: &[&str]) -> Vec<VirtualPath> {
        let path = |text: &&str| VirtualPath::parse(text, None).unwrap();
        paths.iter().map(path).collect()
    }

    #[test]
    fn built_in_templates_pass_their_examples() {
        let names: Vec<String> = Template::built_in()
            .iter()
            .map(|template| {
                template.check().unwrap();
                template.name().to_owned()
            })
            .collect();
        assert_eq!(
            names,
            ["read-only", "reviewer", "editor", "builder", "scratch"]
        );
    }

    #[test]
    fn each_directory_gets_its_rules_once() {
        let text = r#"{"name":"t","allows":["read:file:{root}","read:clock"],"covers":["read:clock"],"refuses":["write:clock"]}"#;
        let template = Template::parse(text).unwrap();
        let rules = |paths: &[&str]| -> Vec<String> {
            let rules = template.rules(&roots(paths)).unwrap();
            rules.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            rules(&["/a", "/b{root}", "/a"]),
            ["read:file:/a", "read:file:/b{root}", "read:clock"]
        );
        assert_eq!(rules(&["/"]), ["read:file:/", "read:clock"]);
        let none = template.rules(&[]);
        assert_eq!(none, Err(TemplateError::NoRoot("t".to_owned())));
        let holder = GrantHolder::Worker(WorkerId(1));
        let grants = template.grants(&roots(&["/a"]), &holder, Lifetime::Session);
        let expected = ["read:file:/a", "read:clock"].map(|pattern| NewGrant {
            pattern: pattern.parse().unwrap(),
            holder: holder.clone(),
            lifetime: Lifetime::Session,
            descendants: false,
        });
        assert_eq!(grants.unwrap(), expected);
    }

    #[test]
    fn too_large_template_is_rejected() {
        let text = |about: usize| {
            let about = "x".repeat(about);
            format!(
                r#"{{"name":"t","about":"{about}","allows":["read:file:{{root}}"],"covers":["read:file:/example"],"refuses":["read:clock"]}}"#
            )
        };
        let rest = text(0).len();
        let template = Template::parse(&text(MAX_BYTES - rest)).unwrap();
        let large = Template::parse(&text(MAX_BYTES - rest + 1));
        assert_eq!(large, Err(TemplateError::Large));
        let paths: Vec<String> = (0..=MAX_GRANTS).map(|n| format!("/{n}")).collect();
        let mut roots: Vec<VirtualPath> = paths
            .iter()
            .map(|text| VirtualPath::parse(text, None).unwrap())
            .collect();
        let many = template.rules(&roots);
        assert_eq!(many, Err(TemplateError::TooMany("t".to_owned())));
        roots.truncate(MAX_GRANTS);
        assert_eq!(template.rules(&roots).unwrap().len(), MAX_GRANTS);
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = Template::parse(text).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }

    #[test]
    fn invalid_template_is_rejected_by_name() {
        let text = |member: &str| {
            format!(
                r#"{{"name":"t","allows":["write:file:{{root}}/a"],"refuses":["write:file:{{root}}/b"],{member}}}"#
            )
        };
        Template::parse(&text(r#""covers":["write:file:{root}/a/x"]"#)).unwrap();
        refused(
            &text(r#""covers":["write:file:{root}/c"]"#),
            "`write:file:{root}/c`",
        );
        refused(
            &text(r#""covers":["fly:file:{root}"]"#),
            "`fly:file:{root}`",
        );
        refused(
            &text(r#""covers":["write:file:{root}/a"],"extra":1"#),
            "extra",
        );
        refused(&text(r#""covers":[]"#), "covers");
        refused(
            &text(r#""covers":["write:file:{root}/a"],"refuses":["write:file:{root}/c"]"#),
            "duplicate key `refuses`",
        );
        refused(&text(r#""about":"none""#), "covers");
        let wide = r#"{"name":"t","allows":["write"],"covers":["write:file:/a"],"refuses":["write:file:{root}/b"]}"#;
        refused(wide, "covers `write:file:{root}/b`");
        refused(&wide.replace(r#"["write"]"#, "[]"), "allows");
        refused(&wide.replace(r#""t""#, r#""""#), "name");
        refused(
            &wide.replace(r#""write""#, r#""write:file:{root}/../x""#),
            "is not a scope",
        );
    }
}
