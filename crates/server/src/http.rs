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
mod messages;
mod metrics;
mod openapi;
pub(crate) mod problem;
mod query;
mod session;
mod tools;
mod turn;
mod usage;
mod view;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::MethodRouter,
};
use futures::FutureExt;
use tenure_core::{event::Actor, ids::SessionId};
use tenure_engine::Engine;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{About, access::Guard, limits::Limits};
use problem::Rejection;

/// Updates of sessions that share a place wait for each other.
const UPDATE_PLACES: usize = 64;

/// What every handler has at hand.
pub(crate) struct App {
    engine: Engine,
    guard: Guard,
    limits: Limits,
    about: About,
    stop: CancellationToken,
    answers: metrics::Answers,
    imports: Arc<Semaphore>,
    /// A partial policy is laid over the present one: between reading that and writing the whole, no other update may come.
    updates: [Mutex<()>; UPDATE_PLACES],
}

impl App {
    pub(crate) fn new(engine: Engine, guard: Guard, limits: Limits, about: About, stop: CancellationToken) -> Self {
        let (answers, updates) = (metrics::Answers::default(), std::array::from_fn(|_| Mutex::new(())));
        let imports = Arc::new(Semaphore::new(limits.imports_max));
        Self { engine, guard, limits, about, stop, answers, imports, updates }
    }

    async fn update_place(&self, session: SessionId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % UPDATE_PLACES as u64).unwrap_or(0);
        self.updates[place].lock().await
    }
}

/// Who a request over this door comes from.
fn actor() -> Actor {
    Actor::user("http")
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
    "/v1/events" => get events::of_all;
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
    "/v1/sessions/{session}/end" => post command::end;
    "/v1/sessions/{session}/turns" => post turn::start;
    "/v1/sessions/{session}/turns/{turn}" => get turn::show;
    "/v1/sessions/{session}/turns/{turn}/retry" => post turn::retry;
    "/v1/sessions/{session}/turns/{turn}/resume" => post turn::resume;
}

/// Paths that need no token: they tell nothing of what is done here.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/readyz", "/openapi.json", "/docs"];

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
async fn at_the_door(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match let_in(&app, &request) {
        Ok(()) => or_internal(next.run(request)).await,
        Err(rejection) => {
            body::drain(request, &app.limits).await;
            rejection.into_response()
        }
    };
    app.answers.note(response.status());
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A panic ends one request; the daemon goes on. The panic's own words go to the daemon's standard error.
async fn or_internal(answer: impl Future<Output = Response>) -> Response {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(_) => problem::internal("a request handler panicked").into_response(),
    }
}

fn let_in(app: &App, request: &Request) -> Result<(), Rejection> {
    app.guard.check_site(request.uri(), request.headers())?;
    match request.uri().path() {
        path if OPEN_PATHS.contains(&path) => Ok(()),
        _ => app.guard.check_token(request.headers()).inspect(|()| app.about.visits.add()),
    }
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

    #[tokio::test]
    async fn a_panic_is_answered() {
        let response = or_internal(async { panic!("this panic belongs to a test") }).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[header::CONTENT_TYPE], tenure_wire::PROBLEM_JSON);
    }
}
