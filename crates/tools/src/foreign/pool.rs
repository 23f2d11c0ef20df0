//! The servers that run: one for each server and workspace, shared by that workspace's sessions. One that dies is
//! started again when it is needed, not at once and not without end; one that nobody calls is ended.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, timeout},
};

use super::{Foreign, Source, mcp::Connection, server::Server};
use crate::STOP_LIMIT;

/// The wait after a failed start; it doubles with each.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// One that lived for less than this has failed.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// A server that is in use is not looked at more often than this.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// Deaths of this kind before the next start has to wait.
const DEATHS_FREE: u32 = 2;

pub(super) struct Pool {
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    idle_kept: Duration,
}

#[derive(Default)]
struct Slot {
    /// Held while a server is started, so that it is started once.
    starting: AsyncMutex<()>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    connection: Option<Arc<Connection>>,
    started_at: Option<Instant>,
    /// Starts that failed, and short lives, one after the other.
    failures: u32,
    not_before: Option<Instant>,
    problem: String,
}

impl Slot {
    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a connection that nobody uses.
    fn let_go(&self, idle: &Arc<Connection>) {
        let mut now = self.now();
        if now.connection.as_ref().is_some_and(|one| Arc::ptr_eq(one, idle)) {
            (now.connection, now.failures) = (None, 0);
        }
    }

    /// The connection, if it is of use. One that died is counted.
    fn living(&self) -> Option<Arc<Connection>> {
        let mut now = self.now();
        let connection = now.connection.clone()?;
        if !connection.is_closed() {
            return Some(connection);
        }
        now.connection = None;
        match now.started_at.is_some_and(|at| at.elapsed() < SHORT_LIFE) {
            true => now.fail("it ended soon after its start", DEATHS_FREE),
            false => now.failures = 0,
        }
        None
    }
}

impl Now {
    fn fail(&mut self, problem: &str, free: u32) {
        self.failures += 1;
        self.problem = problem.to_owned();
        let doubled = self.failures.saturating_sub(free + 1).min(6);
        let wait = (BACKOFF_FIRST * 2_u32.pow(doubled)).min(BACKOFF_MAX);
        self.not_before = (self.failures > free).then(|| Instant::now() + wait);
    }
}

/// What tells a server of one workspace from all others.
pub(super) fn key(source: &str, identity: &str, workspace: &Path) -> String {
    format!("{source} {identity} {}", workspace.display())
}

impl Pool {
    pub(super) fn new(idle_kept: Duration) -> Self {
        Self { slots: Mutex::default(), idle_kept }
    }

    fn slot(&self, key: &str) -> Arc<Slot> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default().clone()
    }

    fn known(&self, key: &str) -> Option<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Whether the next start has to wait.
    pub(super) fn waits(&self, key: &str) -> bool {
        self.known(key).is_some_and(|slot| slot.now().not_before.is_some_and(|at| at > Instant::now()))
    }

    pub(super) fn is_running(&self, key: &str) -> bool {
        self.known(key).is_some_and(|slot| slot.living().is_some())
    }

    pub(super) async fn shutdown(&self) {
        let slots: Vec<_> = self.slots.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        let connections: Vec<_> = slots.iter().filter_map(|(_, slot)| slot.now().connection.take()).collect();
        let ends: Vec<_> = connections.iter().filter_map(|one| Some(one.life()?.watch())).collect();
        drop(connections);
        let all_ended = async {
            for mut end in ends {
                let _ = end.wait_for(Option::is_some).await;
            }
        };
        if timeout(STOP_LIMIT, all_ended).await.is_err() {
            tracing::warn!("an MCP server did not end in time; its supervisor ends it");
        }
    }
}

impl Foreign {
    /// The connection to a server, started if it does not run. Its list of tools is asked for with each start.
    pub(super) async fn connection(
        self: &Arc<Self>,
        server: &Arc<Server>,
        workspace: &Path,
    ) -> Result<Arc<Connection>, String> {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let key = key(&server.source(), &server.identity(), &workspace);
        let slot = self.pool.slot(&key);
        let _starting = slot.starting.lock().await;
        if let Some(living) = slot.living() {
            return Ok(living);
        }
        let (not_before, problem) = {
            let now = slot.now();
            (now.not_before, now.problem.clone())
        };
        if let Some(wait) = not_before.and_then(|at| at.checked_duration_since(Instant::now())) {
            return Err(format!("{problem}; it is tried again in {} s", wait.as_secs() + 1));
        }
        let limit = server.start_timeout;
        let opened = timeout(limit, self.open(server, &workspace)).await;
        let opened = opened.unwrap_or_else(|_| Err(format!("it was not ready within {} ms", limit.as_millis())));
        let mut now = slot.now();
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                (now.connection, now.started_at) = (Some(connection.clone()), Some(Instant::now()));
                now.not_before = None;
                drop(now);
                tokio::spawn(look_after(
                    Arc::downgrade(self),
                    server.clone(),
                    connection.clone(),
                    Arc::downgrade(&slot),
                ));
                Ok(connection)
            }
            Err(why) => {
                let why = server.known_secrets(&self.variables).redact(&why).into_owned();
                now.fail(&why, 0);
                Err(why)
            }
        }
    }

    async fn open(&self, server: &Server, workspace: &Path) -> Result<Connection, String> {
        let connection = Connection::open(server, workspace, &self.commands, &self.variables).await?;
        self.refresh(server, &connection).await?;
        Ok(connection)
    }

    async fn refresh(&self, server: &Server, connection: &Connection) -> Result<(), String> {
        let tools = connection.tools(&server.known_secrets(&self.variables)).await?;
        self.lists.put(&Source::Server(Arc::new(server.clone())).identity(), tools);
        Ok(())
    }
}

/// Hears of changes and ends what is idle, for as long as the connection lasts.
async fn look_after(foreign: Weak<Foreign>, server: Arc<Server>, connection: Arc<Connection>, slot: Weak<Slot>) {
    let Some(idle_kept) = foreign.upgrade().map(|foreign| foreign.pool.idle_kept) else { return };
    // It is held by the pool and by calls alone: where they let go of it, it ends.
    let (changed, closed, weak) = (connection.changed.clone(), connection.closed(), Arc::downgrade(&connection));
    drop(connection);
    loop {
        let Some(rest) = weak.upgrade().map(|connection| idle_kept.saturating_sub(connection.idle_for())) else {
            return;
        };
        tokio::select! {
            () = closed.cancelled() => return,
            () = changed.notified() => {
                let (Some(foreign), Some(connection)) = (foreign.upgrade(), weak.upgrade()) else { return };
                if let Err(why) = foreign.refresh(&server, &connection).await {
                    tracing::debug!("the tools of {} could not be listed anew: {why}", server.name);
                }
            }
            () = tokio::time::sleep(rest.max(LOOK_MIN)) => {
                let (Some(slot), Some(connection)) = (slot.upgrade(), weak.upgrade()) else { return };
                if connection.idle_for() >= idle_kept {
                    return slot.let_go(&connection);
                }
            }
        }
    }
}
