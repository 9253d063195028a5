//! Marked regions of a document, whose content is generated.

use anyhow::{Context, Result};

pub(super) fn begin(name: &str) -> String {
    format!("<!-- bench:begin {name} -->")
}

fn end(name: &str) -> String {
    format!("<!-- bench:end {name} -->")
}

/// The text with new content in the region; `None` if there is no such region. All else stays.
///
/// # Errors
/// If the region has no end.
pub(super) fn replace(text: &str, name: &str, content: &str) -> Result<Option<String>> {
    let Some((before, rest)) = text.split_once(&begin(name)) else { return Ok(None) };
    let (_, after) = rest.split_once(&end(name)).with_context(|| format!("no {}", end(name)))?;
    let content = content.trim_end();
    Ok(Some(format!("{before}{}\n{content}\n{}{after}", begin(name), end(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_region_changes() {
        let text = "a\n<!-- bench:begin x -->\nold\n<!-- bench:end x -->\nb";
        let replaced = replace(text, "x", "new\n").unwrap().unwrap();
        assert_eq!(replaced, "a\n<!-- bench:begin x -->\nnew\n<!-- bench:end x -->\nb");
        assert_eq!(replace(&replaced, "x", "new").unwrap().unwrap(), replaced);
        assert_eq!(replace(text, "y", "new").unwrap(), None);
        assert!(replace("<!-- bench:begin x -->", "x", "").is_err());
    }
}
