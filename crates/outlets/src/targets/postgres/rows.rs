//! What is written of messages: rows by COPY, or a statement for each.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::SinkExt as _;
use futures_util::future::maybe_done;
use outlet::{Item, Template};
use postgres_client::Connection;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Error, Statement};

use super::definition::RowsDefinition;
use super::judge::{Failure, place_in_copy};

/// What the configuration says, parsed.
#[derive(Debug)]
pub(super) enum Rows {
    Copy(Table),
    Statement(Statements),
}

#[derive(Debug)]
pub(super) struct Table {
    /// Without schema, as the server names it in errors.
    name: String,
    /// In quotes.
    quoted: String,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    quoted: String,
    value: Template,
    is_optional: bool,
}

#[derive(Debug)]
pub(super) struct Statements {
    /// With `$1`, `$2` and so on.
    sql: String,
    parameters: Vec<Template>,
}

/// What the server has been told to do with messages.
#[derive(Debug)]
pub(super) struct Prepared(Statement);

/// Messages as the server gets them.
pub(super) enum Rendered {
    Copy {
        bytes: Bytes,
        /// Where each row ends.
        ends: Vec<usize>,
    },
    Statement(Vec<Vec<Text>>),
}

/// A parameter as text, whatever its type: the server reads it as it reads the text in quotes.
#[derive(Debug)]
pub(super) struct Text(String);

impl ToSql for Text {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

impl Rows {
    /// # Errors
    /// A name or template that is none.
    pub(super) fn new(definition: &RowsDefinition) -> Result<Self, String> {
        match definition {
            RowsDefinition::Statement(text) => Statements::new(text).map(Self::Statement),
            RowsDefinition::Table { table, columns } => {
                let parts: Vec<&str> = table.split('.').collect();
                let name = *parts.last().unwrap_or(&"");
                if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
                    return Err(format!("table: {table} is neither TABLE nor SCHEMA.TABLE"));
                }
                let quoted: Vec<String> = parts.iter().map(|part| quoted(part)).collect();
                let columns = columns.iter().map(|column| {
                    let value = Template::parse(&column.value);
                    Ok(Column {
                        quoted: self::quoted(&column.name),
                        value: value
                            .map_err(|error| format!("columns: {}: {error}", column.name))?,
                        is_optional: column.is_optional,
                    })
                });
                Ok(Self::Copy(Table {
                    name: name.to_owned(),
                    quoted: quoted.join("."),
                    columns: columns.collect::<Result<_, String>>()?,
                }))
            }
        }
    }

    /// Tells the server what comes. The server says here if there is no such table or column.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn prepare(&self, connection: &Connection) -> Result<Prepared, Arc<str>> {
        let failed = |error: Error| super::judge::in_words(&error);
        match self {
            Self::Copy(table) => {
                // Of COPY the server looks at nothing before it comes.
                connection.prepare(&table.insert()).await.map_err(failed)?;
                let statement = connection.prepare(&table.copy()).await.map_err(failed)?;
                Ok(Prepared(statement))
            }
            Self::Statement(statements) => {
                let statement = connection.prepare(&statements.sql).await.map_err(failed)?;
                let (taken, given) = (statement.params().len(), statements.parameters.len());
                if taken != given {
                    return Err(format!("statement: the server sees {taken} parameters of {given}; a ${{…}} must not stand in quotes").into());
                }
                Ok(Prepared(statement))
            }
        }
    }

    /// What the server gets of the messages before the first one that cannot be written, how many those are, and why that one cannot be.
    pub(super) fn render(&self, batch: &[Arc<Item>]) -> (Rendered, usize, Option<Arc<str>>) {
        match self {
            Self::Copy(table) => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(batch.len()));
                let mut refused = None;
                for item in batch {
                    if let Err(why) = table.write(item, &mut bytes) {
                        refused = Some(why);
                        break;
                    }
                    ends.push(bytes.len());
                }
                let (bytes, count) = (bytes.into(), ends.len());
                (Rendered::Copy { bytes, ends }, count, refused)
            }
            Self::Statement(statements) => {
                let mut rows = Vec::with_capacity(batch.len());
                let mut refused = None;
                for item in batch {
                    let values = statements.parameters.iter().map(|value| text(value, item));
                    match values.map(|text| text.map(Text)).collect() {
                        Ok(values) => rows.push(values),
                        Err(why) => {
                            refused = Some(why);
                            break;
                        }
                    }
                }
                let count = rows.len();
                (Rendered::Statement(rows), count, refused)
            }
        }
    }

    /// The name of the table, if the rows go to one.
    pub(super) fn table(&self) -> Option<&str> {
        match self {
            Self::Copy(table) => Some(&table.quoted),
            Self::Statement(_) => None,
        }
    }

    /// Writes the first `count` of these within a transaction.
    ///
    /// # Errors
    /// The transaction is to be rolled back.
    pub(super) async fn write(
        &self,
        connection: &Connection,
        prepared: &Prepared,
        rendered: &Rendered,
        count: usize,
    ) -> Result<(), Failure> {
        match rendered {
            Rendered::Copy { bytes, ends } => {
                let end = ends.get(..count).and_then(|ends| ends.last()).copied();
                let bytes = bytes.slice(..end.unwrap_or(0));
                let copied = copy(connection, prepared, bytes).await;
                copied.map_err(|error| {
                    Failure::of(&error, |said| {
                        place_in_copy(said.where_()?, self.copied()?).filter(|at| *at < count)
                    })
                })
            }
            Rendered::Statement(rows) => {
                let rows = rows.get(..count).unwrap_or(rows);
                execute(connection, prepared, rows).await
            }
        }
    }

    fn copied(&self) -> Option<&str> {
        match self {
            Self::Copy(table) => Some(&table.name),
            Self::Statement(_) => None,
        }
    }
}

