//! Runs real programs in sandboxes.
//!
//! What programs try, and the test that shows that it fails. By root, all of them run again as another user:
//! `all_tests_pass_as_an_unprivileged_user`.
//!
//! | attempt | test |
//! |---|---|
//! | read a hidden file or directory, copy, link or rename it | `probes_find_no_hole`, `hidden_files_and_directories_are_empty_and_cannot_be_replaced` |
//! | read, write, link or list files outside, also through links | `probes_find_no_hole` |
//! | read `/etc/shadow`, list or change `/`, write into system directories | `probes_find_no_hole` |
//! | read `/proc` of other processes, `/proc/1/mem`, `/proc/1/root`, `/proc/sys` | `probes_find_no_hole` |
//! | signal processes of the host, or process 1 | `probes_find_no_hole` |
//! | mount, unmount, `nsenter`, `chroot`, new user namespaces | `probes_find_no_hole`, `forbidden_system_calls_fail` |
//! | TCP, UDP, Unix, netlink and packet sockets | `forbidden_system_calls_fail`, `nothing_but_tcp_to_the_proxy_leaves_the_sandbox` |
//! | `ptrace`, `io_uring`, `bpf`, `keyctl`, `userfaultfd`, `TIOCSTI` | `forbidden_system_calls_fail` |
//! | a directory without permissions, so that rules are not applied beneath it | `rules_hold_in_directories_that_a_command_has_closed` |
//! | the numbers of the x32 ABI for forbidden system calls | `system_calls_of_the_x32_abi_are_forbidden` |
//! | leases, for which programs of the host wait | `leases_are_refused_and_locks_are_not` |
//! | device nodes | `probes_find_no_hole` |
//! | a link in place of a directory while changes are collected or applied | `directory_that_becomes_a_link_*`, `no_race_of_a_directory_and_a_link_writes_outside` |
//! | huge trees, names that are not text | `many_changes_are_asked_about_once_*`, `names_that_no_rule_can_judge_*` |
//! | a file that changes while its question is open | `file_that_changes_while_its_question_is_open_is_not_overwritten` |
//! | a file in place of a directory, and the reverse; set-id bits and devices in kept changes | `applied_changes_make_the_tree_*` |
//! | FIFOs and symbolic links in kept changes | `symbolic_links_of_a_command_are_dropped_and_fifos_cannot_be_created` |
//! | the set-user-ID bit, `su` | `probes_find_no_hole`, `command_cannot_leave_files_that_run_with_the_rights_of_their_owner` |
//! | capabilities, descriptors and environment of the host | `probes_find_no_hole` |
//! | large files, many processes, a fork bomb | `limits_hold_for_all_processes`, `fork_bomb_stops_at_the_limit_and_is_killed` |
//! | links in place of directories that file tools use | `links_of_a_running_command_do_not_lead_file_tools_outside` |
//! | much memory | `memory_is_limited` |
//! | run code that it wrote, directly, by the loader, by a shell, in memory | `dropped_programs_run_inside_the_sandbox_only`, `program_in_memory_is_confined` |
//! | outlive the program | `nothing_of_the_sandbox_runs_after_the_program_or_a_kill` |
//! | deleted working directory, long arguments | `directory_that_the_command_deletes_and_long_arguments_do_no_harm` |
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests prepare files, and fail by panicking"
)]

mod applied_trees;
mod budgets;
mod changes;
#[cfg(feature = "interop")]
mod command_network;
mod commands;
mod confined_files;
mod helpers_ahead;
mod killed_merge;
#[cfg(feature = "interop")]
mod network;
#[cfg(feature = "interop")]
mod other_programs;
mod overlay;
mod sandbox;
mod standing_grants;
mod templates;

use bailiwick_test_support::forbidden_calls::forbid;
use rustix::mount::FsOpenFlags;

/// The tests of kept changes, with copies of the files instead of overlayfs.
#[test]
fn all_tests_of_kept_changes_pass_without_overlayfs() {
    let run = std::thread::spawn(move || {
        forbid(&[libc::SYS_fsopen], rustix::io::Errno::PERM);
        let overlayfs = rustix::mount::fsopen("overlay", FsOpenFlags::empty());
        assert_eq!(overlayfs.unwrap_err(), rustix::io::Errno::PERM);
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        tests.args(["applied_trees::", "changes::", "killed_merge::"]);
        tests.output().unwrap()
    });
    let output = run.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

/// The tests of this file, run by root, hold for another user as well.
#[test]
fn all_tests_pass_as_an_unprivileged_user() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::getuid().is_root() {
        // They run as one anyway.
        return;
    }
    const NOBODY: u32 = 65534;
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
    tests
        .args(["--skip", "all_tests_pass_as_an_unprivileged_user"])
        // It needs a directory of root.
        .args([
            "--skip",
            "program_that_is_replaced_after_its_preview_does_not_run",
        ])
        .uid(NOBODY)
        .gid(NOBODY)
        .env("TMPDIR", home.path())
        .env("HOME", home.path());
    let output = tests.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}
