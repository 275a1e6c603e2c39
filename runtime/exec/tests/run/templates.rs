//! What the built-in permission templates say about commands.

use std::sync::{Arc, Mutex};

use bailiwick::permission::{GrantHolder, Lifetime, Template};
use bailiwick::{Policy, Runtime, Scripted, VirtualPath, WorkerSpec};
use serde_json::json;

use crate::commands::{commands, run};

#[tokio::test]
async fn templates_ask_for_the_first_use_of_a_program_and_not_for_the_second() {
    for template in Template::built_in() {
        let root = tempfile::tempdir().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let needs = Arc::clone(&asked);
        let person = Scripted::new().rule(move |question| {
            let texts = question.request.needs.iter().map(ToString::to_string);
            needs.lock().unwrap().extend(texts);
            None
        });
        let person = person.allow("execute".parse().unwrap(), Lifetime::Session);
        let builder = Runtime::builder()
            .root("repo", root.path())
            .tools(commands().tools())
            .grantable("execute:command")
            .approver(person);
        let (runtime, grants) = builder.build().await.unwrap();
        let policy = Policy::nothing().allow("read:file").ask("write:file");
        let spec = WorkerSpec::new("main").policy(policy.ask("execute:command"));
        let worker = runtime.spawn(spec).await.unwrap();
        let repo = VirtualPath::parse("/repo", None).unwrap();
        let holder = GrantHolder::Worker(worker.id());
        grants
            .apply(&template, &[repo], &holder, Lifetime::Session)
            .await
            .unwrap();
        let name = template.name();
        for (program, is_allowed) in [("python3", name == "builder"), ("sh", false)] {
            let arguments = json!({ "argv": [program, "-c", ""], "cwd": "/repo", "mode": "live" });
            for _ in 0..2 {
                let output = run(&worker, arguments.clone()).await.expect(name);
                assert_eq!(output.exit_code, Some(0), "{name}: {output:?}");
            }
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            let expected = match is_allowed {
                true => Vec::new(),
                false => vec![format!("execute:command:{program}")],
            };
            assert_eq!(asked, expected, "{name}");
        }
    }
}
