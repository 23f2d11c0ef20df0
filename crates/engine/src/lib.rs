//! The loop: one task per warm session; effects, timers, fan-out, recovery, warm and cold. It judges nothing: that is the core's.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure_core::{
    budget::Budgets,
    bundle::BundlePlan,
    command::{Answer, Command, Refusal, digest_of},
    event::{Actor, Event, SessionCreated},
    ids::SessionId,
    policy::Policy,
    redact::Secrets,
    session::{Session, Settings, create},
};
use tenure_store::{CreateKey, Store};
use tokio::sync::{OnceCell, mpsc::error::TrySendError, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

mod archive;
mod attach;
mod clock;
mod compact;
mod copy;
mod damage;
mod export;
mod feed;
mod files;
mod fork;
mod history;
mod hub;
mod import;
mod left_open;
mod load;
mod model_call;
mod named;
mod purge;
mod reading;
mod record;
mod redaction;
mod review;
mod search;
mod standing;
mod subscription;
mod sweep;
mod tally;
mod tool_call;
mod undo;
mod unseen;
mod warm;

pub use archive::Manifest;
pub use attach::NewFile;
pub use clock::{Clock, SystemClock};
pub use damage::Damage;
pub use export::Export;
pub use feed::{FeedCursor, FeedItem, FeedSubscription, is_of_status};
pub use files::Sound;
pub use fork::{Forked, NewFork};
pub use history::Messages;
pub use hub::StreamItem;
pub use import::{Imported, NewImport};
pub use reading::{ForeignTools, ToolSource};
pub use record::{RecordStatus, Response, TurnError, TurnRecord};
pub use search::{Found, Wanted};
pub use standing::{MemoryStanding, Standing};
pub use subscription::Subscription;
pub use tally::Counts;

use feed::Feed;
use hub::{Hubs, lock};
use left_open::LeftOpen;
use named::Named;
use redaction::redacted;
use tally::Tally;
use warm::{Ended, Handle, Mail, Warm};

/// What the engine is put together from.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub models: Arc<dyn tenure_models::Registry>,
    pub tools: Arc<tenure_tools::Registry>,
    /// Tools that are not built in, where there are any.
    pub foreign: Option<Arc<tenure_tools::foreign::Foreign>>,
    pub clock: Arc<dyn Clock>,
    pub secrets: Secrets,
    /// Answers that hold in every session.
    pub standing: Arc<dyn Standing>,
    pub config: EngineConfig,
}

#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// For sessions that name no model.
    pub default_model: String,
    /// The user's own verification commands; they run unasked.
    pub verify_commands: Option<Vec<String>>,
    /// What sessions are told of their workspace in brief, unless they prefer otherwise.
    pub bundle: BundlePlan,
    /// An idle session is put out of memory after this long.
    pub idle_evict: Duration,
    /// Commands that may wait for one session.
    pub mailbox_max: usize,
    /// A settled turn's spool is deleted after this long.
    pub spool_kept: Duration,
    /// A session without any event for this long expires.
    pub session_idle_max: Duration,
    /// How often the sweeper looks.
    pub sweep_every: Duration,
    pub reading: Reading,
}

/// Where the files of a workspace are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// On a thread of its own: a slow disk holds up nobody.
    Beside,
    /// On the spot: a simulated life goes the same way twice, since no real time passes in it.
    InPlace,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            default_model: "scripted".into(),
            verify_commands: None,
            bundle: BundlePlan::default(),
            idle_evict: Duration::from_secs(30),
            mailbox_max: 256,
            spool_kept: Duration::from_secs(24 * 60 * 60),
            session_idle_max: Duration::from_secs(7 * 24 * 60 * 60),
            sweep_every: Duration::from_secs(60 * 60),
            reading: Reading::Beside,
        }
    }
}

/// What a new session is made of.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub settings: Settings,
    pub policy: Policy,
    pub budgets: Budgets,
}

/// Why something could not be done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Refused(Refusal),
    #[error("there is no session {0}")]
    NoSession(SessionId),
    #[error("too many commands wait for this session")]
    Overloaded,
    #[error("the daemon is stopping")]
    Closed,
    #[error("{0}")]
    Store(tenure_store::Error),
    #[error("a fault of ours: {0}")]
    Bug(String),
}

impl From<tenure_store::Error> for Error {
    fn from(error: tenure_store::Error) -> Self {
        match error {
            tenure_store::Error::NoSession(id) => Error::NoSession(id),
            other => Error::Store(other),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::Refused(refusal)
    }
}

/// A handle to the running engine; cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) parts: Parts,
    pub(crate) hubs: Hubs,
    slots: Mutex<HashMap<SessionId, Arc<OnceCell<Handle>>>>,
    /// Sessions that are being deleted: nobody warms them up.
    purging: Mutex<HashSet<SessionId>>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) left_open: LeftOpen,
    pub(crate) open_turns: AtomicUsize,
    /// Sessions that were put out of memory since the start.
    retired: AtomicUsize,
    pub(crate) tally: Tally,
    pub(crate) feed: Feed,
    pub(crate) named: Named,
    notices: Mutex<Vec<String>>,
}

