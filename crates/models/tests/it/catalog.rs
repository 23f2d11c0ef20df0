//! What names stand for, what the config changes, what is missing, and what servers on this machine have.

use std::collections::BTreeMap;

use serde_json::json;
use tenure_core::model::{FaultKind, Usage};
use tenure_models::{
    Registry,
    catalog::{Catalog, CatalogConfig, Listed, ModelConfig, ProviderConfig, Source},
    entry::ToolMode,
    probe::{self, ToolSupport},
    vendor::Wire,
};
use tenure_testkit::vendor::{Answer, Asked, FakeVendor, Format, Speech};

use crate::request::{request, user};

type Variables<'a> = &'a [(&'a str, &'a str)];

fn with(config: CatalogConfig, variables: Variables<'_>) -> Catalog {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Catalog::new(config, variable).unwrap()
}

fn plain(variables: Variables<'_>) -> Catalog {
    with(CatalogConfig::default(), variables)
}

fn at(url: String) -> CatalogConfig {
    let provider = ProviderConfig { base_url: Some(url), ..ProviderConfig::default() };
    CatalogConfig { providers: [("box".to_owned(), provider)].into(), ..CatalogConfig::default() }
}

#[test]
fn the_first_vendor_whose_key_is_there_is_the_default() {
    for (variables, default) in [
        (&[][..], "scripted"),
        (&[("GEMINI_API_KEY", "g")], "google/gemini-4-hydrogen"),
        (&[("GEMINI_API_KEY", "g"), ("OPENAI_API_KEY", "o")], "openai/gpt-6.1-sol"),
        (&[("ANTHROPIC_API_KEY", " ")], "scripted"),
        (&[("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")], "anthropic/claude-opus-5-5"),
    ] {
        let catalog = plain(variables);
        assert_eq!((catalog.default_name(), catalog.full_name("default").unwrap().as_str()), (default, default));
    }
}

#[test]
fn a_misspelt_price_is_named() {
    let long = json!({ "above": 200_000, "input": 6, "output": 22.5, "cache_write": 7 });
    let prices = json!({ "input": 3, "output": 15, "cache_read": 0.3, "long": long });
    let read = |prices: serde_json::Value| serde_json::from_value::<ModelConfig>(json!({ "prices": prices }));
    let whole = read(prices.clone()).unwrap().prices.unwrap();
    assert_eq!(serde_json::to_value(whole).unwrap()["long"]["cache_write"], 7.0);
    assert_eq!((whole.rates.cache_read, whole.rates.cache_write), (Some(0.3), None));
    for place in ["", "/long"] {
        let mut misspelt = prices.clone();
        misspelt.pointer_mut(place).unwrap()["cache_raed"] = json!(1);
        let problem = read(misspelt).unwrap_err().to_string();
        assert!(problem.contains("unknown field `cache_raed`"), "{place}: {problem}");
    }
}

#[test]
fn the_share_of_the_reply_is_kept_free_where_the_vendor_wants_it() {
    let catalog = plain(&[("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")]);
    for (name, window) in [
        ("openai/gpt-5.2", 272_000),
        ("openai/gpt-6.1-sol", 922_000),
        ("openai/gpt-5.6", 922_000),
        ("anthropic/claude-opus-5-5", 1_000_000),
    ] {
        assert_eq!(catalog.resolve(name).unwrap().window(), Some(window), "{name}");
    }
}

#[test]
fn a_name_that_can_never_be_a_model_is_told_apart_from_one_whose_key_is_missing() {
    let catalog = plain(&[]);
    for name in ["openai/any", "anthropic/claude-opus-5-5", "ollama/x:7b", "openrouter/a/b", "scripted", "scripted:/x"]
    {
        assert_eq!(catalog.full_name(name).unwrap(), name);
    }
    for name in ["", "gpt", "openai", "openai/", "/x", "nobody/x", "scripted:x"] {
        assert_eq!(catalog.full_name(name).unwrap_err().kind, FaultKind::UnknownModel, "{name}");
    }
    let fault = catalog.resolve("openai/any").err().unwrap();
    assert_eq!(fault.kind, FaultKind::Auth);
    assert!(fault.message.contains("OPENAI_API_KEY") && fault.message.contains("[providers.openai]"), "{fault}");
    // These mean something as soon as there is a key.
    assert_eq!(catalog.full_name("small").unwrap(), "small");
    let fault = catalog.resolve("small").err().unwrap();
    assert!(fault.kind == FaultKind::Auth && fault.message.contains("ANTHROPIC_API_KEY or OPENAI_API_KEY"), "{fault}");
}

