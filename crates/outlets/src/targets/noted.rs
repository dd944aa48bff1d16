//! How much of a file counts, and up to which message: kept beside the file.
//!
//! Two lines of 256 bytes, which are written in turn, each with a checksum: whatever happens while one is written, the other one
//! counts. A line is text:
//!
//! ```text
//! hmq-outlet-1 COUNT EPOCH INODE LENGTH INCARNATION.SEQUENCE|- CRC32
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use outlet::Position;

use crate::epoch::Epoch;

/// Bytes of a line with the spaces and the line feed at its end.
const LINE: usize = 256;

/// A file's inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inode(pub(crate) u64);

/// Bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Length(pub(crate) u64);

/// How often something was noted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Count(pub(crate) u64);

/// What is noted of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) count: Count,
    pub(crate) epoch: Epoch,
    pub(crate) inode: Inode,
    /// Beyond it nothing counts.
    pub(crate) length: Length,
    /// Of the last message that counts.
    pub(crate) position: Option<Position>,
}

impl Noted {
    fn line(&self) -> Vec<u8> {
        let position = match self.position {
            Some(position) => position.to_string(),
            None => "-".to_owned(),
        };
        let text = format!(
            "hmq-outlet-1 {} {} {} {} {position}",
            self.count.0, self.epoch.0, self.inode.0, self.length.0
        );
        let checksum = crc32fast::hash(text.as_bytes());
        let mut line = format!("{text} {checksum:08x}").into_bytes();
        debug_assert!(line.len() < LINE, "six numbers have 160 bytes at most");
        line.resize(LINE - 1, b' ');
        line.push(b'\n');
        line
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let (text, checksum) = line.rsplit_once(' ')?;
        if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(text.as_bytes()) {
            return None;
        }
        let mut words = text.split(' ');
        if words.next()? != "hmq-outlet-1" {
            return None;
        }
        let mut number = || words.next()?.parse().ok();
        let (count, epoch, inode, length) = (number()?, number()?, number()?, number()?);
        let position = match words.next()? {
            "-" => None,
            position => Some(position.parse().ok()?),
        };
        Some(Self {
            count: Count(count),
            epoch: Epoch(epoch),
            inode: Inode(inode),
            length: Length(length),
            position,
        })
    }

    /// What is noted last; `None`: nothing yet, or nothing that can be read.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut latest: Option<Self> = None;
        for place in [0, LINE] {
            let mut line = [0; LINE];
            let mut filled = 0;
            while filled < LINE {
                match file.read_at(&mut line[filled..], (place + filled) as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            let found = Self::parse(&line[..filled]);
            if let Some(found) = found
                && latest.is_none_or(|latest| latest.count < found.count)
            {
                latest = Some(found);
            }
        }
        Ok(latest)
    }

    /// Notes it in the place of the older line, and syncs.
    pub(crate) fn write(&self, file: &File) -> io::Result<()> {
        let place = if self.count.0.is_multiple_of(2) {
            0
        } else {
            LINE
        };
        file.write_all_at(&self.line(), place as u64)?;
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(count: u64) -> Noted {
        Noted {
            count: Count(count),
            epoch: Epoch(u64::MAX),
            inode: Inode(u64::MAX),
            length: Length(count * 10),
            position: Some(format!("{}.{}", u64::MAX, count).parse().unwrap()),
        }
    }

    #[test]
    fn the_latest_line_that_is_whole_counts() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Noted::read(&file).unwrap(), None);
        for count in 1..=3 {
            noted(count).write(&file).unwrap();
            assert_eq!(Noted::read(&file).unwrap(), Some(noted(count)));
        }
        // Each byte of the latest line in turn is damaged, as if a write was cut.
        for byte in 0..60 {
            let mut line = noted(3).line();
            line[byte] ^= 1;
            file.write_all_at(&line, LINE as u64).unwrap();
            assert_eq!(Noted::read(&file).unwrap(), Some(noted(2)), "{byte}");
        }
        file.set_len(LINE as u64 + 7).unwrap();
        assert_eq!(Noted::read(&file).unwrap(), Some(noted(2)));
        let nothing = Noted {
            position: None,
            ..noted(4)
        };
        nothing.write(&file).unwrap();
        assert_eq!(Noted::read(&file).unwrap(), Some(nothing));
    }
}
