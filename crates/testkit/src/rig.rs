//! An engine put together for a test, which can be stopped and started again over the same store.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_core::{
    budget::Budgets,
    command::{Answer, Command, Update, Verdict},
    cursor::Cursor,
    event::{Actor, Event},
    ids::{CallId, SessionId, TurnId},
    message::{Delivery, Part, Role},
    policy::{Policy, Scope},
    redact::Secrets,
    session::{CallState, Session, Settings, TurnStatus},
};
use tenure_engine::{Engine, EngineConfig, Error, MemoryStanding, NewSession, Parts, StreamItem, TurnRecord};
use tenure_models::Registry as Models;
use tenure_store::{MemoryStore, Store};
use tenure_tools::{Registry, Tool, ToolsConfig};

use crate::{Gate, Recorder, TestClock, TestModels, TestTool, Watcher, assert_sound};

/// Longer than anything a test waits for. With a paused clock it costs nothing.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// Fails with a clear word where a test would hang.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("waited in vain: {what}"),
    }
}

/// What a rig is made of.
pub struct RigSetup {
    script: Value,
    vendor: Option<(Arc<dyn Models>, String)>,
    tools: Vec<Arc<dyn Tool>>,
    secrets: Secrets,
    store: Arc<dyn Store>,
    config: EngineConfig,
}

impl RigSetup {
    pub fn tool(mut self, tool: &Arc<TestTool>) -> Self {
        self.tools.push(tool.clone());
        self
    }

    /// One of the tools of the product. Those that start processes cannot do so here.
    pub fn real_tool(mut self, name: &str) -> Self {
        let registry = Registry::new(ToolsConfig::new("/bin/false", "/nonexistent", "test"));
        self.tools.push(registry.get(name).expect("the product has this tool"));
        self
    }

    pub fn secret(self, name: &str, value: &str) -> Self {
        self.secrets([(name.to_owned(), value.to_owned())])
    }

    pub fn secrets(mut self, named: impl IntoIterator<Item = (String, String)>) -> Self {
        self.secrets = Secrets::new(named);
        self
    }

    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    pub fn config(mut self, change: impl FnOnce(&mut EngineConfig)) -> Self {
        change(&mut self.config);
        self
    }

    pub async fn start(self) -> Rig {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("workspace")).expect("a folder in it");
        let script = folder.path().join("script.json");
        std::fs::write(&script, self.script.to_string()).expect("the script is written");
        let scripted = Arc::new(TestModels::default());
        let gate = scripted.gate.clone();
        let name = format!("scripted:{}", script.display());
        let (models, model) = self.vendor.unwrap_or((scripted, name));
        let parts = RigParts {
            model,
            models,
            gate,
            tools: Arc::new(Registry::with_tools(self.tools).expect("tools of a test fit together")),
            secrets: self.secrets,
            store: self.store,
            config: self.config,
            clock: Arc::default(),
            standing: Arc::default(),
        };
        Rig { engine: parts.start().await, parts, folder }
    }
}

struct RigParts {
    model: String,
    models: Arc<dyn Models>,
    gate: Arc<Gate>,
    tools: Arc<Registry>,
    secrets: Secrets,
    store: Arc<dyn Store>,
    config: EngineConfig,
    clock: Arc<TestClock>,
    standing: Arc<MemoryStanding>,
}

impl RigParts {
    async fn start(&self) -> Engine {
        Engine::start(Parts {
            store: self.store.clone(),
            models: self.models.clone(),
            tools: self.tools.clone(),
            foreign: None,
            clock: self.clock.clone(),
            secrets: self.secrets.clone(),
            standing: self.standing.clone(),
            config: self.config.clone(),
        })
        .await
    }
}

pub struct Rig {
    pub engine: Engine,
    parts: RigParts,
    folder: TempDir,
}

impl Rig {
    /// A rig whose model says these steps; see the script format. A `keep_alive` waits at [`Rig::model_gate`].
    pub fn steps(steps: Value) -> RigSetup {
        Self::script(json!({ "steps": steps }))
    }

    pub fn script(script: Value) -> RigSetup {
        RigSetup {
            script,
            vendor: None,
            tools: Vec::new(),
            secrets: Secrets::default(),
            store: MemoryStore::new(),
            config: EngineConfig::default(),
        }
    }