async fn copy(connection: &Connection, prepared: &Prepared, rows: Bytes) -> Result<(), Error> {
    let sink = connection.copy_in(&prepared.0).await?;
    let mut sink = pin!(sink);
    // What the server says of the rows comes at the end, also if it has stopped to read them.
    let sent = sink.send(rows).await;
    let finished = sink.as_mut().finish().await;
    finished.and(sent.map(|()| 0)).map(|_: u64| ())
}

/// One statement for each, all under way at once. After the first that fails the server refuses the others.
async fn execute(
    connection: &Connection,
    prepared: &Prepared,
    rows: &[Vec<Text>],
) -> Result<(), Failure> {
    let mut sent: Vec<_> = rows
        .iter()
        .map(|values| Box::pin(maybe_done(connection.execute_raw(&prepared.0, values))))
        .collect();
    // They go in the order in which they are polled first.
    poll_fn(|context| {
        for one in &mut sent {
            let _sent: Poll<()> = one.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    for (place, mut one) in sent.into_iter().enumerate() {
        one.as_mut().await;
        match one.as_mut().take_output() {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(Failure::of(&error, |_| Some(place))),
            None => unreachable!("what is awaited has an output"),
        }
    }
    Ok(())
}

impl Table {
    fn columns(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|column| &*column.quoted).collect();
        columns.join(", ")
    }

    fn copy(&self) -> String {
        format!("COPY {} ({}) FROM STDIN", self.quoted, self.columns())
    }

    fn insert(&self) -> String {
        let values: Vec<String> = (1..=self.columns.len())
            .map(|number| format!("${number}"))
            .collect();
        format!(
            "INSERT INTO {} ({}) VALUES ({})",
            self.quoted,
            self.columns(),
            values.join(", ")
        )
    }

    /// A row in the text format of COPY.
    fn write(&self, item: &Item, out: &mut Vec<u8>) -> Result<(), Arc<str>> {
        for (place, column) in self.columns.iter().enumerate() {
            if place > 0 {
                out.push(b'\t');
            }
            match column.value.render(item) {
                Err(_) if column.is_optional => out.extend_from_slice(b"\\N"),
                Err(error) => return Err(error.to_string().into()),
                Ok(text) => escape(&without_nul(text)?, out),
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

fn escape(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len());
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => out.push(other),
        }
    }
}

impl Statements {
    /// What stands in `${…}` becomes a parameter.
    fn new(text: &str) -> Result<Self, String> {
        let (mut sql, mut parameters) = (String::new(), Vec::new());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((piece, after)) = behind.split_once('}') else {
                return Err(format!("statement: ${{{behind} has no }}"));
            };
            let template = Template::parse(&format!("${{{piece}}}"));
            parameters.push(template.map_err(|error| format!("statement: {error}"))?);
            sql.push_str(before);
            sql.push_str(&format!("${}", parameters.len()));
            rest = after;
        }
        sql.push_str(rest);
        let mut numbered = text.split('$').skip(1);
        if numbered.any(|behind| behind.starts_with(|c: char| c.is_ascii_digit())) {
            return Err("statement: parameters are written ${…}, not $1".to_owned());
        }
        if parameters.is_empty() {
            return Err("statement: there is no ${…} in it".to_owned());
        }
        Ok(Self { sql, parameters })
    }
}

fn text(template: &Template, item: &Item) -> Result<String, Arc<str>> {
    let text = template.render(item);
    without_nul(text.map_err(|error| error.to_string())?)
}

fn without_nul(text: String) -> Result<String, Arc<str>> {
    match text.contains('\0') {
        true => Err("a text of PostgreSQL has no NUL".into()),
        false => Ok(text),
    }
}

/// A name as SQL has it, whatever its characters.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(table) => write!(f, "the table {} and its columns are there", table.quoted),
            Self::Statement(_) => f.write_str("the statement can be run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::definition::ColumnDefinition;
    use super::*;

    fn item(payload: &'static [u8]) -> Arc<Item> {
        Arc::new(Item {
            position: None,
            topic: "plant/7".into(),
            payload: Bytes::from_static(payload),
            qos: 0,
            retain: false,
            received: outlet::Milliseconds(1),
            properties: Vec::new(),
            standard: outlet::StandardProperties::default(),
        })
    }

    fn table(columns: &[(&str, &str, bool)]) -> Rows {
        let columns = columns
            .iter()
            .map(|(name, value, is_optional)| ColumnDefinition {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
                is_optional: *is_optional,
            });
        let definition = RowsDefinition::Table {
            table: "plant.state".to_owned(),
            columns: columns.collect(),
        };
        Rows::new(&definition).unwrap()
    }

    #[test]
    fn a_row_of_copy_has_tabs_between_columns_and_escapes_within() {
        let rows = table(&[
            ("topic", "${topic}", false),
            ("v", "${payload./v}", true),
            ("b\"", "${payload}", false),
        ]);
        let Rows::Copy(of) = &rows else {
            unreachable!()
        };
        assert_eq!(
            of.copy(),
            r#"COPY "plant"."state" ("topic", "v", "b""") FROM STDIN"#
        );
        assert_eq!(
            of.insert(),
            r#"INSERT INTO "plant"."state" ("topic", "v", "b""") VALUES ($1, $2, $3)"#
        );
        let (Rendered::Copy { bytes, ends }, count, refused) =
            rows.render(&[item(b"a\tb\\N\r\n"), item(br#"{"v":1}"#)])
        else {
            unreachable!()
        };
        assert_eq!(
            bytes,
            "plant/7\t\\N\ta\\tb\\\\N\\r\\n\nplant/7\t1\t{\"v\":1}\n"
        );
        assert_eq!((ends, count, refused), (vec![23, 41], 2, None));
    }

    #[test]
    fn a_message_that_no_text_can_have_is_refused_and_those_before_it_are_written() {
        let rows = table(&[("body", "${payload}", false)]);
        for (payload, expected) in [(&b"a\0b"[..], "no NUL"), (b"\xff", "payload of UTF-8")] {
            let (_, count, refused) = rows.render(&[item(b"1"), item(payload), item(b"3")]);
            assert_eq!(count, 1);
            assert!(refused.unwrap().contains(expected), "{expected}");
        }
    }

    #[test]
    fn pieces_of_a_statement_become_parameters() {
        let of = |text: &str| Statements::new(text).map(|of| (of.sql, of.parameters.len()));
        assert_eq!(
            of("INSERT INTO t VALUES (${topic[1]}, ${payload./a:-0}::int) -- $$ '$x'"),
            Ok((
                "INSERT INTO t VALUES ($1, $2::int) -- $$ '$x'".to_owned(),
                2
            ))
        );
        for (text, expected) in [
            ("INSERT INTO t VALUES (1)", "there is no ${…}"),
            ("INSERT INTO t VALUES ($1, ${topic})", "not $1"),
            ("INSERT INTO t VALUES (${topic)", "has no }"),
            ("INSERT INTO t VALUES (${topik})", "a message has no topik"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_table_has_a_name_perhaps_with_a_schema() {
        for wrong in ["", ".a", "a.", "a.b.c"] {
            let definition = RowsDefinition::Table {
                table: wrong.to_owned(),
                columns: Vec::new(),
            };
            Rows::new(&definition).unwrap_err();
        }
    }
}
