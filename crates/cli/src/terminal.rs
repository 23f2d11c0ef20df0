//! What the terminal can do, and a person's answers from it. It writes nothing by itself.

use std::io::{self, IsTerminal, Write as _};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{QueueSelector, tcflush},
};
use tenure_client::print::{Channel, Look, Paint, Piece, Raw};
use tokio::io::{Interest, unix::AsyncFd};

/// For people or for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Text,
    Json,
}

/// Narrower terminals are taken for this wide.
const WIDTH_MIN: usize = 20;
/// For terminals that do not say how wide they are.
const WIDTH_UNKNOWN: usize = 100;
/// A terminal that says so often in a row that there is nothing more is gone.
const ENDS_MAX: u32 = 8;
/// How much is read of what a person types at a time.
const READ_BYTES: usize = 4096;

pub fn stdout_look() -> Look {
    look_of(&io::stdout())
}

pub fn stderr_look() -> Look {
    look_of(&io::stderr())
}

fn look_of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Look {
    if !stream.is_terminal() {
        return Look::PLAIN;
    }
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let paint = if set("NO_COLOR") || dumb { Paint::Plain } else { Paint::Colours };
    let columns = rustix::termios::tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    let width = if columns == 0 { WIDTH_UNKNOWN } else { columns.max(WIDTH_MIN) };
    Look { paint, raw: Raw::Tame, width }
}

/// Whether a person sits there who can be asked.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether all of it is shown on a terminal that a line can be edited on.
pub fn is_screen() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_interactive() && io::stdout().is_terminal() && !dumb
}

/// Answers to stdout, notes to stderr, at once.
pub fn write(pieces: &[Piece]) -> io::Result<()> {
    for piece in pieces {
        match piece.channel {
            Channel::Answer => {
                let mut out = io::stdout().lock();
                out.write_all(piece.text.as_bytes())?;
                out.flush()?;
            }
            Channel::Note => note(&piece.text),
        }
    }
    Ok(())
}

/// Text to stderr. That nobody reads notes is no reason to stop.
pub fn note(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Everything to stdout, for commands whose whole output is what was asked for.
pub fn write_all(pieces: &[Piece]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for piece in pieces {
        out.write_all(piece.text.as_bytes())?;
    }
    out.flush()
}

/// One line to stdout.
pub fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// One JSON value on a line of its own.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(print_line(&serde_json::to_string(value)?)?)
}

/// Lines a person types at a terminal. Nothing reads it but `next`, so that somebody else can between two calls.
pub struct Lines {
    terminal: AsyncFd<io::Stdin>,
    typed: Vec<u8>,
    ends: u32,
}

impl Lines {
    pub fn of_terminal() -> io::Result<Self> {
        // SAFETY: standard input is open as long as the process lives, and nothing here puts another file in its place.
        let terminal = unsafe { AsyncFd::register_with_interest(io::stdin(), Interest::READABLE) };
        Ok(Self { terminal: terminal.map_err(|error| error.into_parts().1)?, typed: vec![], ends: 0 })
    }

    /// Lines from before a question must not answer it.
    pub fn forget_typed(&mut self) {
        self.typed.clear();
        let _ = tcflush(self.terminal.get_ref(), QueueSelector::IFlush);
    }

    /// The next line; waits for ever once there will be none. May be dropped while it waits.
    pub async fn next(&mut self) -> String {
        loop {
            if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.typed.drain(..=end).collect();
                // What is not text is no answer either.
                return String::from_utf8(line).unwrap_or_default();
            }
            if self.ends == ENDS_MAX {
                return std::future::pending().await;
            }
            let Ok(mut ready) = self.terminal.readable().await else { return std::future::pending().await };
            // The descriptor belongs to others too, so it must not be made one that does not wait.
            if !is_readable(ready.get_inner()) {
                ready.clear_ready();
                continue;
            }
            let mut bytes = [0; READ_BYTES];
            match rustix::io::read(ready.get_inner(), &mut bytes) {
                Ok(0) | Err(_) => {
                    // Ctrl-D is not the end of a terminal: it counts as an empty line.
                    self.ends += 1;
                    return String::new();
                }
                Ok(count) => {
                    self.ends = 0;
                    self.typed.extend_from_slice(&bytes[..count]);
                }
            }
        }
    }
}

fn is_readable(terminal: &io::Stdin) -> bool {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
