//! What was copied of a directory: written by the helper, read by the host after the command.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// The file in the directory of the changes of an overlay that lists what was copied.
pub(crate) const LIST: &str = "copied";

/// The kind of a copied entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    /// A file that cannot be read. Its copy is empty.
    Unreadable,
    /// A file or directory that the command may not see. Its copy is empty.
    Hidden,
    /// A FIFO, socket or device, which has no copy.
    Special,
}

impl Kind {
    const ALL: [(Self, &str); 6] = [
        (Self::File, "file"),
        (Self::Directory, "directory"),
        (Self::Link, "link"),
        (Self::Unreadable, "unreadable"),
        (Self::Hidden, "hidden"),
        (Self::Special, "special"),
    ];

    fn name(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(kind, _)| *kind == self);
        found.map_or("", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        Some(all.find(|(_, it)| *it == name)?.0)
    }
}

/// A copied entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The inode of the copy; 0 if there is none.
    pub(crate) inode: u64,
    pub(crate) kind: Kind,
    /// The permission bits.
    pub(crate) mode: u32,
    /// Its path in the directory.
    pub(crate) path: Vec<u8>,
}

impl Entry {
    pub(crate) fn encode(&self, list: &mut Vec<u8>) {
        let head = format!("{} {} {} ", self.inode, self.kind.name(), self.mode);
        list.extend_from_slice(head.as_bytes());
        list.extend_from_slice(&self.path);
        list.push(0);
    }

    fn parse(record: &[u8]) -> Option<Self> {
        fn text(word: Option<&[u8]>) -> Option<&str> {
            std::str::from_utf8(word?).ok()
        }
        let mut words = record.splitn(4, |byte| *byte == b' ');
        Some(Self {
            inode: text(words.next())?.parse().ok()?,
            kind: Kind::parse(text(words.next())?)?,
            mode: text(words.next())?.parse().ok()?,
            path: words.next()?.to_vec(),
        })
    }
}

/// Everything that was copied of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copied {
    /// When it was complete, since 1970. What the command changes has a later time of change.
    pub(crate) until: Duration,
    entries: HashMap<Vec<u8>, Entry>,
    /// The path of each copy.
    inodes: HashMap<u64, Vec<u8>>,
    /// The names in each directory.
    names: HashMap<Vec<u8>, Vec<Vec<u8>>>,
}

impl Copied {
    /// Ends a list of entries.
    pub(crate) fn end(list: &mut Vec<u8>, until: Duration) {
        list.extend_from_slice(until.as_nanos().to_string().as_bytes());
    }

    /// Reads a list.
    ///
    /// # Errors
    /// If it is not whole.
    pub(crate) fn decode(list: &[u8]) -> io::Result<Self> {
        let parse = || {
            let mut records: Vec<&[u8]> = list.split(|byte| *byte == 0).collect();
            let until = std::str::from_utf8(records.pop()?).ok()?.parse().ok()?;
            let mut copied = Self {
                until: Duration::from_nanos(until),
                ..Self::default()
            };
            for record in records {
                copied.add(Entry::parse(record)?);
            }
            Some(copied)
        };
        parse().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn add(&mut self, entry: Entry) {
        let path = entry.path.clone();
        let (directory, name) = split(&path);
        let names = self.names.entry(directory.to_vec()).or_default();
        names.push(name.to_vec());
        self.inodes.insert(entry.inode, path.clone());
        self.entries.insert(path, entry);
    }

    /// What was copied to `path`.
    pub(crate) fn at(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The entry whose copy is `inode`.
    pub(crate) fn of(&self, inode: u64) -> Option<&Entry> {
        self.at(self.inodes.get(&inode)?)
    }

    /// The names that were copied to a directory.
    pub(crate) fn names(&self, directory: &[u8]) -> &[Vec<u8>] {
        self.names.get(directory).map_or(&[], Vec::as_slice)
    }
}

/// The path of an entry of a directory.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, name].join(&b'/')
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = path.rsplitn(2, |byte| *byte == b'/');
    let name = parts.next().unwrap_or_default();
    (parts.next().unwrap_or_default(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_copies_is_read_as_it_was_written() {
        let entry = |inode, kind, path: &[u8]| Entry {
            inode,
            kind,
            mode: 0o640,
            path: path.to_vec(),
        };
        let all = [
            entry(7, Kind::Directory, b"a b"),
            entry(8, Kind::File, b"a b/c\n\xff"),
            entry(9, Kind::Hidden, b".env"),
        ];
        let mut list = Vec::new();
        for one in &all {
            one.encode(&mut list);
        }
        assert!(Copied::decode(&list).is_err());
        let until = Duration::new(1_700_000_000, 123_456_789);
        Copied::end(&mut list, until);
        let copied = Copied::decode(&list).unwrap();
        assert_eq!(copied.until, until);
        for one in &all {
            assert_eq!(copied.at(&one.path), Some(one));
            assert_eq!(copied.of(one.inode), Some(one));
        }
        assert_eq!(copied.names(b""), [b"a b".to_vec(), b".env".to_vec()]);
        assert_eq!(copied.names(b"a b"), [b"c\n\xff".to_vec()]);
        assert!(Copied::decode(b"7 file\x001").is_err());
    }
}
