//! Intent templates: a sentence is one bounded line, a quoted value cannot end its quotes, and in a line for a shell only
//! the text of the template is outside quotes.
#![no_main]

use bailiwick::intent::IntentTemplate;
use bailiwick_fuzz::parts_of;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// What a POSIX shell finds outside single quotes, if all of them are closed. `'\''` is a quote in a value.
fn unquoted(line: &str) -> Option<String> {
    let line = line.replace(r"'\''", "");
    let parts = line.split('\'').enumerate();
    let outside = parts
        .filter(|(index, _)| index % 2 == 0)
        .map(|(_, part)| part);
    line.matches('\'')
        .count()
        .is_multiple_of(2)
        .then(|| outside.collect())
}

fuzz_target!(|input: &[u8]| {
    let Some([source, arguments]) = parts_of(input) else {
        return;
    };
    let Ok(template) = IntentTemplate::parse(source) else {
        return;
    };
    assert_eq!(
        IntentTemplate::parse(&template.to_string()).as_ref(),
        Ok(&template)
    );
    let arguments = serde_json::from_str::<Value>(arguments).unwrap_or(Value::Null);
    let sentence = template.render(&arguments);
    assert!(sentence.chars().count() <= 1024, "{}", sentence.len());
    assert!(
        !sentence.chars().any(bailiwick::text::is_deceptive),
        "{sentence:?}"
    );
    if let Some(quoted) = template.render_quoted(&arguments)
        && !source.contains(['“', '”'])
    {
        let mut depth = 0;
        for c in quoted.chars() {
            depth += i32::from(c == '“') - i32::from(c == '”');
            assert!((0..=1).contains(&depth), "{quoted:?}");
        }
    }
    if let Some(line) = template.shell(&arguments)
        && !source.contains(['\'', '\\'])
    {
        // Words of an array are separated by spaces, and booleans are not quoted.
        let allowed = |c: char| source.contains(c) || c == ' ';
        let outside = unquoted(&line).map(|text| text.replace("true", "").replace("false", ""));
        assert!(
            outside.is_some_and(|text| text.chars().all(allowed)),
            "{line:?}"
        );
    }
    let _ = template.lint(&arguments);
});
