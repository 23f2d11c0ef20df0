//! A file as an answer: the whole or a part of it, and so that no browser shows or runs it.

use std::ops::Range;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;

use super::problem::Rejection;

pub(crate) struct File<'a> {
    /// A plain name.
    pub name: &'a str,
    pub mime_type: &'a str,
    pub digest: &'a str,
    pub bytes: Bytes,
}

/// What `Range` comes to.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Part(Range<usize>),
    /// Nothing of the file lies in it.
    None,
}

pub(crate) fn answer(headers: &HeaderMap, file: File<'_>) -> Response {
    let etag = format!("\"{}\"", file.digest);
    if is_known(headers, &etag) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    let total = file.bytes.len();
    let wanted = if is_same(headers, &etag) { wanted(headers, total) } else { Wanted::All };
    let (status, part) = match wanted {
        Wanted::All => (StatusCode::OK, 0..total),
        Wanted::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Wanted::None => return out_of_range(total),
    };
    let head = [
        (header::CONTENT_TYPE, file.mime_type.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{}\"", file.name)),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
        (header::ETAG, etag),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ];
    let range = format!("bytes {}-{}/{total}", part.start, part.end.saturating_sub(1));
    let mut response = (status, head, file.bytes.slice(part)).into_response();
    if status == StatusCode::PARTIAL_CONTENT
        && let Ok(range) = HeaderValue::try_from(range)
    {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

fn out_of_range(total: usize) -> Response {
    let detail = format!("the file has {total} bytes, and none of them is in this range");
    let hint = "ask for a part that is there, or leave the Range header out";
    let mut response = Rejection::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_range", detail, hint).into_response();
    if let Ok(range) = HeaderValue::try_from(format!("bytes */{total}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

/// Whether `If-None-Match` names this version, weakly or not, or any.
pub(crate) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// A part of another version is worth nothing: `If-Range` has to name this one, alone and strongly.
fn is_same(headers: &HeaderMap, etag: &str) -> bool {
    let mut values = headers.get_all(header::IF_RANGE).iter();
    match (values.next(), values.next()) {
        (None, _) => true,
        (Some(value), None) => value.to_str().is_ok_and(|tag| tag.trim() == etag),
        (Some(_), Some(_)) => false,
    }
}

/// One range of bytes is served; several, or what is not understood, get the whole, as the standard allows.
fn wanted(headers: &HeaderMap, total: usize) -> Wanted {
    let mut values = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next().and_then(|value| value.to_str().ok()), values.next()) else {
        return Wanted::All;
    };
    let range = value.trim().split_once('=').filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
    let Some((from, to)) = range.and_then(|(_, range)| range.split_once('-')) else {
        return Wanted::All;
    };
    match (number(from), number(to)) {
        (Number::Is(from), Number::Is(to)) if from > to => Wanted::All,
        (Number::Is(from), _) if from >= total => Wanted::None,
        (Number::Is(from), Number::Is(to)) => Wanted::Part(from..to.saturating_add(1).min(total)),
        (Number::Is(from), Number::Left) => Wanted::Part(from..total),
        (Number::Left, Number::Is(last)) if last == 0 || total == 0 => Wanted::None,
        (Number::Left, Number::Is(last)) => Wanted::Part(total.saturating_sub(last)..total),
        _ => Wanted::All,
    }
}

enum Number {
    Is(usize),
    Left,
    Bad,
}

fn number(text: &str) -> Number {
    let text = text.trim();
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        _ if text.is_empty() => Number::Left,
        // More digits than fit are a place behind every end.
        true => Number::Is(text.parse().unwrap_or(usize::MAX)),
        false => Number::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let with = |name: header::HeaderName, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(&name, value.parse().unwrap());
            }
            headers
        };
        for (values, known, same) in [
            (&["\"a\""][..], true, true),
            (&["W/\"a\""], true, false),
            (&["*"], true, false),
            (&["\"b\", W/\"a\""], true, false),
            (&["\"b\"", "\"a\""], true, false),
            (&["\"b\""], false, false),
            (&["a"], false, false),
            (&["Mon, 16 Nov 2026 10:00:00 GMT"], false, false),
            (&[], false, true),
        ] {
            let found = is_known(&with(header::IF_NONE_MATCH, values), "\"a\"");
            assert_eq!((found, is_same(&with(header::IF_RANGE, values), "\"a\"")), (known, same), "{values:?}");
        }
    }

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-3", Wanted::Part(0..4)),
            ("Bytes=0-3", Wanted::Part(0..4)),
            ("bytes=4-", Wanted::Part(4..10)),
            ("bytes=-3", Wanted::Part(7..10)),
            ("bytes=-30", Wanted::Part(0..10)),
            ("bytes=8-99", Wanted::Part(8..10)),
            ("bytes=9-99999999999999999999999", Wanted::Part(9..10)),
            ("bytes=10-", Wanted::None),
            ("bytes=99999999999999999999999-", Wanted::None),
            ("bytes=-0", Wanted::None),
            ("bytes=3-1", Wanted::All),
            ("bytes=0-1,3-4", Wanted::All),
            ("bytes=a-b", Wanted::All),
            ("bytes=-", Wanted::All),
            ("lines=0-1", Wanted::All),
            ("", Wanted::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, range.parse().unwrap());
            assert_eq!(wanted(&headers, 10), expected, "{range}");
        }
        assert_eq!(wanted(&HeaderMap::new(), 10), Wanted::All);
        let mut last = HeaderMap::new();
        last.insert(header::RANGE, "bytes=-5".parse().unwrap());
        assert_eq!(wanted(&last, 0), Wanted::None);
    }
}
