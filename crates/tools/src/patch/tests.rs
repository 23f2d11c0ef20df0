//! Both formats of patches: what they are read as, where hunks go, and what is refused.

use super::*;

#[track_caller]
fn made(patch: &str, before: &str) -> Applied {
    parse(patch).unwrap()[0].apply(before.as_bytes()).unwrap()
}

#[track_caller]
fn applied(patch: &str, before: &str) -> String {
    String::from_utf8(made(patch, before).bytes).unwrap()
}

#[track_caller]
fn misfit(patch: &str, before: &str, why: &str) {
    let error = parse(patch).unwrap()[0].apply(before.as_bytes()).unwrap_err();
    assert!(error.contains(why), "{error}");
}

#[track_caller]
fn refused(patch: &str, why: &str) {
    let error = parse(patch).unwrap_err();
    assert!(error.contains(why), "{error}");
}

fn diff(body: &str) -> String {
    format!("--- a/x\n+++ b/x\n{body}")
}

fn update(body: &str) -> String {
    format!("*** Begin Patch\n*** Update File: x\n{body}*** End Patch\n")
}

#[test]
fn one_hunk_with_context() {
    assert_eq!(applied(&diff("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"), "one\ntwo\nthree\n"), "one\n2\nthree\n");
}

#[test]
fn a_patch_without_a_last_newline_and_a_blank_context_line_that_lost_its_space() {
    assert_eq!(applied(&diff("@@ -1,3 +1,3 @@\n one\n\n-two\n+2"), "one\n\ntwo\n"), "one\n\n2\n");
}

#[test]
fn line_endings_are_kept() {
    let patch = diff("@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n");
    assert_eq!(applied(&patch, "one\r\ntwo\r\n"), "one\r\n2\r\n3\r\n");
    // Each line keeps its own where they are mixed, and a new one ends as the lines around it.
    assert_eq!(applied(&patch, "one\r\ntwo\nz\n"), "one\r\n2\n3\nz\n");
    let no_end = diff("@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+1\n\\ No newline at end of file\n");
    assert_eq!(applied(&no_end, "one"), "1");
    let translated = no_end.replace("No newline at end of file", "Kein Zeilenumbruch am Dateiende.");
    assert_eq!(applied(&translated, "one"), "1");
}

#[test]
fn a_file_without_a_last_newline_stays_without_where_the_patch_does_not_speak_of_it() {
    let made = made(&diff("@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n"), "one\ntwo");
    assert_eq!(made.bytes, b"one\n2\n3");
    assert_eq!(made.notes, ["hunk #1 fits but for whitespace at line ends"]);
}

#[test]
fn an_insertion_without_context_goes_where_its_numbers_say_or_nowhere() {
    let insertion = |range: &str| diff(&format!("@@ {range} @@\n+new\n"));
    for (range, after) in [("-0,0 +1", "new\n1\n2\n"), ("-1,0 +2", "1\nnew\n2\n"), ("-2,0 +3", "1\n2\nnew\n")] {
        assert_eq!(applied(&insertion(range), "1\n2\n"), after, "{range}");
    }
    for range in ["-3,0 +4", "-110,0 +1", "-1,0 +1", "-0,0 +2"] {
        misfit(&insertion(range), "1\n2\n", "exact line numbers");
    }
    let second = diff("@@ -1 +1,2 @@\n 1\n+a\n@@ -2,0 +4 @@\n+b\n");
    assert_eq!(applied(&second, "1\n2\n3\n"), "1\na\n2\nb\n3\n");
}

