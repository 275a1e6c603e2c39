//! `SKILL.md` in the form of Agent Skills.

use serde_json::{Map, json};

use super::{Description, ai_help, dashdash, yaml};

/// The sections of a skill. Tools are not included, since they have their own descriptions.
const SECTIONS: &[&str] = &[
    "When to Use",
    "Quick Reference",
    "Installation",
    "Error Handling",
    "Best Practices",
    "Troubleshooting",
];

pub(super) fn skill(described: &Description) -> String {
    let mut front = Map::new();
    front.insert("name".into(), dashdash::name(described).into());
    front.insert(
        "description".into(),
        dashdash::description(described).into(),
    );
    front.insert("metadata".into(), json!({"version": described.version}));
    let mut text = yaml::front_matter(&front);
    text.push_str(&ai_help::opening(described));
    for section in ai_help::sections(described) {
        if SECTIONS.contains(&section.heading) {
            text.push_str(&section.markdown());
        }
    }
    text
}
