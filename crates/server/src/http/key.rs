//! Idempotency keys: from the header or the body, and what one may look like.

use axum::http::{HeaderMap, StatusCode};

use super::problem::Rejection;

pub(crate) const KEY_CHARS_MAX: usize = 255;

/// The key of a request, if it carries one.
pub(crate) fn one_of(headers: &HeaderMap, in_body: Option<String>) -> Result<Option<String>, Rejection> {
    let mut values = headers.get_all(tenure_wire::IDEMPOTENCY_KEY).iter();
    let in_header = match values.next() {
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| bad("a key is printable ASCII text"))?.to_owned()),
    };
    if values.next().is_some() {
        return Err(bad("the header Idempotency-Key stands there twice"));
    }
    let key = match (in_header, in_body) {
        (Some(header), Some(body)) if header != body => {
            return Err(bad("header and body carry different keys"));
        }
        (header, body) => header.or(body),
    };
    key.map(check).transpose()
}

fn check(key: String) -> Result<String, Rejection> {
    let printable = key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if key.is_empty() || key.len() > KEY_CHARS_MAX || !printable {
        return Err(bad("a key has 1 to 255 printable ASCII characters"));
    }
    Ok(key)
}

fn bad(detail: &str) -> Rejection {
    Rejection::new(StatusCode::BAD_REQUEST, "bad_idempotency_key", detail, "send one key, such as a UUID")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long = "k".repeat(256);
        let fits = "k".repeat(255);
        for (header, body, expected) in [
            (None, None, Ok(None)),
            (Some("a"), None, Ok(Some("a"))),
            (None, Some("a b"), Ok(Some("a b"))),
            (Some("a"), Some("a"), Ok(Some("a"))),
            (Some(fits.as_str()), None, Ok(Some(fits.as_str()))),
            (Some("a"), Some("b"), Err(())),
            (Some(""), None, Err(())),
            (None, Some(""), Err(())),
            (None, Some("ü"), Err(())),
            (None, Some("a\nb"), Err(())),
            (Some(long.as_str()), None, Err(())),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = header {
                headers.insert(tenure_wire::IDEMPOTENCY_KEY, value.parse().unwrap());
            }
            let found = one_of(&headers, body.map(str::to_owned)).map_err(|_| ());
            assert_eq!(found, expected.map(|key| key.map(str::to_owned)), "{header:?} {body:?}");
        }
    }
}
