//! What a vendor's refusal means: which kind it is, what it says, and when to come back.

use std::{
    error::Error,
    io,
    time::{Duration, SystemTime},
};

use reqwest::{StatusCode, header::HeaderMap};
use serde_json::Value;
use tenure_core::model::{Fault, FaultKind};

use super::{
    Wire,
    transport::{Endpoint, shown_url},
};

/// What is kept of a vendor's own words.
const WORDS_MAX: usize = 2_000;

/// Where a request went.
pub(crate) struct Sent<'a> {
    pub(crate) url: reqwest::Url,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) wire: Wire,
}

impl Sent<'_> {
    /// Says where a request went that came to nobody who knows its like.
    fn astray(&self) -> String {
        format!("; it was sent to {}: {}", shown_url(self.url.as_str()), self.endpoint.doubt(self.wire))
    }

    fn leads_to(&self, headers: &HeaderMap) -> Option<String> {
        let place = self.url.join(header(headers, "location")?).ok()?;
        Some(format!(", which leads to {}", shown_url(place.as_str())))
    }
}

/// An answer whose status is not success.
pub(crate) fn of_status(status: StatusCode, headers: &HeaderMap, body: &[u8], sent: &Sent<'_>) -> Fault {
    let told = Told::read(body);
    let is_astray = match status.as_u16() {
        404 => !told.speaks_of_a_model(sent.url.path()),
        code => code == 405 || status.is_redirection(),
    };
    if is_astray {
        let more = if status.is_redirection() { sent.leads_to(headers) } else { None };
        let message = told.after(status) + &more.unwrap_or_default() + &sent.astray();
        return Fault::new(FaultKind::BadRequest, message);
    }
    let by_code = of_code(status.as_u16(), &told);
    let mut kind = match (told.kind(), by_code) {
        // Words that fit any refusal say less than the status does.
        (None | Some(FaultKind::BadRequest), by_code) => by_code,
        (Some(FaultKind::Server), FaultKind::Auth | FaultKind::Quota | FaultKind::RateLimited) => by_code,
        (Some(kind), _) => kind,
    };
    // Some call it a fault of their own that they were sent a picture: it will be one again.
    if kind == FaultKind::Server && told.refuses_a_part() {
        kind = FaultKind::BadRequest;
    }
    match header(headers, "x-should-retry") {
        Some("true") if !kind.retryable() => kind = FaultKind::Server,
        // The vendor knows that another attempt is in vain.
        Some("false") if kind == FaultKind::RateLimited => kind = FaultKind::Quota,
        Some("false") if kind.retryable() => kind = FaultKind::BadRequest,
        _ => {}
    }
    let mut message = told.after(status);
    if let Some(id) = header(headers, "request-id").or_else(|| header(headers, "x-request-id")) {
        message.extend([" (request ", id, ")"]);
    }
    let retry_after_ms = retry_after(headers).or(told.retry_after_ms);
    Fault { retry_after_ms, ..Fault::new(kind, message) }
}

/// An answer that is none: success is claimed, but no stream of events follows.
pub(crate) fn of_body(content_type: &str, body: &[u8], endpoint: &Endpoint) -> Fault {
    let told = serde_json::from_slice::<Value>(body).unwrap_or_default();
    // Gemini answers with a list where it was not asked for events.
    let told = told.as_array().and_then(|items| items.first()).unwrap_or(&told);
    let has = |field: &str| told.get(field).is_some_and(|value| !value.is_null());
    match () {
        () if has("error") => in_stream(told),
        // It says only that it is not what was asked for.
        () if has("detail") => {
            let Fault { kind, message, .. } = in_stream(told);
            let kind = if kind == FaultKind::Server { FaultKind::BadRequest } else { kind };
            Fault::new(kind, format!("{} answered without a stream of events: {message}", endpoint.host()))
        }
        () => {
            let why = format!(
                "{} answered with {content_type} instead of a stream of events: is `base_url` right?",
                endpoint.host()
            );
            Fault::new(FaultKind::BadRequest, why)
        }
    }
}

/// An error inside a stream that began well.
pub(crate) fn in_stream(error: &Value) -> Fault {
    let told = Told::of(error);
    let kind = told.kind().or_else(|| told.status.map(|status| of_code(status, &told))).unwrap_or(FaultKind::Server);
    let words = if told.words.is_empty() { "the vendor broke the stream off" } else { &told.words };
    Fault { retry_after_ms: told.retry_after_ms, ..Fault::new(kind, words) }
}

