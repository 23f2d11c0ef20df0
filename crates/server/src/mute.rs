//! A socket that keeps hyper's own refusals to itself. When a request's head cannot be read, hyper answers with a bare status
//! before anybody else is asked; here that answer is held back, so that a whole one can be given instead.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Hyper's own answers are shorter.
const BARE_BYTES_MAX: usize = 256;

pub(crate) struct Mute<T> {
    inner: T,
    held_back: bool,
}

impl<T> Mute<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, held_back: false }
    }

    /// The socket, and whether an answer is owed on it.
    pub(crate) fn into_inner(self) -> (T, bool) {
        (self.inner, self.held_back)
    }
}

/// Whether this is one whole answer that only hyper gives: all of ours have a body, and say of what type it is.
fn is_bare_refusal(bytes: &[u8]) -> bool {
    let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    bytes.len() <= BARE_BYTES_MAX
        && bytes.starts_with(b"HTTP/1.1 4")
        && bytes.ends_with(b"\r\n\r\n")
        && bytes.windows(4).filter(|window| window == b"\r\n\r\n").count() == 1
        && holds(b"\r\ncontent-length: 0\r\n")
        && holds(b"\r\nconnection: close\r\n")
        && !holds(b"\r\ncontent-type: ")
}

impl<T: AsyncRead + Unpin> AsyncRead for Mute<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Mute<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if is_bare_refusal(bytes) {
            self.held_back = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [only] => self.poll_write(cx, only),
            _ => Pin::new(&mut self.inner).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held_back {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_refusals_are_held_back() {
        let bare = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        assert!(is_bare_refusal(bare.as_bytes()));
        for other in [
            bare.replace("400 Bad", "200 Bad"),
            bare.replace("length: 0", "length: 10"),
            bare.replace("date: now", "content-type: text/plain"),
            bare.replace("connection: close\r\n", ""),
            format!("{bare}{bare}"),
            format!("{bare}x"),
            format!("x{bare}"),
            bare.trim_end().to_owned(),
        ] {
            assert!(!is_bare_refusal(other.as_bytes()), "{other}");
        }
    }
}
