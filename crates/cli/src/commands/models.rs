//! `tenure models`: what sessions can have for a model, and what is missing for the others.

use std::sync::atomic::Ordering;

use clap::Args;
use tenure_client::{
    Client,
    print::{Look, Tone, columns, tamed},
};
use tenure_wire::{ModelList, ModelView, PriceView, ProviderView};

use super::Context;
use crate::{
    config, daemon,
    exit::{Exit, Problem},
    models, terminal,
};

const EXAMPLES: &str = "\
Examples:
    tenure models                      those that can be asked now
    tenure models --all                all that are known
    tenure models ollama               those of one provider
    tenure models --json | jq -r '.models[] | select(.ready) | .name'

Any model of a provider can be named, also one that is not listed. Keys come
from the environment of the daemon or from config.toml; [providers.NAME] and
[models.\"provider/model\"] there add and change what is listed. See
docs/models.md. A daemon that runs keeps its environment: `tenure stop` after
setting a key.";

/// List models with their windows, prices and abilities
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Only those of this provider
    provider: Option<String>,
    /// Also those that cannot be asked now
    #[arg(long)]
    all: bool,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let client = daemon::connect(context).await?;
    let list = client.models(arguments.provider.as_deref()).await?;
    if let Some(named) = arguments.provider.as_deref().filter(|_| list.providers.is_empty() && list.models.is_empty()) {
        let all: Vec<String> = client.models(None).await?.providers.into_iter().map(|provider| provider.name).collect();
        let message = format!("there is no provider named `{}`", tamed(named));
        return Err(Problem::refused("unknown_provider", message, format!("there are: {}", all.join(", "))).into());
    }
    match context.output {
        terminal::Output::Json => terminal::print_json(&list)?,
        terminal::Output::Text => {
            let all = arguments.all || arguments.provider.is_some();
            told(&list, all, terminal::stdout_look()).iter().try_for_each(|line| terminal::print_line(line))?;
            if context.remote.is_none() {
                tell_unlike(context, &list);
            }
        }
    }
    Ok(Exit::Ok)
}

/// What may be behind a key that is missing or refused: a daemon keeps the environment that it was started with.
pub async fn tell_key_here(context: &Context, client: &Client) {
    // It is only a hint: what stands in its way is not worth an error.
    if context.remote.is_none()
        && !context.has_told_unlike.load(Ordering::Relaxed)
        && let Ok(list) = client.models(None).await
    {
        tell_unlike(context, &list);
    }
}

/// What the daemon's environment has else than this shell's, to stderr.
fn tell_unlike(context: &Context, list: &ModelList) {
    let Ok(config) = config::read(&context.data) else { return };
    let Ok(here) = models::catalog(&config, &models::environment) else { return };
    tell_all(&models::unlike(&context.data, &config, &here, list));
}

/// What the daemon's environment has else than this shell's is told before a message goes there to this model.
pub fn tell_before(context: &Context, model: Option<&str>) {
    let Ok(config) = config::read(&context.data) else { return };
    if context.remote.is_none() {
        let differences = models::unlike_for(&context.data, &config, model);
        context.has_told_unlike.store(!differences.is_empty(), Ordering::Relaxed);
        tell_all(&differences);
    }
}

fn tell_all(differences: &[String]) {
    for difference in differences {
        terminal::tell(&format!("The daemon {difference}; `tenure stop` ends it, and the next one has what is here."));
    }
}

/// The table, and what to do about what is missing.
fn told(list: &ModelList, all: bool, look: Look) -> Vec<String> {
    let shown: Vec<&ModelView> = list.models.iter().filter(|model| all || model.ready).collect();
    let mut lines = table(&shown, look);
    let mut notes = vec![LEGEND.to_owned(), format!("Sessions that name none have {}.", tamed(&list.default_model))];
    let hidden = list.models.len() - shown.len();
    if hidden > 0 {
        notes.push(format!("{hidden} more are known and cannot be asked now: `tenure models --all`."));
    }
    notes.extend(list.providers.iter().filter_map(lacking));
    lines.push(String::new());
    lines.extend(notes.iter().map(|note| look.paint(Tone::Faint, &tamed(note))));
    lines
}

/// What a provider lacks, shortly: servers on this machine need not run.
fn lacking(provider: &ProviderView) -> Option<String> {
    let missing = provider.missing.as_deref()?;
    let name = &provider.name;
    Some(match (provider.fault.as_deref(), &provider.key_variable) {
        (Some("no_server"), _) => format!("{name}: no server answers at {}", provider.base_url),
        (Some("auth"), _) => format!("{name}: {} wants another key: {missing}", provider.base_url),
        (None, Some(variable)) if !provider.has_key => format!("{name}: set {variable} for the daemon"),
        _ => format!("{name}: {missing}"),
    })
}

const LEGEND: &str = "$ are for a million tokens; + where long requests cost more, ? where it is not known.";
const HEAD: [&str; 5] = ["MODEL", "WINDOW", "$ IN/OUT", "TAKES", "ALSO"];
const GAP: &str = "  ";

