//! JSON Schema of what is not derived.

use schemars::{Schema, json_schema};
use serde_json::{Map, Value};

/// An object whose fields may all be left out, each with its description. Others are refused.
pub(crate) fn object<const N: usize>(description: &str, fields: [(&str, &str, Schema); N]) -> Schema {
    let properties: Map<String, Value> =
        fields.into_iter().map(|(name, doc, schema)| (name.to_owned(), described(schema, doc).into())).collect();
    described(json_schema!({ "type": "object", "properties": properties, "additionalProperties": false }), description)
}

fn described(mut schema: Schema, description: &str) -> Schema {
    if !description.is_empty() {
        schema.insert("description".into(), description.trim().into());
    }
    schema
}
