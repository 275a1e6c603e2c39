//! Runs the self-test, and sandboxes on machines that do not support all layers.
#![expect(clippy::disallowed_methods, reason = "tests prepare files")]

use bailiwick_exec::{Helper, Layer, LayerState, self_test};

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
