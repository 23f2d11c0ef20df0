//! One call per endpoint of the daemon. It keeps no state but where the daemon is, and never retries.

use std::{
    fmt, io,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::TryStream;
use reqwest::{Method, RequestBuilder, Response, header};
use serde::{Serialize, de::DeserializeOwned};
use tenure_wire as wire;

use crate::{Error, EventStream, Trust, stream::Until};

/// How long a connection may take to come about: the daemon is on this machine.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, beyond what the call itself asks to wait.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a daemon is and what opens its door.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    base_url: String,
    token: String,
    trust: Trust,
}

impl Target {
    pub fn new(base_url: impl Into<String>, token: impl Into<String>) -> Self {
        let base_url = base_url.into();
        Self { base_url: base_url.trim_end_matches('/').to_owned(), token: token.into(), trust: Trust::Nobody }
    }

    /// Whose certificate is believed, for an address that begins with `https`.
    pub fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    pub fn token(&self) -> &str {
        &self.token
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// A cheap handle. Clones share where the daemon is, so all follow when it moves.
#[derive(Debug, Clone)]
pub struct Client {
    link: Arc<RwLock<Link>>,
    has_answered: Arc<AtomicBool>,
    key: Option<String>,
}

#[derive(Debug)]
struct Link {
    http: reqwest::Client,
    target: Target,
}

impl Link {
    fn new(target: Target) -> Self {
        let builder = reqwest::Client::builder()
            // A proxy named in the environment has no business between us and loopback.
            .no_proxy()
            .tls_backend_preconfigured(target.trust.config())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT);
        // With TLS made ready and these settings nothing of the builder can fail.
        let http = builder.build().expect("an HTTP client with its TLS made ready can be made");
        Self { http, target }
    }
}

impl Client {
    pub fn new(target: Target) -> Self {
        Self { link: Arc::new(RwLock::new(Link::new(target))), has_answered: Arc::default(), key: None }
    }

