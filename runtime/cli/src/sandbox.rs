//! What the sandbox of commands lacks on this machine.

use std::io::Write as _;

use bailiwick_exec::{Commands, ExecError, Helper, Layer, self_test};

/// Tests the sandbox, and tells the person without which layers commands run.
///
/// # Errors
/// [`ExecError`] if no command can run.
pub(crate) async fn tested(commands: Commands) -> Result<Commands, ExecError> {
    let commands = commands.tested(self_test(&Helper::CurrentExe).await);
    commands.require_layers()?;
    for (layer, reason) in commands.missing_layers() {
        // Without overlayfs, nothing is less protected.
        if layer != Layer::Overlay {
            // Standard error may be closed.
            let _ = writeln!(
                std::io::stderr(),
                "bailiwick: commands run without {layer}: {reason}"
            );
        }
    }
    Ok(commands)
}
