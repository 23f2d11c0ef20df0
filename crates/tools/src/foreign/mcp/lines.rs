//! A server's output, up to a line that is too long: there it ends, so that the call that waits for it fails at once
//! instead of waiting for what is never taken.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// The longest message that is taken.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) struct Bounded<R> {
    inner: R,
    /// Bytes since the last line's end.
    line: usize,
}

impl<R> Bounded<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, line: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        self.line = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => new.len() - end - 1,
            None => self.line + new.len(),
        };
        match self.line >= LINE_BYTES_MAX {
            true => Poll::Ready(Err(io::Error::other(format!("a message is longer than {LINE_BYTES_MAX} bytes")))),
            false => Poll::Ready(Ok(())),
        }
    }
}