#[test]
fn a_wrong_line_number_is_taken_where_one_place_fits_and_told() {
    let patch = diff("@@ -90,2 +90,2 @@\n c\n-d\n+D\n");
    let made = made(&patch, "a\nb\nc\nd\n");
    assert_eq!(
        (made.bytes.as_slice(), made.notes.as_slice()),
        (&b"a\nb\nc\nD\n"[..], &["hunk #1 was found at line 3, not at line 90".to_owned()][..])
    );
    misfit(&patch, "c\nd\nc\nd\n", "fits in more than one place (lines 1, 3)");
    // The number decides where it fits there.
    assert_eq!(applied(&diff("@@ -3,2 +3,2 @@\n c\n-d\n+D\n"), "c\nd\nc\nd\n"), "c\nd\nc\nD\n");
}

#[test]
fn whitespace_at_line_ends_may_differ_where_one_place_fits() {
    let patch = diff("@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    let made = made(&patch, "one \t\ntwo  \n");
    assert_eq!(made.bytes, b"one \t\n2\n", "a line that stays is the file's own");
    assert_eq!(made.notes, ["hunk #1 fits but for whitespace at line ends"]);
    misfit(&diff("@@ -9 +9 @@\n-two\n+2\n"), "two \ntwo\t\n", "more than one place");
    misfit(&diff("@@ -1 +1 @@\n-  two\n+2\n"), "two\n", "does not fit");
}

#[test]
fn wrong_counts_are_taken_where_the_lines_can_be_told() {
    for header in ["@@ -1,9 +1,9 @@", "@@ -1 +1 @@", "@@ -1,2 +1,7 @@ fn x", "@@"] {
        let patch = diff(&format!("{header}\n one\n-two\n+2\n three\n"));
        assert_eq!(applied(&patch, "one\ntwo\nthree\n"), "one\n2\nthree\n", "{header}");
    }
    let two = diff("@@ -1,5 +1,5 @@\n-a\n+1\n--- a/y\n+++ b/y\n@@ -1,5 +1,5 @@\n-b\n+2\n");
    assert_eq!(parse(&two).unwrap().len(), 2);
    // What counts settle stays settled.
    assert_eq!(applied(&diff("@@ -1,2 +1,2 @@\n--- x\n+++ y\n z\n"), "-- x\nz\n"), "++ y\nz\n");
    refused(&diff("@@ -1,3 +1,3 @@\n-a\n+1\nwhat is this\n"), "line 6 of the patch is not part of a hunk");
    let signed = diff("@@ -1 +1 @@\n-a\n+1\n-- \n2.39.5\n");
    assert_eq!(applied(&signed, "a\n"), "1\n");
}

#[test]
fn an_empty_file_is_refused_and_not_passed_over() {
    let other = diff("@@ -1 +1 @@\n-one\n+1\n");
    for mode in ["new file mode 100755\nindex 0..1", "deleted file mode 100644"] {
        let announced = format!("diff --git a/e b/e\n{mode}\n");
        refused(&format!("{announced}diff --git a/x b/x\n{other}"), "empty files");
        refused(&format!("{other}{announced}"), "empty files");
        refused(&format!("{announced}{other}"), "empty files");
    }
}

#[test]
fn names_and_kinds() {
    let patch = "diff --git a/n b/n\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\
                 diff --git a/d b/d\ndeleted file mode 100644\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
                 --- src/a/p\t2020\n+++ src/a/p\t2021\n@@ -1 +1 @@\n-x\n+y\n";
    let files = parse(patch).unwrap();
    let seen: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.kind, file.executable)).collect();
    assert_eq!(seen, [("n", Kind::Create, true), ("d", Kind::Delete, false), ("src/a/p", Kind::Modify, false)]);
}