#[test]
fn aliases_of_the_config_win() {
    let aliases = [("small", "ollama/tiny"), ("mine", "openai/x"), ("default", "scripted:demo")];
    let aliases = aliases.map(|(alias, name)| (alias.to_owned(), name.to_owned())).into();
    let catalog = with(CatalogConfig { aliases, ..CatalogConfig::default() }, &[("OPENAI_API_KEY", "o")]);
    for (name, stands_for) in [
        ("small", "ollama/tiny"),
        ("mine", "openai/x"),
        ("default", "scripted:demo"),
        ("premium", "openai/gpt-6-astra"),
    ] {
        assert_eq!(catalog.full_name(name).unwrap(), stands_for);
    }
}

#[test]
fn a_moved_vendor_needs_no_key_and_speaks_what_its_imitators_speak() {
    let catalog = plain(&[("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/"), ("OLLAMA_HOST", "0.0.0.0:1234")]);
    let of = |name: &str| catalog.provider(name).unwrap().clone();
    assert_eq!((of("openai").wire(), of("openai").missing()), (Wire::Chat, None));
    assert_eq!(of("openai").endpoint().shown_url(), "http://127.0.0.1:9/v1");
    assert_eq!(of("ollama").endpoint().shown_url(), "http://127.0.0.1:1234/v1");
    assert!(of("anthropic").missing().is_some());
}

#[test]
fn an_address_may_be_written_as_people_write_it() {
    let catalog = plain(&[
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/v1"),
        ("OLLAMA_HOST", "http://127.0.0.1:1234/v1/"),
        ("GOOGLE_GEMINI_BASE_URL", "https://box.example"),
        ("OPENAI_API_KEY", " key\r\n"),
    ]);
    let of = |name: &str| catalog.provider(name).unwrap().endpoint();
    assert_eq!(of("anthropic").shown_url(), "http://127.0.0.1:9");
    assert_eq!(of("ollama").shown_url(), "http://127.0.0.1:1234/v1");
    assert_eq!(of("google").shown_url(), "https://box.example/v1beta");
    assert_eq!(of("openai").key.as_deref(), Some("key"));
    for (variable, url, provider, shown) in [
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/chat/completions", "openai", "http://127.0.0.1:9/v1"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/responses/", "openai", "http://127.0.0.1:9/v1"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/v1/messages", "anthropic", "http://127.0.0.1:9"),
        ("OLLAMA_HOST", "http://127.0.0.1:9/v1/chat/completions", "ollama", "http://127.0.0.1:9/v1"),
    ] {
        let catalog = plain(&[(variable, url)]);
        assert_eq!(catalog.provider(provider).unwrap().endpoint().shown_url(), shown, "{url}");
    }
    let told = |name: &'static str, value: &'static str| {
        Catalog::new(CatalogConfig::default(), |asked| (asked == name).then(|| value.into())).unwrap_err().to_string()
    };
    let mixed = told("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/messages");
    assert!(mixed.contains("/messages belongs to `wire = \"anthropic\"`"), "{mixed}");
    assert!(told("OPENAI_BASE_URL", "localhost").starts_with("providers.openai: OPENAI_BASE_URL localhost"));
    assert!(told("ANTHROPIC_BASE_URL", "not a url").starts_with("providers.anthropic: ANTHROPIC_BASE_URL not a url: "));
}

#[test]
fn what_could_never_be_sent_is_told_at_once() {
    let mistake = |change: fn(&mut ProviderConfig)| {
        let mut config = at("http://127.0.0.1:1/v1".into());
        change(config.providers.get_mut("box").unwrap());
        Catalog::new(config, |_| None).unwrap_err().to_string()
    };
    assert_eq!(
        mistake(|provider| drop(provider.headers.insert("X Team".into(), "blue".into()))),
        "providers.box: the header `X Team` cannot be sent"
    );
    for own in ["Content-Length", "host", "Transfer-Encoding"] {
        let mut config = at("http://127.0.0.1:1/v1".into());
        config.providers.get_mut("box").unwrap().headers.insert(own.into(), "5".into());
        let told = Catalog::new(config, |_| None).unwrap_err().to_string();
        assert_eq!(told, format!("providers.box: the header `{own}` is set by tenure itself"));
    }
    let told = mistake(|provider| provider.proxy = Some("nonsense".into()));
    assert!(told.starts_with("providers.box: a proxy is an address like"), "{told}");
}

