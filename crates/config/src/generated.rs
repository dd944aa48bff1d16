//! The documents that follow from the declarations: the reference page and the example file.
//!
//! They are checked in, so that a changed option is a visible change of the documentation.
//! `UPDATE_GENERATED=1 cargo test -p herald-config` writes them anew.

use crate::{
    catalog::{join, show},
    declare::{Entry, Section, Slot, Unit, text},
    load::{MAX_FILE_BYTES, variable},
    options::Config,
};

/// Width of the prose in the example file, in characters.
const WIDTH: usize = 96;

/// `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = format!(
        "# Configuration

<!-- Generated from crates/config/src/options.rs; change it there and run
     UPDATE_GENERATED=1 cargo test -p herald-config -->

An option is set, from weakest to strongest, by

1. its default,
2. the file given by `--config`,
3. an environment variable: `HERALDMQ_`, then the path with `__` for `.`, in any letter case, as in
   `{}=0`,
4. `--set key=value` on the command line, as in `--set limits.connection.bytesPerSecondIn=0`,
5. for `dataDir` only, `--data-dir`.

The file is YAML (or JSON, which is YAML), at most {MAX_FILE_BYTES} bytes. The parts of a path are nested
maps; `conf/standalone.yml` shows them all. A key that is left empty has its default. Unknown keys,
unknown variables that begin with `HERALDMQ_`, and values out of range are errors: the broker says
which and does not start (exit code 2). `heraldmq check-config FILE` checks all of this without
starting anything.

Of `mqttServerConfig.tcpListener`, which may be one object or a list, the environment and `--set`
reach only a single object. `HERALDMQ_LOG`, `HERALDMQ_URL`, `HERALDMQ_KEY_FILE` and `HERALDMQ_CONTEXT` are not options and are left alone, and so are the
variables that Kubernetes makes for a service called `heraldmq`. Options of the stores may stand in the
environment as they do in the file, such as `inbox_store_replica_voter_count`. Another variable that has an
option's name without `HERALDMQ_`, such as `LOG__LEVEL`, has no effect, and the broker warns of it.

Options marked *reload* take effect when the broker receives SIGHUP, the others at the next start.
",
        variable("limits.connection.bytesPerSecondIn")
    );
    section(&mut page, &mut Config::default(), "");
    page
}

/// The options of one group as a table, then the groups within it.
fn section(page: &mut String, section: &mut dyn Section, path: &str) {
    let title = if path.is_empty() {
        "General".to_owned()
    } else {
        format!("`{path}`")
    };
    let about = text(section.about());
    let mut table = String::new();
    for Entry { spec, slot } in section.entries() {
        let (allowed, default) = match slot {
            Slot::Section(_) => continue,
            Slot::List(list) => (
                "a map or a list of maps".to_owned(),
                show(Slot::List(list), spec),
            ),
            Slot::Setting(setting) => (setting.expected(spec), show(Slot::Setting(setting), spec)),
        };
        let unit = spec
            .unit
            .map(|unit| format!(", in {unit}"))
            .unwrap_or_default();
        let default = if default == "null" {
            "unset".to_owned()
        } else {
            format!("`{default}`")
        };
        let reload = if spec.live { "reload" } else { "" };
        let (key, doc) = (spec.key, spec.text());
        row(
            &mut table,
            &[
                &format!("`{key}`"),
                &default,
                &format!("{allowed}{unit}"),
                reload,
                &doc,
            ],
        );
    }
    page.push_str(&format!("\n## {title}\n\n{about}\n"));
    if !table.is_empty() {
        page.push_str("\n| Key | Default | Allowed | | Meaning |\n|---|---|---|---|---|\n");
        page.push_str(&table);
    }
    for Entry { spec, slot } in section.entries() {
        let path = join(path, spec.key);
        match slot {
            Slot::Setting(_) => {}
            Slot::Section(inner) => self::section(page, inner, &path),
            Slot::List(list) => self::section(page, &mut *list.item(), &path),
        }
    }
}

fn row(table: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    table.push_str(&format!("| {} |\n", cells.join(" | ")));
}

/// `conf/standalone.yml`.
pub fn example() -> String {
    let mut file = "\
## Configuration of a node that runs alone. Lines with ## explain; a line with # holds an option
## at its default: take off the # to change it. docs/reference/configuration.md says more.
##
## Generated from crates/config/src/options.rs; change it there and run
## UPDATE_GENERATED=1 cargo test -p herald-config
"
    .to_owned();
    group(&mut file, &mut Config::default(), 0);
    file
}

fn group(file: &mut String, section: &mut dyn Section, depth: usize) {
    let indent = "  ".repeat(depth);
    for (index, Entry { spec, slot }) in section.entries().into_iter().enumerate() {
        if depth == 0 || (index > 0 && !matches!(slot, Slot::Setting(_))) {
            file.push('\n');
        }
        let key = spec.key;
        if !matches!(slot, Slot::Section(_)) {
            explain(file, &indent, &spec.text(), spec.unit);
        }
        match slot {
            Slot::Section(inner) => {
                explain(file, &indent, &text(inner.about()), None);
                file.push_str(&format!("{indent}{key}:\n"));
                group(file, inner, depth + 1);
            }
            Slot::List(list) => {
                if list.items().is_empty() {
                    file.push_str(&format!("{indent}#{key}: []\n"));
                } else {
                    file.push_str(&format!("{indent}{key}:\n"));
                    group(file, &mut *list.item(), depth + 1);
                }
            }
            Slot::Setting(setting) => {
                let (mark, value) = match spec.example {
                    Some(example) => ("", example.to_owned()),
                    None => ("#", show(Slot::Setting(setting), spec)),
                };
                let value = if value == "null" {
                    String::new()
                } else {
                    value
                };
                file.push_str(format!("{indent}{mark}{key}: {value}").trim_end());
                file.push('\n');
            }
        }
    }
}

/// Prose as comment lines of limited width.
fn explain(file: &mut String, indent: &str, prose: &str, unit: Option<Unit>) {
    let unit = unit.map(|unit| format!(" In {unit}.")).unwrap_or_default();
    let mut line = format!("{indent}##");
    for word in format!("{prose}{unit}").split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            file.push_str(&line);
            file.push('\n');
            line = format!("{indent}##");
        }
        line.push(' ');
        line.push_str(word);
    }
    file.push_str(&line);
    file.push('\n');
}
