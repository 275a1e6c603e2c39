//! A real question on the real page in a real browser in, a grant of two uses that is taken back there out.

use std::path::Path;
use std::process::{Command, Stdio};

use bailiwick::Begun;

use crate::support::{Stage, until, write};

#[path = "../../../ui-assets/tests/support/chromium.rs"]
mod chromium;
#[path = "../../../ui-assets/tests/support/node.rs"]
mod node;

#[tokio::test]
async fn a_person_grants_two_uses_on_the_page_and_takes_them_back() {
    let stage = Stage::new().await;
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui-assets/web");
    node::install(&web);
    let pending = stage.asks("a.txt", "one\n").await;
    let mut person = Command::new("npx");
    person
        .args([
            "playwright",
            "test",
            "--config",
            "playwright.live.config.ts",
            "live/console.ts",
        ])
        .env("BAILIWICK_CHROMIUM", chromium::place())
        .env("BAILIWICK_CONSOLE", stage.console.url())
        .current_dir(web)
        .stdin(Stdio::null());
    let call = tokio::spawn(pending.go_on());
    let said = tokio::task::spawn_blocking(move || person.output().unwrap());
    let said = said.await.unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stdout)
    );
    assert!(matches!(call.await.unwrap(), Ok(Begun::Ended(_))));
    assert_eq!(stage.on_disk("a.txt").as_deref(), Some("one\n"));
    until(&stage.people, async || {
        stage.people.grants().await.unwrap().is_empty()
    })
    .await;
    // One use was left; it went with the grant.
    assert!(matches!(
        stage.worker.begin(write("a.txt", "two\n")).await,
        Ok(Begun::Asks(_))
    ));
}
