//! The program of a command: how it is found and hashed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bailiwick::config::Namespace;
use bailiwick::effect::ContentHash;
use bailiwick::path::VirtualPath;
use bailiwick::scope::ScopeError;
use bailiwick::text::escape;
use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Code, Scope};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::programs;
use crate::spec::FileIdentity;

/// Maximum size of a program, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum size of a program that is hashed for a preview, in bytes.
const MAX_PREVIEW_BYTES: u64 = 32 << 20;

#[derive(Clone, Debug)]
pub(super) enum Program {
    /// A program in a system directory.
    System(PathBuf),
    /// A file in a root.
    OfRoot(VirtualPath),
}

/// A program whose content was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) identity: FileIdentity,
    pub(super) sha256: ContentHash,
}

impl Program {
    /// Its path in the sandbox.
    pub(super) fn path(&self) -> String {
        match self {
            Self::System(path) => path.to_string_lossy().into_owned(),
            Self::OfRoot(path) => path.as_str().to_owned(),
        }
    }
}

/// The installed programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// Directories in which they are looked up, the first one first.
    pub(super) path: Vec<PathBuf>,
    /// The hashes of those that were used.
    hashed: Arc<Mutex<BTreeMap<PathBuf, Hashed>>>,
}

impl Programs {
    pub(super) fn new(path: Vec<PathBuf>) -> Self {
        Self {
            path,
            hashed: Arc::default(),
        }
    }

    /// The program and its scope. Reads only metadata, of at most one file per directory.
    pub(super) fn find(
        &self,
        name: &str,
        names: &Namespace,
    ) -> Result<(Program, Scope), CallError> {
        let invalid = |error: ScopeError| CallError::new(Code::InvalidArguments, error.to_string());
        let scope = |name: &str| {
            format!("execute:command:{name}")
                .parse::<Scope>()
                .map_err(invalid)
        };
        if !name.contains('/') {
            let found = programs::find(&self.path, name).ok_or_else(|| {
                let message = format!("`{}` is not an installed program", escape(name));
                CallError::new(Code::NotFound, message)
            })?;
            return Ok((Program::System(found), scope(name)?));
        }
        // A program of the system by its path is the same program as by its name.
        if let Some((_, short)) = name.rsplit_once('/')
            && let Some(found) = programs::find(&self.path, short)
            && found.to_str() == Some(name)
        {
            return Ok((Program::System(found), scope(short)?));
        }
        let path = names.path_argument("/argv/0", name)?;
        let scope = scope(path.as_str())?;
        Ok((Program::OfRoot(path), scope))
    }

    /// The hash for a preview: of a program in a system directory that is not too large. Blocks shortly.
    pub(super) fn preview(&self, program: &Program) -> Option<ContentHash> {
        match program {
            Program::System(path) => {
                let file = open(path).ok()?;
                let hashed = self.hash(path, &file, MAX_PREVIEW_BYTES).ok()?;
                Some(hashed.sha256)
            }
            Program::OfRoot(_) => None,
        }
    }

    /// Hashes the program that a call may execute. Blocks.
    pub(super) fn check(
        &self,
        program: &Program,
        permit: &ReadPermit,
    ) -> Result<Hashed, CallError> {
        let hashed = match program {
            Program::System(path) => open(path).and_then(|file| self.hash(path, &file, MAX_BYTES)),
            Program::OfRoot(path) => {
                let (root, inner) = permit.root_of(path)?;
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(root.dir(), inner, flags, Mode::empty(), resolve)
                    .map_err(io::Error::from)
                    .and_then(|file| hash(&file.into(), MAX_BYTES))
            }
        };
        hashed.map_err(|error| {
            let name = program.path();
            let message = format!("the program `{}` cannot be read: {error}", escape(&name));
            let code = match error.kind() {
                io::ErrorKind::NotFound => Code::NotFound,
                _ => Code::Io,
            };
            CallError::new(code, message)
        })
    }

    /// Hashes a program in a system directory, unless it is unchanged since it was hashed last.
    fn hash(&self, path: &Path, file: &File, most: u64) -> io::Result<Hashed> {
        let known = || self.hashed.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = FileIdentity::of(file)?;
        if let Some(found) = known().get(path)
            && found.identity == identity
        {
            return Ok(*found);
        }
        let hashed = hash(file, most)?;
        known().insert(path.to_owned(), hashed);
        Ok(hashed)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into())
}

/// Hashes a file of at most `most` bytes. Blocks.
pub(super) fn hash(file: &File, most: u64) -> io::Result<Hashed> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let identity = FileIdentity::of(file)?;
    if identity.bytes > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let sha256 = ContentHash::of_reader(io::Read::take(file, most))?;
    if FileIdentity::of(file)? != identity {
        return Err(io::Error::other("it was changed meanwhile"));
    }
    Ok(Hashed { identity, sha256 })
}
