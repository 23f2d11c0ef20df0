//! Refusals and broken streams: which kind of fault they are, what they say, and when to come back.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::model::{Fault, FaultKind, StopReason};
use tenure_models::{
    Model,
    vendor::{Endpoint, Transport, VendorModel},
};
use tenure_testkit::vendor::{Answer, FakeVendor, Format, Piece, Speech};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    contract::{entry, listen, model, nowhere},
    request::{request, user},
};

async fn refused(format: Format, answer: Answer) -> Fault {
    let vendor = FakeVendor::start().await;
    vendor.plan(answer);
    match model(&vendor, format, entry()).stream(request(vec![user("hi")])).await {
        Ok(_) => panic!("{format:?}: a refusal was taken for a reply"),
        Err(fault) => fault,
    }
}

fn anthropic(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
}

fn openai(kind: &str, code: &str, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "code": code, "param": null } })
}

fn google(code: u16, status: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "status": status, "message": message } })
}

#[tokio::test]
async fn each_refusal_is_of_its_kind() {
    use FaultKind::*;
    let a = Format::Anthropic;
    let (c, r, g) = (Format::Chat, Format::Responses, Format::Gemini);
    let rows: Vec<(Format, u16, Value, FaultKind)> = vec![
        (a, 400, anthropic("invalid_request_error", "max_tokens: too many"), BadRequest),
        (
            a,
            400,
            anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            ContextOverflow,
        ),
        (a, 400, anthropic("invalid_request_error", "Your credit balance is too low to access the API"), Quota),
        (a, 401, anthropic("authentication_error", "invalid x-api-key"), Auth),
        (a, 403, anthropic("permission_error", "not for you"), Auth),
        (a, 404, anthropic("not_found_error", "model: m"), UnknownModel),
        (a, 413, anthropic("request_too_large", "too large"), ContextOverflow),
        (a, 429, anthropic("rate_limit_error", "slow down"), RateLimited),
        (a, 500, anthropic("api_error", "oops"), Server),
        (a, 529, anthropic("overloaded_error", "Overloaded"), Overloaded),
        (c, 400, openai("invalid_request_error", "context_length_exceeded", "too long"), ContextOverflow),
        (
            c,
            400,
            json!({ "error": { "code": 400, "type": "exceed_context_size_error", "message": "the request exceeds the available context size" } }),
            ContextOverflow,
        ),
        (c, 401, openai("invalid_request_error", "invalid_api_key", "Incorrect API key"), Auth),
        // Words that fit any refusal do not make one of it.
        (c, 401, json!({ "error": { "message": "bad key", "type": "invalid_request_error", "code": null } }), Auth),
        (c, 429, openai("invalid_request_error", "rate_limited", "Rate limit exceeded, retry"), RateLimited),
        (c, 503, openai("invalid_request_error", "", "try later"), Server),
        (c, 429, openai("api_error", "", "slow down"), RateLimited),
        (c, 402, json!({ "error": { "message": "pay", "code": 402 } }), Quota),
        (c, 404, openai("invalid_request_error", "model_not_found", "no such model"), UnknownModel),
        (c, 404, json!({ "error": "model 'm' not found" }), UnknownModel),
        (c, 429, openai("insufficient_quota", "insufficient_quota", "You exceeded your current quota"), Quota),
        (c, 429, openai("requests", "rate_limit_exceeded", "Rate limit reached"), RateLimited),
        (c, 422, json!({ "detail": "unprocessable" }), BadRequest),
        (c, 502, json!("bad gateway"), Server),
        (c, 503, json!({ "error": { "message": "The server is overloaded" } }), Overloaded),
        (r, 500, openai("server_error", "", "try again"), Server),
        (r, 408, json!({}), Server),
        (g, 400, google(400, "INVALID_ARGUMENT", "bad field"), BadRequest),
        (
            g,
            400,
            json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid", "details": [{ "reason": "API_KEY_INVALID" }] } }),
            Auth,
        ),
        (g, 400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), Auth),
        (
            g,
            400,
            google(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1100000) exceeds the maximum number of tokens allowed",
            ),
            ContextOverflow,
        ),
        (g, 403, google(403, "PERMISSION_DENIED", "no"), Auth),
        (g, 404, google(404, "NOT_FOUND", "models/m is not found"), UnknownModel),
        (g, 429, google(429, "RESOURCE_EXHAUSTED", "quota"), RateLimited),
        (g, 500, google(500, "INTERNAL", "oops"), Server),
        (g, 503, google(503, "UNAVAILABLE", "overloaded"), Overloaded),
    ];
    for (format, status, body, kind) in rows {
        let fault = refused(format, Answer::json(status, &body)).await;
        assert_eq!(fault.kind, kind, "{format:?} {status} {body}: {}", fault.message);
        assert!(fault.message.starts_with(&format!("fake: HTTP {status}")), "{}", fault.message);
        assert!(!fault.message.contains("key-of-the-fake"), "{}", fault.message);
        if let Some(words) = body.pointer("/error/message").and_then(Value::as_str) {
            assert!(fault.message.contains(words), "the vendor's words are shown: {}", fault.message);
        }
    }
}

