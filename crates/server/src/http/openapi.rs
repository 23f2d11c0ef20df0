//! The API's own description: the OpenAPI document, and a page that shows it. Both are the same for every daemon of this version, so they need no token. The document itself is made by the tests below `openapi/`.

#[cfg(test)]
mod codes;
#[cfg(test)]
mod document;
#[cfg(test)]
mod events;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod schemas;

use std::sync::LazyLock;

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    file::is_known,
    query::{Nothing, Params},
};

const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");
const PAGE: &str = include_str!("openapi/page.html");
/// The page's own style and script, by their digests, and what it fetches from this daemon: nothing else is let in.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'sha256-qzum4QktQADPqsv9d3E8Zkyz4Ozojs/RsQFJ3/9DW+8='; script-src 'sha256-7v0WTrKj3CV8SQxeRJecJtLI7Ru2H1NxMVK+CFJqJM4='; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static DOCUMENT_TAG: LazyLock<String> = LazyLock::new(|| tag(DOCUMENT));
static PAGE_TAG: LazyLock<String> = LazyLock::new(|| tag(PAGE));

fn tag(text: &str) -> String {
    format!("\"{}\"", &blake3::hash(text.as_bytes()).to_hex()[..32])
}

pub(crate) async fn document(_: Params<Nothing>, headers: HeaderMap) -> Response {
    unless_known(&headers, &DOCUMENT_TAG, || ([(header::CONTENT_TYPE, tenure_wire::JSON)], DOCUMENT).into_response())
}

pub(crate) async fn page(_: Params<Nothing>, headers: HeaderMap) -> Response {
    let head = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    unless_known(&headers, &PAGE_TAG, || (head, PAGE).into_response())
}

/// The answer, or a word that the client has it already. It may be kept, but is asked for again each time.
fn unless_known(headers: &HeaderMap, tag: &str, answer: impl FnOnce() -> Response) -> Response {
    let answer = match is_known(headers, tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => answer(),
    };
    ([(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache")], answer).into_response()
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_policy_names_the_style_and_the_script_of_the_page() {
        for (directive, tag) in [("style-src", "style"), ("script-src", "script")] {
            let (_, rest) = PAGE.split_once(&format!("<{tag}>")).unwrap();
            let (text, after) = rest.split_once(&format!("</{tag}>")).unwrap();
            assert!(!after.contains(&format!("<{tag}")), "a second {tag}");
            let expected = format!("{directive} 'sha256-{}';", STANDARD.encode(Sha256::digest(text)));
            assert!(PAGE_POLICY.contains(&expected), "write into PAGE_POLICY: {expected}");
        }
    }
}
