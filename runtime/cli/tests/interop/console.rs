//! Tests of the approval page in a real browser.

use bailiwick_test_support::console::{ConsoleServer, until, write};

use bailiwick::worker::CallProgress;
use bailiwick_test_support::playwright;

#[tokio::test]
async fn grant_is_added_and_revoked_on_the_page() {
    let stage = ConsoleServer::new().await;
    // What is installed is not waited for while somebody asks.
    playwright::web();
    let pending = stage.start_write("a.txt", "one\n").await;
    let call = tokio::spawn(pending.resume());
    let url = stage.console.url().to_string();
    let done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/console.ts"];
        playwright::run(&script, &[("BAILIWICK_CONSOLE", url.as_ref())]);
    });
    done.await.unwrap();
    assert!(matches!(call.await.unwrap(), Ok(CallProgress::Ended(_))));
    assert_eq!(stage.on_disk("a.txt").as_deref(), Some("one\n"));
    until(&stage.people, async || {
        stage.people.grants().await.unwrap().is_empty()
    })
    .await;
    // One use was left; it went with the grant.
    assert!(matches!(
        stage.worker.begin(write("a.txt", "two\n")).await,
        Ok(CallProgress::Pending(_))
    ));
}
