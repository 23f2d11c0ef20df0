//! All models by name: `provider/model`, aliases, and the scripted ones. What is built in can be overridden by the user's config, never by a workspace.

mod known;
mod provider;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use tenure_core::model::{Fault, FaultKind};

use crate::{
    Model, Patience, Registry,
    entry::{Effort, Entry, PartKind, Prices, ThinkingStyle, ToolMode},
    scripted::{DEFAULT_NAME, ScriptedRegistry},
    vendor::{Transport, VendorModel},
};

pub use provider::{Provider, ProviderConfig};

/// Models that are kept ready.
const KEPT_MAX: usize = 256;

/// What a user says of a model; what is left out is as it was.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// what the vendor calls it, where that differs from its name here
    pub id: Option<String>,
    /// tokens that a request and its reply may have together
    pub window: Option<u64>,
    /// tokens that a reply may have
    pub output_max: Option<u64>,
    /// US dollars for a million tokens: `{ input = 3, output = 15, cache_read = 0.3, cache_write = 3.75 }`, and `long = { above = 200000, input = 6, … }` for long requests
    pub prices: Option<Prices>,
    /// what it can be sent besides text: `"image"`, `"audio"`, `"file"`
    pub takes: Option<Vec<PartKind>>,
    /// how tools are offered: `"native"`, or `"schema"` for local models whose own tool calls do not work
    pub tool_mode: Option<ToolMode>,
    /// how it is told to think: `"none"`, `"budget"`, `"effort"` or `"adaptive"`
    pub thinking: Option<ThinkingStyle>,
    /// how hard it should think: `"low"`, `"medium"` or `"high"`
    pub effort: Option<Effort>,
    /// whether its reasoning is sent back to it
    pub sends_reasoning: Option<bool>,
    /// how long the first byte of a reply may take
    pub first_byte_ms: Option<u64>,
    /// how long it may be silent in the middle of a reply
    pub between_bytes_ms: Option<u64>,
}

/// What a user's config says of models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CatalogConfig {
    pub providers: BTreeMap<String, ProviderConfig>,
    pub models: BTreeMap<String, ModelConfig>,
    pub aliases: BTreeMap<String, String>,
}

/// A model that can be named.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub entry: Entry,
    /// Whether its provider has all that it needs.
    pub is_ready: bool,
    /// What is missing, where something is.
    pub missing: Option<String>,
}

/// The models of one daemon.
#[derive(Debug)]
pub struct Catalog {
    providers: BTreeMap<String, Provider>,
    models: BTreeMap<String, ModelConfig>,
    aliases: BTreeMap<String, String>,
    scripted: ScriptedRegistry,
    transport: Transport,
    kept: Mutex<HashMap<String, Arc<VendorModel>>>,
}

impl Catalog {
    /// A catalog of what is built in and what the config says, with the variables of this environment.
    pub fn new(config: CatalogConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let CatalogConfig { providers: said, models, mut aliases } = config;
        let providers = provider::all(said, &variable)?;
        for name in models.keys() {
            let provider = name.split_once('/').map(|(provider, _)| provider);
            if !provider.is_some_and(|provider| providers.contains_key(provider)) {
                return Err(format!(
                    "models.\"{name}\": a model is named provider/model, and the provider has to exist"
                ));
            }
        }
        let sane = |prices: &Prices| prices.rates.are_sane() && prices.long.iter().all(|long| long.rates.are_sane());
        if let Some((name, _)) = models.iter().find(|(_, model)| model.prices.is_some_and(|prices| !sane(&prices))) {
            return Err(format!("models.\"{name}\".prices: a price is a number from 0"));
        }
        if let Some(ready) = providers.values().find(|provider| provider.has_key() && !provider.aliases().is_empty()) {
            for (alias, model) in ready.aliases() {
                aliases.entry((*alias).to_owned()).or_insert_with(|| format!("{}/{model}", ready.name()));
            }
        }
        Ok(Self {
            providers,
            models,
            aliases,
            scripted: ScriptedRegistry::new(),
            transport: Transport::new(),
            kept: Mutex::default(),
        })
    }

