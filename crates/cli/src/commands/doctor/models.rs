//! What the doctor says of models: keys, servers on this machine, and whether those show tools to their models.

use std::path::Path;

use tenure_client::discover;
use tenure_core::model::{Fault, FaultKind};
use tenure_models::{
    catalog::{Catalog, Provider},
    entry::ToolMode,
    probe::{self, ToolSupport},
};

use super::{Check, State, ok, warning, wrong};
use crate::{
    config::{self, Config},
    models,
};

/// How many models of a server are named.
const NAMED_MAX: usize = 8;

pub async fn checks(data: &Path) -> Vec<Check> {
    // A file that cannot be read is told elsewhere.
    let Ok(config) = config::read(data) else { return vec![] };
    let here = match models::catalog(&config, &models::environment) {
        Ok(catalog) => catalog,
        Err(problem) => return vec![wrong("models", problem.to_string(), "mend or unset that variable")],
    };
    // What a daemon has counts more than what the next one would have.
    let started_with = models::of_daemon(data);
    let of_daemon = started_with.as_ref().and_then(|all| models::catalog(&config, &|name| all.get(name).cloned()).ok());
    let default = match &started_with {
        Some(all) => all.get("TENURE_DEFAULT_MODEL").cloned(),
        None => models::environment("TENURE_DEFAULT_MODEL"),
    };
    let file = data.join(config::FILE).display().to_string();
    let doctor = Doctor { catalog: of_daemon.as_ref().unwrap_or(&here), config: &config, default, file };
    let mut checks = Vec::new();
    let (mut absent, mut usable) = (Vec::new(), false);
    for provider in doctor.catalog.providers() {
        let told = match doctor.unsendable_key(provider) {
            Some(check) => Told::Checks(vec![check]),
            None if provider.is_local() && provider.lists() => doctor.server(provider).await,
            None => doctor.vendor(provider).await,
        };
        match told {
            Told::Absent(what) => absent.push(what),
            Told::Checks(told) => {
                usable |= told.iter().any(|check| check.state == State::Ok);
                checks.extend(told);
            }
        }
    }
    if !absent.is_empty() {
        checks.push(ok("not set up", absent.join("; ")));
    }
    let is_set_here = models::default_here(&here, &config).is_some_and(|name| name != "scripted");
    checks.insert(0, doctor.default_model(usable, is_set_here && started_with.is_some()));
    checks.extend(unlike(data, &config, &here).await);
    checks
}

struct Doctor<'a> {
    catalog: &'a Catalog,
    config: &'a Config,
    /// What the environment says of the default model.
    default: Option<String>,
    file: String,
}

/// What there is to say of a provider.
enum Told {
    /// Nobody has set it up, and nobody needs to.
    Absent(String),
    Checks(Vec<Check>),
}

