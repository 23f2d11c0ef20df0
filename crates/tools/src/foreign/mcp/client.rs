//! What a server may ask of us and tell us: the workspace is its root, progress goes to the call it is of, and whatever
//! needs a person or a model is declined.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

#[allow(deprecated, reason = "servers up to 2025-11-25 ask for roots")]
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, Implementation, ListRootsResult, ProgressNotificationParam, ProgressToken,
        Root, RootsCapabilities,
    },
    service::{NotificationContext, RequestContext},
};
use tokio::sync::{Notify, mpsc};

/// News of one call that may wait; what comes beyond is dropped, since newer news say more.
const NEWS_MAX: usize = 64;
/// Calls whose news may come before they are looked for.
const CALLS_MAX: usize = 256;

pub(super) struct Client {
    pub(super) root: PathBuf,
    pub(super) progress: Arc<Progress>,
    pub(super) changed: Arc<Notify>,
}

/// News of calls, by the token that the server was given for each.
#[derive(Default)]
pub(super) struct Progress(Mutex<HashMap<ProgressToken, Slot>>);

/// The first to come, news or listener, makes it.
struct Slot {
    sender: mpsc::Sender<ProgressNotificationParam>,
    receiver: Option<mpsc::Receiver<ProgressNotificationParam>>,
}

impl Default for Slot {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(NEWS_MAX);
        Self { sender, receiver: Some(receiver) }
    }
}

impl Progress {
    pub(super) fn follow(&self, token: &ProgressToken) -> mpsc::Receiver<ProgressNotificationParam> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(token.clone()).or_default();
        // A token is followed once; a second follower would hear nothing.
        slot.receiver.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    pub(super) fn forget(&self, token: &ProgressToken) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }

    fn tell(&self, news: ProgressNotificationParam) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= CALLS_MAX && !slots.contains_key(&news.progress_token) {
            return;
        }
        let slot = slots.entry(news.progress_token.clone()).or_default();
        let _ = slot.sender.try_send(news);
    }
}

#[allow(deprecated, reason = "servers up to 2025-11-25 ask for roots")]
impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = {
            let mut capabilities = ClientCapabilities::default();
            capabilities.roots = Some(RootsCapabilities::default());
            capabilities
        };
        ClientConfig::new(capabilities, Implementation::new("tenure", env!("CARGO_PKG_VERSION")))
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        let uri = reqwest::Url::from_file_path(&self.root).map(String::from).unwrap_or_default();
        Ok(ListRootsResult::new(vec![Root::new(uri).with_name("workspace")]))
    }

    async fn on_progress(&self, news: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.progress.tell(news);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
