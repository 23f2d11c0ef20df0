//! What the doctor says of models: keys, servers on this machine, and whether those show tools to their models.

use std::path::Path;

use tenure_client::discover;
use tenure_core::model::Fault;
use tenure_models::{
    catalog::{Catalog, Provider},
    entry::ToolMode,
    probe::{self, ToolSupport},
};

use super::{Check, ok, warning, wrong};
use crate::{
    config::{self, Config},
    models,
};

/// How many models of a server are named.
const NAMED_MAX: usize = 8;

pub async fn checks(data: &Path) -> Vec<Check> {
    // A file that cannot be read is told elsewhere.
    let Ok(config) = config::read(data) else { return vec![] };
    let catalog = match models::catalog(&config, &models::environment) {
        Ok(catalog) => catalog,
        Err(problem) => return vec![wrong("models", problem.to_string(), "mend or unset that variable")],
    };
    let doctor = Doctor { catalog: &catalog, config: &config, file: data.join(config::FILE).display().to_string() };
    let mut checks = Vec::new();
    let (mut absent, mut usable) = (Vec::new(), false);
    for provider in catalog.providers() {
        let told = match provider.is_local() && provider.lists() {
            true => doctor.server(provider).await,
            false => doctor.vendor(provider),
        };
        match told {
            Told::Absent(what) => absent.push(what),
            Told::Checks(told) => {
                usable = true;
                checks.extend(told);
            }
        }
    }
    if !absent.is_empty() {
        checks.push(ok("not set up", absent.join("; ")));
    }
    checks.insert(0, doctor.default_model(usable));
    checks.extend(of_daemon(data, &catalog).await);
    checks
}

struct Doctor<'a> {
    catalog: &'a Catalog,
    config: &'a Config,
    file: String,
}

/// What there is to say of a provider.
enum Told {
    /// Nobody has set it up, and nobody needs to.
    Absent(String),
    Checks(Vec<Check>),
}

impl Doctor<'_> {
    fn default_model(&self, usable: bool) -> Check {
        let said = std::env::var("TENURE_DEFAULT_MODEL").ok().filter(|name| !name.is_empty());
        let said = said.or_else(|| self.config.default_model.clone());
        match models::default_model(self.catalog, said.as_deref()) {
            Err(problem) => wrong("models", problem.to_string(), "`tenure models` lists them"),
            Ok(name) if name == "scripted" && !usable => warning(
                "models",
                "there is no key and no server on this machine: sessions talk to `scripted`, which is no model",
                "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or start a server such as Ollama",
            ),
            Ok(name) => ok("models", format!("sessions that name none have {name}")),
        }
    }

    /// Whether the user has said anything of it.
    fn is_said(&self, provider: &Provider) -> bool {
        self.config.providers.contains_key(provider.name())
            || self.config.models.keys().any(|name| name.split_once('/').is_some_and(|(of, _)| of == provider.name()))
    }

    fn vendor(&self, provider: &Provider) -> Told {
        let (name, variable) = (provider.name().to_owned(), provider.key_variable().unwrap_or("a key"));
        let place = provider.endpoint().shown_url();
        let in_file = self.config.providers.get(provider.name()).is_some_and(|said| said.key.is_some());
        match provider.missing() {
            None if in_file => Told::Checks(vec![ok(name, format!("{place}, with the key of config.toml"))]),
            None if provider.has_key() => Told::Checks(vec![ok(name, format!("{place}, with the key of {variable}"))]),
            None => Told::Checks(vec![ok(name, format!("{place}, without a key"))]),
            Some(_) if self.is_said(provider) => {
                let hint = format!("set {variable} for the daemon, or `key` under [providers.{name}] in {}", self.file);
                Told::Checks(vec![warning(name, "its key is missing", hint)])
            }
            Some(_) => Told::Absent(format!("{name} ({variable})")),
        }
    }

    async fn server(&self, provider: &Provider) -> Told {
        let (name, place) = (provider.name().to_owned(), provider.endpoint().shown_url());
        match self.catalog.offered(provider).await {
            Err(_) if !self.is_said(provider) => Told::Absent(format!("{name} (no server at {place})")),
            Err(fault) => {
                let hint = format!("start its server, or mend base_url under [providers.{name}] in {}", self.file);
                Told::Checks(vec![warning(name, fault.message, hint)])
            }
            Ok(ids) if ids.is_empty() => {
                Told::Checks(vec![warning(name, format!("{place} answers and has no model"), "give it one")])
            }
            Ok(ids) => {
                let mut checks = vec![ok(name, format!("{place} has {}", named(&ids)))];
                for id in self.to_try(provider, &ids) {
                    checks.push(self.tools(provider, &id).await);
                }
                Told::Checks(checks)
            }
        }
    }

    /// Those that the config names, or else the first: to try a model may mean to load it.
    fn to_try(&self, provider: &Provider, ids: &[String]) -> Vec<String> {
        let of_config = self.config.models.keys().filter_map(|name| name.split_once('/'));
        let own = of_config.filter(|(of, id)| *of == provider.name() && ids.iter().any(|known| known == id));
        let own: Vec<String> = own.map(|(_, id)| id.to_owned()).collect();
        if own.is_empty() { ids.iter().take(1).cloned().collect() } else { own }
    }

    async fn tools(&self, provider: &Provider, id: &str) -> Check {
        let name = format!("{}/{id}", provider.name());
        let mode = self.catalog.known().into_iter().find(|known| known.entry.name == name);
        let by_schema = mode.is_some_and(|known| known.entry.tool_mode == ToolMode::Schema);
        let lines = || format!("put these lines into {}:\n[models.\"{name}\"]\ntool_mode = \"schema\"", self.file);
        match (probe::tools(self.catalog.transport(), provider, id).await, by_schema) {
            (Ok(ToolSupport::Shown), false) => ok("tools", format!("{name} is shown tools in its own way")),
            (Ok(ToolSupport::Shown), true) => {
                ok("tools", format!("{name} gets tools by schema; it is shown them in its own way too"))
            }
            (Ok(_), true) => ok("tools", format!("{name} gets tools by schema, as it needs")),
            (Ok(ToolSupport::Dropped), false) => {
                let found =
                    format!("{name} is never shown tools: its server drops them, and answers as if all were well");
                warning("tools", found, lines())
            }
            (Ok(ToolSupport::Refused(why)), false) => {
                warning("tools", format!("{name} takes no tools: {why}"), lines())
            }
            (Err(fault), _) => untried(&name, &fault),
        }
    }
}

fn untried(name: &str, fault: &Fault) -> Check {
    let found = format!("whether {name} is shown tools could not be found out: {}", fault.message);
    warning("tools", found, "look at the server's own log, then try again")
}

fn named(ids: &[String]) -> String {
    let mut text = ids.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if ids.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", ids.len() - NAMED_MAX));
    }
    text
}

/// A daemon keeps the environment that it was started with.
async fn of_daemon(data: &Path, catalog: &Catalog) -> Vec<Check> {
    let Ok((client, _)) = discover::find(data).await else { return vec![] };
    let Ok(list) = client.models(None).await else { return vec![] };
    let here = |name: &str| catalog.provider(name).is_some_and(Provider::has_key);
    let lacking = list.providers.into_iter().filter(|provider| !provider.has_key && here(&provider.name));
    let told = |name: String| {
        let hint = "`tenure stop`: the next command starts one with the environment of here";
        warning("daemon", format!("the one that runs has no key for {name}, which is here"), hint)
    };
    lacking.map(|provider| told(provider.name)).collect()
}
