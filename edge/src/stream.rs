//! A stream of frames: several requests in flight, bounded, answers in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::answer::Answer;
use crate::client::Client;
use crate::device::Values;
use crate::error::{Error, ErrorKind};

/// What happens to a frame that comes while all places are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamMode {
    /// The sender waits: every frame is answered.
    #[default]
    Every,
    /// It waits alone; a newer one takes its place. For live pictures, where a late answer is
    /// worth nothing.
    LatestWins,
}

/// How a stream is run.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Frames between [`FrameSender::send`] and [`Answers::next`]. Default 2: one is on the device
    /// while another is on the way. More hides longer round trips and costs memory for each.
    pub max_in_flight: usize,
    /// See [`StreamMode`].
    pub mode: StreamMode,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            max_in_flight: 2,
            mode: StreamMode::Every,
        }
    }
}

/// The number of a frame in its stream, from 0.
pub type FrameId = u64;

struct Frame {
    id: FrameId,
    inputs: Values,
}

/// A frame that runs; its place is free once the answer is taken.
struct Running {
    id: FrameId,
    answer: oneshot::Receiver<Result<Answer, Error>>,
    place: OwnedSemaphorePermit,
}

struct Shared {
    client: Client,
    places: Arc<Semaphore>,
    running: mpsc::Sender<Running>,
    /// Only in [`StreamMode::LatestWins`]: the frame that waits.
    waiting: Mutex<Option<Frame>>,
    arrived: Notify,
    /// The sender is gone: what waits is the last.
    closing: AtomicBool,
}

/// Where frames go in.
pub struct FrameSender {
    shared: Arc<Shared>,
    mode: StreamMode,
    next: FrameId,
}

/// Where answers come out, in the order of their frames.
pub struct Answers {
    running: mpsc::Receiver<Running>,
}

pub(crate) fn open(client: Client, options: StreamOptions) -> (FrameSender, Answers) {
    let max_in_flight = options.max_in_flight.max(1);
    // Each message holds a place, so a channel of that length never blocks.
    let (sender, receiver) = mpsc::channel(max_in_flight);
    let shared = Arc::new(Shared {
        client,
        places: Arc::new(Semaphore::new(max_in_flight)),
        running: sender,
        waiting: Mutex::default(),
        arrived: Notify::new(),
        closing: AtomicBool::new(false),
    });
    if options.mode == StreamMode::LatestWins {
        tokio::spawn(drive_latest(Arc::clone(&shared)));
    }
    let sender = FrameSender {
        shared,
        mode: options.mode,
        next: 0,
    };
    (sender, Answers { running: receiver })
}

fn closed() -> Error {
    Error::text(
        ErrorKind::Cancelled,
        "the stream's answers are no longer read",
    )
}

impl Shared {
    async fn start(&self, frame: Frame, place: OwnedSemaphorePermit) -> Result<(), Error> {
        let (sender, answer) = oneshot::channel();
        let client = self.client.clone();
        let Frame { id, inputs } = frame;
        self.running
            .send(Running { id, answer, place })
            .await
            .map_err(|_| closed())?;
        tokio::spawn(async move {
            let mut sender = sender;
            // Nobody reads answers any more: the request is dropped, which cancels it.
            tokio::select! {
                result = client.infer(inputs) => { let _ = sender.send(result); }
                () = sender.closed() => {}
            }
        });
        Ok(())
    }
}

/// Starts the newest waiting frame whenever a place is free.
async fn drive_latest(shared: Arc<Shared>) {
    loop {
        let Ok(place) = Arc::clone(&shared.places).acquire_owned().await else {
            return;
        };
        let frame = loop {
            let waiting = shared.waiting.lock().take();
            if let Some(frame) = waiting {
                break frame;
            }
            if shared.closing.load(Ordering::Acquire) {
                return;
            }
            // A notification that came meanwhile is kept, so none is missed.
            shared.arrived.notified().await;
        };
        if shared.start(frame, place).await.is_err() {
            return;
        }
    }
}

impl FrameSender {
    /// Sends a frame and returns its number, and the number of the frame that it displaced
    /// ([`StreamMode::LatestWins`] only; a displaced frame is never answered).
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] once [`Answers`] is dropped.
    pub async fn send(&mut self, inputs: Values) -> Result<(FrameId, Option<FrameId>), Error> {
        if self.shared.running.is_closed() {
            return Err(closed());
        }
        let frame = Frame {
            id: self.next,
            inputs,
        };
        self.next += 1;
        let id = frame.id;
        match self.mode {
            StreamMode::Every => {
                let places = Arc::clone(&self.shared.places);
                let place = places.acquire_owned().await.map_err(|_| closed())?;
                self.shared.start(frame, place).await?;
                Ok((id, None))
            }
            StreamMode::LatestWins => {
                let displaced = self
                    .shared
                    .waiting
                    .lock()
                    .replace(frame)
                    .map(|frame| frame.id);
                self.shared.arrived.notify_one();
                Ok((id, displaced))
            }
        }
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.arrived.notify_one();
    }
}

impl Answers {
    /// The next answer with its frame's number; `None` once the sender is dropped and all is
    /// answered.
    pub async fn next(&mut self) -> Option<(FrameId, Result<Answer, Error>)> {
        let Running { id, answer, place } = self.running.recv().await?;
        let result = answer.await.unwrap_or_else(|_| {
            Err(Error::text(
                ErrorKind::Cancelled,
                "the client was shut down",
            ))
        });
        drop(place);
        Some((id, result))
    }
}
