//! `diagram`: pictures come of texts, whatever the texts are, and nothing but pictures.

use serde_json::json;

use crate::rig::Rig;

fn with_path(path: &'static str) -> Rig {
    Rig::with(|config| {
        config.environment.retain(|(name, _)| name != "PATH");
        config.environment.push(("PATH".into(), path.into()));
    })
}

async fn drawn(rig: &Rig, language: &str, source: &str) -> (String, String) {
    rig.blobs.0.lock().unwrap().clear();
    let text = rig.text("diagram", json!({"language": language, "source": source})).await;
    let blobs = rig.blobs.0.lock().unwrap();
    let (name, svg) = blobs.iter().next().unwrap();
    assert!(name.ends_with(".svg") && text.contains(name.as_str()), "{text}");
    (text, String::from_utf8(svg.to_vec()).unwrap())
}

const DOT: &str = "digraph G { a [label=\"Start & go\"]; a -> b [label=\"yes\"]; b -> c; }";

#[tokio::test]
async fn dot_is_drawn_with_graphviz_and_without_it() {
    // Without Graphviz on the path.
    let (text, svg) = drawn(&with_path("/nonexistent"), "dot", DOT).await;
    assert!(text.contains("drawn without Graphviz"), "{text}");
    assert!(svg.starts_with("<svg ") && svg.contains("Start &amp; go") && svg.contains("yes"), "{svg}");
    if std::path::Path::new("/usr/bin/dot").exists() {
        let (text, svg) = drawn(&with_path("/usr/bin"), "dot", DOT).await;
        assert!(!text.contains("without Graphviz"), "{text}");
        assert!(svg.starts_with("<svg ") && svg.contains("Start &amp; go") && svg.contains("yes"), "{svg}");
    }
}

#[tokio::test]
async fn kinds_of_mermaid() {
    let rig = Rig::new();
    for (source, label) in [
        ("flowchart LR\n  A[Begin] --> B{Ready?}\n  B -->|no| A", "Ready?"),
        ("sequenceDiagram\n  Client->>Daemon: POST\n  Daemon-->>Client: 202", "Daemon"),
        ("classDiagram\n  Session *-- Turn : owns", "Session"),
        ("stateDiagram-v2\n  [*] --> Idle\n  Idle --> Running", "Running"),
        ("erDiagram\n  USER ||--o{ ORDER : places", "ORDER"),
        ("pie title Pets\n  \"Dogs\" : 3\n  \"Cats\" : 2", "Dogs"),
    ] {
        let (_, svg) = drawn(&rig, "mermaid", source).await;
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>") && svg.contains(label), "{source}: {svg}");
    }
}

#[tokio::test]
async fn a_hostile_text_becomes_a_picture_and_nothing_else() {
    let mermaid = "flowchart LR\n  A[\"<script>alert(1)</script><img src=x onerror=alert(1)>\"] --> B[\"x' onload='x\"]\n  \
                   click A \"javascript:alert(1)\" \"tip\"\n  click B href \"https://evil.example/x\" _blank\n  \
                   style A fill:url(https://evil.example/a),stroke:#fff\" onload=\"alert(1)\n";
    let dot = "digraph { a [label=\"<script>alert(1)</script>\", URL=\"javascript:alert(1)\", href=\"https://evil.example\", \
               image=\"/etc/passwd\", shapefile=\"/etc/passwd\"]; a -> \"b\\\" onload=\\\"x\"; graph [stylesheet=\"https://evil.example\"]; \
               c [fillcolor=\"red\\\" onload=\\\"alert(1)\", style=filled]; }";
    let (here, without) = (Rig::new(), with_path("/nonexistent"));
    for (rig, language, source) in [(&here, "mermaid", mermaid), (&here, "dot", dot), (&without, "dot", dot)] {
        let (_, svg) = drawn(rig, language, source).await;
        // Inside of texts anything may stand; outside of them nothing that acts.
        let tags: String =
            svg.split('<').skip(1).map(|piece| piece.split('>').next().unwrap().to_owned() + "\n").collect();
        for sign in
            ["script", "onload", "onerror", "href=\"h", "href=\"j", "evil.example", "image", "/etc/passwd", "style"]
        {
            let found = tags.lines().find(|tag| tag.contains(sign));
            assert_eq!(found, None, "{language}: {sign}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_drawn_is_told() {
    let (here, without) = (Rig::new(), with_path("/nonexistent"));
    for (rig, language, source) in [
        (&here, "mermaid", "not a diagram"),
        (&here, "dot", "digraph { a -> "),
        (&without, "dot", "digraph { a -> "),
        (&without, "dot", "digraph { a [label=<<b>x</b>>]; }"),
    ] {
        let error = rig.error("diagram", json!({"language": language, "source": source})).await;
        assert!(error.starts_with("it could not be drawn: "), "{language} {source}: {error}");
    }
    assert!(here.blobs.0.lock().unwrap().is_empty());
    here.context.cancel.cancel();
    assert_eq!(here.error("diagram", json!({"language": "mermaid", "source": "flowchart LR"})).await, "stopped");
}

#[tokio::test]
async fn a_drawing_under_way_is_ended_with_its_call() {
    let rig = Rig::new();
    let edges: String = (0..20_000).map(|node| format!("  n{node} --> n{}\n", node * 7919 % 20_000)).collect();
    let cancel = rig.context.cancel.clone();
    let call =
        rig.call("diagram", json!({"language": "mermaid", "source": &format!("flowchart TD\n{edges}")[..250_000]}));
    let end = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        cancel.cancel();
    };
    let (invoked, ()) = tokio::join!(call, end);
    // It was not done by then, unless a machine is a thousand times faster.
    assert_eq!((invoked.result.error.as_deref(), invoked.left), (Some("stopped"), vec![]));
}
