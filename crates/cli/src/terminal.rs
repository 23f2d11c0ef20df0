//! What the terminal can do, and a person's answers from it. It writes nothing by itself.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};
use tenure_client::print::{Channel, Look, Paint, Piece, Raw};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{SignalKind, signal},
};

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
/// Nobody types a second line as fast as this.
const AT_ONCE: Duration = Duration::from_millis(50);
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

/// Sentences to stderr, broken between words.
pub fn tell(text: &str) {
    note(&format!("{}\n", stderr_look().folded(text)));
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

/// Lines a person types at a terminal. Nothing reads it but this, so that somebody else can between two calls.
pub struct Lines {
    terminal: AsyncFd<io::Stdin>,
    /// `ECHO`, if the terminal had it when it was handed over.
    echoed: LocalModes,
    /// Read, but not given out.
    typed: Vec<u8>,
    /// Whole lines for when the turn is over.
    kept: VecDeque<String>,
    hearing: Hearing,
    /// Ctrl-D was pressed, and nobody was told.
    is_over: bool,
    /// A question went away by itself: the next line may have been meant for it.
    is_late: bool,
}

/// What a person typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Line(String),
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// Whether the terminal shows what is typed as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// As it was when the terminal was handed over.
    On,
    /// It would land in the midst of what is being shown.
    Off,
}

/// Who gets what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    Here,
    /// The prompt has given a line just now, and may have read more; what comes at once belongs to that.
    JustPrompted(Instant),
    /// What is there follows something that the prompt has read already, so the prompt gets it too.
    Prompt,
}

impl Lines {
    pub fn of_terminal() -> io::Result<Self> {
        // SAFETY: standard input is open as long as the process lives, and nothing here puts another file in its place.
        let terminal = unsafe { AsyncFd::register_with_interest(io::stdin(), Interest::READABLE) };
        let terminal = terminal.map_err(|error| error.into_parts().1)?;
        let modes = tcgetattr(terminal.get_ref())?;
        let echoed = modes.local_modes.intersection(LocalModes::ECHO);
        end_in_order(Some(modes))?;
        let (typed, kept) = (vec![], VecDeque::new());
        Ok(Self { terminal, echoed, typed, kept, hearing: Hearing::Here, is_over: false, is_late: false })
    }

    pub fn echo(&self, echo: Echo) {
        let Ok(mut modes) = tcgetattr(self.terminal.get_ref()) else { return };
        modes.local_modes.remove(LocalModes::ECHO);
        if echo == Echo::On {
            modes.local_modes.insert(self.echoed);
        }
        let _ = tcsetattr(self.terminal.get_ref(), OptionalActions::Now, &modes);
    }

    /// The prompt has given a line. What comes along with it follows it at the next prompt, in order.
    pub fn after_prompt(&mut self) {
        self.hearing = match is_readable(self.terminal.get_ref()) {
            true => Hearing::Prompt,
            false => Hearing::JustPrompted(Instant::now()),
        };
    }

    /// Something was shown after the line of the prompt: what comes from now on may be an answer to that.
    pub fn after_shown(&mut self) {
        if matches!(self.hearing, Hearing::JustPrompted(_)) && !is_readable(self.terminal.get_ref()) {
            self.hearing = Hearing::Here;
        }
    }

    /// Keeps a line until the turn is over.
    pub fn keep(&mut self, line: &str) {
        self.kept.push_back(line.to_owned());
    }

    /// The next whole line that was read and is not given out. What the terminal still has is for the prompt.
    pub fn next_kept(&mut self) -> Option<String> {
        self.keep_whole();
        self.kept.pop_front()
    }

    /// The next whole line that was typed until now.
    pub fn next_typed(&mut self) -> Option<String> {
        if is_readable(self.terminal.get_ref()) && self.is_for_us() {
            self.take_in();
        }
        self.next_kept()
    }