#[tokio::test]
async fn a_refused_key_says_where_it_came_from() {
    let fault =
        refused(Format::Anthropic, Answer::json(401, &anthropic("authentication_error", "invalid x-api-key"))).await;
    assert!(fault.message.contains("the key is the one of FAKE_API_KEY in the daemon"), "{}", fault.message);
    assert!(!fault.message.contains("[providers.fake]"), "{}", fault.message);
    for (key_variable, before) in [(Some("FAKE_API_KEY".to_owned()), ", which goes before FAKE_API_KEY"), (None, "")] {
        let vendor = FakeVendor::with(|_, _| Answer::json(403, &json!({ "error": "no" }))).await;
        let key = Some("key-of-the-fake".to_owned());
        let endpoint = Endpoint { base_url: vendor.url("/v1"), key, key_variable, ..nowhere() };
        let told = at(endpoint, Format::Chat).await.message;
        let expected = format!("the key is the one under [providers.fake] in config.toml{before}");
        assert!(told.ends_with(&expected), "{told}");
    }
}

/// How a request at this endpoint fails.
async fn at(endpoint: Endpoint, format: Format) -> Fault {
    let model = VendorModel::new(entry(), format.wire(), Arc::new(endpoint), Transport::new());
    match model.stream(request(vec![user("hi")])).await {
        Ok(_) => panic!("it was taken for a reply"),
        Err(fault) => fault,
    }
}

#[tokio::test]
async fn an_address_that_is_wrong_is_not_told_as_a_model_that_is() {
    let page = |kind: &str, text: &str| Answer {
        status: 404,
        headers: vec![("content-type".into(), kind.into())],
        pieces: vec![Piece::Bytes(text.into())],
    };
    let rows = [
        (page("text/plain", "404 page not found\n"), "HTTP 404: 404 page not found; it was sent to "),
        (page("text/plain", ""), "HTTP 404 Not Found; it was sent to "),
        (page("text/html", "<html><head><title>Nope</title>a model</html>"), "HTTP 404: Nope; it was sent to "),
        (Answer::json(404, &json!({ "detail": "Not Found" })), "HTTP 404: Not Found; it was sent to "),
        (
            Answer::json(404, &anthropic("not_found_error", "File Not Found")),
            "HTTP 404: File Not Found; it was sent to ",
        ),
    ];
    for (answer, told) in rows {
        for (base, url_variable, hint) in [
            ("", Some("OPENAI_BASE_URL"), "is OPENAI_BASE_URL right? Such an address mostly ends in /v1: "),
            ("/v1", None, "is `base_url` under [providers.fake] right?"),
        ] {
            let answer = answer.clone();
            let vendor = FakeVendor::with(move |_, _| answer.clone()).await;
            let fault = at(Endpoint { base_url: vendor.url(base), url_variable, ..nowhere() }, Format::Chat).await;
            assert_eq!(fault.kind, FaultKind::BadRequest, "{fault}");
            let sent = format!("{told}{}: {hint}", vendor.url(&format!("{base}/chat/completions")));
            assert!(fault.message.contains(&sent), "{fault}\n{sent}");
            assert_eq!(fault.message.ends_with(&vendor.url("/v1")), base.is_empty(), "{fault}");
        }
    }
    for status in [301, 302, 307, 308] {
        let moved = Answer::json(status, &json!({})).with_header("location", "/there/v1?key=secret");
        let vendor = FakeVendor::with(move |_, _| moved.clone()).await;
        let fault = at(Endpoint { base_url: vendor.url("/v1"), ..nowhere() }, Format::Chat).await;
        assert_eq!(fault.kind, FaultKind::BadRequest, "{fault}");
        let place = format!(", which leads to {}; it was sent to ", vendor.url("/there/v1"));
        assert!(fault.message.contains(&place) && fault.message.contains("is `base_url` under"), "{fault}");
    }
}

