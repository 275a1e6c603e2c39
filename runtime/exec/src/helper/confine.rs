//! Limits, capabilities, Landlock and seccomp of the inner helper and the program.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::mounts::open_source;
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
        if let Some(most) = most {
            // Only the superuser may raise a limit.
            let most = getrlimit(resource)
                .maximum
                .map_or(most, |hard| hard.min(most));
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
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
    // Without this capability, `no_new_privs` alone keeps programs from getting others.
    if capabilities(None)?
        .effective
        .contains(CapabilitySet::SETPCAP)
    {
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
    }
    set_no_new_privs(true)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

/// Where the program finds its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// In mounts of its own.
    Mounted,
    /// Where they are on the host.
    OfHost,
}

/// Rules that forbid all files, TCP, signals to the outside and abstract sockets of the outside.
///
/// # Errors
/// The reason why the kernel does not support them.
pub(super) fn landlock_rules() -> Result<RulesetCreated, String> {
    let rules = || -> Result<_, RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()
    };
    rules().map_err(|error| error.to_string())
}

/// Allows the files of the mounts and TCP to the proxy, and enforces the rules.
pub(super) fn landlock(rules: RulesetCreated, spec: &SandboxSpec, files: Files) -> io::Result<()> {
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let mut rules = rules;
    for one in &spec.mounts {
        let (file, writable) = match one {
            Mount::Host {
                at,
                source,
                writable,
                identity,
            } => match files {
                Files::Mounted => (open(at)?, *writable),
                Files::OfHost => (open_source(source, *identity)?, *writable),
            },
            Mount::Overlay { at, writable, .. } if files == Files::Mounted => {
                (open(at)?, *writable)
            }
            Mount::Within { at, writable: true } => match files {
                Files::Mounted => (open(at)?, true),
                Files::OfHost => (super::mounts::open_without_links(at)?, true),
            },
            Mount::Temporary { at, .. } if files == Files::Mounted => (open(at)?, true),
            // A rule cannot take rights away; the mounts do.
            Mount::Within { .. }
            | Mount::Overlay { .. }
            | Mount::Hidden { .. }
            | Mount::Link { .. }
            | Mount::Temporary { .. } => continue,
        };
        rules = allow(rules, &file, if writable { all } else { read })?;
    }
    match files {
        Files::Mounted => {
            if spec.network == Network::Proxy {
                let rule = NetPort::new(proxy::PORT, AccessNet::ConnectTcp);
                rules = rules.add_rule(rule).map_err(io::Error::other)?;
            }
            rules = allow(rules, &open(Path::new("/"))?, AccessFs::ReadDir.into())?;
            rules = allow(rules, &open(Path::new("/dev"))?, read | AccessFs::WriteFile)?;
            rules = allow(rules, &open(Path::new("/dev/shm"))?, all)?;
            rules = allow(rules, &open(Path::new("/proc"))?, read)?;
        }
        Files::OfHost => {
            for name in super::mounts::DEVICES {
                let device = open(&Path::new("/dev").join(name))?;
                rules = allow(rules, &device, AccessFs::ReadFile | AccessFs::WriteFile)?;
            }
        }
    }
    let status = rules.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

fn open(at: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Allows `access` to a file, or to a directory and all that it contains.
fn allow(
    rules: RulesetCreated,
    file: &OwnedFd,
    access: BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    let access = if FileType::from_raw_mode(fstat(file)?.st_mode).is_dir() {
        access
    } else {
        access & AccessFs::from_file(LANDLOCK)
    };
    let rule = PathBeneath::new(file, access);
    rules.add_rule(rule).map_err(io::Error::other)
}

/// Blocks system calls that could leave or attack the sandbox.
///
/// # Errors
/// The reason why the kernel does not support it.
pub(super) fn seccomp(network: Network, files: Files) -> Result<(), String> {
    // The filter that is installed last decides first; the stricter result of both holds.
    // A filter sees neither the flags of `clone3` nor the mode of `openat2`; programs then use the older calls.
    let unknown = BTreeMap::from([
        (libc::SYS_clone3, Vec::new()),
        (libc::SYS_openat2, Vec::new()),
    ]);
    let apply = |program: &BpfProgram| {
        seccompiler::apply_filter(program).map_err(|error| error.to_string())
    };
    for (rules, errno) in [
        (unknown, libc::ENOSYS),
        (
            forbidden(network, files).map_err(|error| error.to_string())?,
            libc::EPERM,
        ),
    ] {
        apply(&compile(rules, errno).map_err(|error| error.to_string())?)?;
    }
    #[cfg(target_arch = "x86_64")]
    apply(&without_x32())?;
    Ok(())
}

/// A filter that forbids the system calls of the x32 ABI, whose architecture is that of all other calls: rules that name
/// calls do not match their numbers.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    /// The bit that distinguishes the numbers.
    const X32: u32 = 0x4000_0000;
    /// Where `seccomp_data` has the number.
    const NUMBER: u32 = 0;
    /// `BPF_LD | BPF_W | BPF_ABS`.
    const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JSET | BPF_K`.
    const SKIP_UNLESS_SET: u16 = 0x45;
    /// `BPF_RET | BPF_K`.
    const RETURN: u16 = 0x06;
    let instruction = |code, jf, k| seccompiler::sock_filter { code, jt: 0, jf, k };
    let forbid = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    vec![
        instruction(LOAD, 0, NUMBER),
        instruction(SKIP_UNLESS_SET, 1, X32),
        instruction(RETURN, 0, forbid),
        instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ]
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
    files: Files,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    // New user namespaces, which give capabilities.
    let user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    rules.insert(
        libc::SYS_clone,
        vec![rule(0, SeccompCmpOp::MaskedEq(user), user)?],
    );
    // Input for the terminal of the host.
    let terminal =
        [libc::TIOCSTI, libc::TIOCLINUX].map(|request| rule(1, SeccompCmpOp::Eq, request));
    rules.insert(
        libc::SYS_ioctl,
        terminal.into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(libc::SYS_fcntl, leases()?);
    rules.extend(set_id_modes()?);
    let sockets = match (network, files) {
        (Network::Proxy, Files::Mounted) => sockets_other_than_tcp()?,
        // The proxy needs a network namespace.
        (Network::None, _) | (Network::Proxy, Files::OfHost) => Vec::new(),
    };
    rules.insert(libc::SYS_socket, sockets);
    if files == Files::OfHost {
        rules.extend(FORBIDDEN_ON_HOST.iter().map(|call| (*call, Vec::new())));
        let not_zero = |argument| rule(argument, SeccompCmpOp::Ne, 0);
        for call in OF_OTHER_PROCESSES {
            rules.insert(*call, vec![not_zero(0)?]);
        }
        // The first argument is the kind of the second, such as all processes of a user.
        for call in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
            rules.insert(call, vec![not_zero(0)?, not_zero(1)?]);
        }
    }
    Ok(rules)
}

/// The arguments of `fcntl` that take a lease of a file or directory, for which programs of the host wait that open or change
/// it.
fn leases() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    // `F_SETDELEG`, which Linux has since 6.19.
    const SET_DELEGATION: u64 = 1040;
    let commands = [libc::F_SETLEASE.unsigned_abs().into(), SET_DELEGATION];
    let rules = commands.map(|command| rule(1, SeccompCmpOp::Eq, command));
    rules.into_iter().collect()
}

/// The calls that set the set-user-ID or the set-group-ID bit, with the arguments for which they do: other users of the
/// machine could run such a file with the rights of its owner.
fn set_id_modes() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    // `fchmodat2`, which has this number on all architectures.
    const FCHMODAT2: i64 = 452;
    // `O_TMPFILE` without `O_DIRECTORY`.
    let unnamed = (libc::O_TMPFILE & !libc::O_DIRECTORY).unsigned_abs().into();
    let create = libc::O_CREAT.unsigned_abs().into();
    let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    let masked = |argument, bits: u64| {
        let operator = SeccompCmpOp::MaskedEq(bits);
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, bits)
    };
    let mut rules = BTreeMap::new();
    for (call, mode) in [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
        (libc::SYS_mkdirat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mkdir, 1),
    ] {
        let each = bits.map(|bit| SeccompRule::new(vec![masked(mode, bit)?]));
        rules.insert(call, each.into_iter().collect::<Result<_, _>>()?);
    }
    for (call, flags) in [
        (libc::SYS_openat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
    ] {
        let mut each = Vec::new();
        for (bit, flag) in bits
            .into_iter()
            .flat_map(|bit| [(bit, create), (bit, unnamed)])
        {
            // Without these flags, there is no mode.
            let conditions = vec![masked(flags, flag)?, masked(flags + 1, bit)?];
            each.push(SeccompRule::new(conditions)?);
        }
        rules.insert(call, each);
    }
    Ok(rules)
}

/// The arguments of `socket` for all sockets that are not TCP sockets.
fn sockets_other_than_tcp() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    // The bits of the second argument that are not flags.
    const TYPE: u64 = 0xf;
    let is_not = |argument, values: [i32; 2]| {
        let conditions = values.map(|value| {
            let value = u64::from(value.unsigned_abs());
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
        });
        SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
    };
    // Other protocols, such as MPTCP, are not restricted by Landlock.
    let mut rules = vec![
        is_not(0, [libc::AF_INET, libc::AF_INET6])?,
        is_not(2, [0, libc::IPPROTO_TCP])?,
    ];
    let stream = u64::from(libc::SOCK_STREAM.unsigned_abs());
    for kind in (0..=TYPE).filter(|kind| *kind != stream) {
        rules.push(rule(1, SeccompCmpOp::MaskedEq(TYPE), kind)?);
    }
    Ok(rules)
}

/// Matches calls by an argument.
fn rule(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

/// System calls on the host's files and memory that neither Landlock nor anything else confines without namespaces.
const FORBIDDEN_ON_HOST: &[i64] = &[
    // Mode, owner, attributes and times of any file that the user owns.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    // `fchmodat2`, `setxattrat`, `removexattrat` and `file_setattr`, which have these numbers on all architectures.
    452,
    463,
    466,
    469,
    // Shared memory, semaphores and message queues.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Memory of other processes.
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// System calls that change another process of the same user, if their first argument is not 0.
const OF_OTHER_PROCESSES: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

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
