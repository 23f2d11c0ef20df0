//! The clients' own records of one session: what they asked and were told, and what each of them was shown.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use serde_json::Value;

use crate::{
    http::{Answer, Item},
    reader::place,
};

/// A number, and a place in the spool after it.
pub type Place = (u64, u64);

/// A command that was taken.
#[derive(Debug, Clone)]
pub struct Sent {
    pub method: &'static str,
    pub path: String,
    pub key: String,
    pub body: Value,
    pub answer: Answer,
}

/// One item as the first client was shown it.
#[derive(Debug, Clone)]
pub struct Shown {
    pub kind: String,
    pub json: String,
}

/// What one connection was given, in order.
#[derive(Debug, Clone)]
pub struct Sitting {
    pub who: &'static str,
    /// The cursor it began at; `None`: from the beginning.
    pub after: Option<Place>,
    pub places: Vec<Place>,
}

#[derive(Debug)]
pub struct Book {
    pub session: String,
    pub workspace: PathBuf,
    /// After this many turns the session is ended.
    pub turns_max: usize,
    /// Whether a driver works on it just now.
    pub busy: AtomicBool,
    pub ended: AtomicBool,
    /// Ended, and seen to have nothing left to do.
    pub quiet: AtomicBool,
    pub turns: AtomicUsize,
    pub sent: Mutex<Vec<Sent>>,
    pub seen: Mutex<BTreeMap<Place, Shown>>,
    pub sittings: Mutex<Vec<Sitting>>,
    /// Calls by the turn that started them.
    pub calls: Mutex<HashMap<String, Vec<String>>>,
    pub settled: Mutex<HashSet<String>>,
    /// Up to where drivers have followed it.
    pub followed: Mutex<Option<Place>>,
}

/// A poisoned lock only tells that another thread has panicked; the record is still what was seen.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    pub fn new(session: String, workspace: PathBuf, turns_max: usize, created: Sent) -> Book {
        Book {
            session,
            workspace,
            turns_max,
            busy: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            turns: AtomicUsize::new(0),
            sent: Mutex::new(vec![created]),
            seen: Mutex::default(),
            sittings: Mutex::default(),
            calls: Mutex::default(),
            settled: Mutex::default(),
            followed: Mutex::default(),
        }
    }

    pub fn path(&self, below: &str) -> String {
        format!("/v1/sessions/{}{below}", self.session)
    }

    /// Keeps an item. The error tells how it differs from what another client was shown at the same place.
    pub fn keep(&self, item: &Item) -> Result<Place, String> {
        let here = place(&item.id).map_err(|error| format!("{error:#}"))?;
        if item.kind == "stream_reset" {
            return Err(format!("a stream_reset at {}: {}", item.id, item.json));
        }
        let mut seen = lock(&self.seen);
        match seen.get(&here) {
            Some(first) if first.kind != item.kind || first.json != item.json => {
                let (now, first) = (&item.json, &first.json);
                return Err(format!("at {} one client was shown {first}, another {now}", item.id));
            }
            Some(_) => {}
            None => {
                seen.insert(here, Shown { kind: item.kind.clone(), json: item.json.clone() });
                drop(seen);
                self.note(item);
            }
        }
        Ok(here)
    }

    fn note(&self, item: &Item) {
        if !matches!(
            &*item.kind,
            "tool_call_started" | "turn_completed" | "turn_failed" | "turn_canceled" | "turn_expired"
        ) {
            return;
        }
        let Ok(event) = item.event() else { return };
        let turn = event["turn_id"].as_str().unwrap_or_default().to_owned();
        match event["data"]["tool_call_id"].as_str() {
            Some(call) if item.kind == "tool_call_started" => {
                lock(&self.calls).entry(turn).or_default().push(call.to_owned());
            }
            _ => drop(lock(&self.settled).insert(turn)),
        }
    }
}