/// A connection that could not be made or broke.
pub(crate) fn of_connection(error: &reqwest::Error, endpoint: &Endpoint) -> Fault {
    let words = causes(error);
    let is_tls = ["certificate", "UnknownIssuer", "NotValidForName", "HandshakeFailure", "InvalidContentType"]
        .iter()
        .any(|mark| words.contains(mark));
    let (kind, what) = match () {
        () if words.contains("InvalidContentType") => {
            (FaultKind::Tls, "what answers does not speak TLS; is it http:// and not https://?")
        }
        () if is_tls => (FaultKind::Tls, "the TLS connection failed"),
        () if error.is_connect() && endpoint.is_next_door() && is_refused(error) => {
            let url = endpoint.shown_url();
            return Fault::new(FaultKind::NoServer, format!("is the server running at {url}? {words}"));
        }
        () if error.is_connect() => match endpoint.proxy(|name| std::env::var(name).ok()) {
            // Nobody but the proxy is connected to.
            Some((proxy, named)) => {
                let is_there = !error.is_timeout() && chain(error).all(|cause| !cause.is::<io::Error>());
                let how = if is_there { "does not let us through" } else { "cannot be reached" };
                let why = format!("the proxy {proxy} on the way to {} {how} ({named}): {words}", endpoint.host());
                return Fault::new(FaultKind::Network, why);
            }
            None => (FaultKind::Network, "it cannot be reached"),
        },
        () if error.is_timeout() => (FaultKind::Network, "it took too long"),
        () if error.is_builder() => (FaultKind::BadRequest, "the request cannot be made"),
        () => (FaultKind::StreamCut, "the connection broke"),
    };
    Fault::new(kind, format!("{}: {what}: {words}", endpoint.host()))
}

/// The innermost cause: reqwest's own words only repeat the address.
fn causes(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// There is a machine, and nothing on it takes connections at this address.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut causes = chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// What an error says of itself, in any of the vendors' shapes.
#[derive(Debug, Default)]
struct Told {
    words: String,
    /// Its `type`, `code`, `status` and reason, in lower case.
    marks: Vec<String>,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
}

impl Told {
    fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            // Gemini answers with a list of one when it was not asked for events.
            Ok(Value::Array(items)) => items.first().map(Self::of).unwrap_or_default(),
            Ok(value) => Self::of(&value),
            Err(_) => {
                let text = String::from_utf8_lossy(&body[..body.len().min(4 * WORDS_MAX)]);
                // Nobody wants to read a page's source.
                let words = if text.trim_start().starts_with('<') { title(&text) } else { text.trim() };
                Self { words: shortened(words), ..Self::default() }
            }
        }
    }

    fn of(value: &Value) -> Self {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let mut told = Self::default();
        if let Some(words) = error.as_str() {
            told.words = shortened(words);
            return told;
        }
        let words = ["message", "detail", "msg"].iter().find_map(|field| error.get(field).and_then(Value::as_str));
        // A list of what is wrong with a request.
        let words = words.or_else(|| error.pointer("/detail/0/msg").and_then(Value::as_str));
        told.words = shortened(words.unwrap_or_default());
        let mut marks: Vec<&str> =
            ["type", "code", "status"].iter().filter_map(|field| error.get(field)?.as_str()).collect();
        marks.extend(value.get("type").and_then(Value::as_str));
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
            marks.extend(detail.get("reason").and_then(Value::as_str));
            told.retry_after_ms = told.retry_after_ms.or(detail.get("retryDelay").and_then(delay));
        }
        told.marks = marks.into_iter().map(str::to_ascii_lowercase).collect();
        told.status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        told
    }

    /// The status and what was told with it.
    fn after(&self, status: StatusCode) -> String {
        match (self.words.as_str(), status.canonical_reason()) {
            ("", Some(reason)) => format!("HTTP {} {reason}", status.as_u16()),
            ("", None) => format!("HTTP {}", status.as_u16()),
            (words, _) => format!("HTTP {}: {words}", status.as_u16()),
        }
    }

    /// Whether it is the model that was not found, and not the address. A server may repeat the path.
    fn speaks_of_a_model(&self, path: &str) -> bool {
        let words = self.words.replace(path, "").to_ascii_lowercase();
        self.marks.iter().any(|mark| mark == "model_not_found")
            || ["model", "deployment", "no endpoints found"].iter().any(|word| words.contains(word))
    }

    /// The kind that its own marks and words tell; they are truer than the status.
    fn kind(&self) -> Option<FaultKind> {
        if self.overflows() {
            return Some(FaultKind::ContextOverflow);
        }
        let is = |names: &[&str]| self.marks.iter().any(|mark| names.contains(&mark.as_str()));
        let says = |words: &str| self.words.to_ascii_lowercase().contains(words);
        if is(&["insufficient_quota", "billing_error", "billing_hard_limit_reached", "credit_balance_too_low"])
            || says("credit balance is too low")
        {
            return Some(FaultKind::Quota);
        }
        // Google refuses a key with a status that says nothing of it.
        if says("api key not valid") || says("api key expired") {
            return Some(FaultKind::Auth);
        }
        let known: [(&[&str], FaultKind); 6] = [
            (
                &["overloaded_error", "overloaded", "unavailable", "server_overloaded", "engine_overloaded"],
                FaultKind::Overloaded,
            ),
            (
                &["rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "requests", "tokens"],
                FaultKind::RateLimited,
            ),
            (
                &[
                    "authentication_error",
                    "permission_error",
                    "invalid_api_key",
                    "api_key_invalid",
                    "unauthenticated",
                    "permission_denied",
                ],
                FaultKind::Auth,
            ),
            (&["not_found_error", "model_not_found", "not_found"], FaultKind::UnknownModel),
            (&["api_error", "server_error", "internal", "internal_server_error", "timeout_error"], FaultKind::Server),
            (
                &["invalid_request_error", "invalid_argument", "invalid_prompt", "failed_precondition"],
                FaultKind::BadRequest,
            ),
        ];
        known.iter().find(|(names, _)| is(names)).map(|(_, kind)| *kind)
    }

    /// Whether it is something attached that the model cannot take.
    fn refuses_a_part(&self) -> bool {
        const WORDS: [&str; 4] = [
            "image input is not supported",
            "audio input is not supported",
            "not a multimodal model",
            "does not support image",
        ];
        let words = self.words.to_ascii_lowercase();
        WORDS.iter().any(|part| words.contains(part))
    }

    fn overflows(&self) -> bool {
        const MARKS: [&str; 5] = [
            "context_length_exceeded",
            "exceed_context_size_error",
            "request_too_large",
            "string_above_max_length",
            "tokens_limit_reached",
        ];
        const WORDS: [&str; 20] = [
            "prompt is too long",
            "maximum context length",
            "context window",
            "context length exceeded",
            "exceeds the available context size",
            "exceed context limit",
            "input token count",
            "too many tokens in",
            "reduce the length of the messages",
            // vLLM.
            "maximum model length",
            "model's context length is only",
            "reduce the length of the input prompt",
            // SGLang, and servers that are built on it.
            "longer than the model's context length",
            "exceeds the maximum allowed length",
            "exceeds the maximum allowed input length",
            // Ollama, LM Studio.
            "exceeds the context length",
            "loaded with context length of only",
            // Clouds.
            "input is too long for requested model",
            "maximum prompt length",
            "too many input tokens",
        ];
        let words = self.words.to_ascii_lowercase();
        // A limit for a time passes by itself.
        if words.contains("per minute") || words.contains("per min:") {
            return false;
        }
        self.marks.iter().any(|mark| MARKS.contains(&mark.as_str())) || WORDS.iter().any(|part| words.contains(part))
    }
}

