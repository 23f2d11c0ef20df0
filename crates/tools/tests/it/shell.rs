//! `shell`: what a command printed, how it ended, and bounds on both, with and without a pid namespace.

use serde_json::{Value, json};
use tenure_core::{message::joined_text, tool::Artifact};
use tenure_tools::{Invoked, OUTPUT_BYTES_MAX, OUTPUT_KEPT_MAX};

use crate::rig::{CALL, Rig, alive, unique};

/// One test in both modes.
macro_rules! both_modes {
    ($($name:ident)*) => {
        mod namespaced { $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(super::rig(true)).await })* }
        mod plain { $(#[tokio::test(flavor = "multi_thread")] async fn $name() { super::$name(super::rig(false)).await })* }
    };
}

both_modes! {
    output_and_exit_code
    a_failing_command_is_a_result
    a_signal_is_named
    a_plain_line_does_what_a_shell_would_do_with_it
    a_time_out_ends_it
    a_flood_is_bounded
    a_background_child_does_not_hold_the_call
    a_background_child_that_will_not_go_is_killed
    characters_are_whole_and_bytes_that_are_none_are_marked
    there_is_nothing_to_read
    the_environment_is_scrubbed_and_marked
    many_at_once
}

fn rig(namespaces: bool) -> Rig {
    Rig::with(|config| {
        config.namespaces = namespaces;
        config.environment.extend(
            [("SOME_API_KEY", "hidden"), ("PRIVATE", "hidden"), ("PUBLIC", "seen")]
                .map(|(name, value)| (name.into(), value.into())),
        );
        config.scrub.push("PRIVATE".into());
    })
}

async fn run(rig: &Rig, command: &str) -> Invoked {
    rig.call("shell", json!({"command": command})).await
}

fn text(invoked: &Invoked) -> String {
    joined_text(&invoked.result.parts)
}

fn detail(invoked: &Invoked) -> Value {
    let mut detail = invoked.result.detail.clone();
    assert!(detail["duration_ms"].take().is_u64());
    detail
}

async fn output_and_exit_code(rig: Rig) {
    let invoked = run(&rig, "echo out; echo err >&2; pwd; echo end").await;
    let workspace = rig.workspace.canonicalize().unwrap();
    assert_eq!(text(&invoked), format!("out\nerr\n{}\nend\n", workspace.display()));
    assert_eq!(rig.shown(), text(&invoked));
    let expected = json!({"exit_code": 0, "signal": null, "timed_out": false, "duration_ms": null});
    assert_eq!((invoked.result.ok, detail(&invoked), &invoked.left), (true, expected, &vec![]));
    assert_eq!(text(&run(&rig, "true").await), "(no output)");
    assert_eq!(rig.ledger_files(), Vec::<String>::new());
}

async fn a_failing_command_is_a_result(rig: Rig) {
    let invoked = run(&rig, "echo x; exit 3").await;
    assert_eq!((text(&invoked).as_str(), invoked.result.ok), ("x\n[exit code 3]", false));
    assert_eq!(invoked.result.error.as_deref(), Some("exit code 3"));
    assert_eq!(detail(&invoked)["exit_code"], 3);
    assert_eq!(detail(&run(&rig, "no-such-program-here").await)["exit_code"], 127);
}

async fn a_signal_is_named(rig: Rig) {
    let invoked = run(&rig, "kill -9 $$").await;
    let expected = json!({"exit_code": null, "signal": 9, "timed_out": false, "duration_ms": null});
    assert_eq!(detail(&invoked), expected);
    assert_eq!(text(&invoked), "(no output)\n[ended by signal 9]");
}

