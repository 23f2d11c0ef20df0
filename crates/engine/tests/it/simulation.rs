//! Chance picks commands, crashes, waits and a failing disk; whatever it picks, the promises hold. A failure prints its seed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure_core::{
    command::{Answer, Command, Verdict},
    cursor::Cursor,
    event::Body,
    ids::{MessageId, SessionId},
    message::Delivery,
    policy::{Resume, Scope},
    session::{CallState, Phase},
    tool::ToolKind,
};
use tenure_engine::{StreamItem, Subscription};
use tenure_store::{FaultyStore, MemoryStore, Store};
use tenure_testkit::{Rig, TestTool, UnwillingStore, assert_sound, message, within};

/// How many different lives are lived through; `SEED` in the environment picks one, `SEEDS` how many.
const SEEDS: u64 = 100;
const ACTS: usize = 40;

/// A small generator: the same seed gives the same life.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize]
    }
}

fn actions(dice: &mut Dice) -> Vec<Value> {
    let mut actions = vec![];
    for _ in 0..dice.roll(4) {
        actions.push(match dice.roll(5) {
            0 => json!({"thinking": "hm hm", "chunk": 2, "pause_ms": dice.roll(30)}),
            1 => json!({"pause_ms": dice.roll(200)}),
            2 => json!({"usage": {"input_tokens": 3, "output_tokens": 2}}),
            _ => json!({"text": "some words here ", "chunk": 1 + dice.roll(9), "pause_ms": dice.roll(30)}),
        });
    }
    actions
}

fn step(dice: &mut Dice, calls_max: u64) -> Value {
    let mut entries = vec![];
    for _ in 0..dice.roll(3) {
        let mut failing = actions(dice);
        failing.push(match dice.roll(4) {
            0 => json!({"drop": true}),
            1 => json!({"stall": true}),
            2 => json!({"error": {"kind": "rate_limited", "message": "slow", "retry_after_ms": dice.roll(3000)}}),
            _ => json!({"error": {"kind": dice.pick(&["server", "server", "overloaded", "auth"]), "message": "no"}}),
        });
        entries.push(json!({ "do": failing }));
    }
    let mut whole = actions(dice);
    for _ in 0..dice.roll(calls_max + 1) {
        let tool = dice.pick(&["look", "look", "act", "write", "slow"]);
        whole.push(json!({"call": {"name": tool, "input": {"subject": dice.pick(&["a", "b"])}}}));
    }
    entries.push(json!({ "do": whole }));
    json!({ "attempts": entries })
}

fn tools() -> [Arc<TestTool>; 4] {
    let waits = |ms: u64| {
        move |context: tenure_tools::CallContext, _| async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(ms)) => tenure_core::tool::ToolResult::ok("done"),
                () = context.cancel.cancelled() => tenure_core::tool::ToolResult::failed("stopped"),
            }
        }
    };
    [
        TestTool::new("look", ToolKind::Read).showing(&["seen\n"]).doing(waits(20)).shared(),
        TestTool::new("act", ToolKind::Exec).showing(&["one\n", "two\n"]).doing(waits(50)).shared(),
        TestTool::new("write", ToolKind::Write).doing(waits(10)).shared(),
        TestTool::new("slow", ToolKind::Read).doing(waits(400)).shared(),
    ]
}

/// A client that reads on and on, with its own reconnect at its cursor.
struct Reader {
    seen: Vec<StreamItem>,
    stream: Option<Subscription>,
}

impl Reader {
    async fn read(&mut self, rig: &Rig, session: SessionId, how_many: usize) {
        let cursor = self.seen.last().map_or(Cursor::START, |item| item.cursor);
        for _ in 0..how_many {
            if self.stream.is_none() {
                self.stream = Some(rig.engine.events(session, cursor, true).await.unwrap());
            }
            let stream = self.stream.as_mut().unwrap();
            match tokio::time::timeout(Duration::from_millis(5), stream.next()).await {
                Ok(Some(item)) => self.seen.push(item.unwrap()),
                Ok(None) => {
                    self.stream = None;
                    return;
                }
                Err(_) => return,
            }
        }
    }
}

struct Life {
    rig: Rig,
    store: Arc<UnwillingStore>,
    tools: [Arc<TestTool>; 4],
    session: SessionId,
    dice: Dice,
    reader: Reader,
    taken: Vec<MessageId>,
    keys: HashMap<String, Answer>,
}

impl Life {
    async fn begin(seed: u64) -> Life {
        let mut dice = Dice(seed);
        // The last step asks for nothing, so that every turn has an end.
        let steps: Vec<Value> = [3, 2, 0, 3, 3, 0].map(|calls_max| step(&mut dice, calls_max)).to_vec();
        let script =
            json!({"steps": steps, "after": "repeat", "patience": {"first_byte_ms": 500, "between_bytes_ms": 300}});
        let inner: Arc<dyn Store> = if dice.roll(4) == 0 { FaultyStore::new() } else { MemoryStore::new() };
        let store = UnwillingStore::over(inner);
        let idle = Duration::from_millis(dice.pick(&[1, 100, 30_000]));
        let tools = tools();
        let setup = Rig::script(script).store(store.clone()).config(|config| config.idle_evict = idle);
        let rig = tools.iter().fold(setup, |setup, tool| setup.tool(tool)).start().await;
        let resume = dice.pick(&[Resume::Ask, Resume::Safe, Resume::Always]);
        let steps = 5 + dice.roll(20);
        let attended = dice.roll(4) > 0;
        let session = rig
            .create_with(|new| {
                new.policy.recovery.resume = resume;
                new.policy.approval.attended = attended;
                new.policy.approval.expires_after_ms = Some(5000);
                new.budgets.max_steps = Some(steps);
            })
            .await;
        let reader = Reader { seen: vec![], stream: None };
        Life { rig, store, tools, session, dice, reader, taken: vec![], keys: HashMap::new() }
    }

