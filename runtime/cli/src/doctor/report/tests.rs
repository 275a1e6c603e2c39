//! Tests of the report with facts of several machines.

use bailiwick_exec::{Layer, LayerState};
use rustix::io::Errno;

use super::super::facts::{
    Confinement, Directory, FileSystem, Folder, Inotify, PrivateFolder, Sandbox, SecretsFolder,
    SystemCalls,
};
use super::*;

const ME: u32 = 1000;
const DIRECTORY: u32 = 0o040_000;

fn directory(path: &str, owner: u32, mode: u32) -> Directory {
    Directory {
        path: path.into(),
        owner,
        mode: DIRECTORY | mode,
    }
}

/// A private directory of this user in a directory of the superuser.
fn private_folder(path: &str) -> PrivateFolder {
    PrivateFolder {
        path: path.into(),
        existing: vec![directory(path, ME, 0o700), directory("/", 0, 0o755)],
        writable: Ok(()),
        root: None,
    }
}

/// A machine on which everything works.
fn workstation() -> Facts {
    Facts {
        kernel: Some("6.8.0-45-generic".to_owned()),
        architecture: "x86_64",
        user: ME,
        roots: Some(Ok(1)),
        temporary: Folder {
            path: "/tmp".into(),
            probed: Ok(SystemCalls {
                openat2: Confinement::Enforced,
                reopen: Ok(()),
                mount_id: Ok(()),
                watch: Ok(()),
            }),
        },
        folders: vec![Folder {
            path: "/repo".into(),
            probed: Ok(FileSystem {
                no_replace: Ok(()),
                exchange: Ok(()),
                sync_file: Ok(()),
                sync_directory: Ok(()),
                lock: Ok(()),
            }),
        }],
        state: Some(private_folder("/home/me/.local/state/bailiwick")),
        secrets: SecretsFolder {
            folder: private_folder("/run/user/1000"),
            named: true,
        },
        inotify: Inotify {
            instances: Some(128),
            watches: Some(65_536),
        },
        open_files: Some(1024),
        terminal: true,
        opener: Some("xdg-open".to_owned()),
        sandbox: Sandbox {
            file_tools: LayerState::Enforced,
            layers: Layer::ALL.map(|layer| (layer, LayerState::Enforced)).into(),
            max_user_namespaces: Some(127_000),
            unprivileged_userns_clone: Some(1),
            apparmor_restrict_unprivileged_userns: Some(0),
        },
    }
}

/// The names of the checks with this status.
fn names(report: &Report, status: Status) -> Vec<&'static str> {
    let checks = report.checks.iter();
    let checks = checks.filter(|check| check.status == status);
    checks.map(|check| check.check).collect()
}

/// Changes the facts of the workstation, and returns the line of this check and whether `serve` works.
#[track_caller]
fn line(check: &str, change: impl FnOnce(&mut Facts)) -> (String, bool) {
    let mut facts = workstation();
    change(&mut facts);
    let report = report(&facts);
    let found = report.checks.iter().find(|it| it.check == check);
    (found.unwrap().to_string(), report.can_serve())
}

/// The line of this check is limited and contains `part`, and `serve` works.
#[track_caller]
fn is_limited(check: &str, part: &str, change: impl FnOnce(&mut Facts)) {
    let (line, can_serve) = line(check, change);
    assert!(
        line.starts_with("limited ") && line.contains(part),
        "{line}"
    );
    assert!(can_serve, "{line}");
}

fn calls(facts: &mut Facts) -> &mut SystemCalls {
    facts.temporary.probed.as_mut().unwrap()
}

fn file_system(facts: &mut Facts) -> &mut FileSystem {
    facts.folders[0].probed.as_mut().unwrap()
}

fn state(facts: &mut Facts) -> &mut PrivateFolder {
    facts.state.as_mut().unwrap()
}

fn set_layer(facts: &mut Facts, layer: Layer, state: LayerState) {
    let mut layers = facts.sandbox.layers.iter_mut();
    layers.find(|(it, _)| *it == layer).unwrap().1 = state;
}

fn lacks(facts: &mut Facts, layer: Layer) {
    set_layer(facts, layer, LayerState::Missing("forbidden".to_owned()));
}

#[test]
fn machine_on_which_everything_works_reports_only_ok() {
    let report = report(&workstation());
    assert_eq!(names(&report, Status::Ok).len(), report.checks.len());
    assert!(report.can_serve());
    assert!(report.checks.iter().all(|check| check.advice.is_none()));
    let counts = format!(
        "{0} checks: {0} ok, 0 limited, 0 missing",
        report.checks.len()
    );
    assert!(report.to_string().ends_with(&counts), "{report}");
}