    /// Whether a daemon has answered this client or a clone of it: one that has not may never have been there.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// The same client, whose commands carry this idempotency key. One key belongs to one command.
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self.clone() }
    }

    pub fn target(&self) -> Target {
        self.link.read().unwrap_or_else(PoisonError::into_inner).target.clone()
    }

    /// Points this client and all its clones to where the daemon is now.
    pub fn retarget(&self, target: Target) {
        let mut link = self.link.write().unwrap_or_else(PoisonError::into_inner);
        match link.target.trust == target.trust {
            true => link.target = target,
            false => *link = Link::new(target),
        }
    }

    pub async fn health(&self) -> Result<wire::Health, Error> {
        self.get("/healthz").await
    }

    /// How far it has come; it also answers this while it starts or stops.
    pub async fn ready(&self) -> Result<wire::Ready, Error> {
        let response = self.dispatch(self.request(Method::GET, "/readyz")).await?;
        self.read(response).await
    }

    pub async fn create(&self, new: &wire::CreateSession) -> Result<wire::Created, Error> {
        self.post("/v1/sessions", new).await
    }

    /// One page of the listing, newest first.
    pub async fn list(
        &self,
        limit: usize,
        cursor: Option<&str>,
        wanted: &wire::SessionFilter,
    ) -> Result<wire::SessionList, Error> {
        let mut request = self.request(Method::GET, "/v1/sessions").query(&[("limit", limit)]).query(wanted);
        if let Some(cursor) = cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        self.answer(request).await
    }

    /// One page of the conversation, oldest first.
    pub async fn messages(&self, session: &str, cursor: Option<&str>) -> Result<wire::MessageList, Error> {
        let mut request = self.request(Method::GET, &of(session, "/messages"));
        if let Some(cursor) = cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        self.answer(request).await
    }

    pub async fn session(&self, session: &str) -> Result<wire::SessionView, Error> {
        self.get(&of(session, "")).await
    }

    /// Changes a session; with a `seq`, only if that is still its last event.
    pub async fn patch(
        &self,
        session: &str,
        seq: Option<u64>,
        patch: &wire::Patch,
    ) -> Result<wire::SessionView, Error> {
        let mut request = self.request(Method::PATCH, &of(session, ""));
        if let Some(seq) = seq {
            request = request.header(header::IF_MATCH, format!("\"{seq}\""));
        }
        self.answer(request.json(patch)).await
    }

    pub async fn send(&self, session: &str, message: &wire::SendMessage) -> Result<wire::MessageAccepted, Error> {
        self.post(&of(session, "/messages"), message).await
    }

    pub async fn approve(&self, session: &str, answer: &wire::Approve) -> Result<wire::ApprovalAnswered, Error> {
        self.post(&of(session, "/approve"), answer).await
    }

    pub async fn cancel(&self, session: &str, cancel: &wire::Cancel) -> Result<wire::Canceling, Error> {
        self.post(&of(session, "/cancel"), cancel).await
    }

    pub async fn end(&self, session: &str, end: &wire::End) -> Result<wire::Ended, Error> {
        self.post(&of(session, "/end"), end).await
    }

    /// A session of its own that begins where this one stood.
    pub async fn fork(&self, session: &str, fork: &wire::Fork) -> Result<wire::Forked, Error> {
        self.answer(self.request_without_limit(Method::POST, &of(session, "/fork")).json(fork)).await
    }

    /// The whole session as one file, piece by piece.
    pub async fn export(&self, session: &str) -> Result<Archive, Error> {
        let request = self.request_without_limit(Method::GET, &of(session, "/export"));
        Ok(Archive { address: self.target().base_url, response: self.send_checked(request).await? })
    }

    /// Takes in a session from the pieces of such a file.
    pub async fn import<S>(&self, pieces: S, as_new: bool) -> Result<wire::Imported, Error>
    where
        S: TryStream<Ok = Bytes, Error = io::Error> + Send + 'static,
    {
        let request = self.request_without_limit(Method::POST, "/v1/sessions/import");
        let request = request.query(&[("as_new", as_new)]).header(header::CONTENT_TYPE, wire::ARCHIVE);
        self.answer(request.body(reqwest::Body::wrap_stream(pieces))).await
    }

    /// Ends a session and removes all of it.
    pub async fn purge(&self, session: &str) -> Result<wire::Ended, Error> {
        let request = self.request_without_limit(Method::DELETE, &of(session, "")).query(&[("purge", true)]);
        self.answer(request).await
    }

    /// Summarizes the older part of the context.
    pub async fn compact(&self, session: &str) -> Result<wire::Compacting, Error> {
        self.post(&of(session, "/compact"), &wire::EmptyCommand::default()).await
    }

    /// Takes back what a turn did to files: the named one, or the last that can be.
    pub async fn undo(&self, session: &str, undo: &wire::Undo) -> Result<wire::Undoing, Error> {
        self.post(&of(session, "/undo"), undo).await
    }

    /// The models that sessions can have, of one provider or of all.
    pub async fn models(&self, provider: Option<&str>) -> Result<wire::ModelList, Error> {
        let request = self.request(Method::GET, "/v1/models");
        self.answer(request.query(&provider.map(|name| ("provider", name)).as_slice())).await
    }

    /// The tools that agents can be given in a folder of the daemon's machine.
    pub async fn tools(&self, workspace: &str) -> Result<wire::ToolList, Error> {
        self.answer(self.request(Method::GET, "/v1/tools").query(&[("workspace", workspace)])).await
    }

    /// Refused where no model can have this name.
    pub async fn check_model(&self, name: &str) -> Result<(), Error> {
        let request = self.request(Method::GET, "/v1/models").query(&[("name", name)]);
        self.answer::<wire::ModelList>(request).await.map(drop)
    }

    /// Gives a file to a session.
    pub async fn attach(&self, session: &str, file: &wire::NewAttachment) -> Result<wire::AttachmentView, Error> {
        self.post(&of(session, "/attachments"), file).await
    }

    /// Tokens by name, without their secrets.
    pub async fn tokens(&self) -> Result<wire::TokenList, Error> {
        self.get("/v1/tokens").await
    }

    /// A new token, with its secret this once.
    pub async fn add_token(&self, new: &wire::NewToken) -> Result<wire::TokenMade, Error> {
        self.post("/v1/tokens", new).await
    }

    pub async fn revoke_token(&self, name: &str) -> Result<wire::TokenRevoked, Error> {
        self.answer(self.request(Method::DELETE, &of_token(name, ""))).await
    }

    /// A new secret for a token.
    pub async fn rotate_token(&self, name: &str, how: &wire::RotateToken) -> Result<wire::TokenMade, Error> {
        self.post(&of_token(name, "/rotate"), how).await
    }

    /// A link that lets one browser in, once.
    pub async fn login(&self) -> Result<wire::Login, Error> {
        self.post("/v1/logins", &wire::NewLogin {}).await
    }

    /// Starts a turn over messages that were only appended.
    pub async fn start_turn(&self, session: &str) -> Result<wire::TurnStarted, Error> {
        self.post(&of(session, "/turns"), &wire::EmptyCommand::default()).await
    }

    /// A turn's record; with a wait, once it has settled or stands still, or the time is over.
    pub async fn turn(&self, session: &str, turn: &str, wait: Duration) -> Result<wire::TurnView, Error> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(wire::WAIT_MS_MAX);
        let request = self.request(Method::GET, &of_turn(session, turn, "")).query(&[("wait_ms", wait_ms)]);
        self.answer(request.timeout(ANSWER_TIMEOUT + wait)).await
    }

    /// Lets an interrupted turn go on.
    pub async fn resume(&self, session: &str, turn: &str) -> Result<wire::TurnStarted, Error> {
        self.post(&of_turn(session, turn, "/resume"), &wire::EmptyCommand::default()).await
    }

    /// A new turn with the same input.
    pub async fn retry(&self, session: &str, turn: &str) -> Result<wire::TurnStarted, Error> {
        self.post(&of_turn(session, turn, "/retry"), &wire::EmptyCommand::default()).await
    }

    /// The session's events from the beginning; see [`EventStream`] for where to begin and how to follow a restart.
    pub fn events(&self, session: &str, until: Until) -> EventStream {
        EventStream::new(Client { key: None, ..self.clone() }, session, until)
    }

    pub(crate) async fn open_events(
        &self,
        session: &str,
        after: Option<&str>,
        until: Until,
    ) -> Result<Response, Error> {
        let mut request = self.request_without_limit(Method::GET, &of(session, "/events"));
        request = request.header(header::ACCEPT, wire::EVENT_STREAM);
        if let Some(cursor) = after {
            request = request.header(wire::LAST_EVENT_ID, cursor);
        }
        if until == Until::Present {
            request = request.query(&[("follow", "false")]);
        }
        // The head of the answer must come in time; the body may last for ever.
        match tokio::time::timeout(ANSWER_TIMEOUT, self.send_checked(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(Error::Unreachable {
                address: self.target().base_url().to_owned(),
                why: "no answer in time".into(),
            }),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.answer(self.request(Method::GET, path)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.answer(self.request(Method::POST, path).json(body)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_without_limit(method, path).timeout(ANSWER_TIMEOUT)
    }

    fn request_without_limit(&self, method: Method, path: &str) -> RequestBuilder {
        let changes = method != Method::GET;
        let request = {
            let Link { http, target } = &*self.link.read().unwrap_or_else(PoisonError::into_inner);
            http.request(method, format!("{}{path}", target.base_url)).bearer_auth(&target.token)
        };
        match &self.key {
            Some(key) if changes => request.header(wire::IDEMPOTENCY_KEY, key),
            _ => request,
        }
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let response = self.send_checked(request).await?;
        self.read(response).await
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, Error> {
        let what = format!("the answer of {}", response.url().path());
        let body = response.bytes().await.map_err(|error| self.lost(&error))?;
        serde_json::from_slice(&body).map_err(|error| Error::Strange { what, why: error.to_string() })
    }

    async fn dispatch(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|error| self.lost(&error))?;
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(response)
    }

    async fn send_checked(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = self.dispatch(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, what) = (response.status(), format!("the refusal of {}", response.url().path()));
        let body = response.bytes().await.map_err(|error| self.lost(&error))?;
        match serde_json::from_slice::<wire::Problem>(&body) {
            Ok(problem) => Err(Error::Refused(Box::new(problem))),
            Err(_) => Err(Error::Strange { what, why: format!("status {status} without a problem+json body") }),
        }
    }

    fn lost(&self, error: &reqwest::Error) -> Error {
        Error::unreachable(self.target().base_url(), error)
    }
}

/// An exported session on its way.
pub struct Archive {
    address: String,
    response: Response,
}

impl Archive {
    /// What it lacks; nothing, where an older daemon does not say.
    pub fn missing(&self) -> wire::Missing {
        let said = self.response.headers().get(wire::MISSING).and_then(|said| said.to_str().ok());
        said.and_then(wire::Missing::from_header).unwrap_or_default()
    }

    /// The next piece; `None` at the end. A connection that broke is an error, never an end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.response.chunk().await.map_err(|error| Error::unreachable(&self.address, &error))
    }
}

fn of(session: &str, rest: &str) -> String {
    format!("/v1/sessions/{}{rest}", escaped(session))
}

fn of_token(name: &str, rest: &str) -> String {
    format!("/v1/tokens/{}{rest}", escaped(name))
}

fn of_turn(session: &str, turn: &str, rest: &str) -> String {
    of(session, &format!("/turns/{}{rest}", escaped(turn)))
}

/// Ids come from people: whatever could change the path is written as `%XX`.
fn escaped(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_change_the_path() {
        assert_eq!(of("sess_01", "/end"), "/v1/sessions/sess_01/end");
        assert_eq!(of_turn("../x?", "a b", ""), "/v1/sessions/%2E%2E%2Fx%3F/turns/a%20b");
    }

    #[test]
    fn a_target_never_shows_its_token() {
        let target = Target::new("http://127.0.0.1:1/", "geheim");
        assert_eq!(format!("{target:?}"), "Target { base_url: \"http://127.0.0.1:1\", .. }");
        assert!(!format!("{:?}", Client::new(target)).contains("geheim"));
    }
}
