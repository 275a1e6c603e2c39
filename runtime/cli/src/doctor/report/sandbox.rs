//! Checks of what the kernel enforces for file tools and commands.

use bailiwick_exec::{Layer, LayerState};

use super::super::facts::Sandbox;
use super::Check;

pub(super) fn checks(sandbox: &Sandbox) -> Vec<Check> {
    let layers = sandbox.layers.iter();
    let layers = layers.map(|(layer, state)| check(*layer, state, sandbox));
    std::iter::once(file_tools(&sandbox.file_tools))
        .chain(layers)
        .collect()
}

fn file_tools(state: &LayerState) -> Check {
    let name = "file threads";
    match state {
        LayerState::Enforced => Check::ok(
            name,
            "file tools: the kernel lets their threads open nothing outside the roots",
        ),
        LayerState::Missing(reason) => Check::missing(
            name,
            format!("file tools: Landlock does not confine their threads: {reason}"),
            "use Linux 5.19 or newer with Landlock, and allow its system calls in the profile of a container",
        ),
        LayerState::Broken(attack) => Check::missing(
            name,
            format!("file tools: a confined thread could {attack}"),
            "report it as described in SECURITY.md",
        ),
        LayerState::NotTested => Check::missing(
            name,
            "file tools: not tested",
            "run `bailiwick doctor` again",
        ),
    }
}

fn check(layer: Layer, state: &LayerState, sandbox: &Sandbox) -> Check {
    let (name, enforced) = describe(layer);
    match state {
        LayerState::Enforced => Check::ok(name, format!("commands: {enforced}")),
        LayerState::Missing(reason) if layer == Layer::Overlay => Check::limited(
            name,
            format!(
                "commands: overlayfs is missing, so changes are kept apart in a copy of the files, or not at all: {reason}"
            ),
            "use Linux 6.6 or newer with overlayfs, and allow fsopen and fsmount in the seccomp profile of a container",
        ),
        LayerState::Missing(reason) => Check::missing(
            name,
            format!("commands: {reason}; they run only if --optional-layers names this layer"),
            advice(layer, sandbox),
        ),
        LayerState::Broken(attack) => Check::missing(
            name,
            format!("commands: a test program in the sandbox could {attack}, so none runs"),
            "run no commands on this machine, and report it as described in SECURITY.md",
        ),
        LayerState::NotTested => {
            Check::missing(name, "commands: not tested", "run `bailiwick doctor` again")
        }
    }
}

/// The name of the check of a layer, and what the layer does.
fn describe(layer: Layer) -> (&'static str, &'static str) {
    match layer {
        Layer::Namespaces => (
            "namespaces",
            "they see only files that they may use, and no processes and networks of this machine",
        ),
        Layer::Proc => (
            "private /proc",
            "they see only their own processes in /proc",
        ),
        Layer::ProcessLimit => ("process limit", "the number of their processes is limited"),
        Layer::Landlock => (
            "landlock",
            "the kernel lets them open only files that they may use",
        ),
        Layer::Seccomp => (
            "seccomp",
            "the kernel rejects system calls for networks, mounts and tracing",
        ),
        Layer::Capabilities => (
            "capabilities",
            "they have no capabilities, and cannot get any",
        ),
        Layer::Cleanup => (
            "cleanup",
            "all their processes are killed when they end or are stopped",
        ),
        Layer::Overlay => (
            "overlayfs",
            "changes that a person must allow are kept apart until then",
        ),
        _ => ("sandbox", "an unknown layer is enforced"),
    }
}

/// What to do about a missing layer.
fn advice(layer: Layer, sandbox: &Sandbox) -> &'static str {
    match (layer, sandbox) {
        (
            Layer::Namespaces,
            Sandbox {
                max_user_namespaces: None | Some(0),
                ..
            },
        ) => "set the sysctl user.max_user_namespaces to 1000 or more",
        (
            Layer::Namespaces,
            Sandbox {
                unprivileged_userns_clone: Some(0),
                ..
            },
        ) => "set the sysctl kernel.unprivileged_userns_clone to 1",
        (
            Layer::Namespaces,
            Sandbox {
                apparmor_restrict_unprivileged_userns: Some(1..),
                ..
            },
        ) => "allow user namespaces (`userns`) in an AppArmor profile for this program",
        (Layer::Namespaces | Layer::Proc, _) => {
            "in a container, allow unshare and mount in its seccomp profile, and leave /proc unmasked"
        }
        (Layer::ProcessLimit, _) => "run as another user than root",
        (Layer::Landlock, _) => {
            "use Linux 6.12 or newer with Landlock, and allow its system calls in the profile of a container"
        }
        (Layer::Seccomp, _) => "use a kernel with seccomp filters",
        _ => "see the checks of the other layers",
    }
}
