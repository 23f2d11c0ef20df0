//! What many use comes first, and what the focus is about before that.

use tenure_outline::{Focus, choose, rank};

use crate::fixture::Fixture;

/// One file that all others use, and one that nobody does.
fn hub() -> Fixture {
    let fixture = Fixture::empty();
    fixture.put("a_lonely.py", "def lonely_thing():\n    return 1\n");
    fixture.put(
        "z_core.py",
        "class CoreEngine:\n    def start_engine(self):\n        pass\n\ndef rarely_used():\n    pass\n",
    );
    for at in 0..10 {
        fixture.put(&format!("user{at}.py"), format!("def use{at}():\n    CoreEngine().start_engine()\n"));
    }
    fixture
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap()
}

#[test]
fn what_others_use_comes_first() {
    let found = hub().outline("", 28);
    assert_eq!(first_line(&found.text), "z_core.py:");
    assert!(found.text.contains("class CoreEngine") && found.text.contains("def start_engine(self)"), "{}", found.text);
    assert!(!found.text.contains("rarely_used"), "{}", found.text);
}

#[test]
fn what_the_focus_mentions_comes_before_that() {
    let fixture = hub();
    for focus in ["look at a_lonely.py", "what does lonely_thing do?"] {
        assert_eq!(first_line(&fixture.outline(focus, 40).text), "a_lonely.py:", "{focus}");
    }
    // And with the focus on one of the users, what that uses is near.
    let text = fixture.outline("use3", 40).text;
    assert!(text.contains("user3.py:") && text.contains("class CoreEngine"), "{text}");
}

#[test]
fn names_of_another_language_do_not_count() {
    let fixture = Fixture::empty();
    fixture.put("a.go", "package a\n\nfunc SharedName() {}\n");
    fixture.put("b.py", "def SharedName():\n    pass\n");
    for at in 0..5 {
        fixture.put(&format!("c{at}.py"), "SharedName()\n");
    }
    let text = fixture.outline("", 100).text;
    assert_eq!(first_line(&text), "b.py:");
}

#[test]
fn chunks_are_of_what_the_task_is_about() {
    let fixture = Fixture::mixed();
    let survey = fixture.look();
    let chosen = |task: &str| {
        let focus = Focus::of_text(task);
        choose(&survey, &rank(&survey, &focus), &focus)
    };
    let chunks = chosen("The tax of an invoice is wrong when it is loaded.");
    assert_eq!((chunks[0].path.as_str(), chunks[0].first_line), ("py/models.py", 9), "{chunks:?}");
    let named = chosen("fetchAccount should try again");
    assert_eq!((named[0].path.as_str(), named[0].name.as_str()), ("web/api.ts", "fetchAccount"), "{named:?}");
    assert_eq!(chosen("Good morning!"), []);
    assert_eq!(chosen(""), []);
}

#[test]
fn chunks_do_not_overlap_and_are_bounded() {
    let fixture = Fixture::empty();
    let body = "    x = 1\n".repeat(500);
    fixture
        .put("long.py", format!("class Planner:\n    def plan_route(self):\n{}\n", body.replace("    x", "        x")));
    let many: String = (0..200).map(|at| format!("def plan_route_{at}():\n    pass\n\n")).collect();
    fixture.put("many.py", many);
    let survey = fixture.look();
    let focus = Focus::of_text("plan the route of the Planner");
    let chunks = choose(&survey, &rank(&survey, &focus), &focus);
    assert!(!chunks.is_empty() && chunks.len() <= 24);
    for (at, one) in chunks.iter().enumerate() {
        assert!(one.last_line - one.first_line < 80);
        let same = chunks[at + 1..].iter().filter(|other| other.path == one.path);
        assert!(same.into_iter().all(|other| other.first_line > one.last_line || one.first_line > other.last_line));
    }
}
