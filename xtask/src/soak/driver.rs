//! A client that works with sessions: it sends messages, answers approvals, cancels, resumes, retries and ends, and follows each stream as it does.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    book::{Book, lock},
    chance::Chance,
    command::{self, Told, approve, send, send_twice, view},
    process,
    script::{self, LONG_SLEEP},
    seat::Seat,
    world::{World, add},
};
use crate::http::Item;

/// A turn that takes longer is left to the next visit.
const VISIT_MAX: Duration = Duration::from_secs(10);
/// How long a silent stream is listened to before the session is looked at anew.
const SILENCE_MAX: Duration = Duration::from_secs(1);
const RECONNECT: Duration = Duration::from_millis(10);

pub struct Driver<'w> {
    world: &'w World,
    chance: Chance,
}

/// Whether a visit goes on after an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    /// The connection is cut, and another one made at the last cursor.
    Cut,
    Leave,
}

impl<'w> Driver<'w> {
    pub fn new(world: &'w World, chance: Chance) -> Self {
        Self { world, chance }
    }

    pub fn run(&mut self) {
        while !self.world.is_over() {
            if self.world.is_resting() {
                thread::sleep(RECONNECT);
                continue;
            }
            let book = match self.world.wants_session() {
                true => self.make(),
                false => self.world.take_free(&mut self.chance),
            };
            match book {
                Some(book) => {
                    self.visit(&book);
                    book.busy.store(false, Ordering::Release);
                }
                None => thread::sleep(RECONNECT),
            }
        }
    }

    fn make(&mut self) -> Option<Arc<Book>> {
        let book = command::create(self.world, &mut self.chance).map(Arc::new);
        self.world.made(book.clone());
        book
    }

    fn visit(&mut self, book: &Arc<Book>) {
        let Some(view) = view(self.world, book) else { return };
        self.tend(book, &view);
        if book.turns.load(Ordering::Relaxed) >= book.turns_max {
            command::end(self.world, book);
            return;
        }
        if let Some(turn) = self.say(book) {
            self.follow(book, &turn);
        }
    }

    /// Looks after what an earlier visit, or a crash, left behind.
    fn tend(&mut self, book: &Book, view: &Value) {
        for approval in view["approvals"].as_array().into_iter().flatten() {
            if let Some(call) = approval["tool_call_id"].as_str() {
                self.answer(book, call);
            }
        }
        if view["turn"]["status"] == "interrupted"
            && let Some(turn) = view["turn"]["id"].as_str()
        {
            self.decide_interrupted(book, turn);
        }
    }

    /// Resumed, retried, or left alone: then the next message takes its place.
    fn decide_interrupted(&mut self, book: &Book, turn: &str) {
        match self.chance.below(10) {
            0..6 => drop(send(self.world, book, &format!("/turns/{turn}/resume"), json!({}))),
            6..8 => drop(send(self.world, book, &format!("/turns/{turn}/retry"), json!({}))),
            _ => {}
        }
    }

    /// Sends one message or a few; the turn to wait for.
    fn say(&mut self, book: &Book) -> Option<String> {
        let count = if self.chance.percent(15) { 2 + self.chance.below(2) } else { 1 };
        let mut last = None;
        for _ in 0..count {
            last = self.message(book, "queue").or(last);
        }
        last
    }

    fn message(&mut self, book: &Book, delivery: &str) -> Option<String> {
        let text = script::wish(&mut self.chance, self.world.number());
        let mut body = json!({"parts": [{"type": "text", "text": text}], "delivery": delivery});
        if self.chance.percent(3) {
            // Only appended; then a turn is started over it.
            body["auto_run"] = json!(false);
            send(self.world, book, "/messages", body);
            return turn_of(send(self.world, book, "/turns", json!({})));
        }
        turn_of(match self.chance.percent(5) {
            true => send_twice(self.world, book, "/messages", &body),
            false => send(self.world, book, "/messages", body),
        })
    }

    /// Reads on until this turn is settled or the visit has lasted long enough.
    fn follow(&mut self, book: &Arc<Book>, turn: &str) {
        let deadline = Instant::now() + VISIT_MAX;
        while self.world.is_open() && Instant::now() < deadline {
            let after = *lock(&book.followed);
            let Some(mut seat) = Seat::take(self.world, book, "a driver", after, SILENCE_MAX) else {
                thread::sleep(RECONNECT);
                continue;
            };
            let mut next = Next::Read;
            while next == Next::Read && Instant::now() < deadline {
                let Some(item) = seat.next() else { break };
                *lock(&book.followed) = seat.place();
                next = self.react(book, turn, &item);
            }
            if next == Next::Leave {
                return;
            }
        }
    }

