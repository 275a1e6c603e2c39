//! File metadata.

use std::os::fd::AsFd;

use schemars::JsonSchema;
use serde::Serialize;

use crate::sys::{self, Errno, FileType, Stat, fstat};

/// The kind of a file system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, FIFO or socket, which no tool opens.
    Special,
}

impl From<FileType> for Kind {
    fn from(found: FileType) -> Self {
        match found {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            _ => Self::Special,
        }
    }
}

/// Metadata of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The kind of the object.
    pub(crate) kind: Kind,
    /// The length in bytes.
    pub(crate) len: u64,
    /// The modification time (`st_mtime`), in seconds since 1970.
    pub(crate) modified: i64,
    /// The nanoseconds of the modification time.
    pub(crate) modified_nanos: u32,
    /// The status change time (`st_ctime`), in seconds since 1970. Changes of permissions count, too.
    pub(crate) changed: i64,
    /// The nanoseconds of the status change time.
    pub(crate) changed_nanos: u32,
    /// The permission bits, with set-id and sticky bits.
    pub(crate) mode: u32,
    /// The device that contains the object.
    pub(crate) dev: u64,
    /// The inode number on that device.
    pub(crate) ino: u64,
    /// The number of hard links.
    pub(crate) links: u64,
    /// The owner.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
}

impl Meta {
    /// The metadata of `fd`.
    pub(crate) fn of(fd: impl AsFd) -> Result<Self, Errno> {
        Ok(Self::from_stat(&fstat(fd)?))
    }

    pub(crate) fn from_stat(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            len: u64::try_from(stat.st_size).unwrap_or(0),
            modified: stat.st_mtime,
            modified_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            changed: stat.st_ctime,
            changed_nanos: u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            dev: stat.st_dev,
            ino: stat.st_ino,
            links: sys::wide(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }

    /// The modification time in UTC, such as `2026-01-31T12:00:00Z`.
    pub(crate) fn modified_text(&self) -> String {
        timestamp(self.modified)
    }
}

/// Formats seconds since 1970 as a date and time in UTC.
fn timestamp(seconds: i64) -> String {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's civil-from-days: years begin in March, so that the leap day comes last.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = year + era * 400 + carry;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_the_date_in_utc() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(timestamp(-1), "1969-12-31T23:59:59Z");
        assert_eq!(timestamp(4_107_542_399), "2100-02-28T23:59:59Z");
    }
}
