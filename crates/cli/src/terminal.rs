//! What the terminal can do, and a person's answers from it. It writes nothing by itself.

use std::io::{self, BufRead as _, IsTerminal, Write as _};

use tenure_client::print::{Channel, Look, Paint, Piece, Raw};
use tokio::sync::mpsc;

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

/// Lines a person types, read on a thread of its own because such a read cannot be given up.
pub struct Lines(mpsc::UnboundedReceiver<String>);

impl Lines {
    pub fn of_stdin() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut ends = 0;
            // Ctrl-D is not the end of a terminal: it counts as an empty line.
            while ends < ENDS_MAX {
                let mut line = String::new();
                match io::stdin().lock().read_line(&mut line) {
                    Ok(0) => ends += 1,
                    Ok(_) => ends = 0,
                    // Such a line is no answer either.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => line.clear(),
                    Err(_) => return,
                }
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// Lines from before a question must not answer it.
    pub fn forget_typed(&mut self) {
        while self.0.try_recv().is_ok() {}
    }

    /// The next line; waits for ever once there will be none.
    pub async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}