/// The comment makes it a line for a shell.
async fn a_plain_line_does_what_a_shell_would_do_with_it(rig: Rig) {
    use std::os::unix::fs::PermissionsExt as _;
    for (name, content) in [
        ("script", "#!/bin/sh\necho $# $1 $PWD; exit 7"),
        ("bare", "[[ $1 == o* ]] && echo bare $1"),
        ("dies", "#!/bin/sh\nkill -9 $$"),
    ] {
        let path = rig.workspace.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::create_dir(rig.workspace.join("folder")).unwrap();
    for line in [
        "/bin/true",
        "/bin/false",
        "false",
        "true",
        "uname -s",
        "  cat   script  bare ",
        "cat missing",
        "/bin/pwd",
        "pwd",
        "./script a b=c",
        "./bare one",
        "bare",
        "./dies",
        "./folder",
        "folder",
        "./missing",
        "no-such-program-here --x",
        "env",
        "cat /proc/self/comm",
        "cat /proc/self/cmdline",
        "sh ./script 1",
        "-x",
        "test -d folder",
        "grep SigBlk /proc/self/status",
        "grep SigIgn /proc/self/status",
    ] {
        let (bare, shell) = (run(&rig, line).await, run(&rig, &format!("{line} #")).await);
        // A shell also says which program it ran last and how deep it was.
        let said = |invoked: &Invoked| {
            let text = text(invoked);
            let kept: Vec<_> =
                text.lines().filter(|line| !line.starts_with("_=") && !line.starts_with("SHLVL=")).collect();
            let mut kept = kept.into_iter().map(str::to_owned).collect::<Vec<_>>();
            if line == "env" {
                kept.sort();
            }
            kept
        };
        assert_eq!((said(&bare), detail(&bare)), (said(&shell), detail(&shell)), "{line}");
    }
}

async fn a_time_out_ends_it(rig: Rig) {
    let token = unique().to_string();
    let invoked = rig.call("shell", json!({"command": format!("echo a; sleep {token}"), "timeout_ms": 300})).await;
    assert_eq!(text(&invoked), "a\n[timed out after 300 ms and was ended]");
    let expected = json!({"exit_code": null, "signal": null, "timed_out": true, "duration_ms": null});
    assert_eq!((detail(&invoked), &invoked.left), (expected, &vec![]));
    assert_eq!(alive(&token), Vec::<i32>::new());
}

async fn a_flood_is_bounded(rig: Rig) {
    let invoked = run(&rig, "echo begin; yes 0123456789abcdef | head -c 30000000; echo; echo end").await;
    let text = text(&invoked);
    assert!(invoked.result.ok && text.len() <= OUTPUT_BYTES_MAX, "{}", text.len());
    assert!(text.starts_with("begin\n") && text.ends_with("\nend\n") && text.contains("30000011 bytes in all"));
    let name = format!("artifacts/turn_01J00000000000000000000002/{CALL}.txt");
    let kept = rig.blobs.0.lock().unwrap()[&name].clone();
    assert_eq!(invoked.result.artifacts, [Artifact::of(name.as_str(), &kept)]);
    assert_eq!(kept.len(), OUTPUT_KEPT_MAX);
    assert!(rig.shown().len() < OUTPUT_KEPT_MAX + 100);
}

async fn a_background_child_does_not_hold_the_call(rig: Rig) {
    let token = unique().to_string();
    let invoked = run(&rig, &format!("sleep {token} & echo started; exit 4")).await;
    assert_eq!((text(&invoked).as_str(), &invoked.left), ("started\n[exit code 4]", &vec![]));
    assert_eq!(alive(&token), Vec::<i32>::new());
}

async fn a_background_child_that_will_not_go_is_killed(rig: Rig) {
    let token = unique().to_string();
    let stubborn =
        format!("(trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep {token}; sleep {token}' &) ; echo started");
    let invoked = run(&rig, &stubborn).await;
    assert_eq!((text(&invoked).as_str(), invoked.result.ok, &invoked.left), ("started\n", true, &vec![]));
    assert_eq!(alive(&token), Vec::<i32>::new());
}

async fn characters_are_whole_and_bytes_that_are_none_are_marked(rig: Rig) {
    let invoked = run(&rig, r"printf '\303'; sleep 0.1; printf '\244\342\202'; sleep 0.1; printf '\254 \377'").await;
    assert_eq!(text(&invoked), "ä€ \u{fffd}");
    assert_eq!(rig.shown(), "ä€ \u{fffd}");
}

async fn there_is_nothing_to_read(rig: Rig) {
    assert_eq!(text(&run(&rig, "cat; echo done").await), "done\n");
}

async fn the_environment_is_scrubbed_and_marked(rig: Rig) {
    let shown = text(&run(&rig, "echo \"[$SOME_API_KEY][$PRIVATE][$PUBLIC][$TENURE_CALL]\"; env").await);
    assert!(shown.starts_with(&format!("[][][seen][{CALL}]\n")) && shown.contains("\nTENURE_MARK="), "{shown}");
    assert!(!shown.contains("hidden"));
}

async fn many_at_once(rig: Rig) {
    let calls = (0..8).map(|number| {
        let mut context = rig.context.clone();
        context.call_id = format!("call_01J0000000000000000000000{number}").parse().unwrap();
        let tool = rig.registry.get("shell").unwrap();
        tokio::spawn(async move {
            let input = json!({"command": format!("for i in 1 2 3; do echo {number}; done; exit {number}")});
            tool.invoke(&context, &input, &Default::default()).await
        })
    });
    for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        let invoked = call.await.unwrap();
        assert!(text(&invoked).starts_with(&format!("{number}\n{number}\n{number}\n")), "{invoked:?}");
        assert_eq!(detail(&invoked)["exit_code"], number);
    }
    assert_eq!(rig.ledger_files(), Vec::<String>::new());
}