    /// A rig whose sessions speak to this model of a registry.
    pub fn models(registry: Arc<dyn Models>, model: &str) -> RigSetup {
        RigSetup { vendor: Some((registry, model.to_owned())), ..Self::steps(json!([])) }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    pub fn model_gate(&self) -> &Gate {
        &self.parts.gate
    }

    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// The same as a kill for the work: nothing is written about it. Then a new daemon over the same store.
    pub async fn crash_and_restart(&mut self) {
        self.crash().await;
        self.restart().await;
    }

    pub async fn crash(&self) {
        within("the engine stops", self.engine.shutdown()).await;
    }

    /// A start of which nothing is waited for.
    pub async fn start_again(&mut self) {
        self.engine = self.parts.start().await;
    }

    pub async fn restart(&mut self) {
        self.start_again().await;
        let engine = self.engine.clone();
        within("the engine is ready", async {
            while !engine.is_ready() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub fn new_session(&self) -> NewSession {
        let settings = Settings {
            workspace_path: self.workspace().display().to_string(),
            auto_run: true,
            model: self.parts.model.clone(),
            ..Settings::default()
        };
        NewSession { settings, policy: Policy::default(), budgets: Budgets::default() }
    }

    pub async fn create(&self) -> SessionId {
        self.create_with(|_| {}).await
    }

    pub async fn create_with(&self, change: impl FnOnce(&mut NewSession)) -> SessionId {
        let mut new = self.new_session();
        change(&mut new);
        self.engine.create(new, None, user()).await.expect("a session is made")
    }

    pub async fn command(&self, session: SessionId, command: Command) -> Result<Answer, Error> {
        within("a command is answered", self.engine.command(session, command, None, user())).await
    }

    pub async fn keyed(&self, session: SessionId, key: &str, command: Command) -> Result<Answer, Error> {
        within("a command is answered", self.engine.command(session, command, Some(key.into()), user())).await
    }

    /// Sends a message that starts a turn, or waits behind the open one.
    pub async fn say(&self, session: SessionId, text: &str) -> TurnId {
        match self.command(session, message(text, Delivery::Queue)).await {
            Ok(Answer::Message { turn_id: Some(turn), .. }) => turn,
            other => panic!("the message was not taken: {other:?}"),
        }
    }

    pub async fn answer(&self, session: SessionId, call: CallId, verdict: Verdict) -> Result<Answer, Error> {
        self.answer_for(session, call, verdict, Scope::Once).await
    }

    pub async fn answer_for(
        &self,
        session: SessionId,
        call: CallId,
        verdict: Verdict,
        scope: Scope,
    ) -> Result<Answer, Error> {
        let command = Command::Answer { turn_id: None, call, verdict, scope, reason: None };
        self.command(session, command).await
    }

    pub async fn cancel(&self, session: SessionId) -> Result<Answer, Error> {
        self.command(session, Command::Cancel { turn_id: None, reason: None }).await
    }

    pub async fn update(&self, session: SessionId, budgets: Budgets) -> Result<Answer, Error> {
        let budgets = Some(budgets);
        self.command(session, Command::Update(Box::new(Update { budgets, ..Update::default() }))).await
    }

    /// The turn's record once nothing happens to it without somebody's help.
    pub async fn settled(&self, session: SessionId, turn: TurnId) -> TurnRecord {
        let what = format!("{turn} rests");
        within(&what, self.engine.turn(session, turn, Some(PATIENCE))).await.expect("a record of the turn")
    }

    /// Says something and waits for the end.
    pub async fn ask(&self, session: SessionId, text: &str) -> TurnRecord {
        let turn = self.say(session, text).await;
        self.settled(session, turn).await
    }

    pub async fn state(&self, session: SessionId) -> Arc<Session> {
        self.engine.session(session).await.expect("the state of the session")
    }

    /// Waits until the state is as wanted.
    pub async fn until(&self, session: SessionId, what: &str, fits: impl Fn(&Session) -> bool) -> Arc<Session> {
        let mut watcher = self.watch(session, Cursor::START).await;
        within(what, async {
            let mut seen = 0;
            loop {
                let state = self.state(session).await;
                if fits(&state) {
                    return state;
                }
                // An event can be read from the log an instant before the state holds it.
                match state.seq < seen {
                    true => tokio::task::yield_now().await,
                    false => seen = watcher.next().await.cursor.seq,
                }
            }
        })
        .await
    }

    /// Waits until calls wait for a yes, and names them.
    pub async fn pending(&self, session: SessionId) -> Vec<CallId> {
        let waits =
            |state: &Session| state.turn.as_ref().is_some_and(|turn| turn.status() == TurnStatus::WaitingApproval);
        let state = self.until(session, "a call waits for an approval", waits).await;
        let calls = state.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter(|call| matches!(call.state, CallState::Waiting { .. })).map(|call| call.call.id).collect()
    }

    /// Everything that was ever shown of a session, in order.
    pub async fn items(&self, session: SessionId) -> Vec<StreamItem> {
        self.items_after(session, Cursor::START).await
    }

    pub async fn items_after(&self, session: SessionId, after: Cursor) -> Vec<StreamItem> {
        let mut past = self.engine.events(session, after, false).await.expect("the session's past");
        let mut items = Vec::new();
        while let Some(item) = within("the past is read", past.next()).await {
            items.push(item.expect("the past can be read"));
        }
        items
    }

    pub async fn events(&self, session: SessionId) -> Vec<Event> {
        let items = self.items(session).await;
        let numbered = items.iter().filter(|item| item.cursor.pos == 0);
        numbered.map(|item| Event::from_json(as_text(item)).expect("an event")).collect()
    }

    /// All promises that hold of every stream, and that the state is the fold of it. Gives back what was shown.
    pub async fn sound(&self, session: SessionId) -> Vec<StreamItem> {
        let items = self.items(session).await;
        let folded = assert_sound(&items);
        assert_eq!(*self.state(session).await, folded, "the state is the fold of the log");
        items
    }

    /// The wire types of all numbered events.
    pub async fn types(&self, session: SessionId) -> Vec<&'static str> {
        self.events(session).await.iter().map(|event| event.body.wire_type()).collect()
    }

    /// Watches from the beginning, in a task of its own.
    pub async fn record(&self, session: SessionId) -> Recorder {
        self.watch(session, Cursor::START).await.into_recorder()
    }

    pub async fn watch(&self, session: SessionId, after: Cursor) -> Watcher {
        Watcher::new(self.engine.events(session, after, true).await.expect("a subscription"))
    }
}

/// A policy change for [`Rig::create_with`]: nothing needs a yes.
pub fn trusting(new: &mut NewSession) {
    new.policy.approval.require_for_kinds.clear();
}

pub fn user() -> Actor {
    Actor::user("test")
}

pub fn message(text: &str, delivery: Delivery) -> Command {
    Command::SendMessage { role: Role::User, parts: vec![Part::text(text)], delivery, auto_run: None }
}

pub fn as_text(item: &StreamItem) -> &str {
    std::str::from_utf8(&item.json).expect("JSON is text")
}

pub fn as_json(item: &StreamItem) -> Value {
    serde_json::from_slice(&item.json).expect("an item is JSON")
}
