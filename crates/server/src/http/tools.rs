//! The tools that agents can be given.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use tenure_core::policy::RuleAction;
use tenure_wire::{ToolList, ToolView};

use super::{
    App, json,
    query::{Nothing, Params},
    view,
};

pub(crate) async fn list(State(app): State<Arc<App>>, _: Params<Nothing>) -> Response {
    let approval = &app.about.policy.approval;
    let tools = app.engine.tools();
    let shown = tools.iter().map(|tool| ToolView {
        name: tool.name.clone(),
        description: tool.description.clone(),
        kind: view::word(&tool.kind),
        requires_approval: approval.judge(&tool.name, tool.kind, "") == RuleAction::Ask,
        input_schema: tool.input_schema.clone(),
    });
    json(StatusCode::OK, &ToolList { tools: shown.collect() })
}