#[tokio::test]
async fn tls_where_there_is_none_is_said() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // It is let read before the connection is gone.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let fault = at(Endpoint { base_url, ..nowhere() }, Format::Chat).await;
    assert_eq!(fault.kind, FaultKind::Tls, "{fault}");
    assert!(fault.message.contains("is it http:// and not https://?"), "{fault}");
}

#[tokio::test]
async fn success_without_a_stream_is_a_fault_with_the_vendors_words() {
    for format in Format::ALL {
        let body = json!({ "error": { "message": "model is not loaded", "type": "server_error" } });
        let fault = refused(format, Answer::json(200, &body)).await;
        assert_eq!(fault.kind, FaultKind::Server, "{format:?}: {fault:?}");
        assert!(fault.message.contains("model is not loaded"), "{format:?}: {fault:?}");
        let fault = refused(format, Answer::json(200, &json!([body]))).await;
        assert_eq!(fault.kind, FaultKind::Server, "{format:?}: {fault:?}");
        assert!(fault.message.contains("model is not loaded"), "{format:?}: {fault:?}");
        for detail in [json!("Not here"), json!([{ "loc": ["body"], "msg": "Not here" }])] {
            let fault = refused(format, Answer::json(200, &json!({ "detail": detail }))).await;
            assert_eq!(fault.kind, FaultKind::BadRequest, "{format:?}: {fault:?}");
            assert!(fault.message.ends_with("answered without a stream of events: Not here"), "{format:?}: {fault:?}");
        }
        let fault = refused(format, Answer::json(200, &json!({ "choices": [] }))).await;
        assert_eq!(fault.kind, FaultKind::BadRequest, "{format:?}: {fault:?}");
        assert!(fault.message.contains("instead of a stream of events: is `base_url` right?"), "{fault:?}");
    }
}

#[tokio::test]
async fn the_time_to_come_back_is_read_in_all_its_forms() {
    let busy = || Answer::json(429, &json!({ "error": { "type": "rate_limit_error", "message": "slow down" } }));
    for (name, value, expected) in [
        ("retry-after", "7", Some(7_000)),
        ("retry-after", "0.25", Some(250)),
        ("retry-after-ms", "1500", Some(1_500)),
        ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", Some(0)),
        ("retry-after", "soon", None),
        ("retry-after", "-3", None),
    ] {
        let fault = refused(Format::Chat, busy().with_header(name, value)).await;
        assert_eq!(fault.retry_after_ms, expected, "{name}: {value}");
    }
    let both = busy().with_header("retry-after", "9").with_header("retry-after-ms", "20");
    assert_eq!(refused(Format::Chat, both).await.retry_after_ms, Some(20));
    let in_an_hour = httpdate::fmt_http_date(std::time::SystemTime::now() + std::time::Duration::from_secs(3600));
    let wait = refused(Format::Chat, busy().with_header("retry-after", &in_an_hour)).await.retry_after_ms.unwrap();
    assert!((3_500_000..=3_600_000).contains(&wait), "{wait}");
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s" }]);
    let body = json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x", "details": details } });
    assert_eq!(refused(Format::Gemini, Answer::json(429, &body)).await.retry_after_ms, Some(3_500));
}

