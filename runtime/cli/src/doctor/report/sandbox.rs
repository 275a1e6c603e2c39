//! Checks of what a sandbox for commands could use.

use super::super::facts::Sandbox;
use super::{Check, Status};

/// Why none of this has an effect.
const NOT_USED: &str = "not used yet: commands are not supported";

pub(super) fn checks(sandbox: &Sandbox) -> [Check; 3] {
    let all = [
        ("user namespaces", user_namespaces(sandbox)),
        ("landlock", landlock(sandbox.security_modules.as_deref())),
        ("seccomp", seccomp(sandbox.seccomp)),
    ];
    all.map(|(name, (status, fact))| {
        let advice = (status != Status::Ok).then_some("nothing to do");
        Check::new(name, status, format!("{fact}; {NOT_USED}"), advice)
    })
}

fn user_namespaces(sandbox: &Sandbox) -> (Status, &'static str) {
    match sandbox {
        Sandbox {
            max_user_namespaces: None | Some(0),
            ..
        } => (Status::Missing, "the kernel does not allow any"),
        Sandbox {
            unprivileged_userns_clone: Some(0),
            ..
        } => (Status::Missing, "only the superuser can create them"),
        Sandbox {
            apparmor_restrict_unprivileged_userns: Some(1..),
            ..
        } => (
            Status::Limited,
            "AppArmor restricts them for programs without a profile",
        ),
        Sandbox { .. } => (Status::Ok, "available"),
    }
}

fn landlock(modules: Option<&str>) -> (Status, &'static str) {
    match modules {
        None => (
            Status::Limited,
            "unknown, since /sys/kernel/security/lsm cannot be read",
        ),
        Some(modules) if modules.split(',').any(|module| module == "landlock") => {
            (Status::Ok, "available")
        }
        Some(_) => (Status::Missing, "the kernel does not have it enabled"),
    }
}

fn seccomp(mode: Option<u64>) -> (Status, &'static str) {
    match mode {
        None => (Status::Missing, "the kernel does not report it"),
        Some(0) => (
            Status::Ok,
            "available, and no filter applies to this process",
        ),
        Some(_) => (
            Status::Ok,
            "available, and a filter applies to this process",
        ),
    }
}
