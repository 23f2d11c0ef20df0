//! One connection to one MCP server, over the pipes of a supervised process or over HTTP. It never sends a call twice,
//! and never answers for a person: sampling and questions are declined.

mod client;
mod lines;
mod result;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::{
    RoleClient,
    model::{
        CallToolRequestParams, ClientRequest, ProgressNotificationParam, ProtocolVersion, Request, ServerResult,
        SubscriptionFilter,
    },
    service::{ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions, RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport, common::client_side_sse::ExponentialBackoff,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::Value;
use tenure_core::{redact::Secrets, tool::ToolResult};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::client::{Client, Progress};
use super::{
    listing::{Described, bounded},
    server::{Server, Way},
};
use crate::{
    CallContext,
    command::Commands,
    service::{Life, Post},
};

/// How long a server gets to be told that a call is canceled.
const CANCEL_LIMIT: Duration = Duration::from_secs(1);
/// How often an answer that was cut off is looked for again, and after which wait; it doubles.
const RECONNECTS_MAX: usize = 4;
const RECONNECT_FIRST: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a call came to its end.
pub(super) enum End {
    Done(ToolResult),
    /// It was sent, and nobody can tell what became of it.
    Lost(String),
    /// It was not sent.
    Unsent(String),
    Canceled,
    TimedOut,
}

pub(super) struct Connection {
    peer: Peer<RoleClient>,
    progress: Arc<Progress>,
    /// The server said that its list of tools is another one now.
    pub(super) changed: Arc<Notify>,
    closed: CancellationToken,
    life: Option<Arc<Life>>,
    calls: AtomicUsize,
    used_at: Mutex<Instant>,
    _stop: DropGuard,
}

/// Counts up, so that each start of a server has a name of its own.
static STARTS: AtomicU64 = AtomicU64::new(1);

impl Connection {
    /// Starts or reaches a server and agrees on a version with it.
    pub(super) async fn open(
        server: &Server,
        workspace: &Path,
        commands: &Arc<Commands>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let (progress, changed) = (Arc::<Progress>::default(), Arc::<Notify>::default());
        let client = Client { root: workspace.to_owned(), progress: progress.clone(), changed: changed.clone() };
        let (service, life) = match server.resolved(variables)? {
            Way::Stdio { command, args, env } => {
                let words = std::iter::once(command).chain(args).collect();
                let number = STARTS.fetch_add(1, Ordering::Relaxed);
                let id = format!("mcp_{}_{number}", server.name);
                let post = Post { id, command: words, environment: env, folder: workspace };
                let service = commands.serve(post).await?;
                let life = Arc::new(service.life);
                let transport = AsyncRwTransport::new_client(lines::Bounded::new(service.output), service.input);
                let begun = tokio::select! {
                    begun = client.serve_with_lifecycle(transport, lifecycle()) => begun.map_err(|error| error.to_string()),
                    how = life.ended() => Err(how),
                };
                match begun {
                    Ok(begun) => (begun, Some(life)),
                    // How it ended says more than that its pipe was closed.
                    Err(why) => {
                        let ended = tokio::time::timeout(CANCEL_LIMIT, life.ended()).await;
                        return Err(with_complaints(ended.unwrap_or(why), &life));
                    }
                }
            }
            Way::Http { url, headers } => {
                let transport = StreamableHttpClientTransport::with_client(http_client()?, http_config(url, &headers)?);
                let begun = client.serve_with_lifecycle(transport, lifecycle()).await;
                (begun.map_err(|error| error.to_string())?, None)
            }
        };
        Ok(Self::new(service, progress, changed, life))
    }

    fn new(
        service: RunningService<RoleClient, Client>,
        progress: Arc<Progress>,
        changed: Arc<Notify>,
        life: Option<Arc<Life>>,
    ) -> Self {
        let (stop, closed, peer) = (CancellationToken::new(), CancellationToken::new(), service.peer().clone());
        let (stopped, is_closed, held) = (stop.clone(), closed.clone(), life.clone());
        let quit = service.cancellation_token();
        tokio::spawn(async move {
            let mut running = std::pin::pin!(service.waiting());
            tokio::select! {
                _ = &mut running => {}
                () = stopped.cancelled() => {
                    quit.cancel();
                    let _ = tokio::time::timeout(CANCEL_LIMIT, running).await;
                }
            }
            // The process goes with the last of those who hold it.
            drop(held);
            is_closed.cancel();
        });
        let (listener, heard, gone) = (peer.clone(), changed.clone(), closed.clone());
        tokio::spawn(async move { gone.run_until_cancelled(listen(&listener, &heard)).await });
        let used_at = Mutex::new(Instant::now());
        let calls = AtomicUsize::new(0);
        Self { peer, progress, changed, closed, life, calls, used_at, _stop: stop.drop_guard() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Set when the connection is gone; holds nothing of it.
    pub(super) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// For how long nobody has called anything.
    pub(super) fn idle_for(&self) -> Duration {
        match self.calls.load(Ordering::Relaxed) {
            0 => self.used_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// How its process can be waited for.
    pub(super) fn life(&self) -> Option<Arc<Life>> {
        self.life.clone()
    }

    /// Its tools, within bounds.
    pub(super) async fn tools(&self, secrets: &Secrets) -> Result<Vec<Described>, String> {
        let tools = self.peer.list_all_tools().await.map_err(|error| told(&error))?;
        let described = tools.into_iter().map(|tool| Described {
            name: tool.name.into_owned(),
            description: tool.description.or(tool.title.map(Into::into)).unwrap_or_default().into_owned(),
            input_schema: Value::Object((*tool.input_schema).clone()),
            read_only: tool.annotations.and_then(|hints| hints.read_only_hint).unwrap_or(false),
        });
        Ok(bounded(described.collect(), secrets))
    }

    pub(super) async fn call(
        &self,
        tool: &str,
        input: &Value,
        limit: Duration,
        context: &CallContext,
        secrets: &Secrets,
    ) -> End {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let end = self.call_within(tool, input, limit, context, secrets).await;
        if matches!(end, End::Lost(_) | End::Unsent(_)) {
            // A server that was started again knows nothing of this connection; the next call makes another.
            self.closed.cancel();
        }
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.calls.fetch_sub(1, Ordering::Relaxed);
        end
    }

    async fn call_within(
        &self,
        tool: &str,
        input: &Value,
        limit: Duration,
        context: &CallContext,
        secrets: &Secrets,
    ) -> End {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        if let Value::Object(fields) = input {
            params = params.with_arguments(fields.clone());
        }
        let request = ClientRequest::CallToolRequest(Request::new(params));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return End::Unsent(told(&error)),
        };
        let token = handle.progress_token.clone();
        let mut news = self.progress.follow(&token);
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        let end = loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => break match answer {
                    Ok(Ok(answer)) => Ok(answer),
                    Ok(Err(ServiceError::McpError(error))) => {
                        let why = secrets.redact(&error.message).into_owned();
                        break Ok(ServerResult::CallToolResult(refused(why)));
                    }
                    Ok(Err(error)) => Err(End::Lost(told(&error))),
                    Err(_) => Err(End::Lost(self.how_it_ended().await)),
                },
                Some(news) = news.recv() => context.output.write(secrets.redact(&worded(&news)).into_owned()).await,
                () = self.closed.cancelled() => break Err(End::Lost(self.how_it_ended().await)),
                () = context.cancel.cancelled() => break Err(End::Canceled),
                () = &mut deadline => break Err(End::TimedOut),
            }
        };
        self.progress.forget(&token);
        match end {
            Ok(answer) => End::Done(result::of(answer, context, secrets).await),
            Err(end @ (End::Canceled | End::TimedOut)) => {
                let why = if matches!(end, End::Canceled) { "the call was canceled" } else { "the call took too long" };
                // A server that does not even take this is not waited for.
                let _ = tokio::time::timeout(CANCEL_LIMIT, handle.cancel(Some(why.into()))).await;
                end
            }
            Err(end) => end,
        }
    }

    async fn how_it_ended(&self) -> String {
        match &self.life {
            None => "the connection was cut".into(),
            Some(life) => {
                let ended = tokio::time::timeout(CANCEL_LIMIT, life.ended()).await;
                with_complaints(ended.unwrap_or_else(|_| "it closed its output".into()), life)
            }
        }
    }
}

/// Servers of the newest kind tell changes only to those who listen for them; others tell everybody.
async fn listen(peer: &Peer<RoleClient>, changed: &Notify) {
    let modern = peer.peer_info().is_some_and(|info| info.protocol_version == ProtocolVersion::LATEST);
    let wish = SubscriptionFilter::builder().tools_list_changed().build();
    let Some(Ok(mut heard)) = (if modern { Some(peer.listen(wish).await) } else { None }) else { return };
    while let Ok(Some(_)) = heard.next().await {
        changed.notify_one();
    }
}

fn refused(why: String) -> rmcp::model::CallToolResult {
    rmcp::model::CallToolResult::error(vec![rmcp::model::ContentBlock::text(why)])
}

fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None }
}

fn with_complaints(why: String, life: &Life) -> String {
    match life.complaints() {
        complaints if complaints.is_empty() => why,
        complaints => format!("{why}; it said: {}", crate::output::head_of(&complaints, 1024)),
    }
}

fn told(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportClosed => "the connection was cut".into(),
        // Its own words name types of this program first.
        other => {
            let text = other.to_string();
            text.rsplit_once("] error: ").map_or(text.clone(), |(_, why)| why.to_owned())
        }
    }
}

