//! The table of settings in the documents, made from the types: their names, what is said of them, and their defaults.

use std::{collections::BTreeMap, path::Path};

use clap::Parser as _;
use serde_json::Value;

use super::Config;
use crate::{
    args::{Cli, Command},
    commands::serve,
};

const BEGIN: &str = "<!-- made from the types: TENURE_BLESS=1 cargo nextest run -p tenure-cli reference -->\n";
const END: &str = "<!-- the end of what is made -->";

/// Every setting in the order of the types, with what is said of it.
fn settings() -> Vec<(String, String)> {
    let schema = schemars::schema_for!(Config).to_value();
    let mut all = vec![];
    collect(&schema, &schema, "", &mut all);
    all
}

fn collect(root: &Value, object: &Value, prefix: &str, all: &mut Vec<(String, String)>) {
    for (name, property) in object["properties"].as_object().unwrap() {
        let key = format!("{prefix}{name}");
        let reference = property["$ref"].as_str().or_else(|| property["allOf"][0]["$ref"].as_str());
        let target = reference.and_then(|path| root.pointer(path.trim_start_matches('#')));
        let entry = property["additionalProperties"]["$ref"].as_str();
        let entry = entry.and_then(|path| root.pointer(path.trim_start_matches('#')));
        let (key, entry) = match entry.filter(|entry| entry["properties"].is_object()) {
            Some(entry) => (format!("{key}.NAME"), Some(entry)),
            None => (key, None),
        };
        match entry.or(target.filter(|target| target["properties"].is_object())) {
            Some(table) => {
                if let Some(said) = property["description"].as_str() {
                    all.push((key.clone(), said.replace('\n', " ")));
                }
                collect(root, table, &format!("{key}."), all);
            }
            None => {
                let said = property["description"].as_str().unwrap_or_else(|| panic!("nothing is said of {key}"));
                let key = if property["additionalProperties"].is_object() { format!("{key}.NAME") } else { key };
                all.push((key, said.replace('\n', " ")));
            }
        }
    }
}

fn defaults() -> BTreeMap<&'static str, Value> {
    let Command::Serve(bare) = Cli::try_parse_from(["tenure", "serve"]).unwrap().command else { unreachable!() };
    serve::shown(&bare, Config::default(), &|_| None).unwrap().into_iter().collect()
}

/// What `config show` calls it: what users name stands there as a whole.
fn setting(key: &str) -> &str {
    key.split_once(".NAME").map_or(key, |(table, _)| table)
}

fn table() -> String {
    let defaults = defaults();
    let mut table = String::from("| key | default | what it does |\n|---|---|---|\n");
    for (key, said) in settings() {
        let default = match defaults.get(setting(&key)) {
            None => panic!("`config show` does not show {key}"),
            Some(Value::Null) => "none".to_owned(),
            Some(Value::Array(values)) if values.is_empty() => "none".to_owned(),
            Some(Value::Object(values)) if values.is_empty() => "none".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        table.push_str(&format!("| `{key}` | {default} | {said} |\n"));
    }
    table
}

#[test]
fn the_reference_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the place of the table");
    let (there, after) = rest.split_once(END).expect("its end");
    let table = table();
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}")).unwrap();
        return;
    }
    assert_eq!(there.trim(), table.trim(), "make it anew: TENURE_BLESS=1 cargo nextest run -p tenure-cli reference");
}

#[test]
fn every_setting_that_is_shown_is_one_of_the_file() {
    let known: Vec<String> = settings().into_iter().map(|(key, _)| setting(&key).to_owned()).collect();
    for key in defaults().keys() {
        assert!(known.iter().any(|name| name == key), "{key} is shown and not known");
    }
}
