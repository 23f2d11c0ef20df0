//! All models by name: `provider/model`, aliases, and the scripted ones. What is built in can be overridden by the user's config, never by a workspace.

mod known;
mod offered;
mod provider;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};
use tenure_core::model::{Fault, FaultKind};

use crate::{
    Model, Patience, Registry,
    entry::{Effort, Entry, PartKind, Prices, ThinkingStyle, ToolMode},
    scripted::{DEFAULT_NAME, DEMO_NAME, ScriptedRegistry},
    vendor::{Transport, VendorModel, Wire, window::Offer},
};

use offered::Offered;
pub use provider::{Provider, ProviderConfig, runs_models};

/// How many similar names are told, and how much of their beginning must be the same.
const SIMILAR_MAX: usize = 3;
const SHARED_MIN: usize = 3;
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
    /// how long the first byte of a reply may take: 5 minutes if it is not said, 15 for a server on this machine
    pub first_byte_ms: Option<u64>,
    /// how long it may be silent in the middle of a reply, also while it thinks: a minute if it is not said
    pub between_bytes_ms: Option<u64>,
}

/// What a user's config says of models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CatalogConfig {
    pub providers: BTreeMap<String, ProviderConfig>,
    pub models: BTreeMap<String, ModelConfig>,
    pub aliases: BTreeMap<String, String>,
}

/// A mistake in what a user says of models, with the key that it stands under.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}.{name}: {what}")]
pub struct Mistake {
    pub table: &'static str,
    pub name: String,
    pub what: String,
}

impl Mistake {
    fn of(table: &'static str, name: &str, what: impl Into<String>) -> Self {
        Self { table, name: name.to_owned(), what: what.into() }
    }
}

/// Where a name in the list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    BuiltIn,
    Config,
    /// A server on this machine lists it.
    Server,
}

/// A model that can be named.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub provider: String,
    pub entry: Entry,
    pub source: Source,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// What is missing before it can be asked, where something is.
    pub missing: Option<String>,
}

impl Listed {
    /// What the server tells of its window, where nobody else does.
    fn take_window(&mut self, offers: &[Offer]) {
        let told = offers.iter().find(|offer| offer.id == self.entry.id).and_then(|offer| offer.window);
        self.entry.window = self.entry.window.or(told);
    }

    /// Whether it is built in for the vendor, and this server of that name does not have it.
    fn is_elsewhere(&self, provider: &Provider, ids: &[String]) -> bool {
        let is_built_in = self.provider == provider.name() && self.source == Source::BuiltIn;
        is_built_in && !ids.is_empty() && !ids.contains(&self.entry.id)
    }
}

/// A provider, and how it stands with it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedProvider {
    pub name: String,
    pub wire: Wire,
    pub base_url: String,
    pub is_local: bool,
    pub has_key: bool,
    pub key_variable: Option<String>,
    /// What is missing before it can be asked, where something is.
    pub missing: Option<String>,
    /// What kind of fault it was, where a server was asked in vain.
    pub fault: Option<FaultKind>,
}

/// All that can be named.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    pub models: Vec<Listed>,
    pub providers: Vec<ListedProvider>,
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
    offered: Offered,
}

/// What stands for the first choice of whoever has no other.
const DEFAULT_ALIAS: &str = "default";
/// Names that mean something once a vendor's key is there.
const USUAL_ALIASES: [&str; 3] = ["small", DEFAULT_ALIAS, "premium"];

impl Catalog {
    /// A catalog of what is built in and what the config says, with the variables of this environment.
    pub fn new(config: CatalogConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Mistake> {
        let CatalogConfig { providers: said, models, mut aliases } = config;
        let providers = provider::all(said, &variable)?;
        check_models(&models, &providers)?;
        check_aliases(&aliases, &providers)?;
        let first = provider::built_in().filter_map(|name| providers.get(name));
        let mut first = first.filter(|provider| provider.has_key() && !provider.aliases().is_empty());
        if let Some(ready) = first.next() {
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
            offered: Offered::default(),
        })
    }

    /// The model for sessions that name none: the first vendor's whose key is there, or the scripted one.
    pub fn default_name(&self) -> &str {
        self.aliases.get(DEFAULT_ALIAS).map_or(DEFAULT_NAME, String::as_str)
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

    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.get(name)
    }

    /// What a server lists, looked up a moment ago or now.
    pub async fn offered(&self, provider: &Provider) -> Result<Vec<String>, Fault> {
        let offers = self.offered.by(provider, &self.transport).await?;
        Ok(offers.into_iter().map(|offer| offer.id).collect())
    }

    /// All models that are known by name, in the order of their names.
    pub fn known(&self) -> Vec<Listed> {
        let mut names: BTreeMap<String, Source> = known::names().map(|name| (name, Source::BuiltIn)).collect();
        names.extend(self.models.keys().map(|name| (name.clone(), Source::Config)));
        names.iter().filter_map(|(name, source)| self.listed(name, *source)).collect()
    }