#[test]
fn container_that_forbids_openat2_is_limited_and_serves() {
    let mut facts = workstation();
    calls(&mut facts).openat2 = Confinement::Failed(Errno::PERM);
    (facts.terminal, facts.opener) = (false, None);
    lacks(&mut facts, Layer::Namespaces);
    lacks(&mut facts, Layer::Proc);
    let report = report(&facts);
    assert_eq!(
        names(&report, Status::Limited),
        ["openat2", "terminal", "browser"]
    );
    assert_eq!(
        names(&report, Status::Missing),
        ["namespaces", "private /proc"]
    );
    assert!(report.can_serve());
}

#[test]
fn old_kernel_is_limited_and_serves() {
    let mut facts = workstation();
    calls(&mut facts).openat2 = Confinement::Failed(Errno::NOSYS);
    calls(&mut facts).mount_id = Err(Errno::OPNOTSUPP);
    lacks(&mut facts, Layer::Landlock);
    let report = report(&facts);
    assert_eq!(names(&report, Status::Limited), ["openat2", "statx"]);
    assert_eq!(names(&report, Status::Missing), ["landlock"]);
    assert!(report.can_serve());
}

#[test]
fn network_file_system_limits_each_operation_that_it_lacks() {
    let mut facts = workstation();
    *file_system(&mut facts) = FileSystem {
        no_replace: Err(Errno::INVAL),
        exchange: Err(Errno::INVAL),
        sync_file: Ok(()),
        sync_directory: Err(Errno::INVAL),
        lock: Err(Errno::NOLCK),
    };
    let report = report(&facts);
    let limited = names(&report, Status::Limited);
    assert_eq!(limited, ["rename", "exchange", "fsync", "lock"]);
    assert!(report.can_serve());
}

#[test]
fn directory_that_cannot_be_written_is_limited() {
    is_limited(
        "file system",
        "`/repo`: no directory can be created",
        |it| {
            it.folders[0].probed = Err(Errno::ROFS);
        },
    );
    is_limited("temporary folder", "were not checked", |it| {
        it.temporary.probed = Err(Errno::ACCESS);
    });
}

#[test]
fn rejected_roots_block_serve() {
    let (line, can_serve) = line("roots", |it| {
        it.roots = Some(Err("`/` cannot be a root: it is the top".to_owned()));
    });
    assert!(
        line.starts_with("missing ") && line.contains("`/` cannot be a root"),
        "{line}"
    );
    assert!(!can_serve);
}

#[test]
fn report_without_roots_has_no_check_of_them() {
    let mut facts = workstation();
    facts.roots = None;
    let report = report(&facts);
    assert!(report.checks.iter().all(|check| check.check != "roots"));
    assert!(report.can_serve());
}

#[test]
fn kernel_that_does_not_confine_paths_blocks_serve() {
    for openat2 in [Confinement::NotEnforced, Confinement::Failed(Errno::TOOBIG)] {
        let (line, can_serve) = line("openat2", |it| calls(it).openat2 = openat2);
        assert!(line.starts_with("missing ") && !can_serve, "{line}");
    }
}

#[test]
fn absent_procfs_is_limited_and_denied_procfs_blocks_serve() {
    is_limited("procfs", "mount procfs", |it| {
        calls(it).reopen = Err(Errno::NOENT);
    });
    let (line, can_serve) = line("procfs", |it| calls(it).reopen = Err(Errno::ACCESS));
    assert!(line.starts_with("missing ") && !can_serve, "{line}");
}

#[test]
fn too_few_watches_are_limited() {
    is_limited("inotify", "watches 63", |it| it.inotify.watches = Some(63));
    is_limited("inotify", "instances 128", |it| {
        calls(it).watch = Err(Errno::MFILE);
    });
    let (line, _) = line("inotify", |it| it.inotify.watches = None);
    assert!(
        line.starts_with("ok ") && line.contains("watches unknown"),
        "{line}"
    );
}

#[test]
fn low_limit_of_open_files_is_limited() {
    is_limited("open files", "1023", |it| it.open_files = Some(1023));
    let (line, _) = line("open files", |it| it.open_files = None);
    assert!(line.starts_with("ok "), "{line}");
}

#[test]
fn state_folder_that_other_users_can_change_is_limited() {
    for (owner, mode) in [(ME, 0o770), (ME, 0o707), (1001, 0o700)] {
        is_limited("state folder", "other users can replace", |it| {
            state(it).existing[0] = directory("/home/me", owner, mode);
        });
    }
    is_limited("state folder", "other users can replace", |it| {
        state(it).existing[1] = directory("/", 0, 0o777);
    });
    let (line, _) = line("state folder", |it| {
        state(it).existing[1] = directory("/tmp", 0, 0o1777);
    });
    assert!(line.starts_with("ok "), "{line}");
}

