//! Tests of the kinds of standard streams.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_getfl};
use serde_json::{Value, json};

use crate::PROGRAM;
use crate::http::initialize;

/// Serves with these streams until `input` is closed, and returns the answers to a handshake and a ping.
fn answers(
    stdin: impl Into<Stdio>,
    stdout: impl Into<Stdio>,
    input: impl Write,
    output: impl Read,
) -> Vec<Value> {
    let root = tempfile::tempdir().unwrap();
    let mut program = Command::new(PROGRAM);
    program
        .arg("serve")
        .arg(root.path())
        .stdin(stdin)
        .stdout(stdout);
    let mut child = program.spawn().unwrap();
    // The command has copies of its streams.
    drop(program);
    let ping = json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"});
    let mut input = input;
    writeln!(input, "{}\n{ping}", initialize()).unwrap();
    drop(input);
    let answers = BufReader::new(output).lines();
    let answers = answers.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let answers = answers.collect();
    assert!(child.wait().unwrap().success());
    answers
}

fn assert_answered(answers: &[Value]) {
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers[0]["result"]["serverInfo"].is_object());
    assert_eq!(
        answers[1],
        json!({"jsonrpc": "2.0", "id": "ping", "result": {}})
    );
}

fn is_blocking(stream: &impl AsFd) -> bool {
    !fcntl_getfl(stream).unwrap().contains(OFlags::NONBLOCK)
}

#[test]
fn pipes_are_served_and_stay_blocking() {
    let (stdin, input): (PipeReader, PipeWriter) = pipe().unwrap();
    let (output, stdout) = pipe().unwrap();
    let shared = stdin.try_clone().unwrap();
    let (child_in, child_out) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
    assert_answered(&answers(child_in, child_out, input, output));
    assert!(is_blocking(&shared));
}

#[test]
fn sockets_are_served_and_stay_blocking() {
    let (stdin, input) = UnixStream::pair().unwrap();
    let (stdout, output) = UnixStream::pair().unwrap();
    let shared = stdin.try_clone().unwrap();
    let (child_in, child_out) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
    assert_answered(&answers(child_in, child_out, input, output));
    assert!(is_blocking(&shared));
}

#[test]
fn files_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let (requests, results) = (directory.path().join("in"), directory.path().join("out"));
    std::fs::write(&requests, format!("{}\n", initialize())).unwrap();
    let (stdin, stdout) = (
        File::open(&requests).unwrap(),
        File::create(&results).unwrap(),
    );
    let none = answers(stdin, stdout, std::io::sink(), std::io::empty());
    assert!(none.is_empty());
    let answer: Value = serde_json::from_str(&std::fs::read_to_string(&results).unwrap()).unwrap();
    assert!(answer["result"]["serverInfo"].is_object());
}