#[test]
fn only_a_server_that_runs_models_and_wants_no_key_is_free() {
    let cost = |provider: &str, id: &str, key: Option<&str>| {
        let said = ProviderConfig {
            base_url: Some("http://127.0.0.1:1/v1".into()),
            key: key.map(str::to_owned),
            ..ProviderConfig::default()
        };
        let config = CatalogConfig { providers: [(provider.to_owned(), said)].into(), ..CatalogConfig::default() };
        let model = with(config, &[]).resolve(&format!("{provider}/{id}")).unwrap();
        model.cost(&Usage { input_tokens: 9, ..Usage::default() })
    };
    for provider in ["ollama", "llamacpp", "vllm"] {
        assert_eq!((cost(provider, "any", None), cost(provider, "any", Some("k"))), (Some(0), None), "{provider}");
    }
    // Others may be a way to vendors that cost, whose key they hold.
    assert_eq!((cost("box", "any", None), cost("openai", "any", None)), (None, None));
    assert_eq!((cost("openai", "gpt-6-luna", None), cost("openai", "gpt-6-luna", Some("k"))), (None, None));
}

#[tokio::test]
async fn a_server_under_a_vendors_name_is_listed_with_what_it_has() {
    let answer = json!({ "data": [{ "id": "gpt-6-luna" }, { "id": "tiny" }] });
    let vendor = FakeVendor::with(move |_, _| Answer::json(200, &answer)).await;
    let mut config = CatalogConfig::default();
    config.models.insert("openai/said".into(), ModelConfig::default());
    let list = with(config, &[("OPENAI_BASE_URL", &vendor.url("/v1"))]).listing().await;
    let own = list.models.iter().filter(|model| model.provider == "openai");
    let own: Vec<_> = own.map(|model| (model.entry.id.as_str(), model.entry.prices)).collect();
    assert_eq!(own, [("gpt-6-luna", None), ("said", None), ("tiny", None)]);
    assert!(list.models.iter().any(|model| model.entry.name == "anthropic/claude-opus-5-5"));
}

#[test]
fn who_names_a_variable_for_a_key_needs_it() {
    let mut config = at("https://box.example/v1".into());
    config.providers.get_mut("box").unwrap().key_variable = Some("BOX".into());
    assert!(with(config.clone(), &[]).provider("box").unwrap().missing().unwrap().contains("set BOX for"));
    assert_eq!(with(config, &[("BOX", "k")]).provider("box").unwrap().missing(), None);
}

#[test]
fn what_is_secret_of_a_provider_is_known() {
    let mut config = at("http://me:pass-of-url@box.example/v1".into());
    let provider = config.providers.get_mut("box").unwrap();
    provider.key = Some("key-of-the-box".into());
    provider.proxy = Some("http://me:pass-of-proxy@proxy.example".into());
    let headers = [("Authorization", "Bearer token-of-header"), ("X-Api-Key", "key-of-header"), ("X-Team", "blue")];
    provider.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let catalog = with(config, &[]);
    let mut values: Vec<String> =
        catalog.provider("box").unwrap().secrets().into_iter().map(|(_, value)| value).collect();
    values.sort();
    assert_eq!(values, ["key-of-header", "key-of-the-box", "pass-of-proxy", "pass-of-url", "token-of-header"]);
    assert_eq!(catalog.provider("box").unwrap().endpoint().shown_url(), "http://box.example/v1");
}

