//! Rules that convert the indentation of an edit to that of the file.

/// Maximum number of rules to try per match.
const MAX_RULES: usize = 8;
/// Characters ignored at the ends of a line; other white space is content.
pub(super) const BLANKS: [char; 2] = [' ', '\t'];
/// A rule that converts the indentation of the old text to that of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Indent {
    Deeper(String),
    Shallower(String),
    /// Replaces each `from` by `to`, such as four spaces by a tab.
    Units {
        from: String,
        to: String,
    },
}

impl Indent {
    /// The rule that converts all non-blank lines, if there is one.
    pub(super) fn between(old: &[&str], actual: &[&str]) -> Option<Self> {
        let pairs = old.iter().zip(actual);
        let pairs = pairs.filter(|(old, _)| !trimmed(old).is_empty());
        let pairs: Vec<_> = pairs
            .map(|(old, actual)| (indent(old), indent(actual)))
            .collect();
        let mut rules: Vec<Self> = Vec::new();
        for rule in pairs
            .iter()
            .flat_map(|(old, actual)| Self::guesses(old, actual))
        {
            if rules.len() < MAX_RULES && !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules.retain(|rule| {
            let holds = |(old, actual): &(&str, &str)| rule.apply(old).as_deref() == Some(*actual);
            pairs.iter().all(holds)
        });
        rules.into_iter().next()
    }

    /// Rules that convert the line `old` to `actual`.
    fn guesses(old: &str, actual: &str) -> Vec<Self> {
        let mut rules = Vec::new();
        if let Some(more) = actual.strip_suffix(old) {
            rules.push(Self::Deeper(more.to_owned()));
        }
        if let Some(less) = old.strip_suffix(actual) {
            rules.push(Self::Shallower(less.to_owned()));
        }
        let uniform = |text: &str| {
            let mut chars = text.chars();
            let first = chars.next();
            first.filter(|first| chars.all(|c| c == *first))
        };
        if let (Some(from), Some(to)) = (uniform(old), uniform(actual)) {
            let depth = common_divisor(old.len(), actual.len());
            rules.push(Self::Units {
                from: from.to_string().repeat(old.len() / depth),
                to: to.to_string().repeat(actual.len() / depth),
            });
        }
        rules
    }

    pub(super) fn apply(&self, indent: &str) -> Option<String> {
        match self {
            Self::Deeper(more) => Some(format!("{more}{indent}")),
            Self::Shallower(less) => indent.strip_prefix(less.as_str()).map(str::to_owned),
            Self::Units { from, to } => {
                let units = indent.len() / from.len();
                (from.repeat(units) == indent).then(|| to.repeat(units))
            }
        }
    }
}

pub(super) fn indent(line: &str) -> &str {
    let content = line.trim_start_matches(BLANKS);
    line.get(..line.len() - content.len()).unwrap_or_default()
}

pub(super) fn trimmed(line: &str) -> &str {
    line.trim_matches(BLANKS)
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
