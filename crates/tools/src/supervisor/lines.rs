//! Whole lines from a pipe, with or without waiting. It never waits for more than one line.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd,
};

use crate::order::LINE_BYTES_MAX;

pub(super) struct Lines {
    pipe: OwnedFd,
    buffer: Vec<u8>,
    closed: bool,
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Lines {
    pub(super) fn new(pipe: OwnedFd) -> Self {
        Self { pipe, buffer: vec![], closed: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The next line, waiting for it. `None`: the pipe was closed first.
    pub(super) fn wait_for_line(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.closed {
                return Ok(None);
            }
            self.fill().map_err(|error| format!("the pipe cannot be read: {error}"))?;
        }
    }

    /// The next line if it is there. An error: the pipe is closed and holds none.
    pub(super) fn next_line(&mut self) -> Result<Option<String>, Errno> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.closed {
                return Err(Errno::EPIPE);
            }
            let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::ZERO) {
                Ok(0) | Err(Errno::EINTR) => return Ok(None),
                Ok(_) => self.fill()?,
                Err(error) => return Err(error),
            }
        }
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn fill(&mut self) -> Result<(), Errno> {
        let mut chunk = [0; 8192];
        match unistd::read(&self.pipe, &mut chunk) {
            Ok(0) => self.closed = true,
            Ok(_) if self.buffer.len() > LINE_BYTES_MAX => return Err(Errno::EMSGSIZE),
            Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            Err(Errno::EINTR) => {}
            Err(error) => {
                self.closed = true;
                return Err(error);
            }
        }
        Ok(())
    }
}
