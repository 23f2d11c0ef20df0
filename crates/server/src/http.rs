//! The HTTP door: routes, the guard before them, and what all requests share.

mod artifacts;
mod attachments;
mod body;
mod checks;
mod command;
mod convert;
mod copies;
mod events;
mod file;
mod health;
mod key;
mod logins;
mod messages;
mod metrics;
mod models;
mod openapi;
mod pace;
pub(crate) mod problem;
mod query;
mod session;
mod tokens;
mod tools;
mod turn;
mod usage;
mod view;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::MethodRouter,
};
use futures::FutureExt;
use tenure_core::ids::SessionId;
use tenure_engine::Engine;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    About,
    access::{Guard, caller::Caller},
    limits::Limits,
    listen::Peer,
    refusals::Refusals,
};
use problem::{Absent, RefusedFor, Rejection};

/// Updates of sessions that share a place wait for each other.
const UPDATE_PLACES: usize = 64;

/// What every handler has at hand.
pub(crate) struct App {
    engine: Engine,
    pub(crate) guard: Guard,
    limits: Limits,
    about: About,
    stop: CancellationToken,
    answers: metrics::Answers,
    pub(crate) refusals: Arc<Refusals>,
    streams: Arc<Semaphore>,
    pub(crate) imports: Arc<Semaphore>,
    /// A partial policy is laid over the present one: between reading that and writing the whole, no other update may come.
    updates: [Mutex<()>; UPDATE_PLACES],
}

impl App {
    pub(crate) fn new(engine: Engine, guard: Guard, limits: Limits, about: About, stop: CancellationToken) -> Self {
        let (answers, updates) = (metrics::Answers::default(), std::array::from_fn(|_| Mutex::new(())));
        let (imports, streams) = (Semaphore::new(limits.imports_max), Semaphore::new(limits.streams_max));
        let (imports, streams, refusals) = (Arc::new(imports), Arc::new(streams), Arc::default());
        Self { engine, guard, limits, about, stop, answers, refusals, streams, imports, updates }
    }

    async fn update_place(&self, session: SessionId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % UPDATE_PLACES as u64).unwrap_or(0);
        self.updates[place].lock().await
    }
}

/// One table for the router and for the API's description, which a test compares.
macro_rules! routes {
    ($($path:literal => $($method:ident $handler:path),+;)*) => {
        fn routes() -> Router<Arc<App>> {
            Router::new()$(.route($path, MethodRouter::new()$(.$method($handler))+))*
        }

        /// Every path with its methods.
        #[cfg(test)]
        const ROUTES: &[(&str, &[&str])] = &[$(($path, &[$(stringify!($method)),+])),*];
    };
}

// What is added here is described in `openapi/operations.rs`.
routes! {
    "/healthz" => get health::healthz;
    "/readyz" => get health::readyz;
    "/metrics" => get metrics::metrics;
    "/openapi.json" => get openapi::document;
    "/docs" => get openapi::page;
    "/" => get logins::page;
    "/login" => get logins::login, head logins::no_look_ahead;
    "/logout" => post logins::logout;
    "/v1/logins" => post logins::link;
    "/v1/tokens" => get tokens::list, post tokens::add;
    "/v1/tokens/{token}" => delete tokens::revoke;
    "/v1/tokens/{token}/rotate" => post tokens::rotate;
    "/v1/events" => get events::of_all;
    "/v1/models" => get models::list;
    "/v1/tools" => get tools::list;
    "/v1/usage" => get usage::show;
    "/v1/sessions" => get session::list, post session::create;
    "/v1/sessions/import" => post copies::import;
    "/v1/sessions/{session}" => get session::show, patch session::update, delete session::delete;
    "/v1/sessions/{session}/messages" => get messages::list, post command::send_message;
    "/v1/sessions/{session}/attachments" => get attachments::list, post attachments::upload;
    "/v1/sessions/{session}/attachments/{file}" => get attachments::download;
    "/v1/sessions/{session}/artifacts" => get artifacts::list;
    "/v1/sessions/{session}/artifacts/{*file}" => get artifacts::download;
    "/v1/sessions/{session}/events" => get events::events;
    "/v1/sessions/{session}/fork" => post copies::fork;
    "/v1/sessions/{session}/export" => get copies::export, post copies::export;
    "/v1/sessions/{session}/approve" => post command::approve;
    "/v1/sessions/{session}/cancel" => post command::cancel;
    "/v1/sessions/{session}/compact" => post command::compact;
    "/v1/sessions/{session}/undo" => post command::undo;
    "/v1/sessions/{session}/end" => post command::end;
    "/v1/sessions/{session}/turns" => post turn::start;
    "/v1/sessions/{session}/turns/{turn}" => get turn::show;
    "/v1/sessions/{session}/turns/{turn}/retry" => post turn::retry;
    "/v1/sessions/{session}/turns/{turn}/resume" => post turn::resume;
}