#[test]
fn what_is_refused() {
    refused("hello", "names no file");
    refused("", "names no file");
    refused("@@ -1 +1 @@\n-x\n+y\n", "before any file header");
    refused("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-x\n+y\n", "renames are not supported");
    refused("diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n", "renames are not supported");
    refused("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "mode");
    refused("--- a/x\n+++ b/x\n", "no hunks");
    refused(&diff("@@ nonsense\n"), "not a hunk header");
    refused(&diff("@@ -1,2 +1,2 @@\n same\n"), "changes nothing");
    refused("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n", "regular files");
}

#[test]
fn context_that_is_not_there_is_named_by_hunk_and_nearest_line() {
    let patch = diff("@@ -1 +1 @@\n-a\n+b\n@@ -4,2 +4,2 @@\n d\n-nope\n+y\n");
    misfit(&patch, "a\nb\nc\nd\ne\n", "hunk #2 does not fit");
    misfit(&patch, "a\nb\nc\nd\ne\n", "line 5 is `e` and not `nope`");
}

#[test]
fn the_agents_format_finds_its_place_by_lines() {
    let file = "fn a() {\n    x();\n}\nfn b() {\n    x();\n}\n";
    assert_eq!(
        applied(&update("@@ fn b() {\n-    x();\n+    y();\n"), file),
        file.replacen("b() {\n    x", "b() {\n    y", 1)
    );
    misfit(&update("@@\n-    x();\n+    y();\n"), file, "more than one place (lines 2, 5)");
    misfit(&update("@@ fn c() {\n-    x();\n+    y();\n"), file, "there is no such line");
    assert_eq!(applied(&update(" fn a() {\n-    x();\n+    y();\n }\n"), file), file.replacen("x", "y", 1));
    assert_eq!(applied(&update("@@\n }\n+// end\n*** End of File\n"), file), format!("{file}// end\n"));
    assert_eq!(applied(&update("@@ fn b() {\n+    z();\n"), file), file.replacen("b() {\n", "b() {\n    z();\n", 1));
    misfit(&update("+lost\n"), file, "say where");
    assert_eq!(
        applied(&update("@@ -5,2 +5,2 @@\n-    x();\n+    y();\n }\n"), file),
        file.replacen("b() {\n    x", "b() {\n    y", 1)
    );
    // Two hunks, in order; the file's own ends are kept.
    let crlf = file.replace('\n', "\r\n");
    let both = update("@@ fn a() {\n-    x();\n+    1\n@@ fn b() {\n-    x();\n+    2\n");
    assert_eq!(applied(&both, &crlf), "fn a() {\r\n    1\r\n}\r\nfn b() {\r\n    2\r\n}\r\n");
}

#[test]
fn the_agents_format_adds_deletes_and_moves() {
    let patch = "*** Begin Patch\n*** Add File: n/new\n+one\n+\n\n*** Delete File: old\n*** Update File: a\n\
                 *** Move to: b\n@@\n-1\n+2\n*** Update File: c\n*** Move to: d\n*** End Patch";
    let files = parse(patch).unwrap();
    let seen: Vec<_> =
        files.iter().map(|file| (file.path.as_str(), file.kind, file.move_to.as_deref(), file.hunks.len())).collect();
    let expected = [
        ("n/new", Kind::Create, None, 1),
        ("old", Kind::Delete, None, 0),
        ("a", Kind::Modify, Some("b"), 1),
        ("c", Kind::Modify, Some("d"), 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(files[0].apply(b"").unwrap().bytes, b"one\n\n");
}

#[test]
fn what_is_refused_of_the_agents_format() {
    refused("*** Begin Patch\n*** Update File: x\n@@\n-a\n+b\n", "it may have been cut");
    refused("*** Begin Patch\n*** End Patch", "names no file");
    refused("*** Begin Patch\n*** Add File: x\nplain\n*** End Patch", "begins with +");
    refused("*** Begin Patch\n*** Update File: x\n*** End Patch", "nothing is said");
    refused("*** Begin Patch\n*** Update File: x\n@@ fn\n same\n*** End Patch", "changes nothing");
    refused("*** Begin Patch\n*** Sing: x\n*** End Patch", "expected *** Add File:");
    refused("*** Begin Patch\n*** Delete File: \n*** End Patch", "names no file");
    refused("*** Begin Patch\n*** Update File: x\n?\n*** End Patch", "begins with a space");
}
