//! Runs the self-test, and sandboxes on machines that do not support all layers.
#![expect(
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and prepares files"
)]

use std::fs;
use std::io::Read as _;
use std::process::Command;

use bailiwick_exec::{Helper, Layer, LayerState, self_test};
use serde_json::json;

fn helper() -> Helper {
    Helper::At(env!("CARGO_BIN_EXE_bailiwick-exec-helper").into())
}

#[tokio::test]
async fn self_test_finds_all_layers_enforced() {
    let result = self_test(&helper()).await;
    let all = Layer::ALL.map(|layer| (layer, LayerState::Enforced));
    assert_eq!(result.layers, all);
    result.require(&[]).unwrap();
}

/// The attacks are not harmless by themselves: outside a sandbox, they get through.
#[test]
fn attacks_of_the_self_test_get_through_without_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    for path in [dir.path(), &work] {
        fs::write(path.join("secret"), "the secret").unwrap();
    }
    let helper = env!("CARGO_BIN_EXE_bailiwick-exec-helper");
    let network = fs::read_link("/proc/self/ns/net").unwrap();
    let targets = json!({
        "helper": helper,
        "work": work,
        "outside": dir.path(),
        "name": "secret",
        "secret": "the secret",
        "process": 1,
        "namespaces": [["net", network]],
    });
    let (mut output, writer) = std::io::pipe().unwrap();
    let mut probe = Command::new("unshare")
        // All processes are killed with the first one.
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args([
            "bash",
            "-c",
            "exec -a bailiwick-exec \"$0\" probe \"$1\"",
            helper,
        ])
        .arg(targets.to_string())
        .stdout(writer)
        .spawn()
        .unwrap();
    assert!(probe.wait().unwrap().success());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let findings: Vec<(String, Vec<Layer>)> = serde_json::from_str(&text).unwrap();
    let found: Vec<_> = findings.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(
        found,
        [
            "read a file outside",
            "see a file outside",
            "create a file outside",
            "read a file outside through a link",
            "read a hidden file",
            "control a device",
            "signal a process of the host",
            "share the net namespace of the host",
            "list the processes and settings of the host",
            "create an IPv4 socket",
            "create an IPv6 socket",
            "create a Unix socket",
            "create a netlink socket",
            "trace a process",
            "mount a file system",
            "have a capability",
            "get capabilities from a program",
            "create a user namespace",
            "start 1024 threads",
        ]
    );
}
