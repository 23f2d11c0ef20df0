//! Policy and budgets as a request gives them: whatever is not said stays as it is, or takes its default in a new session.

use serde::{Deserialize, Deserializer, Serialize};

use crate::object::objects;

/// `None`: not said. `Some(None)`: said to be `null`.
pub type Nullable<T> = Option<Option<T>>;

/// Keeps a `null` apart from a field that is not there.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

macro_rules! partial {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $fdoc:literal])* $field:ident : $type:ty,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $fdoc])*
            #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
            pub $field: Option<$type>,)*
        }

        objects! { $name }

        /// Not derived: a derived one would allow `null` for every field that may be left out.
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(of: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let fields = [$((stringify!($field), concat!($($fdoc),*), of.subschema_for::<$type>()),)*];
                crate::schema::object(concat!($($doc),*), fields)
            }
        }
    )*};
}

partial! {
    Policy {
        approval: ApprovalPolicy,
        verify: VerifyPolicy,
        patch_review: PatchReview,
        recovery: RecoveryPolicy,
        compaction: CompactionPolicy,
    }
    /// When the older part of a context is summarized.
    CompactionPolicy {
        /// Without being asked.
        auto: bool,
        /// It begins, beside the turn, when the context takes this share of the model's window.
        from_percent: u8,
        /// From this share on the turn waits for it; where it is the smaller one, as soon as it begins.
        block_percent: u8,
    }
    /// When a tool call needs a yes.
    ApprovalPolicy {
        require_for_kinds: Vec<ToolKind>,
        require_for_tools: Vec<String>,
        /// The first rule that matches decides.
        rules: Vec<Rule>,
        /// Whether a person can be asked; if not, what needs a yes is denied.
        attended: bool,
        /// `null`: never.
        expires_after_ms: Option<u64>,
    }
    VerifyPolicy {
        auto_verify: bool,
        /// `null`: those found in the user's config, AGENTS.md or the Makefile.
        commands: Option<Vec<String>>,
        max_attempts: u32,
        require_clean: bool,
    }
    RecoveryPolicy { resume: Resume, }
    /// Limits per turn; `null` is no limit.
    Budgets {
        max_steps: Option<u64>,
        max_tool_calls: Option<u64>,
        max_duration_ms: Option<u64>,
        max_tokens: Option<u64>,
        max_micro_usd: Option<u64>,
    }
}

/// One allow, ask or deny rule, such as `shell: git status*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Rule {
    /// A tool's name, or `*`.
    pub tool: String,
    /// `*` stands for any text; without a pattern everything matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Matched to the letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    pub action: RuleAction,
}

objects! { Rule }

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($word:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($word,)* }
    )*};
}
pub(crate) use words;

words! {
    RuleAction { Allow, Ask, Deny, }
    ToolKind { Read, Write, Exec, Network, }
    PatchReview { Off, Request, Auto, }
    Resume { Ask, Safe, Always, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_are_told_apart() {
        let budgets: Budgets = serde_json::from_str(r#"{"max_steps":null,"max_tokens":5}"#).unwrap();
        let expected = Budgets { max_steps: Some(None), max_tokens: Some(Some(5)), ..Budgets::default() };
        assert_eq!(budgets, expected);
        assert_eq!(serde_json::to_string(&budgets).unwrap(), r#"{"max_steps":null,"max_tokens":5}"#);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        assert!(serde_json::from_str::<Policy>(r#"{"aproval":{}}"#).is_err());
        assert!(serde_json::from_str::<Policy>(r#"{"approval":{"atended":true}}"#).is_err());
        assert!(serde_json::from_str::<Policy>(r#"{"approval":null}"#).is_err());
    }

    #[test]
    fn an_array_is_no_policy() {
        assert!(serde_json::from_str::<Budgets>("[1,2,3,4,5]").is_err());
        assert!(serde_json::from_str::<Policy>(r#"{"recovery":["ask"]}"#).is_err());
        assert!(serde_json::from_str::<Rule>(r#"["shell","*",null,"allow"]"#).is_err());
    }
}