    /// What was read and not given out: at most a line that has no end yet, once the whole ones are taken.
    pub fn take_begun(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.typed)).into_owned()
    }

    /// Drops what was typed until now, for it must not answer what comes next; gives it, so that it can be told.
    pub fn forget_typed(&mut self) -> String {
        self.take_in();
        self.take_in_begun();
        if self.hearing == Hearing::Prompt {
            self.keep_whole();
        }
        self.hearing = Hearing::Here;
        self.is_late = false;
        self.take_begun()
    }

    /// The question went away by itself; what comes late for it is no message.
    pub fn expect_late(&mut self) {
        self.is_late = true;
    }

    /// Whether this line may have been meant for a question that went away; only the first one may.
    pub fn may_be_late(&mut self) -> bool {
        std::mem::take(&mut self.is_late)
    }

    /// The next line. May be dropped while it waits.
    pub async fn next(&mut self) -> Heard {
        loop {
            if self.hearing == Hearing::Prompt {
                return std::future::pending().await;
            }
            if let Some(line) = self.whole() {
                return Heard::Line(line);
            }
            if std::mem::take(&mut self.is_over) {
                return Heard::End;
            }
            let Ok(mut ready) = self.terminal.readable().await else { return std::future::pending().await };
            // The descriptor belongs to others too, so it must not be made one that does not wait.
            if !is_readable(ready.get_inner()) {
                ready.clear_ready();
                continue;
            }
            if !self.is_for_us() {
                continue;
            }
            self.read();
        }
    }

    /// Whether what can be read now is to be read here.
    fn is_for_us(&mut self) -> bool {
        if let Hearing::JustPrompted(at) = self.hearing {
            self.hearing = if at.elapsed() < AT_ONCE { Hearing::Prompt } else { Hearing::Here };
        }
        self.hearing == Hearing::Here
    }

    /// The first whole line of what was read. Enter is a carriage return where it was pressed at the prompt.
    fn whole(&mut self) -> Option<String> {
        let end = self.typed.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let mut line: Vec<u8> = self.typed.drain(..=end).collect();
        line.pop();
        // What is not text is no answer either; keys such as Ctrl-L are no part of it.
        let text = String::from_utf8(line).unwrap_or_default();
        Some(text.replace(|c: char| c.is_control() && c != '\t', ""))
    }

    fn keep_whole(&mut self) {
        while let Some(line) = self.whole() {
            self.kept.push_back(line);
        }
    }

    fn take_in(&mut self) {
        while is_readable(self.terminal.get_ref()) {
            if let Read::End = self.read() {
                return;
            }
        }
    }

    /// A terminal holds back the line that is being typed, unless it is asked for single keys.
    fn take_in_begun(&mut self) {
        let Ok(lines) = tcgetattr(self.terminal.get_ref()) else { return };
        let mut keys = lines.clone();
        keys.local_modes.remove(LocalModes::ICANON);
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        if tcsetattr(self.terminal.get_ref(), OptionalActions::Now, &keys).is_ok() {
            self.take_in();
            let _ = tcsetattr(self.terminal.get_ref(), OptionalActions::Now, &lines);
        }
    }

    fn read(&mut self) -> Read {
        let mut bytes = [0; READ_BYTES];
        match rustix::io::read(self.terminal.get_ref(), &mut bytes) {
            Ok(0) | Err(_) => {
                self.is_over = true;
                Read::End
            }
            Ok(count) => {
                self.typed.extend_from_slice(&bytes[..count]);
                Read::Some
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.echo(Echo::On);
    }
}

enum Read {
    Some,
    End,
}

/// What is told when a signal ends this process.
static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

/// From now on this is told when a signal ends this process; nothing, where it is empty.
pub fn set_last_words(words: String) {
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = words;
}

/// Whoever ends this process with a signal is told what goes on without it, and gets the terminal back as it was. After a
/// SIGKILL that is up to the shell.
pub fn end_in_order(modes: Option<Termios>) -> io::Result<()> {
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::spawn(async move {
        let kind = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hang_up.recv() => SignalKind::hangup(),
        };
        if let Some(modes) = modes {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        }
        let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !words.is_empty() {
            note(&format!("\n{words}\n"));
        }
        std::process::exit(128 + kind.as_raw_value());
    });
    Ok(())
}

fn is_readable(terminal: &io::Stdin) -> bool {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
