//! Models as the settings name them: the catalog with this environment, mistakes in it, and what may be shown of it.

use std::{collections::HashMap, fs, path::Path};

use serde_json::{Value, json};
use tenure_client::discover;
use tenure_models::{
    Registry as _,
    catalog::{Catalog, ProviderConfig},
    vendor::shown_url,
};

use tenure_wire::ModelList;

use crate::{config::Config, exit::Problem};

/// Looks a variable of the environment up.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The environment that the daemon of a data folder was started with, where one runs and the system tells it.
pub fn of_daemon(data: &Path) -> Option<HashMap<String, String>> {
    let pid = discover::read(data).ok()?.note.pid;
    let all = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let one = |entry: &[u8]| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Some(all.split(|byte| *byte == 0).filter_map(one).collect())
}

/// What the daemon has else than this shell, each as the end of a sentence that begins with `the daemon`.
pub fn unlike(data: &Path, config: &Config, here: &Catalog, list: &ModelList) -> Vec<String> {
    let started_with = of_daemon(data).unwrap_or_default();
    let there = catalog(config, &|name| started_with.get(name).cloned()).ok();
    let key_of = |catalog: &Catalog, name: &str| catalog.provider(name)?.endpoint().key.clone();
    let mut all = vec![];
    for provider in &list.providers {
        let (name, Some(own)) = (&provider.name, here.provider(&provider.name)) else { continue };
        let url = own.endpoint().shown_url();
        if url != provider.base_url {
            all.push(format!("reaches {name} at {}, and this shell names {url}", provider.base_url));
        }
        match (provider.has_key, own.has_key()) {
            (false, true) => all.push(format!("has no key for {name}, which is here")),
            (true, true) if there.as_ref().is_some_and(|there| key_of(there, name) != key_of(here, name)) => {
                all.push(format!("has another key for {name} than this shell"));
            }
            _ => {}
        }
    }
    all
}

/// The catalog that these settings and this environment come to.
pub fn catalog(config: &Config, variable: Variable<'_>) -> Result<Catalog, Problem> {
    Catalog::new(config.catalog(), variable).map_err(|mistake| {
        // The file was looked at when it was read.
        let message = format!("the environment does not fit: {mistake}");
        Problem::usage(message, "mend or unset that variable")
    })
}

/// The model of sessions that name none.
pub fn default_model(catalog: &Catalog, said: Option<&str>) -> Result<String, Problem> {
    let Some(said) = said else { return Ok(catalog.default_name().to_owned()) };
    let unknown = |fault: tenure_core::model::Fault| {
        Problem::usage(format!("the default model: {}", fault.message), "`tenure models` lists them")
    };
    catalog.full_name(said).map_err(unknown)
}

/// The first mistake that the file makes by itself: the keys that lead to it, and what it is.
pub fn mistake(config: &Config) -> Option<(Vec<&str>, String)> {
    let catalog = match Catalog::new(config.catalog(), |_| None) {
        Ok(catalog) => catalog,
        Err(mistake) => {
            let tables = [
                config.providers.keys().find(|name| **name == mistake.name),
                config.models.keys().find(|name| **name == mistake.name),
                config.aliases.keys().find(|name| **name == mistake.name),
            ];
            let keys = std::iter::once(mistake.table).chain(tables.into_iter().flatten().next().map(String::as_str));
            return Some((keys.collect(), mistake.to_string()));
        }
    };
    let model = config.default_model.as_deref()?;
    let fault = catalog.full_name(model).err()?;
    Some((vec!["default_model"], fault.message))
}

/// What the file says of providers, without what is secret.
pub fn shown_providers(config: &Config) -> Value {
    let one = |provider: &ProviderConfig| {
        json!({
            "wire": provider.wire,
            "base_url": provider.base_url.as_deref().map(shown_url),
            "key": provider.key.as_ref().map(|_| "hidden"),
            "key_variable": provider.key_variable,
            "headers": provider.headers.keys().collect::<Vec<_>>(),
            "proxy": provider.proxy.as_ref().map(|_| "hidden"),
        })
    };
    config
        .providers
        .iter()
        .map(|(name, provider)| (name.clone(), one(provider)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
