//! What each model name stands for, and what scripts say about price, parts and patience.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use tenure_core::{
    message::Part,
    model::{Fault, FaultKind, Usage},
};
use tenure_models::{
    Model, Patience, Registry,
    scripted::{SCRIPT_BYTES_MAX, ScriptedRegistry},
};

use crate::request::{model, request, said, user};

fn refused(registry: &ScriptedRegistry, name: &str) -> String {
    let fault = registry.resolve(name).err().expect(name);
    assert_eq!(fault, Fault::new(FaultKind::UnknownModel, fault.message.clone()));
    fault.message
}

fn write_script(path: &Path, text: &str, modified_s: u64) {
    let script = serde_json::json!({"steps": [{"do": [{"text": text}]}]});
    fs::write(path, script.to_string()).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified_s);
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_plain_name_says_what_it_is_and_echoes() {
    let model = ScriptedRegistry::new().resolve("scripted").unwrap();
    let text = said(&*model, request(vec![user("What is\nup?")])).await;
    assert!(text.starts_with(
        "I am the scripted stand-in of Tenure: no model, no network, no intelligence. You wrote: “What is up?”"
    ));
    let text = said(&*model, request(vec![])).await;
    assert!(text.contains("You wrote no text."));
}

#[test]
fn other_names_are_told_which_there_are() {
    let registry = ScriptedRegistry::new();
    for name in ["", "gpt", "Scripted", "scripted:", "scripted:other", "scripted:a/relative.json"] {
        assert_eq!(
            refused(&registry, name),
            format!(
                "there is no model named `{name}`; there are `scripted`, `scripted:demo` and `scripted:` followed by \
                 the absolute path of a script file"
            )
        );
    }
}

#[tokio::test]
async fn a_script_file_is_read_again_when_it_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.json");
    let name = format!("scripted:{}", path.display());
    let registry = ScriptedRegistry::new();
    let ask = async || said(&*registry.resolve(&name).unwrap(), request(vec![user("go")])).await;

    write_script(&path, "one", 1_000);
    assert_eq!(ask().await, "one");
    write_script(&path, "two", 1_000);
    assert_eq!(ask().await, "one", "the same size and time count as the same file");
    write_script(&path, "two", 2_000);
    assert_eq!(ask().await, "two");
    write_script(&path, "three", 2_000);
    assert_eq!(ask().await, "three");
}

#[test]
fn files_that_are_no_scripts_are_named_with_their_problem() {
    let folder = tempfile::tempdir().unwrap();
    let registry = ScriptedRegistry::new();
    let check = |file: &str, problem: &str| {
        let path = folder.path().join(file);
        let name = format!("scripted:{}", path.display());
        assert_eq!(refused(&registry, &name), format!("script {}: {problem}", path.display()));
    };
    check("missing.json", "No such file or directory (os error 2)");
    check("", "is not a plain file");
    fs::write(folder.path().join("bad.json"), r#"{"steps": [{"do": [{"text": 1}]}]}"#).unwrap();
    check("bad.json", "step 1, action 1: invalid type: integer `1`, expected a string");
    fs::write(folder.path().join("huge.json"), vec![b' '; SCRIPT_BYTES_MAX as usize + 1]).unwrap();
    check("huge.json", "is larger than 4194304 bytes");
}

#[test]
fn price() {
    let usage = Usage { input_tokens: 1000, output_tokens: 100, cache_read_tokens: 10, cache_write_tokens: 1 };
    let cost = |price: &str| model(&format!(r#"{{"steps": []{price}}}"#)).cost(&usage);
    assert_eq!(cost(""), Some(0));
    assert_eq!(cost(r#", "price": "unknown""#), None);
    let price = r#", "price": {"input_per_mtok_usd": 3, "output_per_mtok_usd": 15.5}"#;
    assert_eq!(cost(price), Some(1011 * 3 + 1550));
}

fn parts() -> [Part; 4] {
    let (r#ref, mime_type) = ("attachments/a".to_owned(), "application/pdf".to_owned());
    let (image, audio) = ((r#ref.clone(), mime_type.clone()), (r#ref.clone(), mime_type.clone()));
    [
        Part::text("words"),
        Part::Image { r#ref: image.0, mime_type: image.1 },
        Part::Audio { r#ref: audio.0, mime_type: audio.1 },
        Part::File { r#ref, mime_type },
    ]
}

#[test]
fn parts_and_patience() {
    let plain = model(r#"{"steps": []}"#);
    assert_eq!(parts().map(|part| plain.takes(&part)), [true, false, false, false]);
    assert_eq!(plain.patience(), Patience::default());

    let other = model(r#"{"steps": [], "takes": ["image", "file"], "patience": {"first_byte_ms": 100}}"#);
    assert_eq!(parts().map(|part| other.takes(&part)), [true, true, false, true]);
    let expected = Patience { first_byte: Duration::from_millis(100), ..Patience::default() };
    assert_eq!(other.patience(), expected);
}
