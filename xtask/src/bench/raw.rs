//! What the machine itself needs, measured in the same run: syncs, process starts, bare requests. Nothing of the daemon is in these.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

/// About what one decision of a plain turn takes in the log.
const RECORD_BYTES: usize = 700;

/// A file that grows by synced appends, as a log does.
pub struct Appender {
    file: File,
    record: Vec<u8>,
}

impl Appender {
    pub fn new(path: &Path) -> Result<Appender> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Appender { file, record: vec![b'x'; RECORD_BYTES] })
    }

    /// One small append and its `fdatasync`.
    pub fn append(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.file.write_all(&self.record)?;
        self.file.sync_data()?;
        Ok(start.elapsed())
    }
}

/// A folder with a file in it: file, folder and parent synced.
pub fn create_synced(parent: &Path, number: usize) -> Result<Duration> {
    let folder = parent.join(format!("made-{number}"));
    let start = Instant::now();
    DirBuilder::new().create(&folder)?;
    let mut file = File::create(folder.join("events"))?;
    file.write_all(&[b'x'; RECORD_BYTES])?;
    file.sync_data()?;
    File::open(&folder)?.sync_all()?;
    File::open(parent)?.sync_all()?;
    Ok(start.elapsed())
}

/// Synced appends per second that this many threads reach, each with a file of its own.
pub fn appends_per_second(folder: &Path, threads: usize, each: usize) -> Result<f64> {
    let files: Vec<PathBuf> = (0..threads).map(|number| folder.join(format!("raw-{number}"))).collect();
    let begin = Barrier::new(threads + 1);
    let took = thread::scope(|scope| {
        let work = |path: &PathBuf| -> Result<()> {
            let made = Appender::new(path);
            begin.wait();
            let mut appender = made?;
            (0..each).try_for_each(|_| appender.append().map(drop))
        };
        let running: Vec<_> = files.iter().map(|path| scope.spawn(move || work(path))).collect();
        begin.wait();
        let start = Instant::now();
        for thread in running {
            thread.join().ok().context("a thread that appends has panicked")??;
        }
        Ok::<Duration, anyhow::Error>(start.elapsed())
    })?;
    files.iter().for_each(|path| drop(fs::remove_file(path)));
    Ok((threads * each) as f64 / took.as_secs_f64())
}

/// A program started and waited for.
pub fn spawn(program: &Path, arguments: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    let mut command = Command::new(program);
    let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(start.elapsed())
}

/// A bare exchange over loopback: that many bytes there, one back.
pub struct Exchange {
    stream: TcpStream,
    body: Vec<u8>,
}

impl Exchange {
    pub fn new(bytes: usize) -> Result<Exchange> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        let (mut other, _) = listener.accept()?;
        // It ends by itself when the stream is closed.
        thread::spawn(move || {
            let mut taken = vec![0; bytes];
            while other.read_exact(&mut taken).is_ok() && other.write_all(b"!").is_ok() {}
        });
        Ok(Exchange { stream, body: vec![b'x'; bytes] })
    }

    pub fn once(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.stream.write_all(&self.body)?;
        self.stream.read_exact(&mut [0])?;
        Ok(start.elapsed())
    }
}
