//! Whether the daemon lives and whether it is ready. Asking costs nothing and needs no token.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use tenure_wire::{Health, Ready};

use super::{
    App, json,
    query::{Nothing, Params},
};

pub(crate) async fn healthz(_: Params<Nothing>) -> Response {
    json(StatusCode::OK, &Health { status: "ok".into(), version: env!("CARGO_PKG_VERSION").into() })
}

pub(crate) async fn readyz(State(app): State<Arc<App>>, _: Params<Nothing>) -> Response {
    let (code, status) = match (app.stop.is_cancelled(), app.engine.is_ready()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        (false, true) => (StatusCode::OK, "ready"),
    };
    let durability = app.about.durability.clone();
    json(code, &Ready { status: status.into(), durability, notices: app.engine.notices() })
}