    async fn act(&mut self) {
        match self.dice.roll(16) {
            0..=2 => self.say(Delivery::Queue).await,
            3 => self.say(Delivery::Steer).await,
            4 => drop(self.rig.cancel(self.session).await),
            5..=7 => self.answer().await,
            8 => self.rig.crash_and_restart().await,
            9 => self.resume().await,
            10 => {
                let times = 1 + self.dice.roll(3) as usize;
                match self.dice.roll(2) {
                    0 => self.store.refuse_appends(self.session, times),
                    _ => self.store.refuse_deltas(self.session, times),
                }
            }
            11 => self.raise().await,
            12..=13 => {
                let items = 1 + self.dice.roll(30) as usize;
                self.reader.read(&self.rig, self.session, items).await;
            }
            _ => tokio::time::sleep(Duration::from_millis(self.dice.roll(700))).await,
        }
    }

    async fn say(&mut self, delivery: Delivery) {
        let key = format!("k{}", self.dice.roll(12));
        // The same key always comes with the same words.
        let command = message(&key, delivery);
        let key = format!("{key} {delivery:?}");
        match self.rig.engine.command(self.session, command, Some(key.clone()), tenure_testkit::user()).await {
            Ok(answer) => {
                if let (Answer::Message { message_id, .. }, false) = (
                    &answer,
                    self.taken
                        .iter()
                        .any(|taken| matches!(&answer, Answer::Message { message_id, .. } if message_id == taken)),
                ) {
                    self.taken.push(*message_id);
                }
                let first = self.keys.entry(key).or_insert_with(|| answer.clone());
                assert_eq!(*first, answer, "the same key gets the same answer");
            }
            Err(error) => drop(error),
        }
    }

    async fn answer(&mut self) {
        let state = self.rig.state(self.session).await;
        let waiting =
            state.turn.iter().flat_map(|turn| &turn.calls).find(|call| matches!(call.state, CallState::Waiting { .. }));
        if let Some(call) = waiting {
            let verdict = self.dice.pick(&[Verdict::Approve, Verdict::Approve, Verdict::Deny]);
            let scope = self.dice.pick(&[Scope::Once, Scope::Session]);
            let _ = self.rig.answer_for(self.session, call.call.id, verdict, scope).await;
        }
    }

    async fn resume(&mut self) {
        let state = self.rig.state(self.session).await;
        if let Some(turn) = state.turn.as_ref().filter(|turn| turn.phase == Phase::Interrupted) {
            let command = if self.dice.roll(4) == 0 {
                Command::Retry { turn_id: turn.id }
            } else {
                Command::Resume { turn_id: turn.id }
            };
            let _ = self.rig.command(self.session, command).await;
        }
    }

    async fn raise(&mut self) {
        let mut budgets = self.rig.state(self.session).await.budgets.clone();
        budgets.max_steps = budgets.max_steps.map(|steps| steps + 5);
        let _ = self.rig.update(self.session, budgets).await;
    }

    /// Everybody helps until nothing is left to do.
    async fn finish(&mut self) {
        self.store.refuse_appends(self.session, 0);
        self.store.refuse_deltas(self.session, 0);
        within("the session comes to rest", async {
            loop {
                self.answer().await;
                self.resume().await;
                if self
                    .rig
                    .state(self.session)
                    .await
                    .turn
                    .as_ref()
                    .is_some_and(|turn| matches!(turn.phase, Phase::Budget(_)))
                {
                    self.raise().await;
                }
                let state = self.rig.state(self.session).await;
                if state.turn.is_none() && state.queue.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        })
        .await;
    }

    async fn check(&mut self) {
        let all = self.rig.sound(self.session).await;
        loop {
            let before = self.reader.seen.len();
            self.reader.read(&self.rig, self.session, usize::MAX).await;
            if self.reader.seen.len() == before && self.reader.stream.is_some() {
                break;
            }
        }
        let plain =
            |items: &[StreamItem]| items.iter().map(|item| (item.cursor, item.json.clone())).collect::<Vec<_>>();
        assert_eq!(plain(&self.reader.seen), plain(&all), "a client with its own reconnect sees everything once");
        assert_sound(&self.reader.seen);
        let events = self.rig.events(self.session).await;
        for tool in &self.tools {
            let name = tenure_tools::Tool::spec(&**tool).name;
            let intents = events
                .iter()
                .filter(|event| matches!(&event.body, Body::ToolCallStarted(started) if started.name == name))
                .count();
            assert!(tool.runs() <= intents, "{name} ran {} times with {intents} intents", tool.runs());
        }
        let added = |event: &tenure_core::event::Event| match &event.body {
            Body::MessageAdded(added) => Some(added.message_id),
            _ => None,
        };
        let added: Vec<MessageId> = events.iter().filter_map(added).collect();
        for taken in &self.taken {
            assert_eq!(
                added.iter().filter(|id| *id == taken).count(),
                1,
                "a message that was taken is in the log once"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_the_promises_hold() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    for seed in seeds {
        let _on_failure = Named(seed);
        let mut life = Life::begin(seed).await;
        for _ in 0..ACTS {
            life.act().await;
        }
        life.finish().await;
        life.check().await;
        life.rig.crash().await;
    }
}

/// Tells the seed of a life that went wrong.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with SEED={}", self.0);
        }
    }
}
