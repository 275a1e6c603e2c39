//! Tests of the arguments.

use crate::servers::server;
use crate::support::{Place, check, command, run};

const USAGE: &str = "bailiwick check [OPTIONS] (COMMAND [ARGS]... | --url URL)";

#[tokio::test]
async fn missing_server_is_an_error() {
    let run = check(&[]).await;
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert_eq!(
        run.stderr,
        "bailiwick: missing server: use `bailiwick check COMMAND [ARGS]...` to start one over stdio, \
         or `bailiwick check --url URL` to connect to one over HTTP\n"
    );
}

#[tokio::test]
async fn unknown_and_conflicting_arguments_are_rejected_with_the_usage() {
    let url = ["--url", "http://127.0.0.1:1/"];
    for arguments in [
        &["--nonsense", "node"][..],
        &[&url[..], &["node", "server.js"]].concat(),
        &["--bearer-env", "TOKEN", "node"],
        &["--json", "--json", "node"],
    ] {
        let run = check(arguments).await;
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}");
        let usage = format!("(usage: {USAGE})\n");
        assert!(run.stderr.ends_with(&usage), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1);
    }
}

#[tokio::test]
async fn invalid_values_are_rejected() {
    let url = ["--url", "http://example.com/"];
    let local = ["--url", "http://127.0.0.1:1/"];
    for (arguments, part) in [
        (
            &["--url", "ftp://x/"][..],
            "`ftp://x/` is not an http:// or https:// URL",
        ),
        (
            &["--url", "http://me:secret@127.0.0.1/"],
            "has a user name or password",
        ),
        (
            &["--revision", "1999-01-01", "node"],
            "must be 2025-11-25 or 2026-07-28",
        ),
        (&["--configuration", "[]", "node"], "--configuration"),
        (&["--timeout", "0", "node"], "--timeout"),
        (
            &[&local[..], &["--bearer-env", "NONE"]].concat(),
            "the environment variable `NONE` (--bearer-env) is not set",
        ),
        (
            &[&local[..], &["--bearer-env", "EMPTY"]].concat(),
            "must have visible ASCII characters",
        ),
        (
            &[&url[..], &["--bearer-env", "TOKEN"]].concat(),
            "would be sent to `http://example.com/` unencrypted",
        ),
    ] {
        let variables = [("TOKEN", "secret"), ("EMPTY", "")];
        let run = run(command(arguments).envs(variables)).await;
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(run.stderr.contains(part), "{}", run.stderr);
        assert!(!run.stderr.contains("secret"), "{}", run.stderr);
    }
}

#[tokio::test]
async fn arguments_after_the_command_belong_to_it() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_bailiwick");
    for separator in [&[][..], &["--"]] {
        let own = [program, "serve", "--read-only", "--deny", "x", place.root()];
        let run = check(&[&["--timeout", "60"], separator, &own[..]].concat()).await;
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    }
    // The program refuses it, and not the check.
    let run = check(&[program, "serve", "--nonsense"]).await;
    assert!(
        run.stderr.contains("the server ended (exit status: 2)"),
        "{}",
        run.stderr
    );
}

#[tokio::test]
async fn help_names_the_options_and_the_exit_status() {
    let run = check(&["--help"]).await;
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for part in [
        USAGE,
        "--bearer-env <VAR>",
        "Exit status 0 if no check failed",
    ] {
        assert!(run.stdout.contains(part), "{}", run.stdout);
    }
}

#[tokio::test]
async fn server_inherits_the_environment() {
    let script = r#"test "$KEY" = value || exit 9; exec "$@""#;
    let server = server("minimal");
    let arguments = [&["sh", "-c", script, "sh"], &server[..]].concat();
    let with = run(command(&arguments).env("KEY", "value")).await;
    assert_eq!(with.code, 0, "{}", with.stderr);
    let without = check(&arguments).await;
    assert!(
        without.stderr.contains("exit status: 9"),
        "{}",
        without.stderr
    );
}
