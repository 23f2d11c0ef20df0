//! The daemon's own log: to stderr, or to a file that begins anew before it grows too large.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// A log of this many bytes is put aside.
pub const BYTES_MAX: u64 = 4 << 20;
/// How many that were put aside are kept.
pub const KEEP: u32 = 3;

/// A log in a file. The newest one that was put aside ends in `.1`.
#[derive(Debug, Clone)]
pub struct LogFile(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    bytes_max: u64,
    keep: u32,
    file: File,
    /// Whether the standard streams go here too.
    streams: bool,
}

impl LogFile {
    pub fn open(path: &Path, bytes_max: u64, keep: u32) -> io::Result<Self> {
        let (path, file) = (path.to_owned(), opened(path)?);
        Ok(Self(Arc::new(Mutex::new(State { path, bytes_max, keep, file, streams: false }))))
    }

    /// Opens the file by its name again: somebody may have put it aside.
    pub fn reopen(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).renew()
    }

    /// What is written to the standard streams, such as the report of a panic, goes here too, wherever the log is.
    pub fn take_streams(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.streams = true;
        state.take_streams()
    }
}

impl State {
    fn renew(&mut self) -> io::Result<()> {
        self.file = opened(&self.path)?;
        self.take_streams()
    }

    fn take_streams(&self) -> io::Result<()> {
        if !self.streams {
            return Ok(());
        }
        rustix::stdio::dup2_stdout(&self.file)?;
        Ok(rustix::stdio::dup2_stderr(&self.file)?)
    }

    fn put_aside(&mut self) -> io::Result<()> {
        put_aside(&self.path, self.keep)?;
        self.renew()
    }
}

/// Makes room for a new log; the oldest one is dropped.
pub fn put_aside(path: &Path, keep: u32) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..keep).rev() {
        let _ = fs::rename(aside(number), aside(number + 1));
    }
    if keep == 0 { fs::remove_file(path) } else { fs::rename(path, aside(1)) }
}

fn opened(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The standard streams write there too.
        let bytes = state.file.metadata().map_or(0, |file| file.len());
        if bytes > 0 && bytes + line.len() as u64 > state.bytes_max {
            // A log that is too long is better than none.
            let _ = state.put_aside();
        }
        state.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = LogFile;

    fn make_writer(&'a self) -> LogFile {
        self.clone()
    }
}

/// Starts the log of this process; what to tell is said by `TENURE_LOG` or `RUST_LOG`.
pub fn start(file: Option<&LogFile>) {
    let filter = ["TENURE_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok());
    let filter = filter.unwrap_or_else(|| "warn,tenure=info".into());
    // A line that cannot be written, for example on a full disk, is lost. To complain of that on stderr too would panic, and
    // end whichever session had something to say.
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).log_internal_errors(false).with_ansi(false);
    match file {
        Some(file) => subscriber.with_writer(file.clone()).init(),
        None => subscriber.with_writer(io::stderr).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_anew_and_keeps_a_few_old_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.log");
        fs::write(&path, "old\n").unwrap();
        let mut log = LogFile::open(&path, 10, 2).unwrap();
        for line in ["11111\n", "2222222222222\n", "3\n", "4\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("d.log").as_deref(), Some("3\n4\n"));
        assert_eq!(read("d.log.1").as_deref(), Some("2222222222222\n"));
        assert_eq!(read("d.log.2").as_deref(), Some("old\n11111\n"));
        assert_eq!(read("d.log.3"), None);
    }
}
