use super::*;
use bytes::Bytes;

fn frame(bytes: usize) -> Frame {
    Frame::message(Bytes::from(vec![0; bytes]))
}

fn taken(outbox: &Outbox) -> usize {
    let mut batch = Vec::new();
    outbox.take(&mut batch).unwrap();
    batch.len()
}

#[test]
fn without_a_connection_nothing_is_taken() {
    let outbox = Outbox::new(Channel::Raft);
    assert!(!outbox.push(frame(1)));
    outbox.open();
    assert!(outbox.push(frame(1)) && outbox.bytes() > 0);
    assert!(outbox.close() && !outbox.close());
    assert_eq!(outbox.bytes(), 0);
    outbox.open();
    assert_eq!(taken(&outbox), 0);
}

#[test]
fn batches_are_bounded_and_long_frames_go_alone() {
    let outbox = Outbox::new(Channel::Raft);
    outbox.open();
    for size in [1, BATCH / 2, BATCH / 2, 2 * BATCH, 1] {
        assert!(outbox.push(frame(size)));
    }
    let batches: Vec<_> = (0..5).map(|_| taken(&outbox)).collect();
    assert_eq!(batches, [2, 1, 1, 1, 0]);
    assert_eq!(outbox.bytes(), 0);
}

#[tokio::test]
async fn above_the_limit_the_connection_is_given_up() {
    let outbox = Outbox::new(Channel::Raft);
    outbox.open();
    assert!(outbox.push(frame(Channel::Raft.queue_limit() / 2)));
    assert!(!outbox.push(frame(Channel::Raft.queue_limit() / 2)));
    outbox.changed().await;
    assert_eq!(outbox.take(&mut Vec::new()), Err(Broken::Overflow));
    assert!(!outbox.push(frame(1)) && !outbox.is_open());
    assert_eq!(outbox.bytes(), 0);
}

/// A socket that takes so many bytes at each write, and then what the test says.
#[derive(Debug, Default)]
struct Takes {
    at_each: Mutex<VecDeque<io::Result<usize>>>,
    taken: Mutex<Vec<u8>>,
}

impl Takes {
    fn opened(at_each: impl IntoIterator<Item = io::Result<usize>>) -> (Outbox, Arc<Self>) {
        let socket = Arc::new(Self {
            at_each: Mutex::new(at_each.into_iter().collect()),
            taken: Mutex::default(),
        });
        let outbox = Outbox::new(Channel::Data);
        outbox.open();
        outbox.share(Arc::clone(&socket) as Arc<dyn Socket>);
        (outbox, socket)
    }
}

impl Socket for Takes {
    fn write_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let most = self.at_each.lock().pop_front().unwrap_or(Ok(usize::MAX))?;
        let most = most.min(bytes.len());
        self.taken.lock().extend(&bytes[..most]);
        Ok(most)
    }
}

/// The bytes of a frame, with its length.
fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode_head(&mut bytes);
    bytes.extend_from_slice(&frame.payload);
    bytes
}

fn is_notified(outbox: &Outbox) -> bool {
    let mut changed = std::pin::pin!(outbox.changed());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    changed.as_mut().poll(&mut context).is_ready()
}

#[test]
fn who_gives_a_frame_writes_it_and_wakes_nobody() {
    let (outbox, socket) = Takes::opened([]);
    let counters = LinkCounters::default();
    let frames = [frame(1), frame(200)];
    for frame in &frames {
        assert!(outbox.push_or_write(frame.clone(), &counters));
    }
    let expected: Vec<u8> = frames.iter().flat_map(bytes_of).collect();
    assert_eq!(*socket.taken.lock(), expected);
    assert!(!is_notified(&outbox));
    assert_eq!((outbox.bytes(), taken(&outbox)), (0, 0));
    let sent = counters
        .sent_frames
        .load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(sent, 2);
}