/// The title of a page.
fn title(page: &str) -> &str {
    let after = page.split_once("<title>").map(|(_, rest)| rest);
    after.and_then(|rest| rest.split_once("</title>")).map_or("", |(title, _)| title.trim())
}

fn of_code(status: u16, told: &Told) -> FaultKind {
    match status {
        401 | 403 => FaultKind::Auth,
        402 => FaultKind::Quota,
        404 => FaultKind::UnknownModel,
        413 => FaultKind::ContextOverflow,
        408 | 409 | 425 => FaultKind::Server,
        429 => FaultKind::RateLimited,
        503 if told.words.to_ascii_lowercase().contains("overload") => FaultKind::Overloaded,
        529 => FaultKind::Overloaded,
        500.. => FaultKind::Server,
        _ => FaultKind::BadRequest,
    }
}

/// How long the vendor wants to be left alone: `retry-after-ms`, then `retry-after` as seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let ms = |text: &str| text.trim().parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms >= 0.0);
    if let Some(ms) = header(headers, "retry-after-ms").and_then(ms) {
        return Some(ms.ceil() as u64);
    }
    let text = header(headers, "retry-after")?;
    match ms(text) {
        Some(seconds) => Some((seconds * 1000.0).ceil() as u64),
        None => {
            let at = httpdate::parse_http_date(text.trim()).ok()?;
            let wait = at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO);
            Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        }
    }
}

/// Google's way to write a time: `"3.5s"`.
fn delay(value: &Value) -> Option<u64> {
    let seconds: f64 = value.as_str()?.strip_suffix('s')?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1000.0).ceil() as u64)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn shortened(words: &str) -> String {
    match words.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}
