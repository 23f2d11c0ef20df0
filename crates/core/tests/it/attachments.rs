//! Files that a session is given, and messages that name them.

use tenure_core::{
    command::Command,
    message::{Attachment, Delivery, Part, Role},
    session::ATTACHMENTS_MAX,
};

use crate::{case::case, steps::*};

pub fn attach(name: &str) -> Step {
    let attachment = Attachment {
        r#ref: format!("attachments/{name}"),
        mime_type: "image/png".into(),
        bytes: 3,
        digest: format!("digest of {name}"),
    };
    command(Command::Attach { attachment })
}

fn show(name: &str) -> Step {
    let (r#ref, mime_type) = (format!("attachments/{name}"), "image/png".to_owned());
    let parts = vec![Part::text("look"), Part::Image { r#ref, mime_type }];
    command(Command::SendMessage { role: Role::User, parts, delivery: Delivery::Queue, auto_run: None })
}

#[test]
fn a_file_is_attached_once() {
    case("a new one")
        .given([])
        .when(attach("a.png"))
        .then(&["attachment_added attachments/a.png"], &[])
        .answers("attached attachments/a.png");
    case("the same again")
        .given([attach("a.png")])
        .when(attach("a.png"))
        .then(&[], &[])
        .answers("attached attachments/a.png");
    let mut other = Attachment {
        r#ref: "attachments/a.png".into(),
        mime_type: "image/png".into(),
        bytes: 3,
        digest: "digest of a.png".into(),
    };
    other.mime_type = "text/plain".into();
    case("as something else")
        .given([attach("a.png")])
        .when(command(Command::Attach { attachment: other }))
        .refused("attachment_exists");
    case("beside a turn")
        .given([say("hi")])
        .when(attach("a.png"))
        .then(&["attachment_added attachments/a.png"], &["CallModel 1.1"]);
    case("a session that has ended").given([end()]).when(attach("a.png")).refused("session_ended");
    case("the same with its key")
        .given([keyed("k", attach("a.png"))])
        .when(keyed("k", attach("a.png")))
        .then(&[], &[])
        .answers("attached attachments/a.png");
    case("another one with the same key")
        .given([keyed("k", attach("a.png"))])
        .when(keyed("k", attach("b.png")))
        .refused("key_reused");
}

#[test]
fn there_is_an_end_to_it() {
    let all: Vec<Step> = (0..ATTACHMENTS_MAX).map(|n| attach(&n.to_string())).collect();
    case("one too many").given(all).when(attach("more")).refused("attachments_full");
    let all: Vec<Step> = (0..ATTACHMENTS_MAX).map(|n| attach(&n.to_string())).collect();
    case("one that is known").given(all).when(attach("7")).then(&[], &[]).answers("attached attachments/7");
}

#[test]
fn a_message_names_what_is_there() {
    case("it is there")
        .given([attach("a.png")])
        .when(show("a.png"))
        .then(&["message_added m1 t1", "turn_started t1 m1"], &["CallModel 1.1"]);
    case("it is not").given([attach("a.png")]).when(show("b.png")).refused("unknown_attachment");
}
