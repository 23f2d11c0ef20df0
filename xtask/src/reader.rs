//! A reader of one session's stream that reconnects with the last id it saw and keeps everything it is given, and the check that what it was given is whole.

use std::{
    collections::HashMap,
    net::Shutdown,
    net::TcpStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    daemon::{PATIENCE, Setup},
    http::{Connection, Item},
};

const RECONNECT: Duration = Duration::from_millis(3);

/// Where an item stands: its number and, for a delta, its place in the spool.
pub fn place(id: &str) -> Result<(u64, u64)> {
    let (seq, pos) = id.split_once('.').unwrap_or((id, "0"));
    Ok((seq.parse().with_context(|| format!("cursor {id}"))?, pos.parse().with_context(|| format!("cursor {id}"))?))
}

impl Item {
    pub fn is_numbered(&self) -> bool {
        !self.id.contains('.')
    }

    pub fn event(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.json)?)
    }
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Item>>,
    grown: Condvar,
    stop: AtomicBool,
    /// The connection under way, so that it can be cut.
    socket: Mutex<Option<TcpStream>>,
    broken: Mutex<Option<String>>,
}

/// A poisoned lock only tells that another thread has panicked; the record is still what was seen.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Reader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Reads from the beginning, in a thread of its own, through any number of daemons.
    pub fn start(setup: &Setup, session: &str) -> Reader {
        let shared = Arc::new(Shared::default());
        let (setup, path, kept) = (setup.clone(), format!("/v1/sessions/{session}/events"), Arc::clone(&shared));
        let thread = thread::spawn(move || {
            while !kept.stop.load(Ordering::Acquire) {
                if let Err(error) = kept.read_on(&setup, &path) {
                    *lock(&kept.broken) = Some(format!("{error:#}"));
                    kept.grown.notify_all();
                    return;
                }
                thread::sleep(RECONNECT);
            }
        });
        Reader { shared, thread: Some(thread) }
    }

    /// Looks at what was seen so far, without a copy.
    pub fn look<T>(&self, at: impl FnOnce(&[Item]) -> T) -> T {
        at(&lock(&self.shared.seen))
    }

    /// What it choked on, if it did.
    pub fn broken(&self) -> Option<String> {
        lock(&self.shared.broken).clone()
    }

    /// Cuts the connection; the reader comes back by itself.
    pub fn cut(&self) {
        if let Some(socket) = &*lock(&self.shared.socket) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// The first item that fits, past ones included.
    pub fn wait(&self, what: &str, fits: impl Fn(&Item) -> bool) -> Result<Item> {
        self.wait_for(PATIENCE, what, fits)
    }

    /// The same, for what may take its time.
    pub fn wait_for(&self, patience: Duration, what: &str, fits: impl Fn(&Item) -> bool) -> Result<Item> {
        let deadline = Instant::now() + patience;
        let mut seen = lock(&self.shared.seen);
        let mut looked_at = 0;
        loop {
            if let Some(item) = seen[looked_at..].iter().find(|item| fits(item)) {
                return Ok(item.clone());
            }
            looked_at = seen.len();
            if let Some(broken) = &*lock(&self.shared.broken) {
                bail!("while waiting for {what}: {broken}");
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let kinds: Vec<String> =
                    seen.iter().rev().take(8).map(|item| format!("{} {}", item.id, item.kind)).collect();
                bail!("no {what} came; the last items, newest first: {kinds:?}");
            }
            // Short waits, so that a broken reader is noticed too.
            let wait = left.min(Duration::from_millis(200));
            seen = self.shared.grown.wait_timeout(seen, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the reading and gives what was seen.
    pub fn end(mut self) -> Result<Vec<Item>> {
        self.halt();
        match lock(&self.shared.broken).take() {
            Some(broken) => bail!(broken),
            None => Ok(std::mem::take(&mut lock(&self.shared.seen))),
        }
    }

    fn halt(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Once more and again: a connection may have been made since.
        while let Some(thread) = &self.thread {
            self.cut();
            if thread.is_finished() {
                let _ = self.thread.take().map(JoinHandle::join);
            } else {
                thread::sleep(RECONNECT);
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Shared {
    /// Reads until the connection ends; a daemon that is not there is no error, a wrong answer is.
    fn read_on(&self, setup: &Setup, path: &str) -> Result<()> {
        let Some((target, _)) = setup.target() else { return Ok(()) };
        let last = lock(&self.seen).last().map(|item| item.id.clone());
        let Ok(connection) = Connection::open(&target) else { return Ok(()) };
        let mut follow = match connection.follow(path, last.as_deref()) {
            Ok(follow) => follow,
            Err(error) if error.kind() == std::io::ErrorKind::Other => bail!("{path}: {error}"),
            Err(_) => return Ok(()),
        };
        *lock(&self.socket) = follow.socket().ok();
        loop {
            match follow.next() {
                Ok(Some(item)) => lock(&self.seen).push(item),
                Ok(None) => return Ok(()),
                Err(error) if error.is::<std::io::Error>() => return Ok(()),
                Err(error) => return Err(error),
            }
            self.grown.notify_all();
        }
    }
}

/// The whole stream of a session as a fresh reader is given it now.
pub fn read_all(setup: &Setup, session: &str) -> Result<Vec<Item>> {
    let (target, _) = setup.target().context("no daemon to read from")?;
    let mut follow = Connection::open(&target)?.follow(&format!("/v1/sessions/{session}/events?follow=false"), None)?;
    let mut all = Vec::new();
    while let Some(item) = follow.next()? {
        all.push(item);
    }
    Ok(all)
}

/// Numbers without a gap, cursors that only go on, no reset, and each recorded text as it was streamed.
pub fn check_whole(seen: &[Item]) -> Result<()> {
    let mut last = (0, 0);
    let mut streamed: HashMap<String, String> = HashMap::new();
    for item in seen {
        let here = place(&item.id)?;
        ensure!(here > last, "cursor {} came after {}.{}", item.id, last.0, last.1);
        ensure!(item.kind != "stream_reset", "a reset at {}", item.id);
        if here.1 == 0 {
            ensure!(here.0 == last.0 + 1, "number {} came after {}", here.0, last.0);
        }
        last = here;
        let event = item.event()?;
        let attempt = format!("{} {} {}", event["turn_id"], event["data"]["step"], event["data"]["attempt"]);
        let text = event["data"]["text"].as_str();
        match &*item.kind {
            "model_output_delta" => {
                streamed.entry(attempt).or_default().push_str(text.context("a delta without text")?)
            }
            "model_output_completed" | "model_attempt_failed" => {
                let streamed = streamed.remove(&attempt).unwrap_or_default();
                ensure!(text == Some(&*streamed), "{} says {text:?}, streamed was {streamed:?}", item.id);
            }
            _ => {}
        }
    }
    Ok(())
}