#[test]
fn absent_state_folder_is_ok_if_it_can_be_created() {
    let create = |it: &mut Facts| state(it).existing[0] = directory("/home/me", ME, 0o755);
    let (line, _) = line("state folder", create);
    assert!(line.starts_with("ok "), "{line}");
    is_limited("state folder", "cannot be written", |it| {
        create(it);
        state(it).writable = Err(Errno::ROFS);
    });
}

#[test]
fn state_folder_that_others_can_list_is_limited() {
    is_limited("state folder", "can list", |it| {
        let path = state(it).path.to_str().unwrap().to_owned();
        state(it).existing[0] = directory(&path, ME, 0o755);
    });
}

#[test]
fn state_folder_without_a_place_is_limited() {
    is_limited("state folder", "XDG_STATE_HOME", |it| it.state = None);
    is_limited("state folder", "in the root `/repo`", |it| {
        state(it).root = Some("/repo".into());
    });
    is_limited("state folder", "not a directory", |it| {
        state(it).existing[0].mode = 0o100_700;
    });
}

#[test]
fn runtime_folder_that_is_shared_or_unusable_is_limited() {
    is_limited("runtime folder", "set XDG_RUNTIME_DIR", |it| {
        it.secrets.named = false;
        it.secrets.folder.existing[0] = directory("/tmp", 0, 0o1777);
    });
    is_limited("runtime folder", "chmod 700", |it| {
        it.secrets.folder.existing[0].mode = DIRECTORY | 0o755;
    });
    is_limited("runtime folder", "cannot be written", |it| {
        it.secrets.folder.writable = Err(Errno::ACCESS);
    });
    is_limited("runtime folder", "in the root `/run`", |it| {
        it.secrets.folder.root = Some("/run".into());
    });
}

#[test]
fn untested_architecture_is_limited() {
    is_limited("kernel", "not tested", |it| it.architecture = "aarch64");
}

#[test]
fn missing_layer_of_the_sandbox_names_its_reason_and_what_to_do() {
    let is_required = |layer: &Layer| *layer != Layer::Overlay;
    for layer in Layer::ALL.into_iter().filter(is_required) {
        let mut facts = workstation();
        lacks(&mut facts, layer);
        let report = report(&facts);
        assert_eq!(names(&report, Status::Missing).len(), 1, "{layer:?}");
        assert!(report.can_serve());
        let text = report.to_string();
        assert!(
            text.contains("commands: forbidden; they run only if"),
            "{text}"
        );
    }
    for (advice, change) in [
        (
            "user.max_user_namespaces",
            (|it| it.max_user_namespaces = Some(0)) as fn(&mut Sandbox),
        ),
        ("userns_clone", |it| it.unprivileged_userns_clone = Some(0)),
        ("AppArmor", |it| {
            it.apparmor_restrict_unprivileged_userns = Some(1);
        }),
        ("in a container", |_| {}),
    ] {
        let (line, _) = line("namespaces", |it| {
            lacks(it, Layer::Namespaces);
            change(&mut it.sandbox);
        });
        assert!(line.contains(advice), "{line}");
    }
}

#[test]
fn missing_overlayfs_is_limited_since_files_are_copied() {
    is_limited("overlayfs", "a copy of the files", |it| {
        lacks(it, Layer::Overlay)
    });
}

#[test]
fn broken_layer_of_the_sandbox_says_what_got_through() {
    let (line, can_serve) = line("landlock", |it| {
        let attack = "read a file outside".to_owned();
        set_layer(it, Layer::Landlock, LayerState::Broken(attack));
    });
    assert!(
        line.starts_with("missing ") && line.contains("could read a file outside, so none runs"),
        "{line}"
    );
    assert!(can_serve, "{line}");
}

#[test]
fn json_has_the_members_of_the_text() {
    let mut facts = workstation();
    facts.roots = Some(Err("bad\u{202e}root".to_owned()));
    let report = report(&facts);
    let json = report.to_json();
    assert_eq!(json["can_serve"], false);
    assert_eq!(json["counts"]["missing"], 1);
    let checks = json["checks"].as_array().unwrap();
    let roots = checks
        .iter()
        .find(|check| check["check"] == "roots")
        .unwrap();
    assert_eq!(roots["status"], "missing");
    assert_eq!(roots["blocks_serve"], true);
    assert_eq!(roots["advice"], "name other directories");
    assert!(!roots["detail"].as_str().unwrap().contains('\u{202e}'));
    assert!(checks[0].get("advice").is_none());
    let lines = report.to_string();
    assert_eq!(lines.lines().count(), checks.len() + 1);
}

#[test]
fn missing_confinement_of_file_tools_names_its_reason() {
    let missing = |it: &mut Facts| {
        it.sandbox.file_tools = LayerState::Missing("an old kernel".to_owned());
    };
    let (line, can_serve) = line("file threads", missing);
    assert!(line.contains("an old kernel"), "{line}");
    assert!(can_serve);
}
