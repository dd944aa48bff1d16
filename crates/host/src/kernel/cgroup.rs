//! Limits of the control groups that this process is in.
//!
//! A group's limit holds for the groups below it, so the tightest from its own group up to the root counts.
//! Both versions of the interface are read: version 1 has a tree for each resource.

use std::fmt;
use std::path::{Path, PathBuf};

use super::reading::{Bytes, Reading, Source, Unread, parse};

/// What a group may have, and has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quota {
    /// `None` is no limit.
    pub(super) max: Option<u64>,
    /// 0 where there is no limit.
    pub(super) used: u64,
}

impl Quota {
    const NONE: Self = Self { max: None, used: 0 };
    /// Version 1 writes no limit as the greatest multiple of a page's size.
    const NO_LIMIT: u64 = i64::MAX as u64 / (1 << 16) * (1 << 16);

    /// What is left, counting what is used as gone.
    pub(super) fn left(self) -> Option<u64> {
        self.max.map(|max| max.saturating_sub(self.used))
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            Some(max) => write!(f, "{max} ({} used)", self.used),
            None => f.write_str("no limit"),
        }
    }
}

/// A quota of memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemoryQuota(pub(super) Quota);

impl fmt::Display for MemoryQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.max {
            Some(max) => write!(f, "{} ({} used)", Bytes(max), Bytes(self.0.used)),
            None => self.0.fmt(f),
        }
    }
}

/// The files of a resource.
struct Resource {
    /// Of version 1.
    controller: &'static str,
    /// Limit and use in version 1.
    files_v1: [&'static str; 2],
    /// Limit and use in version 2.
    files_v2: [&'static str; 2],
}

/// Memory, that of the page cache and of sockets included.
pub(super) fn memory(source: &Source) -> Reading<MemoryQuota> {
    let quota = tightest(
        source,
        &Resource {
            controller: "memory",
            files_v1: ["memory.limit_in_bytes", "memory.usage_in_bytes"],
            files_v2: ["memory.max", "memory.current"],
        },
    );
    quota.map(MemoryQuota)
}

/// Processes and threads.
pub(super) fn processes(source: &Source) -> Reading<Quota> {
    tightest(
        source,
        &Resource {
            controller: "pids",
            files_v1: ["pids.max", "pids.current"],
            files_v2: ["pids.max", "pids.current"],
        },
    )
}

fn tightest(source: &Source, resource: &Resource) -> Reading<Quota> {
    let groups = source.text("proc/self/cgroup")?;
    let mut folders = false;
    let mut tightest = Quota::NONE;
    for (mount, group, files) in groups.lines().flat_map(|line| trees(line, resource)) {
        for folder in Path::new(group.trim_start_matches('/')).ancestors() {
            let folder = mount.join(folder);
            folders |= source.is_folder(&folder);
            let quota = quota(source, &folder, files)?;
            if quota.left().unwrap_or(u64::MAX) < tightest.left().unwrap_or(u64::MAX) {
                tightest = quota;
            }
        }
    }
    // The root has no files of limits, so that no limit is found there; but a folder it must be.
    if !folders {
        return Err(Unread::Absent);
    }
    Ok(tightest)
}

/// Where the group of a line such as `4:memory:/a/b` or `0::/a/b` may be: mount, group and file names.
/// Version 2 has its own folder where both versions are in use.
fn trees<'a>(line: &'a str, resource: &Resource) -> Vec<(PathBuf, &'a str, [&'static str; 2])> {
    const MOUNT: &str = "sys/fs/cgroup";
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let mount = |name: &str| Path::new(MOUNT).join(name);
    if controllers.is_empty() {
        let files = resource.files_v2;
        return vec![(mount(""), group, files), (mount("unified"), group, files)];
    }
    if controllers
        .split(',')
        .any(|name| name == resource.controller)
    {
        return vec![(mount(resource.controller), group, resource.files_v1)];
    }
    Vec::new()
}

fn quota(source: &Source, folder: &Path, [max, used]: [&str; 2]) -> Reading<Quota> {
    let max: u64 = match source.text(folder.join(max)) {
        Ok(text) if text.trim() == "max" => return Ok(Quota::NONE),
        Ok(text) => parse(&text)?,
        Err(Unread::Absent) => return Ok(Quota::NONE),
        Err(unread) => return Err(unread),
    };
    if max >= Quota::NO_LIMIT {
        return Ok(Quota::NONE);
    }
    Ok(Quota {
        max: Some(max),
        used: parse(&source.text(folder.join(used))?)?,
    })
}
