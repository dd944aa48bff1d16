//! The space that is left on the disk of the data folder, and the classes of clients whose queues are closed
//! because it is less than they leave free (P8).

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use broker_core::Settings;
use broker_core::classes::DiskBytes;
use mqtt_session::ClassId;
use parking_lot::Mutex;
use store_state::Limits;

/// A closed class is open again when a sixteenth more is free than it has to be: what a checkpoint frees for a moment
/// does not open it.
const MORE: u64 = 16;

/// The disk of the data folder.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    folder: PathBuf,
    is_any_closed: AtomicBool,
    closed: Mutex<HighWater>,
}

impl DiskSpace {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            is_any_closed: AtomicBool::new(false),
            closed: Mutex::default(),
        }
    }

    /// Bytes that may still be written; `None`: the disk cannot be asked.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        store::free_bytes(&self.folder).ok()
    }

    /// Looks at the disk once, closes queues and opens them again. The log says which.
    pub(crate) fn check(&self, settings: &Settings) {
        let free = match store::free_bytes(&self.folder) {
            Ok(free) => DiskBytes(free),
            Err(error) => {
                // As the first write to the log will say, too.
                tracing::debug!(%error, "the disk cannot be asked for its space");
                return;
            }
        };
        let marks: Vec<Mark> = marks(settings).collect();
        let mut closed = self.closed.lock();
        let changed = closed.handle_free(free, &marks);
        self.is_any_closed
            .store(!closed.classes.is_empty(), Ordering::Relaxed);
        drop(closed);
        for Changed { class, is_closed } in changed {
            let leaves_free = settings.limits_of(class).queue_disk_free;
            let class = class_name(settings, class);
            if is_closed {
                tracing::warn!(
                    class,
                    free = free.0,
                    leaves_free = leaves_free.0,
                    "the disk has little space left: nothing is queued for clients of a class that are away"
                );
            } else {
                tracing::info!(
                    class,
                    free = free.0,
                    leaves_free = leaves_free.0,
                    "the disk has space again for queues of a class"
                );
            }
        }
    }

    /// The classes whose queues are closed, in no order.
    pub(crate) fn closed(&self) -> Vec<ClassId> {
        self.closed.lock().classes.clone()
    }

    /// The limits of a batch that is proposed now.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        if self.is_any_closed.load(Ordering::Relaxed) {
            limits.closing(&self.closed.lock().classes)
        } else {
            limits
        }
    }
}

/// What a class is called.
pub(crate) fn class_name(settings: &Settings, class: ClassId) -> &str {
    settings
        .class(class)
        .map_or(config::DEFAULT_CLASS, |class| &class.name)
}

/// What the queues of a class leave free.
struct Mark {
    class: ClassId,
    leaves_free: DiskBytes,
}

fn marks(settings: &Settings) -> impl Iterator<Item = Mark> {
    let default = (ClassId::DEFAULT, &settings.limits);
    let classes = settings.classes.iter();
    let all = classes.map(|class| (class.id, &class.limits));
    all.chain([default]).map(|(class, limits)| Mark {
        class,
        leaves_free: limits.queue_disk_free,
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Changed {
    class: ClassId,
    is_closed: bool,
}

/// Which classes are closed.
///
/// | A class | free < mark | mark ≤ free < mark + 1/16 | more is free, or no mark |
/// |---|---|---|---|
/// | open | is closed | stays open | stays open |
/// | closed | stays closed | stays closed | is opened |
#[derive(Debug, Default)]
struct HighWater {
    classes: Vec<ClassId>,
}

impl HighWater {
    fn handle_free(&mut self, free: DiskBytes, marks: &[Mark]) -> Vec<Changed> {
        let is_closed_now = |mark: &Mark, was_closed: bool| {
            let margin = if was_closed {
                mark.leaves_free.0 / MORE
            } else {
                0
            };
            free.0 < mark.leaves_free.0.saturating_add(margin)
        };
        let mut closed = Vec::new();
        let mut changed = Vec::new();
        for mark in marks {
            let class = mark.class;
            let was_closed = self.classes.contains(&class);
            let is_closed = is_closed_now(mark, was_closed);
            if is_closed {
                closed.push(class);
            }
            if is_closed != was_closed {
                changed.push(Changed { class, is_closed });
            }
        }
        self.classes = closed;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_closed_and_opened_by_what_they_leave_free() {
        let (device, application) = (ClassId::DEFAULT, ClassId(1));
        let marks = |of_application, of_device| {
            let mark = |class, bytes| Mark {
                class,
                leaves_free: DiskBytes(bytes),
            };
            [mark(application, of_application), mark(device, of_device)]
        };
        let is = |class, is_closed| Changed { class, is_closed };
        let mut disk = HighWater::default();
        assert_eq!(disk.handle_free(DiskBytes(0), &marks(0, 0)), []);
        let marks_now = marks(1_600, 16_000);
        assert_eq!(disk.handle_free(DiskBytes(16_000), &marks_now), []);
        assert_eq!(
            disk.handle_free(DiskBytes(15_999), &marks_now),
            [is(device, true)]
        );
        assert_eq!(disk.handle_free(DiskBytes(16_999), &marks_now), []);
        assert_eq!(
            disk.handle_free(DiskBytes(1_599), &marks_now),
            [is(application, true)]
        );
        assert_eq!(disk.classes, [application, device]);
        assert_eq!(
            disk.handle_free(DiskBytes(1_700), &marks_now),
            [is(application, false)]
        );
        assert_eq!(
            disk.handle_free(DiskBytes(17_000), &marks_now),
            [is(device, false)]
        );
        assert_eq!(
            disk.handle_free(DiskBytes(5), &marks(10, u64::MAX)).len(),
            2
        );
        // A mark is taken back, and a class taken out.
        assert_eq!(
            disk.handle_free(DiskBytes(5), &marks(10, 0)),
            [is(device, false)]
        );
        assert_eq!(disk.handle_free(DiskBytes(5), &[]), []);
        assert_eq!(disk.classes, []);
    }
}
