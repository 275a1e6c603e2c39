//! Limits, capabilities, Landlock and seccomp of the inner helper and the program.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus,
    Scope,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::proxy;
use crate::spec::{Limits, Mount, Network, SandboxSpec};

/// The Landlock version that all rules need: files, TCP, signals and abstract sockets.
const LANDLOCK: ABI = ABI::V6;

/// Sets the limits. The program cannot raise them.
pub(super) fn limit(limits: &Limits) -> io::Result<()> {
    let cpu = limits.cpu.map(|time| time.as_secs().max(1));
    for (resource, most) in [
        (Resource::Cpu, cpu),
        (Resource::As, limits.memory),
        (Resource::Fsize, limits.file_size),
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
        (Resource::Core, Some(0)),
    ] {
        if most.is_some() {
            let limit = Rlimit {
                current: most,
                maximum: most,
            };
            setrlimit(resource, limit)?;
        }
    }
    Ok(())
}

/// Drops all capabilities. Programs cannot get any, even as user 0.
pub(super) fn drop_capabilities() -> io::Result<()> {
    use CapabilitiesSecureBits as Bits;
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // The kernel does not know it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    set_capabilities_secure_bits(
        Bits::NO_ROOT
            | Bits::NO_ROOT_LOCKED
            | Bits::NO_SETUID_FIXUP
            | Bits::NO_SETUID_FIXUP_LOCKED
            | Bits::KEEP_CAPS_LOCKED
            | Bits::NO_CAP_AMBIENT_RAISE
            | Bits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    set_no_new_privs(true)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

/// Allows the files of the mounts only, no TCP except to the proxy, no signals to the outside, no abstract sockets of the outside.
pub(super) fn landlock(spec: &SandboxSpec) -> io::Result<()> {
    let restricted = rules(spec).map_err(io::Error::other)?;
    let status = restricted.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

fn rules(spec: &SandboxSpec) -> Result<RulesetCreated, Box<dyn std::error::Error + Send + Sync>> {
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    if spec.network == Network::Proxy {
        (&mut rules).add_rule(NetPort::new(proxy::PORT, AccessNet::ConnectTcp))?;
    }
    let mut allow = |at: &Path, access| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let of_files = AccessFs::from_file(LANDLOCK);
        let access = if at.is_dir() {
            access
        } else {
            access & of_files
        };
        (&mut rules).add_rule(PathBeneath::new(PathFd::new(at)?, access))?;
        Ok(())
    };
    for one in &spec.mounts {
        match one {
            Mount::Host { at, writable, .. } => allow(at, if *writable { all } else { read })?,
            Mount::Within { at, writable: true } | Mount::Temporary { at, .. } => allow(at, all)?,
            // A rule cannot take rights away; the mounts do.
            Mount::Within { .. } | Mount::Hidden { .. } | Mount::Link { .. } => {}
        }
    }
    allow(Path::new("/"), AccessFs::ReadDir.into())?;
    allow(Path::new("/dev"), read | AccessFs::WriteFile)?;
    allow(Path::new("/dev/shm"), all)?;
    allow(Path::new("/proc"), read)?;
    Ok(rules)
}

/// Blocks system calls that could leave or attack the sandbox.
pub(super) fn seccomp(network: Network) -> io::Result<()> {
    // The filter that is installed last decides first; the stricter result of both holds.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, errno) in [
        (unknown, libc::ENOSYS),
        (forbidden(network).map_err(io::Error::other)?, libc::EPERM),
    ] {
        let program = compile(rules, errno).map_err(io::Error::other)?;
        seccompiler::apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, errno, arch)?.try_into()
}

/// System calls that fail with `EPERM`, with the arguments for which they do; without arguments, always.
fn forbidden(
    network: Network,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    // New user namespaces, which give capabilities.
    let user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let masked = |argument| {
        let is_set = SeccompCmpOp::MaskedEq(user);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is_set, user)?;
        SeccompRule::new(vec![condition])
    };
    rules.insert(libc::SYS_clone, vec![masked(0)?]);
    // Input for the terminal of the host.
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX].map(|request| {
        let equal = SeccompCmpOp::Eq;
        let condition = SeccompCondition::new(1, SeccompCmpArgLen::Dword, equal, request)?;
        SeccompRule::new(vec![condition])
    });
    rules.insert(
        libc::SYS_ioctl,
        terminal.into_iter().collect::<Result<_, _>>()?,
    );
    let sockets = match network {
        Network::None => Vec::new(),
        Network::Proxy => sockets_other_than_tcp()?,
    };
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// The arguments of `socket` for all sockets that are not TCP sockets.
fn sockets_other_than_tcp() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    // The bits of the second argument that are not flags.
    const TYPE: u64 = 0xf;
    let condition = |argument, operator, value: i32| {
        let value = u64::from(value.unsigned_abs());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let is_not = |argument, values: [i32; 2]| {
        let conditions = values.map(|value| condition(argument, SeccompCmpOp::Ne, value));
        SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
    };
    // Other protocols, such as MPTCP, are not restricted by Landlock.
    let mut rules = vec![
        is_not(0, [libc::AF_INET, libc::AF_INET6])?,
        is_not(2, [0, libc::IPPROTO_TCP])?,
    ];
    for kind in (0..16).filter(|kind| *kind != libc::SOCK_STREAM) {
        let is_kind = condition(1, SeccompCmpOp::MaskedEq(TYPE), kind)?;
        rules.push(SeccompRule::new(vec![is_kind])?);
    }
    Ok(rules)
}

/// System calls that are always forbidden.
const FORBIDDEN: &[i64] = &[
    // Namespaces, mounts and the root directory.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Calls that a filter cannot see.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keys of the user.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Devices.
    libc::SYS_mknodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];
