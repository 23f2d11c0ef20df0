//! A picture and nothing else: of an SVG only shapes, texts and their looks are taken over, each known by name. Scripts,
//! links, styles, foreign content and whatever leads out of the file are left out, since nobody names them here.

use roxmltree::{Document, Node, NodeType, ParsingOptions};

const NAMESPACE: &str = "http://www.w3.org/2000/svg";
/// Drawings are flat; deeper is somebody's trick. One that is too deep for the reader of XML ends this process, which
/// draws nothing else.
const DEPTH_MAX: usize = 64;
/// Elements of one drawing, before the reader of XML gives up.
const NODES_MAX: u32 = 400_000;

#[rustfmt::skip]
const ELEMENTS: &[&str] = &[
    "svg", "g", "defs", "marker", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan",
    "textPath", "title", "desc", "linearGradient", "radialGradient", "stop", "clipPath",
];
/// What is left out while its content is taken over.
const TRANSPARENT: &[&str] = &["a", "switch"];
#[rustfmt::skip]
const ATTRIBUTES: &[&str] = &[
    "id", "class", "x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry", "fx", "fy", "d", "points",
    "width", "height", "viewBox", "preserveAspectRatio", "transform", "fill", "fill-opacity", "fill-rule", "stroke",
    "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin",
    "stroke-miterlimit", "opacity", "color", "font-family", "font-size", "font-style", "font-weight", "text-anchor",
    "text-decoration", "dominant-baseline", "alignment-baseline", "baseline-shift", "letter-spacing", "textLength",
    "lengthAdjust", "startOffset", "marker-start", "marker-mid", "marker-end", "markerWidth", "markerHeight",
    "markerUnits", "refX", "refY", "orient", "offset", "stop-color", "stop-opacity", "gradientUnits",
    "gradientTransform", "clip-path", "clip-rule", "clipPathUnits", "visibility", "display", "xml:space",
];

/// `font`: what texts are written in where the picture does not say it.
pub(super) fn safe(svg: &str, font: Option<&str>) -> Result<String, String> {
    let start = svg.find("<svg").ok_or("no picture came of it")?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX };
    // What stands before the picture is a declaration that says nothing.
    let document = Document::parse_with_options(&svg[start..], options)
        .map_err(|error| format!("the picture that came of it is not well formed: {error}"))?;
    let mut safe = Safe { text: String::with_capacity(svg.len()), font };
    safe.element(document.root_element(), 0);
    match safe.text.is_empty() {
        true => Err("no picture came of it".into()),
        false => Ok(safe.text),
    }
}

struct Safe<'f> {
    text: String,
    font: Option<&'f str>,
}

impl Safe<'_> {
    fn element(&mut self, node: Node<'_, '_>, depth: usize) {
        let tag = node.tag_name();
        if depth > DEPTH_MAX || !matches!(tag.namespace(), None | Some(NAMESPACE)) {
            return;
        }
        let name = tag.name();
        if TRANSPARENT.contains(&name) && depth > 0 {
            return self.content(node, depth);
        }
        if !ELEMENTS.contains(&name) || (depth == 0) != (name == "svg") {
            return;
        }
        self.text.push('<');
        self.text.push_str(name);
        if depth == 0 {
            self.attribute("xmlns", NAMESPACE);
            if let Some(font) = self.font {
                self.attribute("font-family", font);
                self.attribute("font-size", "14");
            }
        }
        self.attributes(node);
        self.text.push('>');
        self.content(node, depth);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    fn content(&mut self, node: Node<'_, '_>, depth: usize) {
        for child in node.children() {
            match child.node_type() {
                NodeType::Element => self.element(child, depth + 1),
                NodeType::Text => self.escaped(child.text().unwrap_or_default()),
                NodeType::Root | NodeType::Comment | NodeType::PI => {}
            }
        }
    }

    fn attributes(&mut self, node: Node<'_, '_>) {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            let is_font = self.font.is_some() && node.tag_name().name() == "svg" && name.starts_with("font-");
            let is_plain = attribute.namespace().is_none() && ATTRIBUTES.contains(&name) && !is_font;
            // A text along a path names the path.
            let is_path = name == "href" && node.tag_name().name() == "textPath" && value.starts_with('#');
            if (is_plain || is_path) && stays_here(value) {
                self.attribute(name, value);
            }
        }
    }

    fn attribute(&mut self, name: &str, value: &str) {
        self.text.extend([" ", name, "=\""]);
        self.escaped(value);
        self.text.push('"');
    }

    fn escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                character => self.text.push(character),
            }
        }
    }
}