impl Doctor<'_> {
    /// `waits_here`: the next daemon would have a model by what is set in this shell.
    fn default_model(&self, usable: bool, waits_here: bool) -> Check {
        let said = self.default.clone().filter(|name| !name.is_empty());
        let said = said.or_else(|| self.config.default_model.clone());
        match models::default_model(self.catalog, said.as_deref()) {
            Err(problem) => wrong("models", problem.to_string(), "`tenure models` lists them"),
            Ok(name) if name == "scripted" && waits_here => warning(
                "models",
                "sessions talk to `scripted`, which is no model: the daemon was started without what is set here",
                "`tenure stop`: the next command starts one with the environment of here",
            ),
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
        provider.url_variable().is_some()
            || self.config.providers.contains_key(provider.name())
            || self.config.models.keys().any(|name| name.split_once('/').is_some_and(|(of, _)| of == provider.name()))
    }

    /// Whether its address was chosen by the user.
    fn is_placed(&self, provider: &Provider) -> bool {
        let in_file = self.config.providers.get(provider.name()).is_some_and(|said| said.base_url.is_some());
        in_file || provider.url_variable().is_some()
    }

    fn has_key_in_file(&self, provider: &Provider) -> bool {
        self.config.providers.get(provider.name()).is_some_and(|said| said.key.is_some())
    }

    /// A key that no header may hold; blanks around it are not taken for part of it.
    fn unsendable_key(&self, provider: &Provider) -> Option<Check> {
        let endpoint = provider.endpoint();
        endpoint.key.as_ref().filter(|key| key.chars().any(|c| c.is_control() || c.is_whitespace()))?;
        let (of, hint) = match (self.has_key_in_file(provider), provider.key_variable()) {
            (false, Some(variable)) => {
                (variable.to_owned(), format!("set {variable} again without it, then `tenure stop`"))
            }
            _ => {
                ("config.toml".to_owned(), format!("mend `key` under [providers.{}] in {}", provider.name(), self.file))
            }
        };
        let found = format!("the key of {of} has a blank or the end of a line in its middle: it cannot be sent");
        Some(wrong(provider.name().to_owned(), found, hint))
    }

    async fn vendor(&self, provider: &Provider) -> Told {
        let (name, variable) = (provider.name().to_owned(), provider.key_variable().unwrap_or("a key"));
        let place = provider.endpoint().shown_url();
        let with = match () {
            () if self.has_key_in_file(provider) => "with the key of config.toml".to_owned(),
            () if provider.has_key() => format!("with the key of {variable}"),
            () => "without a key".to_owned(),
        };
        match provider.missing() {
            Some(_) if self.is_said(provider) => {
                let hint = format!("set {variable} for the daemon, or `key` under [providers.{name}] in {}", self.file);
                Told::Checks(vec![warning(name, "its key is missing", hint)])
            }
            Some(_) => Told::Absent(format!("{name} ({variable})")),
            None => {
                if let Some(problem) = provider.proxy_problem(of_environment) {
                    let hint = "a daemon keeps the variables that it was started with: after a change `tenure stop`";
                    return Told::Checks(vec![wrong(name, problem, hint)]);
                }
                let refused = if self.is_placed(provider) { self.catalog.offered(provider).await.err() } else { None };
                let check = refused.and_then(|fault| self.unusable(provider, &fault));
                Told::Checks(vec![check.unwrap_or_else(|| ok(name, format!("{place}, {with}")))])
            }
        }
    }

    /// What is wrong with an address that was asked in vain; one that answers with something else may still do.
    fn unusable(&self, provider: &Provider, fault: &Fault) -> Option<Check> {
        let (name, place) = (provider.name().to_owned(), provider.endpoint().shown_url());
        let said = provider.url_variable().unwrap_or("base_url");
        match fault.kind {
            FaultKind::Auth => {
                let hint = match provider.key_variable() {
                    Some(variable) => format!("set {variable} for the daemon"),
                    None => format!("set `key` or `key_variable` under [providers.{name}] in {}", self.file),
                };
                Some(warning(name, format!("{place} answers, and does not let us in: {}", fault.message), hint))
            }
            kind if kind.is_silence() => {
                let hint = match (provider.proxy(of_environment), provider.url_variable()) {
                    (Some((proxy, named)), _) => {
                        format!("see that the proxy {proxy} works, or mend {named}, then `tenure stop`")
                    }
                    _ if kind == FaultKind::Tls => {
                        format!("see that {place} is reached with https, and that its certificate is trusted")
                    }
                    (None, Some(variable)) => format!("start its server, or mend {variable}, then `tenure stop`"),
                    (None, None) => {
                        format!("start its server, or mend base_url under [providers.{name}] in {}", self.file)
                    }
                };
                Some(warning(name, format!("nobody answers at {place} ({said}): {}", fault.message), hint))
            }
            _ => None,
        }
    }

    async fn server(&self, provider: &Provider) -> Told {
        let (name, place) = (provider.name().to_owned(), provider.endpoint().shown_url());
        match self.catalog.offered(provider).await {
            Err(fault) if !self.is_said(provider) && fault.kind.is_silence() => {
                Told::Absent(format!("{name} (no server at {place})"))
            }
            Err(fault) => match self.unusable(provider, &fault) {
                Some(check) => Told::Checks(vec![check]),
                None if !self.is_said(provider) => Told::Absent(format!("{name} (no server of models at {place})")),
                None => {
                    let found = format!("what answers at {place} does not list models: {}", fault.message);
                    Told::Checks(vec![warning(name, found, "see that it is the address of a server of models")])
                }
            },
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

fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
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
async fn unlike(data: &Path, config: &Config, here: &Catalog) -> Vec<Check> {
    let Ok((client, _)) = discover::find(data).await else { return vec![] };
    let Ok(list) = client.models(None).await else { return vec![] };
    let hint = "`tenure stop`: the next command starts one with the environment of here";
    let told = |difference: String| warning("daemon", format!("the one that runs {difference}"), hint);
    models::unlike(data, config, here, &list).into_iter().map(told).collect()
}
