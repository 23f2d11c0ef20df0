//! A terminal for a command: what a person types goes in at one end, and what is shown comes out there.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::Command,
};

use rustix::pty::OpenptFlags;

pub struct Screen {
    outer: File,
    /// All that was read so far.
    pub shown: String,
    /// How much of it was waited for already.
    seen: usize,
}

impl Screen {
    /// The screen, and the end that the command gets.
    pub fn new() -> (Self, File) {
        let outer = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&outer).unwrap();
        rustix::pty::unlockpt(&outer).unwrap();
        let name = rustix::pty::ptsname(&outer, vec![]).unwrap();
        let inner = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        (Self { outer: File::from(outer), shown: String::new(), seen: 0 }, inner)
    }

    /// Gives the command the terminal for everything.
    pub fn of(command: &mut Command) -> Self {
        let (screen, inner) = Self::new();
        command.stdin(inner.try_clone().unwrap()).stdout(inner.try_clone().unwrap()).stderr(inner);
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        screen
    }

    pub fn types(&mut self, text: &str) {
        self.outer.write_all(text.as_bytes()).unwrap();
    }

    /// Whether the terminal shows what is typed.
    pub fn echoes(&self) -> bool {
        rustix::termios::tcgetattr(&self.outer).unwrap().local_modes.contains(rustix::termios::LocalModes::ECHO)
    }

    /// Reads until the text has come after what was waited for before.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let mut buffer = [0; 1024];
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let read = self.outer.read(&mut buffer);
            let count = read.unwrap_or_else(|error| panic!("{error}: no {text:?} in {}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}