/// Whether a value names nothing outside of the file: a reference is one to a part of it, and there is no other function
/// of style sheets that loads anything but those that begin a word with an address.
fn stays_here(value: &str) -> bool {
    let plain = value.to_ascii_lowercase();
    let is_reference = |value: &str| {
        let name = value.strip_prefix("url(#").and_then(|rest| rest.strip_suffix(')'));
        name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c)))
    };
    let leads_out = ["url", "src(", "image", "//", "script:", "data:", "\\", "expression", "@"];
    is_reference(&plain) || !leads_out.iter().any(|sign| plain.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(inner: &str, expected: &str) {
        let head = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
        let xlink = " xmlns:xlink=\"http://www.w3.org/1999/xlink\"";
        let svg = safe(&format!("<?xml version=\"1.0\"?>\n{head}{xlink}>{inner}</svg>"), None);
        assert_eq!(svg, Ok(format!("{head}>{expected}</svg>")), "{inner}");
    }

    #[test]
    fn shapes_and_texts_are_taken_over() {
        let kept = "<g id=\"a\"><path d=\"M0,0 L1,1\" marker-end=\"url(#arrow-1)\"></path><text x=\"1\">a &lt; b &amp; c</text></g>";
        check(kept, kept);
        check("<text><textPath href=\"#p\">x</textPath></text>", "<text><textPath href=\"#p\">x</textPath></text>");
    }

    #[test]
    fn whatever_acts_or_leads_out_is_left_out() {
        for gone in [
            "<script>alert(1)</script>",
            "<style>@import url(http://x)</style>",
            "<image href=\"http://x\"/>",
            "<image xlink:href=\"file:///etc/passwd\"/>",
            "<use href=\"http://x#a\"/>",
            "<foreignObject><body xmlns=\"http://www.w3.org/1999/xhtml\"><img src=\"x\"/></body></foreignObject>",
            "<animate attributeName=\"href\" to=\"javascript:1\"/>",
            "<set attributeName=\"onload\" to=\"1\"/>",
            "<iframe src=\"http://x\"/>",
            "<x:script xmlns:x=\"http://www.w3.org/2000/svg\">1</x:script>",
            "<h:rect xmlns:h=\"http://www.w3.org/1999/xhtml\"/>",
            "<feImage href=\"http://x\"/>",
            "<!-- a comment -->",
        ] {
            check(gone, "");
        }
        for attribute in [
            "onload=\"alert(1)\"",
            "onclick=\"alert(1)\"",
            "style=\"fill:url(http://x)\"",
            "fill=\"url(http://x)\"",
            "fill=\"URL( 'http://x' )\"",
            "fill=\"url(#a) url(//x)\"",
            "fill=\"\\75rl(http://x)\"",
            "stroke=\"src('http://x')\"",
            "clip-path=\"url(http://x#a)\"",
            "href=\"#a\"",
            "xlink:href=\"javascript:alert(1)\"",
            "font-family=\"a;background:image-set('http://x')\"",
            "xml:base=\"http://x/\"",
        ] {
            check(&format!("<rect {attribute}/>"), "<rect></rect>");
        }
        check("<a href=\"javascript:1\"><rect/></a>", "<rect></rect>");
        check("<text><textPath href=\"http://x#p\">x</textPath></text>", "<text><textPath>x</textPath></text>");
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        for bad in [
            "",
            "text",
            "<svg",
            "<svg><g></svg>",
            "<!DOCTYPE svg [<!ENTITY x \"y\">]><svg>&x;</svg>",
            "<svg a=\"1\" a=\"2\"/>",
        ] {
            assert!(safe(bad, None).is_err(), "{bad}");
        }
        let deep = format!("<svg>{}{}</svg>", "<g>".repeat(200), "</g>".repeat(200));
        assert!(safe(&deep, None).is_ok_and(|svg| svg.matches("<g>").count() == DEPTH_MAX));
    }
}
