//! Changed copies of JSON values.

use serde_json::Value;

/// `value` with a further member `name` in each of its objects, one at a time.
pub fn with_further_member(value: &Value, name: &str) -> Vec<Value> {
    let mut found = Vec::new();
    collect(value, value, "", name, &mut found);
    found
}

fn collect(whole: &Value, here: &Value, pointer: &str, name: &str, found: &mut Vec<Value>) {
    match here {
        Value::Object(members) => {
            let mut changed = whole.clone();
            if let Some(Value::Object(members)) = changed.pointer_mut(pointer) {
                members.insert(name.to_owned(), Value::Bool(true));
            }
            found.push(changed);
            for (key, value) in members {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(whole, value, &format!("{pointer}/{key}"), name, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(whole, item, &format!("{pointer}/{index}"), name, found);
            }
        }
        _ => {}
    }
}
