//! What the daemon counts, as Prometheus reads it.

use std::{
    fmt::{Display, Write as _},
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    App,
    query::{Nothing, Params},
};

const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const CODES: std::ops::Range<u16> = 100..600;

/// How many answers there were, by status code.
pub(crate) struct Answers(Box<[AtomicU64]>);

impl Default for Answers {
    fn default() -> Self {
        Self(CODES.map(|_| AtomicU64::new(0)).collect())
    }
}

impl Answers {
    pub(crate) fn note(&self, status: StatusCode) {
        if let Some(count) = status.as_u16().checked_sub(CODES.start).and_then(|at| self.0.get(usize::from(at))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn seen(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let counts = CODES.zip(&self.0).map(|(code, count)| (code, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0)
    }
}

pub(crate) async fn metrics(State(app): State<Arc<App>>, _: Params<Nothing>) -> Response {
    let mut page = Page::default();
    let counts = app.engine.counts();
    page.one("tenure_build_info", "gauge", "The version that runs.", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let ready = u8::from(app.engine.is_ready() && !app.stop.is_cancelled());
    page.one("tenure_ready", "gauge", "Whether every session with something pending has been looked at.", &[], ready);
    page.head("tenure_events_total", "counter", "Numbered events written since the start, by type.");
    for (wire_type, count) in &counts.events {
        page.value("tenure_events_total", &[("type", wire_type)], count);
    }
    page.one("tenure_deltas_total", "counter", "Streamed fragments written since the start.", &[], counts.deltas);
    page.head("tenure_tokens_total", "counter", "Tokens of model calls since the start, by kind.");
    let usage = counts.usage;
    for (kind, count) in [
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("cache_read", usage.cache_read_tokens),
        ("cache_write", usage.cache_write_tokens),
    ] {
        page.value("tenure_tokens_total", &[("kind", kind)], count);
    }
    let costs = "Known costs of model calls since the start, in millionths of a US dollar.";
    page.one("tenure_cost_micro_usd_total", "counter", costs, &[], counts.micro_usd);
    page.one("tenure_sessions_warm", "gauge", "Sessions in memory.", &[], counts.warm_sessions);
    let retired = "Sessions put out of memory since the start.";
    page.one("tenure_sessions_retired_total", "counter", retired, &[], counts.retired_sessions);
    page.one("tenure_turns_open", "gauge", "Turns under way or waiting.", &[], counts.open_turns);
    page.one("tenure_subscribers", "gauge", "Clients that follow a session.", &[], counts.subscribers);
    page.head("tenure_http_responses_total", "counter", "Answers since the start, by status code.");
    for (code, count) in app.answers.seen() {
        page.value("tenure_http_responses_total", &[("code", &code.to_string())], count);
    }
    page.head("tenure_refusals_total", "counter", "Requests and connections turned away since the start, by reason.");
    for (reason, count) in app.refusals.seen() {
        page.value("tenure_refusals_total", &[("reason", reason)], count);
    }
    page.process();
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], page.0).into_response()
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, labels: &[(&str, &str)], value: impl Display) {
        self.head(name, kind, help);
        self.value(name, labels, value);
    }

    /// What the system says of this process, under the names that dashboards know. What cannot be read is left out.
    fn process(&mut self) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(kb) = field("VmRSS") {
            let help = "Resident memory size in bytes.";
            self.one("process_resident_memory_bytes", "gauge", help, &[], kb * 1024);
        }
        if let Some(threads) = field("Threads") {
            self.one("process_threads", "gauge", "Number of threads.", &[], threads);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.one("process_open_fds", "gauge", "Number of open file descriptors.", &[], open.count());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_heads_and_values() {
        let mut page = Page::default();
        page.one("a_total", "counter", "All of it.", &[], 3);
        page.head("b", "gauge", "Some.");
        page.value("b", &[("kind", "x"), ("code", "200")], 1);
        let expected = "# HELP a_total All of it.\n# TYPE a_total counter\na_total 3\n# HELP b Some.\n# TYPE b gauge\n";
        assert_eq!(page.0, format!("{expected}b{{kind=\"x\",code=\"200\"}} 1\n"));
    }

    #[test]
    fn answers_are_counted_by_code() {
        let answers = Answers::default();
        for status in [StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::OK] {
            answers.note(status);
        }
        assert_eq!(answers.seen().collect::<Vec<_>>(), [(200, 2), (404, 1)]);
    }
}
