//! The output in the guide `checking` is what the program prints, apart from its numbers.

use crate::support::{command, run};

fn without_numbers(text: &str) -> String {
    let numbers = text.split_inclusive(|c: char| !c.is_ascii_digit());
    numbers
        .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
        .collect()
}

#[tokio::test]
async fn guide_shows_what_the_check_prints() {
    let guide = include_str!("../../../mcp/src/guide/checking.md");
    let section = guide.split("\n## Check an MCP server\n").nth(1).unwrap();
    let shown = section.split("```text\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    let (line, printed) = shown.split_once('\n').unwrap();
    let arguments: Vec<&str> = line
        .strip_prefix("$ bailiwick check ")
        .unwrap()
        .split(' ')
        .collect();

    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("my-repo")).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_bailiwick"));
    let mut command = command(&arguments);
    command
        .current_dir(place.path())
        .env("PATH", program.parent().unwrap());
    let run = run(&mut command).await;
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(without_numbers(&run.stdout), without_numbers(printed));
}
