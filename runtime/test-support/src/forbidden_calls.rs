//! System calls that fail, as on a machine that lacks or forbids them.

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Number of `openat2`, which is the same on x86_64 and ARM.
pub const OPENAT2: i64 = 437;

/// Makes the system calls with these numbers fail with `errno`, for this thread and its children.
pub fn forbid(numbers: &[i64], errno: Errno) {
    let filter = SeccompFilter::new(
        numbers.iter().map(|number| (*number, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error().unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