/// Paths that need no token: they tell nothing of what is done here.
const OPEN_PATHS: [&str; 5] = ["/healthz", "/readyz", "/openapi.json", "/docs", "/login"];

pub(crate) fn router(app: Arc<App>) -> Router {
    routes()
        .fallback(async || problem::unknown_path())
        .method_not_allowed_fallback(async || problem::wrong_method())
        // Each body is read within a limit of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&app), at_the_door))
        .with_state(app)
}

/// Checks who asks before anything else is looked at, and answers for a handler that panics.
async fn at_the_door(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(address)| *address);
    let told_from = if app.guard.proxied { forwarded_for(request.headers()).unwrap_or(peer) } else { peer };
    let mut response = match let_in(&app, &mut request, peer) {
        Ok(()) => told_if_purged(&app, or_internal(next.run(request)).await).await,
        Err(rejection) => {
            body::drain(request, &app.limits).await;
            rejection.into_response()
        }
    };
    app.answers.note(response.status());
    if let Some(RefusedFor(code)) = response.extensions().get() {
        app.refusals.note(code, told_from);
    }
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Whatever is asked of a session that is known to have been deleted, with a key or without, is answered alike.
async fn told_if_purged(app: &App, response: Response) -> Response {
    match response.extensions().get() {
        Some(Absent(session)) => Rejection::from(app.engine.absent(*session).await).into_response(),
        None => response,
    }
}

/// A panic ends one request; the daemon goes on. The panic's own words go to the daemon's standard error.
async fn or_internal(answer: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(_) => problem::internal("a request handler panicked").into_response(),
    }
}

/// A request that is let in carries its site, and who asks where that is known.
fn let_in(app: &App, request: &mut Request, peer: IpAddr) -> Result<(), Rejection> {
    let site = app.guard.check_site(request.method(), request.uri(), request.headers())?;
    let caller = match request.uri().path() {
        path if OPEN_PATHS.contains(&path) => None,
        "/" if !request.headers().contains_key(header::AUTHORIZATION) => app.guard.caller(request.headers()).ok(),
        _ => Some(app.guard.check_caller(request.method(), request.headers(), &site, peer)?),
    };
    if let Some(caller) = caller {
        app.about.visits.add();
        request.extensions_mut().insert::<Caller>(caller);
    }
    request.extensions_mut().insert(site);
    check_coding(request.headers())
}

/// A body that comes in any other coding than in chunks would be taken for something that it is not.
fn check_coding(headers: &HeaderMap) -> Result<(), Rejection> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if codings.all(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        return Ok(());
    }
    Err(Rejection::new(
        StatusCode::NOT_IMPLEMENTED,
        "unsupported_coding",
        "the body comes in a transfer coding other than chunked",
        "send it as it is, with its length or in chunks",
    ))
}

/// Where a proxy says that a request comes from: the last address, which is the one it saw itself.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}

/// Does work to its end, also where whoever asked for it goes away in the middle: half a session must not stay behind.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, tenure_engine::Error>> + Send + 'static,
) -> Result<T, Rejection> {
    Ok(tokio::spawn(work).await.map_err(|error| problem::internal(&error.to_string()))??)
}

/// A JSON answer.
fn json(status: StatusCode, body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, tenure_wire::JSON)], bytes).into_response(),
        Err(error) => problem::internal(&error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_is_the_one_the_proxy_saw() {
        let told = |values: &[&str]| {
            let name = header::HeaderName::from_static("x-forwarded-for");
            let headers: HeaderMap = HeaderMap::new();
            let headers = values.iter().fold(headers, |mut headers, value| {
                headers.append(&name, value.parse().unwrap());
                headers
            });
            forwarded_for(&headers).map(|address| address.to_string())
        };
        assert_eq!(told(&["10.0.0.1"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(told(&["6.6.6.6, 10.0.0.1"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(told(&["6.6.6.6", "7.7.7.7, ::1"]).as_deref(), Some("::1"));
        assert_eq!((told(&[]), told(&["<b>"]), told(&[""])), (None, None, None));
    }

    #[tokio::test]
    async fn a_panic_is_answered() {
        let response = or_internal(async { panic!("this panic belongs to a test") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[header::CONTENT_TYPE], tenure_wire::PROBLEM_JSON);
    }
}
