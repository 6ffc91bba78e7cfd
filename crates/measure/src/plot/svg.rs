//! Writes SVG as text.

use std::fmt::Write;

use super::{INK, SYMBOLS, WIDTH};

/// Escapes text for XML and HTML, between tags and in attributes. Replaces characters that XML
/// forbids by U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Escapes text and lowers the subscripts of symbols. The text after a subscript returns to the
/// base line.
fn typeset(text: &str) -> String {
    let mut out = escape(text);
    for (symbol, (head, lower)) in SYMBOLS {
        let set = format!(
            "{head}<tspan dy=\"3\" font-size=\"75%\">{lower}</tspan><tspan dy=\"-3\">\u{200b}</tspan>"
        );
        out = out.replace(symbol, &set);
    }
    out
}

/// Position of a text relative to its coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Style of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stroke<'a> {
    pub colour: &'a str,
    pub width: f64,
    pub dash: &'a str,
}

impl<'a> Stroke<'a> {
    pub fn thin(colour: &'a str) -> Stroke<'a> {
        Stroke {
            colour,
            width: 1.0,
            dash: "",
        }
    }

    pub fn wide(colour: &'a str, dash: &'a str) -> Stroke<'a> {
        Stroke {
            colour,
            width: 2.0,
            dash,
        }
    }
}

/// Style of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type<'a> {
    pub size: f64,
    pub anchor: Anchor,
    pub colour: &'a str,
}

/// An SVG document under construction.
#[derive(Debug)]
pub(super) struct Svg {
    height: f64,
    title: String,
    body: String,
}

impl Svg {
    /// Creates an empty figure with a text alternative.
    pub fn new(height: f64, title: &str) -> Svg {
        Svg {
            height,
            title: escape(title),
            body: String::new(),
        }
    }

    // Writing to a String cannot fail, so the results of write! are ignored below.

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"{}/>",
            from.0,
            from.1,
            to.0,
            to.1,
            attributes(stroke)
        );
    }

    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke-linejoin=\"round\"{}/>",
            coordinates(points),
            attributes(stroke)
        );
    }

    /// Draws a filled, transparent polygon.
    pub fn band(&mut self, points: &[(f64, f64)], colour: &str) {
        let _ = writeln!(
            self.body,
            "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.14\"/>",
            coordinates(points)
        );
    }

    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, outline: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" \
             stroke=\"{outline}\"/>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0)
        );
    }

    /// Draws the marker of a series, about 7 units wide. The shape depends on the index of the
    /// series.
    pub fn marker(&mut self, place: usize, at: (f64, f64), colour: &str) {
        let (x, y) = at;
        let hollow = place >= 4;
        let fill = if hollow { "#ffffff" } else { colour };
        let paint = format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"");
        let _ = match place % 4 {
            0 => writeln!(
                self.body,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\" {paint}/>"
            ),
            1 => writeln!(
                self.body,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6.4\" height=\"6.4\" {paint}/>",
                x - 3.2,
                y - 3.2
            ),
            2 => writeln!(
                self.body,
                "<polygon points=\"{}\" {paint}/>",
                coordinates(&[(x, y - 4.2), (x + 4.0, y + 3.0), (x - 4.0, y + 3.0)])
            ),
            _ => writeln!(
                self.body,
                "<polygon points=\"{}\" {paint}/>",
                coordinates(&[(x, y - 4.4), (x + 4.4, y), (x, y + 4.4), (x - 4.4, y)])
            ),
        };
    }

    pub fn text(&mut self, at: (f64, f64), text: &str, style: Type) {
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{}\" text-anchor=\"{}\" \
             fill=\"{}\">{}</text>",
            at.0,
            at.1,
            style.size,
            anchor_name(style.anchor),
            style.colour,
            typeset(text)
        );
    }

    /// Draws text that reads upward, centred on a point.
    pub fn upward_text(&mut self, at: (f64, f64), text: &str, size: f64) {
        let _ = writeln!(
            self.body,
            "<text transform=\"translate({:.1} {:.1}) rotate(-90)\" font-size=\"{size}\" \
             text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
            at.0,
            at.1,
            typeset(text)
        );
    }

    /// Returns the complete document.
    pub fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" \
             role=\"img\" font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\">\n\
             <title>{}</title>\n{}</svg>\n",
            self.height, self.title, self.body
        )
    }
}

fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

fn attributes(stroke: Stroke) -> String {
    let dash = match stroke.dash {
        "" => String::new(),
        dash => format!(" stroke-dasharray=\"{dash}\""),
    };
    format!(
        " stroke=\"{}\" stroke-width=\"{}\"{dash}",
        stroke.colour, stroke.width
    )
}

fn coordinates(points: &[(f64, f64)]) -> String {
    let pairs: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            escape("<script>\"a\" & 'b'\u{0}\n"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;\u{fffd} "
        );
    }
}
