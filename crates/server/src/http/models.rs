//! The models that sessions can have: the list, and the check of a name before it is taken.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;
use tenure_models::{
    catalog::{Listed, ListedProvider, Listing},
    entry::{LongPrices, Prices},
};
use tenure_wire::{LongPriceView, ModelList, ModelView, PriceView, ProviderView};

use super::{App, json, problem::Rejection, query::Params, view::word};

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    /// Only those of this provider.
    provider: Option<String>,
    /// Only the one of this name, if it is listed. A name that no model can have is refused.
    name: Option<String>,
}

pub(crate) async fn list(State(app): State<Arc<App>>, Params(of): Params<Of>) -> Result<Response, Rejection> {
    app.limits.text.name("provider", of.provider.as_deref())?;
    let name = full_name(&app, of.name)?;
    let Listing { models, providers } = app.engine.models().listing().await;
    let is_wanted = |provider: &str| of.provider.as_deref().is_none_or(|wanted| wanted == provider);
    let is_listed =
        |listed: &Listed| is_wanted(&listed.provider) && name.as_ref().is_none_or(|name| *name == listed.entry.name);
    let list = ModelList {
        default_model: app.engine.default_model().to_owned(),
        models: models.into_iter().filter(is_listed).map(model).collect(),
        providers: providers.into_iter().filter(|one| is_wanted(&one.name)).map(provider).collect(),
    };
    Ok(json(StatusCode::OK, &list))
}

/// The whole name of what a request calls a model; a name that can never be one's is refused now, and not when a turn needs it.
pub(crate) fn full_name(app: &App, said: Option<String>) -> Result<Option<String>, Rejection> {
    let Some(said) = said else { return Ok(None) };
    app.limits.text.name("model", Some(&said))?;
    let unknown = |fault: tenure_core::model::Fault| {
        let hint = "GET /v1/models lists them";
        Rejection::new(StatusCode::BAD_REQUEST, "unknown_model", fault.message, hint)
    };
    app.engine.models().full_name(&said).map(Some).map_err(unknown)
}

fn model(listed: Listed) -> ModelView {
    let Listed { provider, entry, source, aliases, missing } = listed;
    ModelView {
        name: entry.name,
        provider,
        ready: missing.is_none(),
        missing,
        source: word(&source),
        aliases,
        window: entry.window,
        output_max: entry.output_max,
        prices: entry.prices.map(prices),
        takes: entry.takes.iter().map(word).collect(),
        tool_mode: word(&entry.tool_mode),
        thinking: word(&entry.thinking),
    }
}

fn prices(prices: Prices) -> PriceView {
    let Prices { rates, long } = prices;
    PriceView {
        input: rates.input,
        output: rates.output,
        cache_read: rates.cache_read,
        cache_write: rates.cache_write,
        long: long.map(|LongPrices { above, rates }| LongPriceView {
            above,
            input: rates.input,
            output: rates.output,
            cache_read: rates.cache_read,
            cache_write: rates.cache_write,
        }),
    }
}

fn provider(listed: ListedProvider) -> ProviderView {
    let ListedProvider { name, wire, base_url, is_local, has_key, key_variable, missing, fault } = listed;
    ProviderView {
        name,
        wire: word(&wire),
        base_url,
        local: is_local,
        ready: missing.is_none(),
        missing,
        fault: fault.map(|kind| kind.code().to_owned()),
        has_key,
        key_variable,
    }
}
