//! A socket that loses patience: with a peer that takes nothing, with a request whose head does not come to its end, and with
//! a connection on which nothing is asked. It never buffers.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::task::AtomicWaker;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// How long each wait may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) write_stall: Duration,
    /// From the first byte of a request to the end of its head.
    pub(crate) head: Duration,
    /// Between requests.
    pub(crate) idle: Duration,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Head,
    /// A request is being answered; what it waits for has limits of its own.
    Busy,
}

/// How far a connection has come: a count that names its phase, and grows with every request.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    count: AtomicU64,
    /// Who has to look at the connection again once the answer is out: nothing may ever come to be read.
    reader: AtomicWaker,
}

impl Progress {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn phase_of(count: u64) -> Phase {
        match count % 3 {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Busy,
        }
    }

    fn heard_something(&self) {
        let count = self.count();
        if Self::phase_of(count) == Phase::Idle {
            // A request that begins in the same moment is further on.
            let _ = self.count.compare_exchange(count, count + 1, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// A head is whole.
    pub(crate) fn asked(&self) {
        let next = |count: u64| Some(count - count % 3 + 2);
        let _ = self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// The answer is out.
    pub(crate) fn answered(&self) {
        let next = |count: u64| Some(count - count % 3 + 3);
        let _ = self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        self.reader.wake();
    }
}

pub(crate) struct Patient<T> {
    inner: T,
    waits: Waits,
    progress: Arc<Progress>,
    /// Set while a write waits for the peer.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Set while a read waits for the peer, with what it waits for.
    waiting: Option<(u64, Pin<Box<Sleep>>)>,
    gave_up: Option<Phase>,
}

impl<T> Patient<T> {
    pub(crate) fn new(inner: T, waits: Waits, progress: Arc<Progress>) -> Self {
        Self { inner, waits, progress, stalled: None, waiting: None, gave_up: None }
    }

    /// What it waited for in vain.
    pub(crate) fn gave_up(&self) -> Option<Phase> {
        self.gave_up
    }

    fn judge<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.waits.write_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let count = self.progress.count();
        let limit = match Progress::phase_of(count) {
            Phase::Idle => self.waits.idle,
            Phase::Head => self.waits.head,
            Phase::Busy => {
                self.waiting = None;
                self.progress.reader.register(cx.waker());
                // The answer may have gone out in this moment.
                return if self.progress.count() == count { Poll::Pending } else { self.wait(cx) };
            }
        };
        // Bytes that drip in do not begin the wait anew.
        if self.waiting.as_ref().is_none_or(|(since, _)| *since != count) {
            self.waiting = Some((count, Box::pin(sleep_until(Instant::now() + limit))));
        }
        if let Some((_, sleep)) = &mut self.waiting {
            ready!(sleep.as_mut().poll(cx));
        }
        self.gave_up = Some(Progress::phase_of(count));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, into);
        match read {
            Poll::Pending => self.wait(cx),
            Poll::Ready(_) => {
                if into.filled().len() > before {
                    self.progress.heard_something();
                }
                read
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn patient<T>(inner: T, waits: Waits) -> (Patient<T>, Arc<Progress>) {
        let progress = Arc::new(Progress::default());
        (Patient::new(inner, waits, Arc::clone(&progress)), progress)
    }

    fn waits(ms: u64) -> Waits {
        let time = Duration::from_millis(ms);
        Waits { write_stall: time, head: time, idle: 4 * time }
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (ours, theirs) = duplex(8);
        let (mut ours, _) = patient(ours, waits(30));
        let error = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }

    #[tokio::test]
    async fn a_slow_peer_is_not() {
        let (ours, mut theirs) = duplex(8);
        let (mut ours, _) = patient(ours, waits(400));
        let reader = tokio::spawn(async move {
            let mut taken = [0; 64];
            for piece in taken.chunks_mut(8) {
                tokio::time::sleep(Duration::from_millis(80)).await;
                theirs.read_exact(piece).await.unwrap();
            }
        });
        ours.write_all(&[0; 64]).await.unwrap();
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_is_given_up_when_its_time_is_over() {
        let (ours, mut theirs) = duplex(8);
        let (mut ours, _) = patient(ours, waits(100));
        let began = Instant::now();
        tokio::spawn(async move {
            while theirs.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
        let error = ours.read_to_end(&mut vec![]).await.unwrap_err();
        assert_eq!((error.kind(), ours.gave_up()), (io::ErrorKind::TimedOut, Some(Phase::Head)));
        assert_eq!(began.elapsed().as_millis() / 50, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_may_take_its_time_and_the_next_one_too() {
        let (ours, mut theirs) = duplex(8);
        let (mut ours, progress) = patient(ours, waits(100));
        theirs.write_all(b"x").await.unwrap();
        ours.read_u8().await.unwrap();
        progress.asked();
        assert!(tokio::time::timeout(Duration::from_secs(10), ours.read_u8()).await.is_err(), "nothing cuts it");
        progress.answered();
        let began = Instant::now();
        assert!(ours.read_u8().await.is_err());
        assert_eq!((ours.gave_up(), began.elapsed().as_millis() / 50), (Some(Phase::Idle), 8));
    }
}