/// A head and a line for each model. Names are whole, since they are to be copied; what stands behind gives way.
fn table(models: &[&ModelView], look: Look) -> Vec<String> {
    let rows: Vec<[String; 5]> = models.iter().map(|model| cells(model)).collect();
    let head = HEAD.map(str::to_owned);
    let width = |at: usize| rows.iter().chain([&head]).map(|row| columns(&row[at])).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let padded = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(columns(cell)))));
        look.line(padded.collect::<Vec<_>>().join(GAP).trim_end(), 0)
    };
    let head = look.paint(Tone::Faint, &line(&head));
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}

fn cells(model: &ModelView) -> [String; 5] {
    let mut also = model.aliases.clone();
    if model.tool_mode != "native" {
        also.push(format!("tools by {}", model.tool_mode));
    }
    if !model.ready {
        also.push("not ready".into());
    }
    let cell = |text: &str| tamed(&text.replace('\n', " "));
    [
        cell(&model.name),
        tokens(model.window),
        price(model.prices.as_ref()),
        cell(&model.takes.join(",")),
        cell(&also.join(", ")),
    ]
}

/// `200k`, `1M`; `?` where it is not known.
fn tokens(number: Option<u64>) -> String {
    match number {
        None => "?".to_owned(),
        Some(number) if number >= 1_000_000 => {
            let tenths = number / 100_000;
            if tenths % 10 == 0 { format!("{}M", tenths / 10) } else { format!("{}.{}M", tenths / 10, tenths % 10) }
        }
        Some(number) if number >= 1_000 => format!("{}k", number / 1_000),
        Some(number) => number.to_string(),
    }
}

fn price(prices: Option<&PriceView>) -> String {
    match prices {
        None => "?".to_owned(),
        Some(prices) if prices.input == 0.0 && prices.output == 0.0 => "free".to_owned(),
        Some(prices) => {
            let more = if prices.long.is_some() { "+" } else { "" };
            format!("{}/{}{more}", prices.input, prices.output)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, ready: bool) -> ModelView {
        ModelView {
            name: name.into(),
            provider: name.split('/').next().unwrap().into(),
            ready,
            missing: (!ready).then(|| "there is no key".into()),
            source: "built_in".into(),
            aliases: vec!["small".into()],
            window: Some(1_050_000),
            output_max: Some(128_000),
            prices: Some(PriceView { input: 0.1, output: 0.5, cache_read: None, cache_write: None, long: None }),
            takes: vec!["image".into(), "file".into()],
            tool_mode: "native".into(),
            thinking: "none".into(),
        }
    }

    fn list() -> ModelList {
        let mut local = model("ollama/a-model-with-a-long-name:70b-q4_K_M", true);
        (local.prices, local.window, local.tool_mode) = (None, None, "schema".into());
        let provider = |name: &str, fault: Option<&str>, key_variable: Option<&str>| ProviderView {
            name: name.into(),
            wire: "chat".into(),
            base_url: "http://127.0.0.1:8080/v1".into(),
            local: fault.is_some(),
            ready: false,
            missing: Some("HTTP 401".into()),
            fault: fault.map(str::to_owned),
            has_key: false,
            key_variable: key_variable.map(str::to_owned),
        };
        ModelList {
            default_model: "scripted".into(),
            models: vec![model("openai/gpt-6-luna", false), local],
            providers: vec![
                provider("llamacpp", Some("no_server"), None),
                provider("openai", None, Some("OPENAI_API_KEY")),
                provider("vllm", Some("auth"), None),
            ],
        }
    }

    #[test]
    fn what_can_be_asked_comes_first_and_what_is_missing_is_told() {
        let lines = told(&list(), false, Look { width: 80, ..Look::PLAIN });
        assert_eq!(
            lines,
            [
                "MODEL                                       WINDOW  $ IN/OUT  TAKES       ALSO",
                "ollama/a-model-with-a-long-name:70b-q4_K_M  ?       ?         image,file  small…",
                "",
                LEGEND,
                "Sessions that name none have scripted.",
                "1 more are known and cannot be asked now: `tenure models --all`.",
                "llamacpp: no server answers at http://127.0.0.1:8080/v1",
                "openai: set OPENAI_API_KEY for the daemon",
                "vllm: http://127.0.0.1:8080/v1 wants another key: HTTP 401",
            ]
        );
        for width in [60, 80, 100, 120] {
            let lines = told(&list(), true, Look { width, ..Look::PLAIN });
            assert!(lines[..3].iter().all(|line| columns(line) <= width), "{lines:#?}");
        }
        let wide = told(&list(), true, Look::PLAIN);
        assert!(wide[1].starts_with("openai/gpt-6-luna ") && wide[1].ends_with("small, not ready"), "{wide:#?}");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [None, Some(999), Some(8_192), Some(200_000), Some(1_000_000), Some(1_048_576)].map(tokens);
        assert_eq!(shown, ["?", "999", "8k", "200k", "1M", "1M"]);
    }
}
