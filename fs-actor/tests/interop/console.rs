//! A real question on the real page in a real browser in, a grant of two uses that is taken back there out.

use bailiwick::CallProgress;

use crate::console_support::{Stage, until, write};
use crate::person;

#[tokio::test]
async fn a_person_grants_two_uses_on_the_page_and_takes_them_back() {
    let stage = Stage::new().await;
    // What is installed is not waited for while somebody asks.
    person::web();
    let pending = stage.asks("a.txt", "one\n").await;
    let call = tokio::spawn(pending.resume());
    let url = stage.console.url().to_string();
    let done = tokio::task::spawn_blocking(move || {
        let script = ["--config", "playwright.live.config.ts", "live/console.ts"];
        person::does(&script, &[("BAILIWICK_CONSOLE", url.as_ref())]);
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
