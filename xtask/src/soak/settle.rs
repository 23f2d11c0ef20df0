//! Brings every session to rest, as people would: answers what is asked, resumes what was interrupted, waits for the rest.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    book::Book,
    command::{approve, send, view},
    world::World,
};

/// No turn of the scripts takes anywhere near this long once nobody disturbs it.
const SETTLE_MAX: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Returns when no session has anything pending; those that do not get there are findings.
pub fn settle(world: &World) {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut pending = world.all_books();
    pending.retain(|book| !book.quiet.load(Ordering::Relaxed));
    while !pending.is_empty() && !world.is_interrupted() {
        let late = Instant::now() > deadline;
        pending.retain(|book| view(world, book).is_some_and(|view| !is_at_rest(world, book, &view, late)));
        if late {
            return;
        }
        if !pending.is_empty() {
            thread::sleep(LOOK_AGAIN);
        }
    }
}

fn is_at_rest(world: &World, book: &Arc<Book>, view: &Value, late: bool) -> bool {
    let idle = view["turn"].is_null() && view["queue"].as_array().is_none_or(Vec::is_empty);
    let ended = book.ended.load(Ordering::Relaxed);
    if idle && (!ended || view["status"] != "active") {
        book.quiet.store(ended, Ordering::Relaxed);
        return true;
    }
    if late {
        world.find(format!("{}: not at rest after {SETTLE_MAX:?}: {view}", book.session));
        return false;
    }
    for approval in view["approvals"].as_array().into_iter().flatten() {
        approve(world, book, approval["tool_call_id"].as_str().unwrap_or_default(), "approve", "once");
    }
    if view["turn"]["status"] == "interrupted" {
        send(world, book, &format!("/turns/{}/resume", view["turn"]["id"].as_str().unwrap_or_default()), json!({}));
    }
    false
}