#[tokio::test]
async fn the_vendors_word_on_retries_counts() {
    let body = json!({ "error": { "message": "x" } });
    let fault = refused(Format::Chat, Answer::json(500, &body).with_header("x-should-retry", "false")).await;
    assert!(!fault.kind.retryable(), "{fault:?}");
    let fault = refused(Format::Chat, Answer::json(400, &body).with_header("x-should-retry", "true")).await;
    assert!(fault.kind.retryable(), "{fault:?}");
}

#[tokio::test]
async fn errors_inside_a_stream_are_told_apart() {
    use FaultKind::*;
    let named = |value: &Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default());
    let plain = |value: &Value| format!("data: {value}\n\n");
    let rows = vec![
        (Format::Anthropic, named(&anthropic("overloaded_error", "Overloaded")), Overloaded),
        (Format::Anthropic, named(&anthropic("api_error", "oops")), Server),
        (Format::Chat, plain(&openai("server_error", "", "oops")), Server),
        (Format::Chat, plain(&json!({ "error": { "code": 429, "message": "slow" } })), RateLimited),
        (
            Format::Responses,
            named(&json!({ "type": "error", "code": "rate_limit_exceeded", "message": "slow" })),
            RateLimited,
        ),
        (
            Format::Responses,
            named(
                &json!({ "type": "response.failed", "response": { "error": { "code": "server_error", "message": "oops" } } }),
            ),
            Server,
        ),
        (Format::Gemini, plain(&google(503, "UNAVAILABLE", "overloaded")), Overloaded),
        (Format::Gemini, plain(&json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }] })), Malformed),
    ];
    for (format, events, kind) in rows {
        let vendor = FakeVendor::start().await;
        vendor.plan(Answer::events(events.clone()));
        let (_, fault) = listen(&model(&vendor, format, entry())).await;
        assert_eq!(fault.map(|fault| fault.kind), Some(kind), "{format:?} {events}");
    }
}

#[tokio::test]
async fn a_request_that_the_vendors_filter_stops_is_a_refusal_and_no_fault() {
    let vendor = FakeVendor::start().await;
    let usage = json!({ "promptTokenCount": 7, "totalTokenCount": 7 });
    for reason in ["SAFETY", "PROHIBITED_CONTENT", "OTHER"] {
        let blocked = json!({ "promptFeedback": { "blockReason": reason }, "usageMetadata": usage });
        vendor.plan(Answer::events(format!("data: {blocked}\n\n")));
        let (heard, fault) = listen(&model(&vendor, Format::Gemini, entry())).await;
        assert_eq!((heard.end, fault), (Some(Ok(StopReason::Refusal)), None), "{reason}");
        assert_eq!((heard.text.as_str(), heard.usage.input_tokens), ("", 7), "{reason}");
    }
}

#[tokio::test]
async fn garbage_is_malformed_and_never_a_panic() {
    for format in Format::ALL {
        for garbage in [
            "data: {\n\n",
            "data: null\n\n",
            "data: []\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":9,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":3,\"delta\":\"x\"}\n\n",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{}}]}}]}\n\n",
            "data: [DONE]\n\n",
            "\0\u{1}\n\n\n",
        ] {
            let vendor = FakeVendor::start().await;
            vendor.plan(Answer::events(garbage));
            let (heard, fault) = listen(&model(&vendor, format, entry())).await;
            assert!(!matches!(heard.end, Some(Ok(_))), "{format:?}: {garbage:?} was taken for a reply");
            assert!(fault.is_none_or(|fault| fault.kind == FaultKind::Malformed), "{format:?}: {garbage:?}");
        }
    }
}