#[test]
fn the_link_writes_what_a_socket_does_not_take_before_all_that_follows() {
    let frames = [frame(10), frame(20)];
    let whole: Vec<u8> = frames.iter().flat_map(bytes_of).collect();
    for cut in 0..bytes_of(&frames[0]).len() {
        let first = match cut {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            cut => Ok(cut),
        };
        let (outbox, socket) = Takes::opened([first]);
        let counters = LinkCounters::default();
        for frame in &frames {
            assert!(outbox.push_or_write(frame.clone(), &counters));
        }
        assert!(is_notified(&outbox) && outbox.bytes() > 0);
        let mut batch = Vec::new();
        let rest = outbox.take(&mut batch).unwrap();
        let mut written = socket.taken.lock().clone();
        assert_eq!(written.len(), cut);
        written.extend_from_slice(&rest);
        written.extend(batch.iter().flat_map(bytes_of));
        assert_eq!((written, outbox.bytes()), (whole.clone(), 0));
    }
}

#[test]
fn while_the_link_writes_nobody_else_does() {
    let (outbox, socket) = Takes::opened([]);
    let counters = LinkCounters::default();
    assert!(outbox.push(frame(1)));
    // It writes what it has taken, or a keep-alive.
    for begin in [
        |outbox: &Outbox| taken(outbox) == 1,
        |outbox: &Outbox| taken(outbox) == 1 && taken(outbox) == 0 && outbox.begin_keep_alive(),
    ] {
        assert!(begin(&outbox));
        assert!(outbox.push_or_write(frame(2), &counters));
        assert!(!outbox.begin_keep_alive());
        assert!(socket.taken.lock().is_empty());
    }
    assert_eq!((taken(&outbox), taken(&outbox)), (1, 0));
    assert!(outbox.push_or_write(frame(3), &counters));
    assert_eq!(*socket.taken.lock(), bytes_of(&frame(3)));
}

#[test]
fn long_frames_and_frames_without_a_socket_are_left_to_the_link() {
    let (outbox, socket) = Takes::opened([]);
    let counters = LinkCounters::default();
    assert!(outbox.push_or_write(frame(WRITTEN_AT_ONCE), &counters));
    assert!(socket.taken.lock().is_empty() && is_notified(&outbox));
    assert_eq!(taken(&outbox), 1);
    outbox.open();
    assert!(outbox.push_or_write(frame(1), &counters));
    assert_eq!(taken(&outbox), 1);
}

#[test]
fn a_write_that_fails_gives_the_connection_up() {
    let reset = io::ErrorKind::ConnectionReset;
    let (outbox, _) = Takes::opened([Err(reset.into())]);
    let counters = LinkCounters::default();
    assert!(!outbox.push_or_write(frame(1), &counters));
    assert!(is_notified(&outbox) && !outbox.is_open());
    assert!(!outbox.push_or_write(frame(1), &counters));
    assert_eq!(outbox.take(&mut Vec::new()), Err(Broken::Write(reset)));
    assert!(outbox.close());
}

/// A socket in whose write something else happens.
struct Meanwhile {
    outbox: Arc<Outbox>,
    happens: fn(&Outbox),
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Socket for Meanwhile {
    fn write_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.happens)(&self.outbox);
        Ok(parts.iter().map(|part| part.len()).sum())
    }
}

/// Whether the frame counts as sent.
fn written_while(happens: fn(&Outbox)) -> (Arc<Outbox>, bool) {
    let outbox = Arc::new(Outbox::new(Channel::Data));
    let socket = Meanwhile {
        outbox: Arc::clone(&outbox),
        happens,
    };
    outbox.open();
    outbox.share(Arc::new(socket));
    let sent = outbox.push_or_write(frame(1), &LinkCounters::default());
    (outbox, sent)
}

#[test]
fn what_is_given_during_a_write_is_sent_after_it() {
    let (outbox, sent) = written_while(|outbox| {
        assert!(outbox.push(frame(2)));
        assert!(outbox.push_or_write(frame(3), &LinkCounters::default()));
        // The link was woken by something else.
        assert_eq!(taken(outbox), 0);
        assert!(!outbox.begin_keep_alive() && !is_notified(outbox));
    });
    assert!(sent && is_notified(&outbox));
    assert_eq!((taken(&outbox), outbox.bytes()), (2, 0));
    outbox.close();
}

#[test]
fn a_write_to_a_connection_that_was_lost_leaves_the_next_one_alone() {
    let (outbox, sent) = written_while(|outbox| {
        outbox.close();
        outbox.open();
        assert!(outbox.push(frame(2)));
    });
    assert!(!sent && outbox.is_open());
    assert_eq!((taken(&outbox), outbox.bytes()), (1, 0));
}