/// Notices kept for people; older ones are dropped.
const NOTICES_MAX: usize = 100;

impl Engine {
    /// Starts the engine and begins recovery in the background.
    pub async fn start(parts: Parts) -> Engine {
        let feed = Feed::new(parts.clock.now());
        let engine = Engine(Arc::new(Shared {
            parts,
            hubs: Hubs::default(),
            slots: Mutex::default(),
            purging: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            left_open: LeftOpen::default(),
            open_turns: AtomicUsize::new(0),
            retired: AtomicUsize::new(0),
            tally: Tally::default(),
            feed,
            named: Named::default(),
            notices: Mutex::default(),
        }));
        let recovering = engine.clone();
        engine.0.tasks.spawn(async move { recovering.recover().await });
        engine.0.tasks.spawn(sweep::run(engine.clone()));
        engine
    }

    /// Sessions that were left with something pending are loaded; each goes its own way from there.
    async fn recover(&self) {
        let open = self.0.parts.store.open_sessions().await.unwrap_or_else(|error| {
            self.0.notice(format!("the list of open sessions could not be read: {error}"));
            Vec::new()
        });
        self.0.left_open.found(&open);
        for id in open {
            if self.0.stop.is_cancelled() {
                return;
            }
            // One broken session never stops the others.
            if let Err(error) = self.warm(id).await {
                self.0.notice(format!("session {id} could not be recovered: {error}"));
                self.0.left_open.looked_at(id);
                // A damaged one is told as such from now on.
                let _ = self.session(id).await;
            }
        }
    }

    /// Whether every session with something pending has been looked at since the start.
    pub fn is_ready(&self) -> bool {
        self.0.left_open.is_none_left()
    }

    /// Makes a session. The same key gives the same session, also after a restart.
    pub async fn create(&self, new: NewSession, key: Option<String>, actor: Actor) -> Result<SessionId, Error> {
        let digest = digest_of(&(&new.settings, &new.policy, &new.budgets));
        self.create_as_said(new, key.map(|key| (key, digest)), actor).await
    }