#[tokio::test]
async fn a_server_on_this_machine_that_is_not_there_is_asked_for_by_its_address() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        let model = model(&vendor, format, entry());
        let address = vendor.address();
        drop(vendor);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let Err(fault) = model.stream(request(vec![user("hi")])).await.map(|_| ()) else { panic!("nobody is there") };
        assert_eq!(fault.kind, FaultKind::NoServer, "{}", fault.message);
        let asked = format!("is the server running at http://{address}");
        assert!(fault.message.contains(&asked), "{}", fault.message);
    }
}

#[tokio::test]
async fn a_dead_proxy_is_not_told_as_a_dead_vendor() {
    let vendor = FakeVendor::start().await;
    let proxy = vendor.url("");
    drop(vendor);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    for base_url in ["https://models.example/v1", "http://127.0.0.1:9/v1"] {
        let secret = Some(proxy.replace("http://", "http://me:secret@"));
        let endpoint = Endpoint { base_url: base_url.to_owned(), proxy: secret, ..nowhere() };
        let model = VendorModel::new(entry(), Format::Chat.wire(), Arc::new(endpoint), Transport::new());
        let Err(fault) = model.stream(request(vec![user("hi")])).await.map(|_| ()) else { panic!("nobody is there") };
        assert_eq!(fault.kind, FaultKind::Network, "{}", fault.message);
        let told = format!("the proxy {proxy} on the way to ");
        assert!(fault.message.contains(&told) && fault.message.contains("cannot be reached"), "{}", fault.message);
        assert!(fault.message.contains("`proxy` under [providers.fake]"), "{}", fault.message);
        assert!(!fault.message.contains("secret"), "{}", fault.message);
    }
}

#[tokio::test]
async fn a_reply_at_the_end_of_the_window_is_kept_where_it_is_text() {
    let format = Format::Anthropic;
    let rows = [
        (Speech::text("So far so"), Ok(StopReason::MaxTokens)),
        (Speech::call("call_1", "look", &json!({})), Err(FaultKind::ContextOverflow)),
        (Speech { spoken: vec![], ..Speech::text("") }, Err(FaultKind::ContextOverflow)),
    ];
    for (speech, end) in rows {
        let events = speech.events(format);
        let events = events.replace("end_turn", "model_context_window_exceeded");
        let vendor = FakeVendor::start().await;
        vendor.plan(Answer::events(events.replace("\"tool_use\"}", "\"model_context_window_exceeded\"}")));
        let (heard, _) = listen(&model(&vendor, format, entry())).await;
        assert_eq!(heard.end, Some(end), "{speech:?}");
        assert!(end.is_err() || heard.text == "So far so", "{heard:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_said_to_be_none() {
    let page = Answer { status: 200, headers: vec![("content-type".into(), "text/html".into())], pieces: vec![] };
    let fault = refused(Format::Chat, page).await;
    assert_eq!(fault.kind, FaultKind::BadRequest);
    assert!(fault.message.contains("text/html"), "{}", fault.message);
}

#[tokio::test]
async fn a_context_that_is_too_long_is_known_in_many_words() {
    let words = [
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only 1024 tokens.",
        "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens.",
        "The input (12345 tokens) is longer than the model's context length (8192 tokens).",
        "Input length (700001 tokens) exceeds the maximum allowed length (536826 tokens). Use a shorter input.",
        "Input length 877338 exceeds the maximum allowed input length of 639968 tokens",
        "the input length exceeds the context length",
        "the request exceeds the available context size, try increasing it",
        "The model is loaded with context length of only 4096 tokens, which is not enough",
        "Input is too long for requested model.",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Too many input tokens: 9000 of 4096",
    ];
    for words in words {
        for body in
            [json!({ "error": { "message": words, "code": 400 } }), json!({ "object": "error", "message": words })]
        {
            let fault = refused(Format::Chat, Answer::json(400, &body)).await;
            assert_eq!(fault.kind, FaultKind::ContextOverflow, "{body}: {fault}");
        }
    }
    // A limit for a time is not one of the window.
    let busy = json!({ "error": { "message": "Too many input tokens per minute" } });
    assert_eq!(refused(Format::Chat, Answer::json(429, &busy)).await.kind, FaultKind::RateLimited);
}