fn worded(news: &ProgressNotificationParam) -> String {
    let far = match news.total {
        Some(total) => format!("{} of {total}", news.progress),
        None => format!("{}", news.progress),
    };
    match &news.message {
        Some(message) => format!("[{far}] {}\n", crate::output::head_of(message, 4096)),
        None => format!("[{far}]\n"),
    }
}

fn http_client() -> Result<reqwest::Client, String> {
    // Another part of the program may have chosen already; then that choice holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A key must not follow a redirection to elsewhere.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))
}

fn http_config(url: String, headers: &BTreeMap<String, String>) -> Result<StreamableHttpClientTransportConfig, String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let unusable = || format!("the header {name} cannot be sent");
        let header = reqwest::header::HeaderName::try_from(name.as_str()).map_err(|_| unusable())?;
        let mut value = reqwest::header::HeaderValue::from_str(value).map_err(|_| unusable())?;
        value.set_sensitive(true);
        custom.insert(header, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    // Whether a call that met a lost session took effect is not known, so it is not sent again.
    config.reinit_on_expired_session = false;
    let mut patience = ExponentialBackoff::default();
    (patience.max_times, patience.base_duration) = (Some(RECONNECTS_MAX), RECONNECT_FIRST);
    config.retry_config = Arc::new(patience);
    Ok(config)
}
