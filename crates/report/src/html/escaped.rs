//! Text that stands in HTML as text, whatever it is.

use std::fmt::{self, Write};

/// Shown with the characters replaced that mean something in an element or in a quoted attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_html_is_replaced() {
        let text = Escaped("<a b=\"c\" d='e'>&amp;").to_string();
        assert_eq!(text, "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;amp;");
    }
}
