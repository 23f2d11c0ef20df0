//! After a crash between any two steps of a write, the call is classed rightly and the files are whole.

use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use serde_json::json;
use tenure_core::tool::{CallClass, Intent};
use tenure_tools::classify;

use crate::rig::Rig;

/// A file's content before and after: lines, or no file.
type Versions = (Option<String>, Option<String>);

fn content() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::collection::vec("[ab]{0,2}", 1..5).prop_map(|lines| lines.join("\n") + "\n"))
}

fn patch_of(path: &str, (before, after): &Versions) -> Option<String> {
    let (old, new) = (before.as_deref().unwrap_or(""), after.as_deref().unwrap_or(""));
    if old == new {
        return None;
    }
    let patch = diffy::create_patch(old, new).to_string();
    let old_name = if before.is_some() { format!("a/{path}") } else { "/dev/null".into() };
    let new_name = if after.is_some() { format!("b/{path}") } else { "/dev/null".into() };
    Some(patch.replace("--- original", &format!("--- {old_name}")).replace("+++ modified", &format!("+++ {new_name}")))
}

impl Rig {
    fn set(&self, path: &str, content: Option<&str>) {
        match content {
            Some(text) => self.put(path, text),
            None => drop(std::fs::remove_file(self.workspace.join(path))),
        }
    }

    fn classed(&self, runtime: &tokio::runtime::Runtime, intent: &Intent) -> CallClass {
        runtime.block_on(classify(&self.workspace, intent, &*self.blobs))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_mix_of_before_and_after_is_finished_not_started_or_rolled_back(
        versions in prop::collection::vec((content(), content()), 1..4),
        stray in 0usize..4,
    ) {
        let (rig, runtime) = (Rig::new(), runtime());
        let files: Vec<(String, Versions)> = versions
            .into_iter()
            .enumerate()
            .map(|(at, versions)| (format!("d{}/f{at}", at % 2), versions))
            .filter(|(path, versions)| patch_of(path, versions).is_some())
            .collect();
        prop_assume!(!files.is_empty());
        let patch: String = files.iter().filter_map(|(path, versions)| patch_of(path, versions)).collect();
        let all_before = || files.iter().for_each(|(path, (before, _))| rig.set(path, before.as_deref()));
        let is_all = |after: bool| files.iter().all(|(path, (old, new))| rig.get(path) == *(if after { new } else { old }));
        all_before();
        let input = json!({"patch": patch});
        let intent = runtime.block_on(rig.prepare("apply_patch", &input)).unwrap();

        let all = (1usize << files.len()) - 1;
        for mask in 0..=all {
            for (at, (path, (before, after))) in files.iter().enumerate() {
                let now = if mask >> at & 1 == 1 { after } else { before };
                rig.set(path, now.as_deref());
            }
            let class = rig.classed(&runtime, &intent);
            prop_assert_eq!(class, if mask == all { CallClass::Finished } else { CallClass::NotStarted });
            prop_assert!(is_all(mask == all), "mask {}", mask);
        }

        // A file that someone else wrote: nothing is touched.
        all_before();
        let (path, (_, after)) = &files[stray % files.len()];
        for (other, (_, after)) in &files {
            rig.set(other, after.as_deref());
        }
        rig.set(path, Some("someone else's"));
        prop_assert_eq!(rig.classed(&runtime, &intent), CallClass::Unknown);
        prop_assert_eq!(rig.get(path).unwrap(), "someone else's");
        rig.set(path, after.as_deref());
        prop_assert!(is_all(true));

        // The call itself leads from all before to all after.
        all_before();
        prop_assert!(runtime.block_on(rig.invoke("apply_patch", &input, &intent)).result.ok);
        prop_assert!(is_all(true));
        prop_assert_eq!(rig.classed(&runtime, &intent), CallClass::Finished);
    }

    #[test]
    fn a_sequence_of_writes_can_be_classed_at_each_step(texts in prop::collection::vec("[ab\n]{0,6}", 1..6)) {
        let (rig, runtime) = (Rig::new(), runtime());
        let mut now: Option<String> = None;
        for text in texts {
            let input = json!({"path": "deep/f", "content": text});
            let intent = runtime.block_on(rig.prepare("write_file", &input)).unwrap();
            let unchanged = now.as_deref() == Some(&text);
            let expected = if unchanged { CallClass::Finished } else { CallClass::NotStarted };
            prop_assert_eq!(rig.classed(&runtime, &intent), expected);
            prop_assert_eq!(rig.get("deep/f"), now);
            prop_assert!(runtime.block_on(rig.invoke("write_file", &input, &intent)).result.ok);
            prop_assert_eq!(rig.classed(&runtime, &intent), CallClass::Finished);
            now = Some(text);
        }
    }
}

#[test]
fn a_rolled_back_file_has_its_mode_again() {
    let (rig, runtime) = (Rig::new(), runtime());
    rig.put("a", "1\n");
    rig.put("b", "1\n");
    std::fs::set_permissions(rig.workspace.join("a"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    let part = |path| format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-1\n+2\n");
    let input = json!({"patch": part("a") + &part("b")});
    let intent = runtime.block_on(rig.prepare("apply_patch", &input)).unwrap();
    std::fs::remove_file(rig.workspace.join("a")).unwrap();
    rig.put("a", "2\n");
    assert_eq!(rig.classed(&runtime, &intent), CallClass::NotStarted);
    assert_eq!(rig.get("a").unwrap(), "1\n");
    assert_eq!(rig.workspace.join("a").metadata().unwrap().permissions().mode() & 0o7777, 0o4751);
}

#[test]
fn without_its_old_bytes_a_mixed_state_is_unknown_and_untouched() {
    let (rig, runtime) = (Rig::new(), runtime());
    rig.put("a", "1\n");
    let patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n";
    let intent = runtime.block_on(rig.prepare("apply_patch", &json!({"patch": patch}))).unwrap();
    rig.put("a", "2\n");
    for damage in ["", "damaged"] {
        let mut blobs = rig.blobs.0.lock().unwrap();
        let name = intent.files[0].old_bytes.clone().unwrap();
        match damage {
            "" => drop(blobs.remove(&name)),
            _ => drop(blobs.insert(name, damage.into())),
        }
        drop(blobs);
        assert_eq!(rig.classed(&runtime, &intent), CallClass::Unknown);
        assert_eq!((rig.get("a").as_deref(), rig.get("n")), (Some("2\n"), None));
    }
}

#[test]
fn an_empty_intent_or_a_path_out_of_the_workspace_is_unknown() {
    let (rig, runtime) = (Rig::new(), runtime());
    assert_eq!(rig.classed(&runtime, &Intent::default()), CallClass::Unknown);
    std::fs::write(rig.outside().join("f"), "x").unwrap();
    let intent: Intent =
        serde_json::from_value(json!({"files": [{"path": "../f", "before": null, "after": "00"}]})).unwrap();
    assert_eq!(rig.classed(&runtime, &intent), CallClass::Unknown);
    assert!(rig.outside().join("f").exists());
}
