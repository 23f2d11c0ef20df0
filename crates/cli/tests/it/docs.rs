//! What the documents tell people to type is typed here, against a real daemon, and answers as they say.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::rig::{Daemon, Folder, Ran};

/// A fenced block of a document.
struct Block {
    language: String,
    line: usize,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    let mut inside = false;
    for (at, line) in document.lines().enumerate() {
        match (inside, line.strip_prefix("```")) {
            (false, Some(language)) => {
                blocks.push(Block { language: language.to_owned(), line: at + 1, text: String::new() });
                inside = true;
            }
            (true, Some(_)) => inside = false,
            (true, None) => {
                let block = blocks.last_mut().expect("a block was begun");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (false, None) => {}
        }
    }
    blocks
}

/// All documents people follow, but the table and the decisions.
fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    all.push(root().join("README.md"));
    all.sort();
    all
}

/// An HTTP error fails; what would never end is ended.
const PRELUDE: &str = r#"
set -euo pipefail
curl() {
  case " $* " in
    *" -N "*|*" -sN "*) timeout 2 curl --fail-with-body "$@" || [ $? = 124 ] ;;
    *) command curl --fail-with-body "$@" ;;
  esac
}
"#;

const MARK: &str = "@@@@@@@@ block ";

/// The blocks in which something is typed. Where `curl` is used, all of a document's are; `sh-by-hand` is for people.
fn typed(blocks: &[Block], all: bool) -> Vec<&Block> {
    blocks.iter().filter(|block| block.language == "sh" && (all || block.text.contains("curl"))).collect()
}

async fn run(document: &Path, all: bool) {
    let text = fs::read_to_string(document).unwrap();
    let blocks = blocks(&text);
    let typed = typed(&blocks, all);
    if typed.is_empty() {
        return;
    }
    let folder = Folder::new();
    let home = folder.path().join("home");
    let data = home.join(".local/share/tenure");
    let daemon = Daemon::start(&data).await;
    let address = daemon.client().target().base_url().to_owned();
    let mut script = PRELUDE.to_owned();
    for block in &typed {
        script.push_str(&format!("echo '{MARK}{}'\n{}", block.line, block.text));
    }
    let script = script.replace("http://127.0.0.1:8787", &address);
    let mut command = Command::new("bash");
    let bin = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    command.env("HOME", &home).env("TENURE_DATA", &data).env_remove("XDG_DATA_HOME").current_dir(folder.workspace());
    let ran = Ran::of(command.arg("-c").arg(&script).stdin(Stdio::null()).output().unwrap());
    // A document may have stopped the daemon, and a later command of it have started another one.
    let _ = Command::new(bin.join("tenure")).arg("--data").arg(&data).arg("stop").output();
    assert_eq!(ran.code, Some(0), "{}: {ran:#?}", document.display());
    for part in ran.stdout.split(MARK).skip(1) {
        let (line, output) = part.split_once('\n').unwrap();
        let at = blocks.iter().position(|block| block.line.to_string() == line).unwrap();
        let Some(sample) = blocks.get(at + 1).filter(|next| next.language == "json") else { continue };
        let place = format!("{}:{}", document.display(), sample.line);
        let sample: Value = serde_json::from_str(&sample.text).unwrap_or_else(|error| panic!("{place}: {error}"));
        let last = output.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
        let got: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{place}: {error}: {output}"));
        assert_fits(&sample, &got, &place);
    }
}

/// Everything that the document shows is there: the same words, or any text where it shows `…`; numbers may differ.
fn assert_fits(sample: &Value, got: &Value, place: &str) {
    match (sample, got) {
        (Value::Object(sample), Value::Object(got)) => {
            for (name, value) in sample {
                let found = got.get(name).unwrap_or_else(|| panic!("{place}: there is no {name} in {got:?}"));
                assert_fits(value, found, &format!("{place}: {name}"));
            }
        }
        (Value::String(sample), Value::String(got)) => {
            let begin = sample.trim_end_matches('…');
            let fits = if begin.len() < sample.len() { got.starts_with(begin) } else { got == sample };
            assert!(fits, "{place}: {got:?} is not {sample:?}");
        }
        (Value::Number(_), Value::Number(_)) => {}
        (sample, got) => assert_eq!(sample, got, "{place}"),
    }
}

#[tokio::test]
async fn the_http_guide_does_what_it_says() {
    run(&root().join("docs/http.md"), true).await;
}

#[tokio::test]
async fn the_quick_start_does_what_it_says() {
    run(&root().join("docs/quick-start.md"), true).await;
}

#[tokio::test]
async fn every_other_curl_line_works() {
    for document in documents() {
        let name = document.file_name().unwrap().to_str().unwrap();
        if !matches!(name, "http.md" | "quick-start.md") {
            run(&document, false).await;
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let to = document.parent().unwrap().join(path);
            assert!(to.exists(), "{}: {link} leads nowhere", document.display());
        }
    }
}

#[test]
fn no_curl_line_hides_from_the_test() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for block in blocks(&text).iter().filter(|block| block.text.contains("curl ")) {
            assert_eq!(block.language, "sh", "{}:{}", document.display(), block.line);
        }
    }
}