    fn react(&mut self, book: &Book, turn: &str, item: &Item) -> Next {
        match &*item.kind {
            "model_output_delta" | "tool_output_delta" => return self.during_stream(book),
            "approval_requested" | "tool_call_started" | "turn_interrupted" | "turn_canceled" | "turn_completed"
            | "turn_failed" | "turn_expired" => {}
            _ => return Next::Read,
        }
        let Ok(event) = item.event() else { return Next::Read };
        let (its_turn, data) = (event["turn_id"].as_str().unwrap_or_default(), &event["data"]);
        match &*item.kind {
            "approval_requested" => {
                // Some questions wait for the next visit.
                if self.chance.percent(6) {
                    return Next::Leave;
                }
                self.answer(book, data["tool_call_id"].as_str().unwrap_or_default());
            }
            "tool_call_started" => self.perhaps_cancel(book, its_turn, data),
            "turn_interrupted" => self.look_after_interrupt(book, its_turn),
            _ => {
                self.settled(book, its_turn, item, data);
                if its_turn == turn {
                    return Next::Leave;
                }
            }
        }
        Next::Read
    }

    /// Small mischief while something streams.
    fn during_stream(&mut self, book: &Book) -> Next {
        match self.chance.below(1000) {
            0..4 => Next::Cut,
            4..7 => {
                self.message(book, "steer");
                Next::Read
            }
            7..10 => {
                send(self.world, book, "/cancel", json!({"reason": "the soak cancels in mid-stream"}));
                Next::Read
            }
            10 => Next::Leave,
            _ => Next::Read,
        }
    }

    fn perhaps_cancel(&mut self, book: &Book, turn: &str, data: &Value) {
        let long = data["input"]["command"].as_str().is_some_and(|command| command.contains(LONG_SLEEP));
        if long && self.chance.percent(70) {
            thread::sleep(self.chance.between(5, 300));
            send(self.world, book, "/cancel", json!({"turn_id": turn, "reason": "the soak cancels a command"}));
        }
    }

    /// Recovery goes on by itself in the same write; what is still interrupted now waits for somebody.
    fn look_after_interrupt(&mut self, book: &Book, turn: &str) {
        let Some(view) = view(self.world, book) else { return };
        if view["turn"]["status"] == "interrupted" && view["turn"]["id"] == turn {
            self.decide_interrupted(book, turn);
        }
    }

    fn settled(&mut self, book: &Book, turn: &str, item: &Item, data: &Value) {
        book.turns.fetch_add(1, Ordering::Relaxed);
        add(&self.world.counts.turns, 1);
        if item.kind != "turn_canceled" {
            return;
        }
        let session = &book.session;
        self.world.check(data["left"].as_array().is_some_and(Vec::is_empty), || {
            format!("{session}: a cancelled turn left something behind: {}", item.json)
        });
        let calls = lock(&book.calls).get(turn).cloned().unwrap_or_default();
        let alive = if calls.is_empty() { Vec::new() } else { process::of_calls(&calls) };
        self.world.check(alive.is_empty(), || {
            let alive: Vec<String> = alive.iter().map(ToString::to_string).collect();
            format!("{session}: alive after turn_canceled of {turn}: {alive:?}")
        });
    }

    fn answer(&mut self, book: &Book, call: &str) {
        let action = if self.chance.percent(82) { "approve" } else { "deny" };
        let scope = if self.chance.percent(20) { "session" } else { "once" };
        if self.chance.percent(8) {
            self.race(book, call);
        } else {
            approve(self.world, book, call, action, scope);
        }
    }

    /// Two clients say the opposite at the same time: one of them is heard.
    fn race(&self, book: &Book, call: &str) {
        let (yes, no) = thread::scope(|scope| {
            let other = scope.spawn(|| approve(self.world, book, call, "deny", "once"));
            let yes = approve(self.world, book, call, "approve", "once");
            (yes, other.join().unwrap_or(Told::Nothing))
        });
        let both = matches!((&yes, &no), (Told::Taken(_), Told::Taken(_)));
        self.world.check(!both, || format!("{}: a yes and a no to {call} were both taken", book.session));
    }
}

fn turn_of(told: Told) -> Option<String> {
    match told {
        Told::Taken(answer) => answer["turn_id"].as_str().map(str::to_owned),
        Told::Refused | Told::Nothing => None,
    }
}