#[test]
fn a_short_key_is_secret_and_a_word_in_its_place_is_not() {
    let told = |key: &str| {
        let mut config = at("http://127.0.0.1:1/v1".into());
        config.providers.get_mut("box").unwrap().key = Some(key.to_owned());
        let fault = tenure_core::model::Fault::new(FaultKind::Auth, format!("bad key {key}"));
        with(config, &[]).provider("box").unwrap().tamed(fault).message
    };
    for key in ["abc123", "k7x2", "key-of-the-box"] {
        assert_eq!(told(key), "bad key ${secret:BOX_KEY}");
    }
    for word in ["none", "EMPTY", "ollama"] {
        assert_eq!(told(word), format!("bad key {word}"));
    }
}

fn listed<'a>(models: &'a [Listed], name: &str) -> &'a Listed {
    models.iter().find(|model| model.entry.name == name).unwrap_or_else(|| panic!("{name} is not listed"))
}

#[tokio::test]
async fn the_list_has_what_is_built_in_what_is_said_and_what_a_server_has() {
    let vendor =
        FakeVendor::with(|_, _| Answer::json(200, &json!({ "data": [{ "id": "one" }, { "id": "two:7b" }] }))).await;
    let mut config = at(vendor.url("/v1"));
    let said = ModelConfig { window: Some(4096), tool_mode: Some(ToolMode::Schema), ..ModelConfig::default() };
    config.models.insert("box/one".into(), said);
    let catalog = with(config, &[("OPENAI_API_KEY", "o")]);
    let list = catalog.listing().await;
    let one = listed(&list.models, "box/one");
    assert_eq!((one.source, one.entry.window, one.entry.tool_mode), (Source::Config, Some(4096), ToolMode::Schema));
    let two = listed(&list.models, "box/two:7b");
    assert_eq!((two.source, two.missing.is_none()), (Source::Server, true));
    let luna = listed(&list.models, "openai/gpt-6-luna");
    assert_eq!((luna.aliases.as_slice(), luna.missing.is_none()), (&["small".to_owned()][..], true));
    assert!(listed(&list.models, "google/gemini-4-hydrogen").missing.as_deref().unwrap().contains("GEMINI_API_KEY"));
    assert!(list.models.is_sorted_by(|a, b| a.entry.name < b.entry.name));
    // Asked once for many looks.
    catalog.listing().await;
    assert_eq!(vendor.looked().iter().filter(|asked| asked.path.ends_with("/models")).count(), 1);
}

/// Servers that tell a model's window in ways of their own.
fn tells(asked: &Asked) -> Answer {
    let body = match asked.path.as_str() {
        "/v1/models" => json!({ "data": [
            { "id": "vllm", "owned_by": "vllm", "max_model_len": 4096 },
            { "id": "llama", "owned_by": "llamacpp", "meta": { "n_ctx": 8192, "n_ctx_train": 131_072 } },
            { "id": "llama-old", "owned_by": "llamacpp" },
            { "id": "runs", "owned_by": "library" },
            { "id": "set", "owned_by": "library" },
            { "id": "unset", "owned_by": "library" },
            { "id": "said" },
        ] }),
        "/props" => json!({ "default_generation_settings": { "n_ctx": 2048 } }),
        "/api/ps" => json!({ "models": [{ "name": "runs", "model": "runs", "context_length": 16_384 }] }),
        "/api/show" => match asked.json()["model"].as_str().unwrap() {
            "set" => json!({ "parameters": "stop    \"x\"\nnum_ctx                        6000\n" }),
            _ => json!({ "model_info": { "general.architecture": "x", "x.context_length": 131_072 } }),
        },
        _ => return Answer::events(Speech::text("ok").events(Format::Chat)),
    };
    Answer::json(200, &body)
}