    /// What is known of a model, whether or not it is in the list.
    fn listed(&self, name: &str, source: Source) -> Option<Listed> {
        let (provider, id) = name.split_once('/')?;
        let provider = self.providers.get(provider)?;
        Some(Listed {
            provider: provider.name().to_owned(),
            entry: self.entry(provider, name, id),
            source,
            aliases: self.aliases_of(name),
            missing: provider.missing(),
        })
    }

    fn aliases_of(&self, name: &str) -> Vec<String> {
        let own = self.aliases.iter().filter(|(_, stands_for)| *stands_for == name);
        own.map(|(alias, _)| alias.clone()).collect()
    }

    async fn all(&self) -> Listing {
        let mut models = self.scripted_ones();
        models.extend(self.known());
        let asked = self.providers.values().map(|provider| async move {
            let asked = async { self.offered.by(provider, &self.transport).await };
            let offered = if provider.is_local() { Some(asked.await) } else { None };
            (provider, offered)
        });
        let mut providers = Vec::new();
        for (provider, offered) in join_all(asked).await {
            let (mut missing, mut fault) = (provider.missing(), None);
            match offered {
                Some(Ok(offers)) if provider.lists() => {
                    let ids: Vec<String> = offers.iter().map(|offer| offer.id.clone()).collect();
                    // What it has counts, not what its vendor has elsewhere.
                    models.retain(|known| !known.is_elsewhere(provider, &ids));
                    models.extend(self.found(provider, &ids, &models));
                    let own = models.iter_mut().filter(|model| model.provider == provider.name());
                    own.for_each(|model| model.take_window(&offers));
                }
                // One that speaks another format need not list what it has; but it has to be there.
                Some(Err(Fault { kind, message, .. })) if provider.lists() || kind.is_silence() => {
                    (missing, fault) = (missing.or(Some(message)), Some(kind));
                }
                None | Some(_) => {}
            }
            let own = models.iter_mut().filter(|model| model.provider == provider.name());
            own.for_each(|model| model.missing.clone_from(&missing));
            providers.push(listed_provider(provider, missing, fault));
        }
        models.sort_by(|one, other| one.entry.name.cmp(&other.entry.name));
        Listing { models, providers }
    }

    /// What a server has beside what is listed already.
    fn found(&self, provider: &Provider, ids: &[String], listed: &[Listed]) -> Vec<Listed> {
        let name = |id: &String| format!("{}/{id}", provider.name());
        let is_listed = |name: &String| listed.iter().any(|known| known.entry.name == *name);
        ids.iter()
            .map(name)
            .filter(|name| !is_listed(name))
            .filter_map(|name| self.listed(&name, Source::Server))
            .collect()
    }

    fn scripted_ones(&self) -> Vec<Listed> {
        let one = |name: &str| Listed {
            provider: DEFAULT_NAME.to_owned(),
            entry: Entry::scripted(name),
            source: Source::BuiltIn,
            aliases: self.aliases_of(name),
            missing: None,
        };
        vec![one(DEFAULT_NAME), one(DEMO_NAME)]
    }

    fn entry(&self, provider: &Provider, name: &str, id: &str) -> Entry {
        let mut entry = Entry {
            name: name.to_owned(),
            id: id.to_owned(),
            window: None,
            output_max: None,
            prices: None,
            takes: provider.takes(),
            tool_mode: ToolMode::Native,
            thinking: ThinkingStyle::None,
            effort: None,
            sends_reasoning: false,
            is_openai: provider.is_openai(),
            patience: provider.patience(),
        };
        known::lay_over(&mut entry);
        // What a server on this machine takes is not what the vendor takes whose names it uses.
        if provider.is_local() {
            entry.prices = provider.is_free().then_some(Prices::FREE);
        }
        if let Some(said) = self.models.get(name) {
            lay_over(&mut entry, said);
        }
        entry.takes.retain(|kind| provider.wire().carries(*kind));
        entry
    }

