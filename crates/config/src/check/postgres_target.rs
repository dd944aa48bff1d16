//! What is wrong with an outlet to PostgreSQL.

use crate::options::PostgresTargetConfig;

/// Columns at most: what a table of PostgreSQL may have.
const MOST_COLUMNS: usize = 1_600;

/// The option, and what is wrong. The URL is not told: somebody may have written a password into it.
pub(super) fn problem(target: &PostgresTargetConfig) -> Option<String> {
    let url = target.url.as_deref()?;
    let schemes = ["postgres://", "postgresql://"];
    if !schemes.iter().any(|scheme| url.starts_with(scheme)) {
        return Some(
            "url: expected a URL that begins with postgres:// or postgresql://".to_owned(),
        );
    }
    let columns = &target.columns;
    match (&target.table, &target.statement) {
        (None, None) | (Some(_), Some(_)) => {
            return Some(
                "table: expected either `table` with `columns`, or `statement`".to_owned(),
            );
        }
        (None, Some(_)) if !columns.is_empty() => {
            return Some("columns: they belong to `table`, not to `statement`".to_owned());
        }
        (Some(_), None) if columns.is_empty() || columns.len() > MOST_COLUMNS => {
            return Some(format!("columns: expected 1 to {MOST_COLUMNS} of `table`"));
        }
        _ => {}
    }
    let is_whole = |column: &crate::options::PostgresColumnConfig| {
        column.name.is_some() && column.value.is_some()
    };
    let is_wrong = !columns.iter().all(is_whole);
    is_wrong.then(|| "columns: expected `name` and `value` of each".to_owned())
}
