//! What sessions have used, taken together.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;
use tenure_engine::Wanted;
use tenure_wire::UsageView;

use super::{App, json, problem::Rejection, query::Params, view};

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    /// Only sessions that stand like this.
    status: Option<String>,
    /// Only sessions with this label.
    label: Option<String>,
    /// Only sessions of this role.
    role: Option<String>,
    /// Only sessions of this folder.
    workspace_path: Option<String>,
}

pub(crate) async fn show(State(app): State<Arc<App>>, Params(of): Params<Of>) -> Result<Response, Rejection> {
    let Of { status, label, role, workspace_path } = of;
    let wanted = Wanted { status, label, role, workspace_path, text: None };
    app.limits.text.wanted(&wanted)?;
    let (spent, sessions) = app.engine.usage(&wanted).await?;
    Ok(json(StatusCode::OK, &UsageView { sessions, spent: view::spent(&spent), cost_micro_usd: spent.cost() }))
}