    fn vendor(&self, name: &str) -> Result<Arc<VendorModel>, Fault> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = kept.get(name) {
            return Ok(model.clone());
        }
        let (provider, id) = self.parts_of(name).ok_or_else(|| self.unknown(name))?;
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
        if USUAL_ALIASES.contains(&name) {
            let variables: Vec<&str> = provider::built_in()
                .filter_map(|name| self.providers.get(name))
                .filter(|provider| !provider.aliases().is_empty())
                .filter_map(Provider::key_variable)
                .collect();
            let message = format!(
                "`{name}` stands for nothing yet: set {} for the daemon, or `{name}` under [aliases] in config.toml",
                variables.join(" or ")
            );
            return Fault::new(FaultKind::Auth, message);
        }
        let providers: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        let similar = match self.similar(name).join(", ") {
            names if names.is_empty() => String::new(),
            names => format!(" (similar: {names})"),
        };
        let message = format!(
            "there is no model named `{name}`{similar}; a name is provider/model, with one of the providers {}; or `scripted`; \
             `tenure models` lists them",
            providers.join(", ")
        );
        Fault::new(FaultKind::UnknownModel, message)
    }

    /// Known names that begin most like this one; a forgotten provider does not matter.
    fn similar(&self, name: &str) -> Vec<String> {
        let (meant, id_of) = (id_of(name).to_ascii_lowercase(), |name: &String| id_of(name).to_ascii_lowercase());
        let shared = |id: &str| id.bytes().zip(meant.bytes()).take_while(|(one, other)| one == other).count();
        let names = self.known().into_iter().map(|known| known.entry.name);
        let mut all: Vec<(usize, String)> = names.map(|name| (shared(&id_of(&name)), name)).collect();
        let most = all.iter().map(|(shared, _)| *shared).max().unwrap_or(0);
        all.retain(|(shared, _)| *shared == most && most >= SHARED_MIN && most * 2 >= meant.len());
        // The newest versions come last by name.
        all.into_iter().rev().take(SIMILAR_MAX).map(|(_, name)| name).collect()
    }

    /// The name that an alias stands for.
    fn meant<'a>(&'a self, name: &'a str) -> &'a str {
        match name {
            DEFAULT_ALIAS => self.default_name(),
            name => self.aliases.get(name).map_or(name, String::as_str),
        }
    }

    /// The provider of a name and what it calls the model.
    fn parts_of<'a>(&self, name: &'a str) -> Option<(&Provider, &'a str)> {
        let (provider, id) = name.split_once('/').filter(|(_, id)| !id.is_empty())?;
        Some((self.providers.get(provider)?, id))
    }
}

impl Registry for Catalog {
    fn resolve(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        let name = self.meant(name);
        match is_scripted(name) {
            true => self.scripted.resolve(name),
            false => Ok(self.vendor(name)?),
        }
    }

    fn full_name(&self, name: &str) -> Result<String, Fault> {
        let meant = self.meant(name);
        match () {
            () if is_scripted(meant) => self.scripted.full_name(meant),
            // It means something as soon as there is a key; until then a turn says which one is missing.
            () if USUAL_ALIASES.contains(&meant) || self.parts_of(meant).is_some() => Ok(meant.to_owned()),
            () => Err(self.unknown(name)),
        }
    }

    fn listing(&self) -> BoxFuture<'_, Listing> {
        Box::pin(self.all())
    }
}

/// What a provider calls the model of this name.
fn id_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, id)| id)
}

fn is_scripted(name: &str) -> bool {
    name == DEFAULT_NAME || name.starts_with("scripted:")
}

fn listed_provider(provider: &Provider, missing: Option<String>, fault: Option<FaultKind>) -> ListedProvider {
    ListedProvider {
        name: provider.name().to_owned(),
        wire: provider.wire(),
        base_url: provider.endpoint().shown_url(),
        is_local: provider.is_local(),
        has_key: provider.has_key(),
        key_variable: provider.key_variable().map(str::to_owned),
        missing,
        fault,
    }
}

fn check_models(models: &BTreeMap<String, ModelConfig>, providers: &BTreeMap<String, Provider>) -> Result<(), Mistake> {
    let sane = |prices: &Prices| prices.rates.are_sane() && prices.long.iter().all(|long| long.rates.are_sane());
    for (name, model) in models {
        let bad = |what: &str| Err(Mistake::of("models", name, what));
        if !is_model(name, providers) {
            return bad("a model is named provider/model, and the provider has to exist");
        }
        if model.prices.is_some_and(|prices| !sane(&prices)) {
            return bad("a price is a number from 0");
        }
        // Which of the two formats of OpenAI is spoken there depends on the address, which the environment may name.
        let wire = name.split_once('/').and_then(|(provider, _)| providers.get(provider)).map(Provider::wire);
        if model.tool_mode == Some(ToolMode::Schema) && wire != Some(Wire::Chat) && !name.starts_with("openai/") {
            return bad(
                "tool_mode = \"schema\" is for servers that are spoken to by wire = \"chat\": leave it out, or set \
                 that wire for the provider",
            );
        }
        if model.window == Some(0) || model.output_max == Some(0) {
            return bad("window and output_max are above 0");
        }
    }
    Ok(())
}

fn check_aliases(aliases: &BTreeMap<String, String>, providers: &BTreeMap<String, Provider>) -> Result<(), Mistake> {
    for (alias, name) in aliases {
        let bad = |what: String| Err(Mistake::of("aliases", alias, what));
        if alias.is_empty() || alias.contains('/') || is_scripted(alias) {
            return bad("an alias is a word of its own, without a /".into());
        }
        if !is_scripted(name) && !is_model(name, providers) {
            return bad(format!("`{name}` is no model: a name is provider/model, and the provider has to exist"));
        }
    }
    Ok(())
}

fn is_model(name: &str, providers: &BTreeMap<String, Provider>) -> bool {
    name.split_once('/').is_some_and(|(provider, id)| !id.is_empty() && providers.contains_key(provider))
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
