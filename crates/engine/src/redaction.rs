//! Known secrets are taken out of whole values before they are recorded, and put back where a tool needs them.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tenure_core::redact::Secrets;

/// The value with every known secret replaced by its mark.
pub(crate) fn redacted<T: Serialize + DeserializeOwned + Clone>(secrets: &Secrets, value: &T) -> T {
    changed(secrets, value, |secrets, json| secrets.redact_json(json))
}

/// The value with every mark replaced by its secret; for tools that are about to act, never for the log.
pub(crate) fn restored<T: Serialize + DeserializeOwned + Clone>(secrets: &Secrets, value: &T) -> T {
    changed(secrets, value, |secrets, json| secrets.restore_json(json))
}

fn changed<T: Serialize + DeserializeOwned + Clone>(
    secrets: &Secrets,
    value: &T,
    change: impl Fn(&Secrets, &mut Value),
) -> T {
    if secrets.is_empty() {
        return value.clone();
    }
    let Ok(before) = serde_json::to_value(value) else { return value.clone() };
    let mut after = before.clone();
    change(secrets, &mut after);
    match after == before {
        true => value.clone(),
        // Only texts were changed, so it still has its form.
        false => serde_json::from_value(after).unwrap_or_else(|_| value.clone()),
    }
}
