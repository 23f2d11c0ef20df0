//! What foreign tools are called: `mcp__<server>__<tool>`, within what all vendors take. The same list always gives the
//! same names.

use std::collections::BTreeSet;

/// Vendors take names of `[a-zA-Z0-9_-]`, up to this long.
pub(crate) const TOOL_NAME_BYTES_MAX: usize = 64;
/// Letters of the digest that tells apart what was cut or changed.
const DIGEST_BYTES: usize = 8;

/// The names of a source's tools, in their order: each fits, and no two are alike.
pub(crate) fn offered<'t>(prefix: &str, tools: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |tool: &str| {
        let whole = format!("{prefix}{tool}");
        let plain: String = whole.chars().map(|letter| if fits(letter) { letter } else { '_' }).collect();
        let name = match plain == whole && plain.len() <= TOOL_NAME_BYTES_MAX && !taken.contains(&plain) {
            true => plain,
            false => told_apart(&plain, &whole),
        };
        taken.insert(name.clone());
        name
    };
    tools.map(name).collect()
}

fn fits(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// Cut where it is too long, with a digest of what it was.
fn told_apart(plain: &str, whole: &str) -> String {
    let digest = blake3::hash(whole.as_bytes()).to_hex();
    let kept = plain.len().min(TOOL_NAME_BYTES_MAX - DIGEST_BYTES - 1);
    // Every letter is one byte by now.
    format!("{}_{}", &plain[..kept], &digest[..DIGEST_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        let long = "x".repeat(100);
        let longer = format!("{long}y");
        let tools = ["echo", "get.sum", "get_sum", "get sum", &long, &longer, "ä", ""];
        let names = offered("mcp__docs__", tools.into_iter());
        assert_eq!(names[0], "mcp__docs__echo");
        assert_eq!(names[2], "mcp__docs__get_sum");
        for name in &names {
            assert!(name.len() <= TOOL_NAME_BYTES_MAX && name.chars().all(fits), "{name}");
        }
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), tools.len(), "{names:?}");
        assert_eq!(names, offered("mcp__docs__", tools.into_iter()), "the same each time");
    }

    proptest::proptest! {
        #[test]
        fn any_names_become_names_that_vendors_take(tools in proptest::collection::btree_set(".{0,90}", 0..20)) {
            let names = offered("mcp__s__", tools.iter().map(String::as_str));
            let valid = |name: &String| name.len() <= TOOL_NAME_BYTES_MAX && name.chars().all(fits);
            proptest::prop_assert!(names.iter().all(valid));
            proptest::prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), tools.len());
        }
    }
}
