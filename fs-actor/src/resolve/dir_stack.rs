//! An open directory in, the way down from it and up again out, with few descriptors however deep it goes.

use super::OpenDir;

use crate::sys::{Errno, SeekFrom, fstat, seek};

/// How many directories beneath the top are open at once. One that was closed is opened anew when the way comes
/// back to it: by its names beneath the top, no link followed, and only if it is the same directory still.
const MAX_OPEN: usize = 8;

/// A way down. Whoever goes it sees the deepest directory.
#[derive(Debug)]
pub(crate) struct DirStack {
    top: OpenDir,
    /// The names from the top down, joined by `/`.
    names: String,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    /// How long the names are above it.
    above: usize,
    /// Device and number.
    identity: (u64, u64),
    /// Where reading its names goes on.
    offset: u64,
    dir: Option<OpenDir>,
}

impl DirStack {
    pub(crate) fn new(top: OpenDir) -> Self {
        Self {
            top,
            names: String::new(),
            levels: Vec::new(),
        }
    }

    /// The deepest directory.
    ///
    /// # Errors
    /// `ESTALE` if something else stands in its place now, and what opening it gives.
    pub(crate) fn current(&mut self) -> Result<&OpenDir, Errno> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(&self.top);
        };
        if level.dir.is_none() {
            let dir = self.top.enter(&self.names)?;
            if identity(&dir)? != level.identity {
                return Err(Errno::STALE);
            }
            if level.offset > 0 {
                seek(dir.as_fd(), SeekFrom::Start(level.offset))?;
            }
            level.dir = Some(dir);
        }
        level.dir.as_ref().ok_or(Errno::STALE)
    }

    /// Goes down into `name`, a single name.
    pub(crate) fn enter(&mut self, name: &str) -> Result<(), Errno> {
        let dir = self.current()?.enter(name)?;
        let level = Level {
            above: self.names.len(),
            identity: identity(&dir)?,
            offset: 0,
            dir: Some(dir),
        };
        if !self.names.is_empty() {
            self.names.push('/');
        }
        self.names.push_str(name);
        self.levels.push(level);
        let surplus = self.levels.len().checked_sub(MAX_OPEN + 1);
        if let Some(level) = surplus.and_then(|index| self.levels.get_mut(index))
            && let Some(dir) = level.dir.take()
        {
            level.offset = seek(dir.as_fd(), SeekFrom::Current(0)).unwrap_or(0);
        }
        Ok(())
    }

    /// Goes back up; at the top it stays.
    pub(crate) fn pop(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.names.truncate(level.above);
        }
    }
}

fn identity(dir: &OpenDir) -> Result<(u64, u64), Errno> {
    let stat = fstat(dir.as_fd())?;
    Ok((stat.st_dev, stat.st_ino))
}