    /// The model for sessions that name none: the first vendor's whose key is there, or the scripted one.
    pub fn default_name(&self) -> &str {
        self.aliases.get("default").map_or(DEFAULT_NAME, String::as_str)
    }

    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.values()
    }

    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// All models that are known by name, in the order of their names.
    pub fn list(&self) -> Vec<Listed> {
        let mut names: Vec<String> = known::names().collect();
        names.extend(self.models.keys().cloned());
        names.sort();
        names.dedup();
        names.iter().filter_map(|name| self.listed(name)).collect()
    }

    /// What is known of a model, whether or not it is in the list.
    pub fn listed(&self, name: &str) -> Option<Listed> {
        let (provider, id) = name.split_once('/')?;
        let provider = self.providers.get(provider)?;
        let missing = provider.missing();
        Some(Listed { entry: self.entry(provider, name, id), is_ready: missing.is_none(), missing })
    }

    fn entry(&self, provider: &Provider, name: &str, id: &str) -> Entry {
        let mut entry = Entry {
            name: name.to_owned(),
            id: id.to_owned(),
            window: None,
            output_max: None,
            prices: provider.is_local().then_some(Prices::FREE),
            takes: provider.takes(),
            tool_mode: ToolMode::Native,
            thinking: ThinkingStyle::None,
            effort: None,
            sends_reasoning: false,
            is_openai: provider.is_openai(),
            patience: provider.patience(),
        };
        known::lay_over(&mut entry);
        if let Some(said) = self.models.get(name) {
            lay_over(&mut entry, said);
        }
        entry
    }

    fn vendor(&self, name: &str) -> Result<Arc<VendorModel>, Fault> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = kept.get(name) {
            return Ok(model.clone());
        }
        let (provider, id) = name.split_once('/').ok_or_else(|| self.unknown(name))?;
        let provider = self.providers.get(provider).filter(|_| !id.is_empty()).ok_or_else(|| self.unknown(name))?;
        if let Some(missing) = provider.missing() {
            return Err(Fault::new(FaultKind::Auth, missing));
        }
        let entry = self.entry(provider, name, id);
        let model = VendorModel::new(entry, provider.wire(), provider.endpoint(), self.transport.clone());
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        Ok(kept.entry(name.to_owned()).or_insert(Arc::new(model)).clone())
    }

    fn unknown(&self, name: &str) -> Fault {
        let providers: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        let message = format!(
            "there is no model named `{name}`; a name is provider/model, with one of the providers {}; or `scripted`; \
             `tenure models` lists them",
            providers.join(", ")
        );
        Fault::new(FaultKind::UnknownModel, message)
    }

    /// The name that an alias stands for.
    pub fn full_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }
}

impl Registry for Catalog {
    fn resolve(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        let name = self.full_name(name);
        match name == DEFAULT_NAME || name.starts_with("scripted:") {
            true => self.scripted.resolve(name),
            false => Ok(self.vendor(name)?),
        }
    }
}

fn lay_over(entry: &mut Entry, said: &ModelConfig) {
    let ModelConfig { id, window, output_max, prices, takes, tool_mode, thinking, effort, sends_reasoning, .. } =
        said.clone();
    entry.id = id.unwrap_or_else(|| entry.id.clone());
    entry.window = window.or(entry.window);
    entry.output_max = output_max.or(entry.output_max);
    entry.prices = prices.or(entry.prices);
    entry.takes = takes.unwrap_or_else(|| entry.takes.clone());
    entry.tool_mode = tool_mode.unwrap_or(entry.tool_mode);
    entry.thinking = thinking.unwrap_or(entry.thinking);
    entry.effort = effort.or(entry.effort);
    entry.sends_reasoning = sends_reasoning.unwrap_or(entry.sends_reasoning);
    let Patience { first_byte, between_bytes } = entry.patience;
    entry.patience = Patience {
        first_byte: said.first_byte_ms.map_or(first_byte, Duration::from_millis),
        between_bytes: said.between_bytes_ms.map_or(between_bytes, Duration::from_millis),
    };
}