    /// The session that an earlier request with this key made. The digest is of what was asked for, word by word: the same
    /// words are the same request, whatever has become of the folder, the models or the defaults since.
    pub async fn created_before(&self, key: &str, digest: &str) -> Result<Option<SessionId>, Error> {
        let mut moment = self.0.parts.clock.moment();
        let mine = create_key(key.to_owned(), digest.to_owned(), moment.session_id(), moment.at);
        let Some(id) = self.first_of(&mine).await? else { return Ok(None) };
        match self.0.parts.store.head(id).await {
            Ok(_) => Ok(Some(id)),
            Err(tenure_store::Error::NoSession(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a session; the key comes with a digest of what was asked for.
    pub async fn create_as_said(
        &self,
        new: NewSession,
        key: Option<(String, String)>,
        actor: Actor,
    ) -> Result<SessionId, Error> {
        let store = &self.0.parts.store;
        let mut moment = self.0.parts.clock.moment();
        let mut id = moment.session_id();
        if let Some(Err(why)) = new.settings.output_schema.as_ref().map(tenure_tools::check_schema) {
            let message = format!("output_schema is no JSON Schema: {why}");
            return Err(
                Refusal::new("bad_schema", message, "send a schema that names nothing outside of itself").into()
            );
        }
        let created = self.complete(new);
        // A refused request keeps no key: it is judged first.
        let mut decision = create(id, created.clone(), actor.clone(), &mut moment)?;
        if let Some((key, digest)) = key {
            let first = self.keep_key(create_key(key, digest, id, moment.at)).await?;
            if first != id {
                id = first;
                decision = create(id, created, actor, &mut moment)?;
            }
        }
        match store.create(id, &decision.events).await {
            Ok((epoch, head)) => {
                decision.events.iter().for_each(|event| self.0.happened(event));
                let mut warm = Warm::created(self.0.clone(), decision.state, epoch, head);
                warm.announce().await;
                self.insert(id, warm).await;
                Ok(id)
            }
            // The key's first request made it.
            Err(tenure_store::Error::Exists(_)) => Ok(id),
            Err(error) => Err(error.into()),
        }
    }

    fn complete(&self, new: NewSession) -> SessionCreated {
        let NewSession { settings: given, mut policy, budgets } = new;
        policy.approval.rules.extend(self.0.parts.standing.rules());
        let secrets = &self.0.parts.secrets;
        let mut settings = redacted(secrets, &given);
        // Where to act and whom to ask must stay as they were named.
        (settings.workspace_path, settings.model) = (given.workspace_path, given.model);
        if settings.model.is_empty() {
            settings.model = self.0.parts.config.default_model.clone();
        }
        SessionCreated { settings, policy: redacted(secrets, &policy), budgets }
    }

    /// Keeps a new session warm, unless somebody who knows its id was faster.
    async fn insert(&self, id: SessionId, warm: Warm) {
        let cell = lock(&self.0.slots).entry(id).or_default().clone();
        cell.get_or_init(|| async { warm.spawn(cell.clone()) }).await;
    }

    /// The session's task, warmed up if it is cold.
    async fn warm(&self, id: SessionId) -> Result<Handle, Error> {
        if self.0.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        let cell = lock(&self.0.slots).entry(id).or_default().clone();
        let warmed = cell.get_or_try_init(|| async {
            if self.is_purging(id) {
                return Err(Error::NoSession(id));
            }
            let warm = Warm::load(self.0.clone(), id).await?;
            Ok::<_, Error>(warm.spawn(cell.clone()))
        });
        match warmed.await {
            Ok(handle) => Ok(handle.clone()),
            Err(error) => {
                self.0.forget_unused(id, &cell);
                Err(error)
            }
        }
    }

    /// Sends a letter to the session's task, however often that was put out of memory in between.
    pub(crate) async fn post<T>(&self, id: SessionId, letter: impl Fn(oneshot::Sender<T>) -> Mail) -> Result<T, Error> {
        loop {
            let handle = self.warm(id).await?;
            let (reply, mut answer) = oneshot::channel();
            match handle.mailbox.try_send(Box::new(letter(reply))) {
                Ok(()) => {
                    // A letter that arrives in the very instant in which the task ends stays in the mailbox as long as
                    // we hold its other end, and nobody answers: so the end itself is waited for too.
                    let ended = tokio::select! {
                        biased;
                        Ok(answer) = &mut answer => return Ok(answer),
                        ended = handle.ended() => ended,
                    };
                    match (answer.try_recv(), ended) {
                        (Ok(answer), _) => return Ok(answer),
                        // It was put out of memory with the letter unread, or broke over it or beside it.
                        (Err(_), Ended::Retired) => {}
                        (Err(_), Ended::Failed(error)) => return Err(error),
                    }
                }
                Err(TrySendError::Full(_)) => return Err(Error::Overloaded),
                // It is ending for reasons of its own; the next one is asked.
                Err(TrySendError::Closed(_)) => drop(handle.ended().await),
            }
        }
    }

    /// Asks one thing of a session. The same key and command get the first answer, also after a restart.
    pub async fn command(
        &self,
        session: SessionId,
        command: Command,
        key: Option<String>,
        actor: Actor,
    ) -> Result<Answer, Error> {
        let letter = |reply| Mail::Command { command: command.clone(), key: key.clone(), actor: actor.clone(), reply };
        self.post(session, letter).await?
    }

    /// A kill with better manners: work is stopped, nothing is written about it, the next start recovers.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        if let Some(foreign) = &self.0.parts.foreign {
            foreign.shutdown().await;
        }
    }
}

impl Shared {
    /// An event that is durable now.
    pub(crate) fn happened(&self, event: &Event) {
        self.tally.note(event);
        self.feed.note(event);
    }

    pub(crate) fn notice(&self, text: String) {
        tracing::warn!("{text}");
        let mut notices = lock(&self.notices);
        if notices.len() >= NOTICES_MAX {
            notices.remove(0);
        }
        notices.push(text);
    }

    /// For what may be met again and again.
    pub(crate) fn notice_once(&self, text: String) {
        if !lock(&self.notices).contains(&text) {
            self.notice(text);
        }
    }

    /// Whether a session is in memory, and how to reach it if it is warm by now.
    pub(crate) fn slot(&self, id: SessionId) -> Option<Option<Handle>> {
        lock(&self.slots).get(&id).map(|cell| cell.get().cloned())
    }

    fn warm_state(&self, id: SessionId) -> Option<watch::Receiver<Arc<Session>>> {
        let slots = lock(&self.slots);
        let handle = slots.get(&id)?.get()?;
        (!handle.mailbox.is_closed()).then(|| handle.state.clone())
    }

    /// Takes the slot of a session that could not be warmed out of the map, unless somebody else is trying just now.
    fn forget_unused(&self, id: SessionId, cell: &Arc<OnceCell<Handle>>) {
        let mut slots = lock(&self.slots);
        let unused = Arc::strong_count(cell) == 2 && cell.get().is_none();
        if unused && slots.get(&id).is_some_and(|now| Arc::ptr_eq(now, cell)) {
            slots.remove(&id);
        }
    }

    /// Takes a session's slot out of the map, if it is still this one.
    pub(crate) fn forget(&self, id: SessionId, cell: &Arc<OnceCell<Handle>>) {
        let mut slots = lock(&self.slots);
        if slots.get(&id).is_some_and(|now| Arc::ptr_eq(now, cell)) {
            slots.remove(&id);
        }
        drop(slots);
        self.left_open.looked_at(id);
        self.hubs.forget_unused(id);
        self.retired.fetch_add(1, Ordering::Relaxed);
    }
}

fn create_key(key: String, digest: String, session_id: SessionId, at: tenure_core::time::Timestamp) -> CreateKey {
    CreateKey { endpoint: "sessions".into(), key, digest, session_id, at }
}
