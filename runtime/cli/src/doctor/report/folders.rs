//! Checks of roots, of their file systems, and of the program's own directories.

use std::path::Path;

use rustix::io::Errno;

use super::super::facts::{Facts, FileSystem, Folder, PrivateFolder, SecretsFolder, Tried};
use super::Check;

const OTHER_FILE_SYSTEM: &str = "use a file system such as ext4, XFS or Btrfs";

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks: Vec<Check> = facts.roots.iter().map(roots).collect();
    for folder in &facts.folders {
        checks.extend(file_system(folder));
    }
    checks.push(state(facts.state.as_ref(), facts.user));
    checks.push(secrets(&facts.secrets, facts.user));
    checks
}

fn roots(roots: &Result<usize, String>) -> Check {
    match roots {
        Ok(count) => Check::ok("roots", format!("`serve` accepts the roots ({count})")),
        Err(reason) => Check::required(
            "roots",
            format!("`serve` rejects the roots: {reason}"),
            "name other directories",
        ),
    }
}

fn file_system(folder: &Folder<FileSystem>) -> Vec<Check> {
    let path = &folder.path;
    match &folder.probed {
        Ok(probed) => vec![
            no_replace(path, probed.no_replace),
            exchange(path, probed.exchange),
            sync(path, probed.sync_file, probed.sync_directory),
            lock(path, probed.lock),
        ],
        Err(errno) => vec![Check::limited(
            "file system",
            format!(
                "`{}`: no directory can be created there ({errno}), so the file system was not checked, and tools cannot \
                 create files there",
                path.display()
            ),
            "nothing, if agents only read it; else give yourself write permission",
        )],
    }
}

fn no_replace(path: &Path, no_replace: Tried) -> Check {
    let name = "rename";
    let path = path.display();
    match no_replace {
        Ok(()) => Check::ok(
            name,
            format!("`{path}`: a move never replaces another file"),
        ),
        Err(errno) => Check::limited(
            name,
            format!(
                "`{path}`: renaming without replacing does not work ({errno}), so moves and copies of directories fail"
            ),
            OTHER_FILE_SYSTEM,
        ),
    }
}

fn exchange(path: &Path, exchange: Tried) -> Check {
    let name = "exchange";
    let path = path.display();
    match exchange {
        Ok(()) => Check::ok(name, format!("`{path}`: two files can be exchanged")),
        Err(errno) => Check::limited(
            name,
            format!(
                "`{path}`: exchanging two files does not work ({errno}), so `--durability visible` writes as `ordered` does"
            ),
            "nothing, unless you use `--durability visible`",
        ),
    }
}

fn sync(path: &Path, file: Tried, directory: Tried) -> Check {
    let name = "fsync";
    let path = path.display();
    match (file, directory) {
        (Ok(()), Ok(())) => Check::ok(name, format!("`{path}`: writes can be made durable")),
        (Ok(()), Err(errno)) => Check::limited(
            name,
            format!(
                "`{path}`: directories cannot be synced ({errno}), so `--durability durable` reaches only `ordered`"
            ),
            OTHER_FILE_SYSTEM,
        ),
        (Err(errno), _) => Check::limited(
            name,
            format!("`{path}`: files cannot be synced ({errno}), so `--durability durable` fails"),
            OTHER_FILE_SYSTEM,
        ),
    }
}

fn lock(path: &Path, lock: Tried) -> Check {
    let name = "lock";
    let path = path.display();
    match lock {
        Ok(()) => Check::ok(
            name,
            format!("`{path}`: servers wait for each other's writes"),
        ),
        Err(Errno::BADF | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Check::limited(
            name,
            format!(
                "`{path}`: directories cannot be locked, so two servers may overwrite each other's changes"
            ),
            "run one server for this directory",
        ),
        Err(errno) => Check::limited(
            name,
            format!("`{path}`: locking a directory fails ({errno}), so no file can be changed"),
            OTHER_FILE_SYSTEM,
        ),
    }
}

fn state(state: Option<&PrivateFolder>, user: u32) -> Check {
    let name = "state folder";
    let Some(state) = state else {
        return Check::limited(
            name,
            "neither HOME nor XDG_STATE_HOME is set, so `--servers` needs `--pins`, and a preview token is valid in one \
             process only",
            "set HOME or XDG_STATE_HOME",
        );
    };
    let path = state.path.display();
    let limited = |detail: String, advice: &str| {
        let detail =
            format!("{detail}, so `--servers` needs `--pins` with a file in another directory");
        Check::limited(name, detail, advice)
    };
    if let Some(root) = &state.root {
        let detail = format!("`{path}` is in the root `{}`", root.display());
        return limited(
            detail,
            "set XDG_STATE_HOME to a directory outside the roots",
        );
    }
    if let Some(unprotected) = state.existing.iter().find(|it| it.is_open_to_others(user)) {
        let detail = format!(
            "other users can replace files in `{path}`, since they own or can write `{}`",
            unprotected.path.display()
        );
        return limited(
            detail,
            "run `chmod g-w,o-w` on it, or set XDG_STATE_HOME to a directory of yours",
        );
    }
    let innermost = state.existing.first();
    if let Some(file) = innermost.filter(|it| !it.is_directory()) {
        let detail = format!("`{}` is not a directory", file.path.display());
        return limited(detail, "set XDG_STATE_HOME to another directory");
    }
    match (state.writable, innermost) {
        (Err(errno), _) => limited(
            format!("`{path}` cannot be written ({errno})"),
            "set XDG_STATE_HOME to a directory that you can write",
        ),
        (Ok(()), Some(itself)) if itself.path == state.path && !itself.is_private_to(user) => {
            Check::limited(
                name,
                format!("other users can list the files in `{path}`"),
                "run `chmod 700` on it",
            )
        }
        (Ok(()), _) => Check::ok(name, format!("`{path}` is for this user only")),
    }
}

fn secrets(secrets: &SecretsFolder, user: u32) -> Check {
    let name = "runtime folder";
    let SecretsFolder { folder, named } = secrets;
    let path = folder.path.display();
    let what = "the bearer token and the address of the approval page";
    if let Some(root) = &folder.root {
        return Check::limited(
            name,
            format!(
                "`{path}` is in the root `{}`, so `--http` and `--ask page` need a terminal",
                root.display()
            ),
            "set XDG_RUNTIME_DIR to a directory outside the roots",
        );
    }
    let private = folder
        .existing
        .first()
        .is_some_and(|it| it.is_private_to(user));
    match folder.writable {
        Err(errno) => Check::limited(
            name,
            format!(
                "`{path}` cannot be written ({errno}), so `--http` and `--ask page` need a terminal"
            ),
            "set XDG_RUNTIME_DIR to a directory that you can write",
        ),
        Ok(()) if private => Check::ok(name, format!("{what} are stored in `{path}`")),
        Ok(()) => Check::limited(
            name,
            format!(
                "{what} are stored in `{path}`, which other users can list; the files are private"
            ),
            if *named {
                "run `chmod 700` on it"
            } else {
                "set XDG_RUNTIME_DIR to a private directory"
            },
        ),
    }
}
