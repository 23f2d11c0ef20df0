//! Real wire to a vendor on loopback, through the real binary: keys, addresses, faults, lists, files, and what the doctor finds.

use std::fs;

use serde_json::{Value, json};
use tenure_testkit::vendor::{Answer, Asked, FakeVendor, Format, Speech};

use crate::rig::{Daemon, Folder, Ran};

const KEY: &str = "key-that-nobody-may-see-77";
/// Shorter than what is taken for a secret elsewhere.
const SHORT_KEY: &str = "k7-x2";

/// A vendor that says the same to all.
async fn speaking(format: Format, text: &'static str) -> FakeVendor {
    FakeVendor::with(move |_, _| Answer::events(Speech::text(text).events(format))).await
}

fn ask(folder: &Folder, variables: &[(&str, String)], arguments: &[&str]) -> Ran {
    let mut command = folder.command(&[&["ask"], arguments].concat());
    Ran::of(command.envs(variables.iter().map(|(name, value)| (name, value))).output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usual_variables_are_enough() {
    for (format, variable, path, model, key) in [
        (Format::Chat, "OPENAI_BASE_URL", "/v1", "openai/any", None),
        (Format::Chat, "OPENAI_BASE_URL", "/v1", "openai/any", Some(("OPENAI_API_KEY", "authorization"))),
        (Format::Anthropic, "ANTHROPIC_BASE_URL", "", "anthropic/any", Some(("ANTHROPIC_API_KEY", "x-api-key"))),
        (Format::Gemini, "GOOGLE_GEMINI_BASE_URL", "", "google/any", Some(("GEMINI_API_KEY", "x-goog-api-key"))),
        (Format::Chat, "OLLAMA_HOST", "", "ollama/any:7b", None),
    ] {
        let (folder, vendor) = (Folder::new(), speaking(format, "Hello from the wire.").await);
        let mut variables = vec![(variable, vendor.url(path))];
        variables.extend(key.map(|(name, _)| (name, KEY.to_owned())));
        let ran = ask(&folder, &variables, &["--model", model, "hello"]).exits(0);
        assert_eq!(ran.stdout, "Hello from the wire.\n", "{model}");
        let asked = vendor.asked();
        if let Some((_, header)) = key {
            assert!(asked[0].header(header).unwrap().ends_with(KEY), "{asked:?}");
        }
        assert!(String::from_utf8_lossy(&asked[0].body).contains("hello"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_host_is_as_good_as_an_address() {
    let (folder, vendor) = (Folder::new(), speaking(Format::Chat, "Hi.").await);
    let ran = ask(&folder, &[("OLLAMA_HOST", vendor.address().to_string())], &["--model", "ollama/any", "hello"]);
    assert_eq!(ran.exits(0).stdout, "Hi.\n");
    assert_eq!(vendor.asked()[0].path, "/v1/chat/completions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_told_with_where_to_set_it() {
    let refusal =
        json!({ "error": { "message": "bad key", "type": "invalid_request_error", "code": "invalid_api_key" } });
    let vendor = FakeVendor::with(move |_, _| Answer::json(401, &refusal)).await;
    let folder = Folder::new();
    let variables = [("OPENAI_BASE_URL", vendor.url("/v1")), ("OPENAI_API_KEY", KEY.to_owned())];
    let ran = ask(&folder, &variables, &["--model", "openai/any", "hello"]).exits(1);
    assert!(ran.stderr.contains("bad key") && ran.stderr.contains("the key is the one of OPENAI_API_KEY"), "{ran:?}");
    let asked = vendor.asked().iter().filter(|asked| asked.method == "POST").count();
    assert_eq!(asked, 1, "it is not tried again");
    let folder = Folder::new();
    let ran = ask(&folder, &[], &["--model", "anthropic/claude-opus-5-5", "hello"]).exits(1);
    assert!(ran.stderr.contains("set ANTHROPIC_API_KEY for the daemon"), "{ran:?}");
    assert!(!ran.stderr.contains("which is here") && ran.stderr.contains("`tenure session retry sess_"), "{ran:?}");
    let here = [("ANTHROPIC_API_KEY", KEY.to_owned())];
    let ran = ask(&folder, &here, &["--model", "anthropic/claude-opus-5-5", "hello"]).exits(1);
    let hint = "The daemon has no key for anthropic, which is here; `tenure stop` ends it";
    assert!(ran.stderr.contains(hint) && !ran.stderr.contains(KEY), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_asked_for_and_not_waited_for() {
    let vendor = FakeVendor::start().await;
    let url = vendor.url("/v1");
    drop(vendor);
    let ran = ask(&Folder::new(), &[("OPENAI_BASE_URL", url.clone())], &["--model", "openai/any", "hello"]).exits(1);
    let asked = format!("is the server running at {url}?");
    assert!(ran.stderr.contains(&asked) && ran.stderr.contains("The turn failed"), "{ran:?}");
    assert!(ran.stderr.contains("the address is that of OPENAI_BASE_URL"), "{ran:?}");
}

#[test]
fn a_name_that_is_no_models_is_refused_at_once() {
    let folder = Folder::new();
    for name in ["gpt", "nobody/x", "openai/"] {
        let ran = folder.tenure(&["ask", "--json", "--model", name, "hello"]).exits(4);
        assert_eq!(ran.error()["code"], "unknown_model", "{ran:?}");
    }
    let ran = folder.tenure(&["ask", "--model", "claude-haiku", "hello"]).exits(4);
    assert!(ran.stderr.contains("(similar: anthropic/claude-haiku-5-5"), "{ran:?}");
    let session =
        folder.tenure(&["ask", "--json", "hello"]).exits(0).json_lines().last().unwrap()["session_id"].clone();
    let session = session.as_str().unwrap();
    let ran = folder.tenure(&["session", "change", session, "--model", "nobody/x", "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "unknown_model", "{ran:?}");
    // A key may still come.
    folder.tenure(&["session", "change", session, "--model", "openai/gpt-6-luna"]).exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_adds_providers_models_and_names() {
    let (folder, vendor) = (Folder::new(), speaking(Format::Chat, "From the box.").await);
    folder.config(&format!(
        "[providers.box]\nbase_url = \"{}\"\nkey = \"{KEY}\"\nheaders = {{ X-Team = \"blue\" }}\n\
         [models.\"box/some\"]\nid = \"some-2026\"\nprices = {{ input = 1, output = 2 }}\n\
         [aliases]\nsmall = \"box/some\"\ndefault = \"box/some\"\n",
        vendor.url("/v1")
    ));
    let lines = folder.tenure(&["ask", "--json", "--model", "small", "hello"]).exits(0).json_lines();
    let result = lines.last().unwrap();
    assert_eq!((&result["text"], &result["cost_micro_usd"]), (&json!("From the box."), &json!(10 + 2 * 5)));
    // The log names the model itself: what an alias stands for may change.
    let started = lines.iter().find(|event| event["type"] == "turn_started").unwrap();
    assert_eq!(started["data"]["model"], "box/some");
    assert_eq!(folder.tenure(&["ask", "hello"]).exits(0).stdout, "From the box.\n");
    let asked = &vendor.asked()[0];
    assert_eq!(asked.json()["model"], "some-2026");
    assert_eq!(
        (asked.header("x-team"), asked.header("authorization")),
        (Some("blue"), Some(&*format!("Bearer {KEY}")))
    );
    let shown = folder.tenure(&["config", "show"]).exits(0).stdout;
    assert!(shown.contains("\"key\":\"hidden\"") && shown.contains("box/some") && !shown.contains(KEY), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_seen_nowhere_even_if_the_vendor_repeats_it() {
    // It repeats the key in its answers and in its refusals.
    let said = |asked: &Asked| asked.header("authorization").unwrap().to_owned();
    let vendor = FakeVendor::with(move |asked, number| match number {
        0 => Answer::events(Speech::text(&format!("You are {} .", said(asked))).events(Format::Chat)),
        _ => Answer::json(400, &json!({ "error": { "message": format!("not for {}", said(asked)) } })),
    })
    .await;
    for (key, config) in [
        (KEY, format!("key = \"{KEY}\"")),
        (KEY, "key_variable = \"BOX_PASS\"".to_owned()),
        (KEY, format!("headers = {{ Authorization = \"Bearer {KEY}\" }}")),
        (SHORT_KEY, "key_variable = \"BOX_PASS\"".to_owned()),
    ] {
        let folder = Folder::new();
        folder.config(&format!("[providers.box]\nbase_url = \"{}\"\n{config}\n", vendor.url("/v1")));
        let variables = [("BOX_PASS", key.to_owned()), ("TENURE_LOG", "trace".to_owned())];
        let first = ask(&folder, &variables, &["--json", "--model", "box/m", "hello"]);
        let session = first.json_lines().last().unwrap()["session_id"].as_str().unwrap().to_owned();
        let second = ask(&folder, &variables, &["--session", &session, "and now?"]);
        for ran in [first, second] {
            assert!(!ran.stdout.contains(key) && !ran.stderr.contains(key), "{ran:?}");
        }
        let models = folder.tenure(&["models", "--json"]).exits(0);
        assert!(!models.stdout.contains(key), "{models:?}");
        assert_eq!(folder.holders_of(key), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_says_what_can_be_asked_and_what_is_missing() {
    let vendor = FakeVendor::with(|_, _| Answer::json(200, &json!({ "data": [{ "id": "tiny:1b" }] }))).await;
    let folder = Folder::new();
    folder.config(&format!("[providers.box]\nbase_url = \"{}\"\n", vendor.url("/v1")));
    let told = folder.tenure(&["models"]).exits(0).stdout;
    assert!(told.contains("box/tiny:1b") && told.contains("anthropic: set ANTHROPIC_API_KEY for the daemon"), "{told}");
    assert!(!told.contains("claude-"), "what cannot be asked is left out: {told}");
    let list = folder.tenure(&["models", "--json", "box"]).exits(0).json();
    assert_eq!(list["models"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!((&list["models"][0]["source"], &list["models"][0]["ready"]), (&json!("server"), &json!(true)));
    assert!(folder.tenure(&["models", "--all"]).exits(0).stdout.contains("anthropic/claude-haiku-5-5"));
}

fn check<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let checks = doctor["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {doctor}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_server_that_drops_tools() {
    let vendor = FakeVendor::with(|asked, _| match asked.path.as_str() {
        "/v1/models" => Answer::json(200, &json!({ "data": [{ "id": "tiny:1b" }] })),
        _ => Answer::json(200, &json!({ "choices": [], "usage": { "prompt_tokens": 11 } })),
    })
    .await;
    let folder = Folder::new();
    folder.config(&format!("[providers.box]\nbase_url = \"{}\"\n", vendor.url("/v1")));
    let doctor = folder.tenure(&["doctor", "--json"]).exits(0).json();
    assert!(check(&doctor, "box")["found"].as_str().unwrap().ends_with("has tiny:1b"), "{doctor}");
    let tools = check(&doctor, "tools");
    assert_eq!(tools["state"], "warning", "{tools}");
    let hint = tools["hint"].as_str().unwrap();
    let (_, lines) = hint.split_once('\n').unwrap();
    // The lines that it gives do what it says.
    let config = fs::read_to_string(folder.data().join("config.toml")).unwrap();
    folder.config(&format!("{config}{lines}\n"));
    let doctor = folder.tenure(&["doctor", "--json"]).exits(0).json();
    assert_eq!(check(&doctor, "tools")["state"], "ok", "{doctor}");
    assert!(folder.tenure(&["doctor"]).exits(0).stdout.contains("box/tiny:1b gets tools by schema"));
}

#[test]
fn the_doctor_names_what_is_missing() {
    let folder = Folder::new();
    folder.config("[providers.box]\nbase_url = \"https://box.example/v1\"\nkey_variable = \"BOX_KEY\"\n");
    let doctor = folder.tenure(&["doctor", "--json"]).exits(0).json();
    assert_eq!(check(&doctor, "box")["state"], "warning");
    assert!(check(&doctor, "box")["hint"].as_str().unwrap().contains("set BOX_KEY"), "{doctor}");
    assert!(check(&doctor, "not set up")["found"].as_str().unwrap().contains("openai (OPENAI_API_KEY)"), "{doctor}");
    let mut command = folder.command(&["doctor", "--json"]);
    let with_key = Ran::of(command.env("OPENAI_API_KEY", KEY).output().unwrap()).exits(0);
    assert!(check(&with_key.json(), "openai")["found"].as_str().unwrap().ends_with("with the key of OPENAI_API_KEY"));
    assert!(!with_key.stdout.contains(KEY));
    // The daemon that runs was started without it.
    folder.tenure(&["sessions"]).exits(0);
    let mut command = folder.command(&["doctor"]);
    let ran = Ran::of(command.env("OPENAI_API_KEY", KEY).output().unwrap()).exits(0);
    assert!(ran.stdout.contains("the one that runs has no key for openai"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_along_with_a_question() {
    let (folder, vendor) = (Folder::new(), speaking(Format::Chat, "A picture.").await);
    let (image, text) = (folder.path().join("a.png"), folder.path().join("note.txt"));
    fs::write(&image, b"\x89PNG\r\n\x1a\n----").unwrap();
    fs::write(&text, "the text of the note").unwrap();
    let (image, text) = (image.to_str().unwrap(), text.to_str().unwrap());
    let variables = [("OPENAI_BASE_URL", vendor.url("/v1"))];
    let arguments = ["--model", "openai/any", "--attach", image, "--attach", text, "what is it?"];
    assert_eq!(ask(&folder, &variables, &arguments).exits(0).stdout, "A picture.\n");
    let body = vendor.asked()[0].json();
    let content = body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(content[0]["text"], "what is it?");
    assert_eq!(content[1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgotLS0t");
    assert!(content[2]["text"].as_str().unwrap().contains("the text of the note"), "{content}");
    // The stand-in takes text alone, and says so.
    let refused = folder.tenure(&["ask", "--json", "--attach", image, "what is it?"]).exits(4);
    assert_eq!(refused.error()["code"], "unsupported_part");
    folder.tenure(&["ask", "--attach", text, "what is it?"]).exits(0);
    folder.tenure(&["ask", "--attach", "nothing-there", "what is it?"]).exits(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_fits_its_schema_or_the_turn_fails() {
    let folder = Folder::new();
    let schema = folder.path().join("schema.json");
    let wanted = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    fs::write(&schema, wanted.to_string()).unwrap();
    let schema = schema.to_str().unwrap();
    let answers = |texts: &'static [&'static str]| {
        FakeVendor::with(move |_, number| {
            Answer::events(Speech::text(texts[number.min(texts.len() - 1)]).events(Format::Chat))
        })
    };
    let arguments = ["--model", "openai/any", "--schema", schema, "how many?"];
    // A misfit is asked for once more, and what was abandoned is no answer.
    let vendor = answers(&["five, I think", "{\"n\": 5}"]).await;
    let ran = ask(&folder, &[("OPENAI_BASE_URL", vendor.url("/v1"))], &arguments).exits(0);
    assert_eq!(ran.stdout, "{\"n\": 5}\n", "{ran:?}");
    let body = vendor.asked()[0].json();
    let mut sent = wanted.clone();
    sent["additionalProperties"] = json!(false);
    assert_eq!(body["response_format"]["json_schema"]["schema"], sent, "{body}");
    let folder = Folder::new();
    let vendor = answers(&["{\"n\": \"five\"}"]).await;
    let ran = ask(&folder, &[("OPENAI_BASE_URL", vendor.url("/v1"))], &arguments).exits(1);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("schema_mismatch"), "{ran:?}");
    assert_eq!(vendor.asked().len(), 2);
    fs::write(schema, "{\"type\": 5}").unwrap();
    assert_eq!(folder.tenure(&["ask", "--json", "--schema", schema, "hi"]).exits(4).error()["code"], "bad_schema");
    fs::write(schema, "[]").unwrap();
    folder.tenure(&["ask", "--schema", schema, "hi"]).exits(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_summarized_when_asked() {
    let folder = Folder::new();
    let long = "word ".repeat(4_000);
    let say = json!({ "do": [{ "text": long }] });
    let model = folder.script(
        &json!({ "summary": "They said words.", "window": 100_000, "steps": [say, say, say, say, say, say, say, say] }),
    );
    let daemon = Daemon::start(folder.data()).await;
    let session = daemon.session(&folder.workspace(), &model).await;
    for _ in 0..6 {
        let turn = daemon.send(&session, "go on").await;
        daemon.client().turn(&session, &turn, std::time::Duration::from_secs(30)).await.unwrap();
    }
    let told = folder.tenure(&["session", "compact", &session]).exits(0).stdout;
    assert!(told.contains("Summarized: ") && told.contains("The log keeps everything."), "{told}");
    let events = folder.tenure(&["session", "events", &session, "--json"]).exits(0).json_lines();
    let compacted = events.iter().find(|event| event["type"] == "context_compacted").unwrap();
    assert_eq!(compacted["data"]["trigger"], "asked");
    assert!(compacted["data"]["tokens_after"].as_u64() < compacted["data"]["tokens_before"].as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_tells_what_answers_and_what_does_not() {
    let refusing = FakeVendor::with(|_, _| Answer::json(401, &json!({ "error": { "message": "who are you?" } }))).await;
    let dead = {
        let vendor = FakeVendor::start().await;
        vendor.url("")
    };
    let doctor = |folder: &Folder, variables: &[(&str, &str)]| {
        let mut command = folder.command(&["doctor", "--json"]);
        Ran::of(command.envs(variables.iter().copied()).output().unwrap()).json()
    };
    let folder = Folder::new();
    let told = doctor(&folder, &[("OLLAMA_HOST", &refusing.url(""))]);
    let found = check(&told, "ollama")["found"].as_str().unwrap();
    assert!(found.contains("answers, and does not let us in: HTTP 401: who are you?"), "{told}");
    for (variable, name) in
        [("OLLAMA_HOST", "ollama"), ("OPENAI_BASE_URL", "openai"), ("ANTHROPIC_BASE_URL", "anthropic")]
    {
        let told = doctor(&folder, &[(variable, &dead)]);
        let check = check(&told, name);
        let found = check["found"].as_str().unwrap();
        assert_eq!(check["state"], "warning", "{check}");
        assert!(found.starts_with("nobody answers at ") && found.contains(variable), "{check}");
        assert!(check["hint"].as_str().unwrap().contains(variable), "{check}");
    }
    let fresh = Folder::new();
    let mut command = fresh.command(&["models"]);
    let listed = Ran::of(command.env("ANTHROPIC_BASE_URL", &dead).output().unwrap()).exits(0);
    assert!(listed.stdout.contains(&format!("anthropic: no server answers at {dead}")), "{listed:?}");
    let told = doctor(&folder, &[("OPENAI_API_KEY", &format!("{KEY}\rx"))]);
    assert_eq!(check(&told, "openai")["state"], "wrong", "{told}");
    assert!(!told.to_string().contains(KEY));
}

#[test]
fn a_proxy_that_cannot_be_gone_by_is_told_at_once() {
    for (variable, value, told) in [
        ("HTTPS_PROXY", "ftp://x", "HTTPS_PROXY in the daemon's environment is no address of a proxy"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "ALL_PROXY in the daemon's environment names a SOCKS proxy"),
    ] {
        let folder = Folder::new();
        let set = [("HTTPS_PROXY", ""), ("NO_PROXY", ""), ("OPENAI_API_KEY", KEY), (variable, value)];
        let variables = set.map(|(name, value)| (name, value.to_owned()));
        let ran = ask(&folder, &variables, &["--model", "openai/any", "hello"]).exits(1);
        assert!(ran.stderr.contains(told) && ran.stderr.contains("bad_request"), "{ran:?}");
        let mut command = folder.command(&["doctor", "--json"]);
        let doctor = Ran::of(command.envs(variables).output().unwrap()).json();
        assert!(check(&doctor, "openai")["found"].as_str().unwrap().starts_with(told), "{doctor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_has_else_than_the_shell_is_told() {
    let vendor = FakeVendor::with(|_, _| Answer::json(401, &json!({ "error": "no" }))).await;
    let folder = Folder::new();
    let with = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = folder.command(arguments);
        Ran::of(command.envs(variables.iter().copied()).output().unwrap())
    };
    let (url, key) = (vendor.url("/v1"), ("OPENAI_API_KEY", KEY));
    let told = with(&["models"], &[("OPENAI_BASE_URL", &url), key]).exits(0);
    assert!(told.stdout.contains("wants another key: HTTP 401"), "{told:?}");
    assert!(!told.stderr.contains("this shell"), "{told:?}");
    for command in ["doctor", "models"] {
        let told = with(&[command], &[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_API_KEY", "another")]);
        let told = format!("{}{}", told.stdout, told.stderr);
        let differs = format!("reaches openai at {url}, and this shell names http://127.0.0.1:1/v1");
        assert!(told.contains(&differs) && told.contains("has another key for openai than this shell"), "{told}");
        assert!(!told.contains(KEY), "{told}");
    }
    // What the daemon has counts, also where this shell has nothing.
    let told = with(&["doctor", "--json"], &[]).json();
    assert!(check(&told, "openai")["found"].as_str().unwrap().contains("does not let us in"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_has_else_is_told_before_a_message_goes_there() {
    let (first, second) = (speaking(Format::Chat, "One.").await, speaking(Format::Chat, "Two.").await);
    let folder = Folder::new();
    let at = |vendor: &FakeVendor| [("OPENAI_BASE_URL", vendor.url("/v1"))];
    let arguments = ["--model", "openai/any", "hello"];
    let ran = ask(&folder, &at(&first), &arguments).exits(0);
    assert!(!ran.stderr.contains("this shell"), "{ran:?}");
    let ran = ask(&folder, &at(&second), &arguments).exits(0);
    let differs = format!("reaches openai at {}, and this shell names {}", first.url("/v1"), second.url("/v1"));
    let told = ran.stderr.find(&differs).unwrap_or_else(|| panic!("{ran:?}"));
    assert!(told < ran.stderr.find("completed: ").unwrap() && ran.stderr.matches("this shell").count() == 1, "{ran:?}");
    // A shell that says nothing wants nothing else, and what another model needs does not matter.
    assert!(!ask(&folder, &[], &arguments).exits(0).stderr.contains("this shell"));
    let ran = ask(&folder, &at(&second), &["--model", "scripted", "hello"]).exits(0);
    assert!(!ran.stderr.contains("this shell"), "{ran:?}");
    // A key that came too late.
    let ran = ask(&folder, &[("ANTHROPIC_API_KEY", KEY.to_owned())], &["hello"]).exits(0);
    assert!(ran.stderr.contains("has scripted for sessions that name no model, and this shell anthropic/"), "{ran:?}");
    assert!(ran.stderr.contains("has no key for anthropic, which is here; `tenure stop`"), "{ran:?}");
    let ran = ask(&folder, &[("TENURE_DEFAULT_MODEL", "openai/any".to_owned())], &["hello"]).exits(0);
    assert!(ran.stderr.contains("has scripted for sessions that name no model, and this shell openai/any"), "{ran:?}");
    let mut command = folder.command(&["doctor", "--json"]);
    let doctor = Ran::of(command.env("ANTHROPIC_API_KEY", KEY).output().unwrap()).json();
    assert!(check(&doctor, "models")["hint"].as_str().unwrap().starts_with("`tenure stop`"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_and_does_not_fit_tells_its_stop_reason() {
    let folder = Folder::new();
    let schema = folder.path().join("schema.json");
    fs::write(&schema, json!({ "type": "object" }).to_string()).unwrap();
    let cut = json!({"do": [{"text": "{\"n\": "}, {"stop_reason": "max_tokens"}]});
    let model = folder.script(&json!({"name": "s", "steps": [{"attempts": [cut, cut]}]}));
    let ran = folder.tenure(&["ask", "--json", "--model", &model, "--schema", schema.to_str().unwrap(), "go"]).exits(1);
    let result = ran.json_lines().pop().unwrap();
    assert_eq!((&result["stop_reason"], &result["error"]["code"]), (&json!("max_tokens"), &json!("schema_mismatch")));
}
