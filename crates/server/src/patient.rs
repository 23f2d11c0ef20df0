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
pub(crate) struct Progress(AtomicU64);

impl Progress {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
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
            let _ = self.0.compare_exchange(count, count + 1, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// A head is whole.
    pub(crate) fn asked(&self) {
        let next = |count: u64| Some(count - count % 3 + 2);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// The answer is out.
    pub(crate) fn answered(&self) {
        let next = |count: u64| Some(count - count % 3 + 3);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}

pub(crate) struct Patient<T> {
    inner: T,
    waits: Waits,
    progress: Arc<Progress>,
    /// Set while a write waits for the peer.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Made when a read first waits for the peer, with what it waits for. It is set anew rather than made anew, which costs
    /// next to nothing as long as it only moves into the future.
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
        let phase = Progress::phase_of(count);
        ready!(self.timer(count).as_mut().poll(cx));
        if phase == Phase::Busy {
            // Nothing is late; but somebody has to look again once the answer is out, when nothing may ever come.
            let next = Instant::now() + self.waits.idle;
            let timer = self.timer(count);
            timer.as_mut().reset(next);
            return timer.as_mut().poll(cx).map(Ok);
        }
        self.gave_up = Some(phase);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")))
    }

    /// The timer of this phase. Bytes that drip in do not begin the wait anew.
    fn timer(&mut self, count: u64) -> &mut Pin<Box<Sleep>> {
        let limit = match Progress::phase_of(count) {
            Phase::Head => self.waits.head,
            Phase::Idle | Phase::Busy => self.waits.idle,
        };
        let until = || Instant::now() + limit;
        let (since, timer) = self.waiting.get_or_insert_with(|| (count, Box::pin(sleep_until(until()))));
        if *since != count {
            *since = count;
            timer.as_mut().reset(until());
        }
        timer
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
        let count = self.progress.count();
        if self.waiting.is_some() && Progress::phase_of(count) == Phase::Idle {
            // The answer is out: from here on nothing is asked.
            self.timer(count);
        }
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
