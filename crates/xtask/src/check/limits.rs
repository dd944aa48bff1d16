//! The page of limits is what their declarations say, and every mark can be read; `crate::limits` says what a mark is.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::limits::{PAGE, page};
use crate::source::Crate;

pub(super) fn findings(root: &Path, crates: &[Crate]) -> Vec<Finding> {
    let finding = |text: String| Finding {
        rule: "limits".to_owned(),
        place: "docs".to_owned(),
        text,
    };
    match page(root, crates) {
        Ok(page) => fs::read_to_string(root.join(PAGE))
            .is_ok_and(|text| text != page)
            .then(|| {
                finding(format!(
                    "{PAGE} is out of date: cargo run -p xtask -- limits --page"
                ))
            })
            .into_iter()
            .collect(),
        Err(mistakes) => mistakes
            .iter()
            .map(|mistake| {
                finding(format!(
                    "{}:{}: {}",
                    mistake.path, mistake.line, mistake.text
                ))
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::{Tree, member};

    #[test]
    fn a_page_that_is_there_is_kept_up_to_date() {
        let tree = Tree::new(&[("README.md", "")]);
        let of = |most: &str| {
            let text = format!("/// Limit: places | wait\nconst A: u16 = {most};\n");
            [member(&[("lib.rs", text.as_str())])]
        };
        assert_eq!(findings(&tree.0, &of("7")), []);
        tree.write(PAGE, &page(&tree.0, &of("7")).expect("a page"));
        assert_eq!(findings(&tree.0, &of("7")), []);
        assert_eq!(findings(&tree.0, &of("8")).len(), 1);
        let wrong = [member(&[(
            "lib.rs",
            "/// Limit: places\nconst A: u16 = 7;\n",
        )])];
        assert_eq!(findings(&tree.0, &wrong).len(), 1);
    }
}