#[tokio::test]
async fn a_server_of_this_machine_is_asked_for_its_windows() {
    let vendor = FakeVendor::with(|asked, _| tells(asked)).await;
    let mut config = at(vendor.url("/v1"));
    config.models.insert("box/said".into(), ModelConfig { window: Some(7), ..ModelConfig::default() });
    let catalog = with(config, &[]);
    let list = catalog.listing().await;
    let rows = [
        ("vllm", 4096),
        ("llama", 8192),
        ("llama-old", 2048),
        ("runs", 16_384),
        ("set", 6000),
        ("unset", 4096),
        ("said", 7),
    ];
    for (id, window) in rows {
        let name = format!("box/{id}");
        assert_eq!(listed(&list.models, &name).entry.window, Some(window), "{id}");
        let model = catalog.resolve(&name).unwrap();
        assert_eq!(model.window(), (id == "said").then_some(7), "{id}: nobody asks before it is used");
        drop(model.stream(request(vec![user("hi")])).await.unwrap());
        let learned = async {
            while model.window().is_none() {
                tokio::task::yield_now().await;
            }
        };
        tenure_testkit::within("the window is learned", learned).await;
        assert_eq!(model.window(), Some(window), "{id}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_missing() {
    let vendor = FakeVendor::start().await;
    let mut config = at(vendor.url("/v1"));
    config.models.insert("box/one".into(), ModelConfig::default());
    drop(vendor);
    // Its port may not be free at once.
    tokio::task::yield_now().await;
    let list = with(config, &[]).listing().await;
    let provider = list.providers.iter().find(|provider| provider.name == "box").unwrap();
    assert!(provider.missing.is_some() && provider.is_local, "{provider:?}");
    assert_eq!(listed(&list.models, "box/one").missing, provider.missing);
}

async fn probed(counts: impl Fn(bool) -> Answer + Send + Sync + 'static) -> (ToolSupport, Vec<Asked>) {
    let vendor = FakeVendor::with(move |asked, _| counts(asked.json().get("tools").is_some())).await;
    let catalog = with(at(vendor.url("/v1")), &[]);
    let support = probe::tools(catalog.transport(), catalog.provider("box").unwrap(), "m").await.unwrap();
    (support, vendor.asked())
}

fn counted(tokens: u64) -> Answer {
    Answer::json(200, &json!({ "choices": [], "usage": { "prompt_tokens": tokens } }))
}

#[tokio::test]
async fn a_server_that_drops_tools_is_found_out() {
    let (shown, asked) = probed(|with_tools| counted(if with_tools { 90 } else { 9 })).await;
    assert_eq!(shown, ToolSupport::Shown);
    let bodies: Vec<_> = asked.iter().map(Asked::json).collect();
    assert_eq!((bodies.len(), &bodies[0]["stream"], &bodies[0]["max_tokens"]), (2, &json!(false), &json!(1)));
    assert_eq!(probed(|_| counted(9)).await.0, ToolSupport::Dropped);
    let refusal = |with_tools| match with_tools {
        true => Answer::json(400, &json!({ "error": { "message": "m does not support tools" } })),
        false => counted(9),
    };
    let ToolSupport::Refused(why) = probed(refusal).await.0 else { panic!("it was refused") };
    assert!(why.contains("does not support tools"), "{why}");
}

#[test]
fn tools_by_schema_are_refused_where_the_format_has_none() {
    let with = |wire: Wire, name: &str| {
        let mut config = at("http://127.0.0.1:1".into());
        config.providers.get_mut("box").unwrap().wire = Some(wire);
        let model = ModelConfig { tool_mode: Some(ToolMode::Schema), ..ModelConfig::default() };
        config.models.insert(name.to_owned(), model);
        Catalog::new(config, |_| None)
    };
    assert!(with(Wire::Chat, "box/m").is_ok() && with(Wire::Chat, "ollama/m").is_ok());
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let told = with(wire, "box/m").unwrap_err();
        assert_eq!((told.table, told.name.as_str()), ("models", "box/m"), "{wire:?}");
        assert!(told.what.contains("wire = \"chat\""), "{told}");
    }
    assert!(with(Wire::Chat, "anthropic/claude-opus-5-5").is_err());
}

#[test]
fn mistakes_are_told_with_their_key() {
    let model = |name: &str| CatalogConfig {
        models: BTreeMap::from([(name.to_owned(), ModelConfig { window: Some(0), ..ModelConfig::default() })]),
        ..CatalogConfig::default()
    };
    let mistake = |config| Catalog::new(config, |_| None).unwrap_err();
    let told = mistake(model("openai/x"));
    assert_eq!((told.table, told.name.as_str()), ("models", "openai/x"));
    assert!(mistake(model("x")).to_string().starts_with("models.x: a model is named provider/model"));
    let told = Catalog::new(CatalogConfig::default(), |name| (name == "OLLAMA_HOST").then(|| "ftp://x".into()));
    assert!(told.unwrap_err().to_string().starts_with("providers.ollama: OLLAMA_HOST ftp://x"));
}
