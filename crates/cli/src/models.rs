//! Models as the settings name them: the catalog with this environment, mistakes in it, and what may be shown of it.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
};

use serde_json::{Value, json};
use tenure_client::discover;
use tenure_models::{
    Registry as _,
    catalog::{Catalog, Provider, ProviderConfig},
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

/// The variable that names the model of sessions that name none, and the option of `serve` that does.
const DEFAULT_VARIABLE: &str = "TENURE_DEFAULT_MODEL";
const DEFAULT_OPTION: &str = "--default-model";

/// What the daemon has else than this shell, each as the end of a sentence that begins with `the daemon`.
pub fn unlike(data: &Path, config: &Config, here: &Catalog, list: &ModelList) -> Vec<String> {
    let started_with = of_daemon(data).unwrap_or_default();
    let there = catalog(config, &|name| started_with.get(name).cloned()).ok();
    let mut all = vec![];
    for provider in &list.providers {
        let Some(own) = here.provider(&provider.name) else { continue };
        let key = there.as_ref().and_then(|there| there.provider(own.name())?.endpoint().key.clone());
        // What the daemon says of it counts more than what its environment lets guess.
        let key = if provider.has_key { key.or_else(|| own.endpoint().key.clone()) } else { None };
        all.extend(unlike_in(own, &provider.base_url, key.as_deref()));
    }
    all
}

/// How a provider of this shell is another one than that which the daemon has.
fn unlike_in(own: &Provider, url: &str, key: Option<&str>) -> Vec<String> {
    let (name, here) = (own.name(), own.endpoint());
    let mut all = vec![];
    if here.shown_url() != url {
        all.push(format!("reaches {name} at {url}, and this shell names {}", here.shown_url()));
    }
    match (key, here.key.as_deref()) {
        (None, Some(_)) => all.push(format!("has no key for {name}, which is here")),
        (Some(there), Some(here)) if there != here => all.push(format!("has another key for {name} than this shell")),
        _ => {}
    }
    all
}

/// The same for what a message to this model needs, or to none that is named. The daemon is not asked: its environment
/// tells, where the system lets us see it.
pub fn unlike_for(data: &Path, config: &Config, model: Option<&str>) -> Vec<String> {
    let Some(started_with) = of_daemon(data) else { return vec![] };
    let of_there = |name: &str| started_with.get(name).cloned();
    let (Ok(here), Ok(there)) = (catalog(config, &environment), catalog(config, &of_there)) else { return vec![] };
    let meant = |catalog: &Catalog, default: Option<String>| match model {
        Some(name) => catalog.full_name(name).ok(),
        None => default_of(catalog, config, default),
    };
    let own = meant(&here, environment(DEFAULT_VARIABLE));
    let its = meant(&there, said_there(data).or_else(|| of_there(DEFAULT_VARIABLE)));
    let mut all = vec![];
    if let (Some(own), Some(its)) = (&own, &its)
        && own != its
        && (model.is_some() || its == SCRIPTED || environment(DEFAULT_VARIABLE).is_some())
    {
        let whose = model.map_or_else(|| "sessions that name no model".into(), |name| format!("`{name}`"));
        all.push(format!("has {its} for {whose}, and this shell {own}"));
    }
    let names = [own, its].into_iter().flatten().filter_map(|model| Some(model.split_once('/')?.0.to_owned()));
    for name in names.collect::<BTreeSet<_>>() {
        let (Some(own), Some(its)) = (here.provider(&name), there.provider(&name)) else { continue };
        // An address that only the daemon was told is as somebody wanted it.
        let url = if own.url_variable().is_some() { its.endpoint().shown_url() } else { own.endpoint().shown_url() };
        all.extend(unlike_in(own, &url, its.endpoint().key.as_deref()));
    }
    all
}

/// The stand-in that answers where there is no model.
const SCRIPTED: &str = "scripted";

/// The model of a daemon's sessions that name none, as far as its environment tells.
pub fn default_of_daemon(data: &Path, config: &Config) -> Option<String> {
    let started_with = of_daemon(data)?;
    let there = catalog(config, &|name| started_with.get(name).cloned()).ok()?;
    default_of(&there, config, said_there(data).or_else(|| started_with.get(DEFAULT_VARIABLE).cloned()))
}

/// The model of this shell's sessions that name none, if a daemon were started now.
pub fn default_here(here: &Catalog, config: &Config) -> Option<String> {
    default_of(here, config, environment(DEFAULT_VARIABLE))
}

fn default_of(catalog: &Catalog, config: &Config, said: Option<String>) -> Option<String> {
    let said = said.filter(|name| !name.is_empty()).or_else(|| config.default_model.clone());
    default_model(catalog, said.as_deref()).ok()
}

/// The default model that the daemon's own command line names.
fn said_there(data: &Path) -> Option<String> {
    let pid = discover::read(data).ok()?.note.pid;
    let line = String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).ok()?).ok()?;
    let mut words = line.split('\0').skip_while(|word| !word.starts_with(DEFAULT_OPTION));
    match words.next()?.split_once('=') {
        Some((_, model)) => Some(model.to_owned()),
        None => words.next().map(str::to_owned),
    }
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
