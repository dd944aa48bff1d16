//! A table of PostgreSQL, as the configuration has it.

use std::path::PathBuf;
use std::time::Duration;

use config::PostgresTargetConfig;
use serde::{Deserialize, Serialize};

/// A database, and what messages are there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PostgresDefinition {
    /// `postgres://USER@HOST:PORT/DATABASE`, without password.
    pub url: String,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// Authorities of the server's certificate.
    pub ca_file: Option<PathBuf>,
    /// What is written of a message.
    pub rows: RowsDefinition,
    /// How long opening, and a transaction, may take.
    pub timeout: Duration,
}

/// What is written of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RowsDefinition {
    /// A row of a table.
    Table {
        /// Its name, perhaps with a schema and a point before it.
        table: String,
        /// The columns that are set.
        columns: Vec<ColumnDefinition>,
    },
    /// Whatever a statement does. What stands in `${…}` is a parameter.
    Statement(String),
}

/// A column of a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// A template.
    pub value: String,
    /// Whether a message without a piece of the template has NULL there.
    pub is_optional: bool,
}

impl PostgresDefinition {
    /// `None`: the URL, or what is written, is missing, which the check of the configuration refuses.
    pub(crate) fn of(config: &PostgresTargetConfig) -> Option<Self> {
        let rows = match (&config.statement, &config.table) {
            (Some(statement), _) => RowsDefinition::Statement(statement.clone()),
            (None, Some(table)) => {
                let columns = config.columns.iter().map(|column| {
                    Some(ColumnDefinition {
                        name: column.name.clone()?,
                        value: column.value.clone()?,
                        is_optional: column.optional,
                    })
                });
                RowsDefinition::Table {
                    table: table.clone(),
                    columns: columns.collect::<Option<_>>()?,
                }
            }
            (None, None) => return None,
        };
        Some(Self {
            url: config.url.clone()?,
            password_file: config.password_file.clone(),
            ca_file: config.ca_file.clone(),
            rows,
            timeout: config.timeout,
        })
    }
}
