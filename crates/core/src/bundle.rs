//! How much of a workspace a session is told in brief: the user's settings, what the session prefers, and what its
//! model can hold. Nothing is gathered here.

use serde_json::Value;

/// The most that a session may prefer.
pub const BUNDLE_TOKENS_MAX: usize = 20_000;
/// Each part takes at most this share of a model's window.
const WINDOW_SHARE: u64 = 16;

/// What to gather. A budget of nothing leaves that part out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundlePlan {
    pub git: bool,
    pub map_tokens: usize,
    pub chunk_tokens: usize,
    /// What is not ready by then is left out.
    pub wait_ms: u64,
}

impl Default for BundlePlan {
    fn default() -> Self {
        Self { git: true, map_tokens: 2_000, chunk_tokens: 4_000, wait_ms: 2_000 }
    }
}

impl BundlePlan {
    pub const NOTHING: BundlePlan = BundlePlan { git: false, map_tokens: 0, chunk_tokens: 0, wait_ms: 0 };

    /// With what a session prefers, under `context`: `false` for nothing, or any of the parts by name. What makes no
    /// sense is passed over, as all of the preferences are for whoever knows them.
    pub fn preferred(self, preferences: &Value) -> Self {
        let said = &preferences["context"];
        if *said == Value::Bool(false) {
            return Self::NOTHING;
        }
        let tokens = |name: &str, otherwise: usize| {
            let tokens = said[name].as_u64().map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
            tokens.map_or(otherwise, |tokens| tokens.min(BUNDLE_TOKENS_MAX))
        };
        Self {
            git: said["git"].as_bool().unwrap_or(self.git),
            map_tokens: tokens("map_tokens", self.map_tokens),
            chunk_tokens: tokens("chunk_tokens", self.chunk_tokens),
            wait_ms: self.wait_ms,
        }
    }

    /// Cut to what a model with this window has room for.
    pub fn within(self, window: Option<u64>) -> Self {
        let share = window.map_or(usize::MAX, |window| usize::try_from(window / WINDOW_SHARE).unwrap_or(usize::MAX));
        let (map_tokens, chunk_tokens) = (self.map_tokens.min(share), self.chunk_tokens.min(share));
        Self { map_tokens, chunk_tokens, ..self }
    }

    pub fn is_nothing(&self) -> bool {
        !self.git && self.map_tokens == 0 && self.chunk_tokens == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn preferences_go_over_settings_within_bounds() {
        let plan = BundlePlan::default();
        let check = |said: Value, expected: BundlePlan| assert_eq!(plan.preferred(&said), expected, "{said}");
        check(Value::Null, plan);
        check(json!({ "tone": "dry", "context": true }), plan);
        check(json!({ "context": false }), BundlePlan::NOTHING);
        check(json!({ "context": { "git": false } }), BundlePlan { git: false, ..plan });
        check(json!({ "context": { "map_tokens": 0, "chunk_tokens": "many" } }), BundlePlan { map_tokens: 0, ..plan });
        let most = BundlePlan { chunk_tokens: BUNDLE_TOKENS_MAX, ..plan };
        check(json!({ "context": { "chunk_tokens": u64::MAX } }), most);
    }

    #[test]
    fn a_small_window_is_not_filled() {
        let plan = BundlePlan::default();
        assert_eq!((plan.within(None), plan.within(Some(200_000))), (plan, plan));
        let small = plan.within(Some(8_192));
        assert_eq!((small.map_tokens, small.chunk_tokens, small.git), (512, 512, true));
        assert!(BundlePlan::NOTHING.is_nothing() && !small.is_nothing());
    }
}
