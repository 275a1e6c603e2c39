//! Lines as written and as they stand in, the one rule by which their indentation differs out.

/// Rules of indentation tried at most for one place.
const MAX_RULES: usize = 8;
/// What may differ before and after the content of a line; other white space is content.
pub(super) const BLANKS: [char; 2] = [' ', '\t'];
/// The one rule by which the indentation of the old text becomes that of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Indent {
    Deeper(String),
    Shallower(String),
    /// Each `from` is one `to`, such as four spaces and a tab.
    Units {
        from: String,
        to: String,
    },
}

impl Indent {
    /// The rule that holds for all lines which are not blank, if one does.
    pub(super) fn between(old: &[&str], here: &[&str]) -> Option<Self> {
        let pairs = old.iter().zip(here);
        let pairs = pairs.filter(|(old, _)| !trimmed(old).is_empty());
        let pairs: Vec<_> = pairs
            .map(|(old, here)| (indent(old), indent(here)))
            .collect();
        let mut rules: Vec<Self> = Vec::new();
        for rule in pairs
            .iter()
            .flat_map(|(old, here)| Self::guesses(old, here))
        {
            if rules.len() < MAX_RULES && !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules.retain(|rule| {
            let holds = |(old, here): &(&str, &str)| rule.apply(old).as_deref() == Some(*here);
            pairs.iter().all(holds)
        });
        rules.into_iter().next()
    }

    /// The rules under which `old` becomes `here`.
    fn guesses(old: &str, here: &str) -> Vec<Self> {
        let mut rules = Vec::new();
        if let Some(more) = here.strip_suffix(old) {
            rules.push(Self::Deeper(more.to_owned()));
        }
        if let Some(less) = old.strip_suffix(here) {
            rules.push(Self::Shallower(less.to_owned()));
        }
        let uniform = |text: &str| {
            let mut chars = text.chars();
            let first = chars.next();
            first.filter(|first| chars.all(|c| c == *first))
        };
        if let (Some(from), Some(to)) = (uniform(old), uniform(here)) {
            let depth = common_divisor(old.len(), here.len());
            rules.push(Self::Units {
                from: from.to_string().repeat(old.len() / depth),
                to: to.to_string().repeat(here.len() / depth),
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
